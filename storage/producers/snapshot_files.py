"""The snapshots in the directory of one log: which there are, the newest that loads, and which are deleted when."""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from typing import final

from storage.disk.filesystem import FileSystem, join
from storage.errors import CorruptSnapshot
from storage.producers.rows import SnapshotRows, read_rows
from storage.producers.snapshot import list_snapshots, snapshot_name, write_snapshot
from storage.segment import LogSegment

logger = logging.getLogger(__name__)


@final
class SnapshotFiles:
    """The snapshots of one log's producers by offset, as they are known without a look at the `directory`."""

    __slots__ = ("_offsets", "directory", "file_system")

    def __init__(self, file_system: FileSystem, directory: str, offsets: Sequence[int] | None = None) -> None:
        """Take over the `offsets` of the snapshots in the directory, ascending; without them list it."""
        self.file_system, self.directory = file_system, directory
        self._offsets = list_snapshots(file_system, directory) if offsets is None else list(offsets)

    @property
    def offsets(self) -> list[int]:
        """The offsets of the snapshots, ascending; a copy."""
        return list(self._offsets)

    @property
    def latest_offset(self) -> int | None:
        return self._offsets[-1] if self._offsets else None

    @property
    def oldest_offset(self) -> int | None:
        return self._offsets[0] if self._offsets else None

    def offsets_within(self, log_start_offset: int, log_end_offset: int) -> list[int]:
        """The offsets of those above the start and not above the end, ascending."""
        first = bisect_right(self._offsets, log_start_offset)
        return self._offsets[first : bisect_right(self._offsets, log_end_offset)]

    def read_newest(self) -> tuple[int, SnapshotRows] | None:
        """Read the newest snapshot that loads, after those above it are deleted. Returns its offset and its rows.

        Raises OSError.
        """
        while self._offsets:
            offset = self._offsets[-1]
            path = self._path(offset)
            try:
                return offset, read_rows(self.file_system, path)
            except (CorruptSnapshot, FileNotFoundError) as error:
                logger.warning("producer snapshot dropped: path=%s reason=%s", path, error)
                self._delete([offset])
        return None

    def write(self, offset: int, entries: bytes | bytearray) -> str:
        """Write the snapshot at `offset`, on the disk on return. Returns its path.

        Raises OSError: a file that does not load may be left.
        """
        path = write_snapshot(self.file_system, self.directory, offset, entries, sync=True)
        self.note(offset)
        return path

    def note(self, offset: int) -> None:
        """Note that there is a snapshot at `offset` from now on."""
        place = bisect_left(self._offsets, offset)
        if place == len(self._offsets) or self._offsets[place] != offset:
            self._offsets.insert(place, offset)
        assert self._offsets[-1] >= offset, (self._offsets, offset)

    def update_parent_directory(self, directory: str) -> None:
        """Use the new name of the directory; only the remembered path changes."""
        self.directory = directory

    def reload(self) -> None:
        """List the directory again, because others may have created or deleted snapshots."""
        self._offsets = list_snapshots(self.file_system, self.directory)

    def delete_strays(self, segment_base_offsets: Collection[int]) -> None:
        """Delete each snapshot that is at no segment's base offset, except the newest one above all bases (PS19).

        The exception is the snapshot of a clean shutdown, at the log end.
        """
        self.reload()
        bases = set(segment_base_offsets)
        stray = [offset for offset in self._offsets if offset not in bases]
        if stray and (not bases or stray[-1] >= max(bases)):
            stray.pop()
        self._delete(stray)

    def delete_before(self, offset: int) -> None:
        """Delete the snapshots below `offset`, but not the one at `offset` (PS20)."""
        self._delete(self._offsets[: bisect_left(self._offsets, offset)])
        assert not self._offsets or self._offsets[0] >= offset, (self._offsets, offset)

    def delete_outside(self, log_start_offset: int, log_end_offset: int) -> None:
        """Delete the snapshots that are not `offsets_within` these two. Raises OSError."""
        kept_from = bisect_right(self._offsets, log_start_offset)
        kept_to = max(bisect_right(self._offsets, log_end_offset), kept_from)
        self._delete(self._offsets[:kept_from] + self._offsets[kept_to:])
        assert not self._offsets or self._offsets[-1] <= log_end_offset, (self._offsets, log_end_offset)
        assert not self._offsets or self._offsets[0] > log_start_offset, (self._offsets, log_start_offset)

    def delete_all(self) -> None:
        """Delete every snapshot. Raises OSError."""
        self._delete(self._offsets)
        assert not self._offsets, self._offsets

    def mark_for_deletion(self, offset: int) -> str | None:
        """Rename the snapshot at `offset` to `.deleted` and forget it (PS20).

        Returns the new path; None when there is no such snapshot.
        """
        place = bisect_left(self._offsets, offset)
        if self._offsets[place : place + 1] != [offset]:
            return None
        del self._offsets[place]
        path = self._path(offset)
        try:
            self.file_system.rename(path, path + ".deleted")
        except FileNotFoundError:
            return None
        return path + ".deleted"

    def delete_of(self, segments: Iterable[LogSegment]) -> None:
        """Delete the snapshots at the base offsets of `segments`, which have left the log. Raises OSError."""
        for segment in segments:
            path = self.mark_for_deletion(segment.base_offset)
            if path is not None:
                self.file_system.unlink(path)

    def _path(self, offset: int) -> str:
        return join(self.directory, snapshot_name(offset))

    def _delete(self, offsets: Collection[int]) -> None:
        """Delete the snapshots at `offsets`, durably.

        A snapshot that came back after a power loss would look like the state of a log that was cut below it.
        """
        if not offsets:
            return
        doomed, before = set(offsets), len(self._offsets)
        assert len(doomed) == len(offsets), (doomed, len(offsets))
        self._offsets = [offset for offset in self._offsets if offset not in doomed]
        # There was one for each.
        assert len(self._offsets) + len(doomed) <= before, (self._offsets, doomed, before)
        for offset in sorted(doomed):
            try:
                self.file_system.unlink(self._path(offset))
            except FileNotFoundError:
                logger.debug("producer snapshot already deleted: offset=%d", offset)
        self.file_system.sync_directory(self.directory)
