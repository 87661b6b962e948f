"""Finds the log directory, with lock and checkpoints, of a directory that a user names."""

from __future__ import annotations

import os

from replog.log_command_options import clean_path
from storage.directory.manager import LOCK_FILE
from storage.disk.filesystem import FileSystem, basename, dirname, join
from storage.inspection.verify.partition import is_partition_directory
from storage.topics import FUTURE_SUFFIX, parse_directory_name

# A topic and a partition.
Key = tuple[str, int]


def path_of(file_system: FileSystem, directory: str) -> str:
    """Returns the absolute path of a partition's or a log directory, where its lock and checkpoints are found from.

    A log directory may have links to partitions, so they are looked for beside a link first. Without a lock beside it,
    a link stands for the partition that it leads to. Raises OSError.
    """
    path = clean_path(directory)
    if not os.path.islink(path) or file_system.exists(join(dirname(path), LOCK_FILE)):
        return path
    target = os.path.realpath(path)
    return target if is_partition_directory(file_system, target) else path


def log_directory_of(file_system: FileSystem, path: str) -> str:
    """Returns the log directory that `path`, a partition's or a log directory, is in or is. Raises OSError."""
    return dirname(path) if is_partition_directory(file_system, path) else path


def key_of(path: str) -> Key | None:
    """Returns the name in checkpoints of the log in the directory `path`; None for one that is set aside, whose name
    without its suffix is that of another log.

    Kafka moves a log from one log directory into another: there its checkpoints have the name, unless the live log is
    there as well.
    """
    parsed = parse_directory_name(basename(path))
    live = join(dirname(path), f"{parsed.topic}-{parsed.partition}")
    if parsed.suffix and (parsed.suffix != FUTURE_SUFFIX or os.path.isdir(live)):
        return None
    return parsed.topic, parsed.partition
