"""The files of snapshots in the directory of the metadata log. Kafka: Snapshots, FileRawSnapshotWriter."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from cluster.core.metadata.snapshots import (
    SNAPSHOT_SUFFIX,
    Snapshot,
    decode_snapshot,
    parse_snapshot_name,
    snapshot_file_name,
)
from storage.disk.filesystem import FileSystem, join, read_file, replace_file
from storage.errors import StorageError
from storage.segment.file_records import FileRecords

# The second one is for the case that the newest is damaged.
KEPT = 2


@final
class SnapshotFiles:
    """The snapshots of one metadata log. `write` may run beside everything else."""

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system, self._directory = file_system, directory

    def write(self, end_offset: int, epoch: int, data: bytes) -> None:
        """Writes a snapshot's file durably under its name, then deletes all but the newest KEPT. Raises OSError.

        A crash leaves the file whole or absent, because it is renamed after the sync (KAFKA-15312).
        """
        name = snapshot_file_name(end_offset, epoch)
        replace_file(self._file_system, join(self._directory, name), data)
        names = self._file_system.list(self._directory)
        assert name in names, (name, len(names))
        kept = [each for each in names if parse_snapshot_name(each) is not None][-KEPT:]
        # What a crash has left of a write has a name that ends in `.tmp`.
        doomed = [each for each in names if SNAPSHOT_SUFFIX in each and each not in kept]
        for each in doomed:
            self._file_system.unlink(join(self._directory, each))
        if doomed:
            self._file_system.sync_directory(self._directory)

    def newest(self, skip: Callable[[str], None]) -> Snapshot | None:
        """Returns the sound snapshot with the highest end; `skip` is called with what is wrong with each newer one."""
        for name in reversed(self._file_system.list(self._directory)):
            named = parse_snapshot_name(name)
            if named is None:
                continue
            path = join(self._directory, name)
            try:
                return decode_snapshot(self._read(path), end_offset=named[0], epoch=named[1])
            except (StorageError, OSError) as error:
                skip(f"{path}: {error}")
        return None

    def _read(self, path: str) -> bytes:
        """Returns the content of a snapshot whose batches are sound: a damaged file may have any size, and is not read
        whole. Raises StorageError, OSError.
        """
        records = FileRecords(self._file_system, path, read_only=True)
        try:
            for _ in records.scan_headers():
                pass
        finally:
            records.close_handlers()
        return read_file(self._file_system, path)
