"""The snapshot of many producers, which a job writes beside the log's steps: 200,000 take more than 50 ms to encode.

The file is written under a name of its own, `<20 digits>.snapshot.tmp`, and gets its real one in a step of the log. So
no job can leave the snapshot of an offset that a truncation has cut meanwhile; a start deletes what a crash leaves.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

from storage.disk.filesystem import FileSystem, join
from storage.producers.entry import ProducerStateEntry
from storage.producers.rows import PRODUCER_ID, SnapshotRows, encode_entries
from storage.producers.snapshot import ENTRY_BYTES, frame_entries, snapshot_name, write_content

UNFINISHED_SUFFIX: Final = ".snapshot.tmp"


@final
class PreparedSnapshot:
    """The producers of a log at `offset`, as they were when the object was made.

    `Flushes.begin_snapshot` returns it. Call it once, on any thread, then call `Flushes.snapshot_done`. Appends may
    go on meanwhile: nothing is copied at first, and `keep` copies an entry before it changes. `recovery_point` is
    that of the log before the roll.
    """

    __slots__ = (
        "_entries",
        "_file_system",
        "_is_taken",
        "_kept",
        "_rows",
        "is_begun",
        "is_dropped",
        "offset",
        "path",
        "recovery_point",
    )

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        offset: int,
        entries: list[ProducerStateEntry],
        rows: SnapshotRows,
        *,
        recovery_point: int,
    ) -> None:
        assert 0 <= recovery_point <= offset, (recovery_point, offset)
        self._file_system = file_system
        self._entries, self._rows, self._is_taken = entries, rows, rows.taken()
        # By the entry itself: a producer that expires and comes back has another one.
        self._kept: dict[ProducerStateEntry, ProducerStateEntry] = {}
        self.offset, self.recovery_point = offset, recovery_point
        self.path = join(directory, snapshot_name(offset))
        # Whether a job calls it, and whether nobody wants the file any more.
        self.is_begun = self.is_dropped = False

    @property
    def unfinished_path(self) -> str:
        """The path of the file until it is done."""
        return self.path.removesuffix(".snapshot") + UNFINISHED_SUFFIX

    def keep(self, entry: ProducerStateEntry) -> None:
        """Copy `entry` as it is now; to be called before each change of it."""
        if entry not in self._kept:
            copy = entry.copy_without_batches()
            copy.batches = entry.batches
            self._kept[entry] = copy

    def __call__(self) -> None:
        """Write the file, and sync it. Raises OSError."""
        entries = sorted(self._entries, key=PRODUCER_ID)
        encoded = encode_entries(entries)
        # An entry that changed while it was read above had its copy before. Whole, because appends add to it meanwhile.
        for entry, kept in list(self._kept.items()):
            row = bisect_left(entries, entry.producer_id, key=PRODUCER_ID)
            if row < len(entries) and entries[row] is entry:
                encoded[row * ENTRY_BYTES : (row + 1) * ENTRY_BYTES] = encode_entries([kept])
        assert len(encoded) == len(entries) * ENTRY_BYTES, (len(encoded), len(entries))
        content = frame_entries(self._rows.merged_with(entries, encoded, self._is_taken))
        write_content(self._file_system, self.unfinished_path, content, sync=True)

    def finish(self) -> None:
        """Give the file that the call has written its name. Raises OSError."""
        self._file_system.rename(self.unfinished_path, self.path)
