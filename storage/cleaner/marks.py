"""What the first pass over the dirty part learns about each record, so that the second need not read most batches.

There is one byte for each offset of the dirty part. Kafka has no such marks: its cleaner looks up every key again.
"""

from __future__ import annotations

from typing import Final, final

from storage.batch import RecordBatch

# The values of a byte; zero is an offset about which nothing is known. A tombstone is the last record of its key and
# has no value.
KEPT: Final = 1
TOMBSTONE: Final = 2
SUPERSEDED: Final = 3
WITHOUT_KEY: Final = 4
_KEPT_BY_MARK: Final = (None, True, None, False, False)

MAX_OFFSETS: Final = 1 << 26


@final
class DirtyMarks:
    """Marks for the offsets in [start_offset, end_offset).

    For more than `MAX_OFFSETS` offsets, as in a sparse log, there are no marks.
    """

    __slots__ = ("_end_offset", "_start_offset", "bytes")

    def __init__(self, start_offset: int, end_offset: int) -> None:
        if end_offset - start_offset > MAX_OFFSETS:
            end_offset = start_offset
        self._start_offset, self._end_offset = start_offset, end_offset
        self.bytes = bytearray(max(end_offset - start_offset, 0))
        assert len(self.bytes) <= MAX_OFFSETS, (start_offset, end_offset)

    def note(self, offset: int, mark: int, superseded_offset: int) -> None:
        """Mark the record at `offset`, and the earlier one of its key, if it is not -1, as superseded."""
        start, end = self._start_offset, self._end_offset
        if start <= offset < end:
            self.bytes[offset - start] = mark
        if start <= superseded_offset < end:
            self.bytes[superseded_offset - start] = SUPERSEDED

    def all_kept(self, batch: RecordBatch) -> bool | None:
        """Whether all records of a batch of magic 2 are kept; it must end at or below the map's latest offset.

        Returns False where none is kept. Returns None where only some are kept, where a tombstone is kept, whose delete
        horizon must be read, and where not every record has a mark.
        """
        first, end = batch.base_offset - self._start_offset, batch.next_offset - self._start_offset
        if first < 0 or batch.next_offset > self._end_offset or batch.record_count <= 0:
            return None
        marks = self.bytes
        if batch.record_count == end - first == 1:
            return _KEPT_BY_MARK[marks[first]]
        if marks.count(KEPT, first, end) == batch.record_count:
            return True
        dropped = marks.count(SUPERSEDED, first, end) + marks.count(WITHOUT_KEY, first, end)
        return False if dropped == batch.record_count else None
