"""What the first pass over the dirty part learns of each record, so that the second need not look into most batches.

One byte an offset of the dirty part. Ours alone: Kafka's cleaner looks every key up again.
"""

from __future__ import annotations

from typing import Final, final

from storage.batch import RecordBatch

# What a byte says. Zero: nothing was learned.
KEPT: Final = 1
TOMBSTONE: Final = 2  # the last record of its key, without a value
SUPERSEDED: Final = 3
WITHOUT_KEY: Final = 4
_KEPT_BY_MARK: Final = (None, True, None, False, False)

MAX_OFFSETS: Final = 1 << 26


@final
class DirtyMarks:
    """Of the offsets in [start_offset, end_offset); of none where they are too many, as sparse ones may be."""

    __slots__ = ("_end_offset", "_start_offset", "bytes")

    def __init__(self, start_offset: int, end_offset: int) -> None:
        if end_offset - start_offset > MAX_OFFSETS:
            end_offset = start_offset
        self._start_offset, self._end_offset = start_offset, end_offset
        self.bytes = bytearray(max(end_offset - start_offset, 0))

    def note(self, offset: int, mark: int, superseded_offset: int) -> None:
        """Of a record that was read, and of the earlier one of its key, -1 for none."""
        start, end = self._start_offset, self._end_offset
        if start <= offset < end:
            self.bytes[offset - start] = mark
        if start <= superseded_offset < end:
            self.bytes[superseded_offset - start] = SUPERSEDED

    def all_kept(self, batch: RecordBatch) -> bool | None:
        """Of a batch of magic 2 below the map's latest offset: whether all of its records stay, None where some do.

        None, too, where a tombstone stays, whose horizon is to be looked at, and where not every record was marked.
        """
        first, end = batch.base_offset - self._start_offset, batch.next_offset - self._start_offset
        if first < 0 or batch.next_offset > self._end_offset or batch.record_count <= 0:
            return None
        marks = self.bytes
        if batch.record_count == end - first == 1:
            return _KEPT_BY_MARK[marks[first]]
        if marks.count(KEPT, first, end) == batch.record_count:
            return True
        gone = marks.count(SUPERSEDED, first, end) + marks.count(WITHOUT_KEY, first, end)
        return False if gone == batch.record_count else None
