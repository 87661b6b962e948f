"""The end of a partition directory. Kafka: LocalLog.deleteEmptyDir."""

from __future__ import annotations

from storage.filesystem import FileSystem, dirname, join


def delete_log_files(file_system: FileSystem, directory: str) -> None:
    """Remove every file in `directory` and the directory; durable when it returns."""
    for name in file_system.list(directory):
        file_system.unlink(join(directory, name))
    file_system.remove_directory(directory)
    file_system.sync_directory(dirname(directory))
