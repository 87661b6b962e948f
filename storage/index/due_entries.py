"""The index entries that are due for the batches of one set, column by column.

Kafka: LogSegment.append; rules LS1, T1, T2.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import final

from storage.batch.columns import BatchColumns
from storage.index.time_index import TimestampOffset


@final
class IndexEntries:
    """Index entries, one row each: last offset and position of a batch, the greatest timestamp up to the end of that
    batch, and the offset of that timestamp.
    """

    __slots__ = ("offsets", "positions", "time_offsets", "times")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.positions: list[int] = []
        self.times: list[int] = []
        self.time_offsets: list[int] = []

    def __len__(self) -> int:
        return len(self.offsets)

    def find_due(
        self,
        columns: BatchColumns,
        *,
        position: int,
        unindexed_bytes: int,
        interval_bytes: int,
        greatest: TimestampOffset,
    ) -> tuple[TimestampOffset, int]:
        """Add the entries of a set that begins at byte `position` of its segment, `unindexed_bytes` after the batch of
        the last entry began. `greatest` is the greatest timestamp before the set.

        Returns the greatest timestamp up to the end of the set, and where the batch of the last entry begins, relative
        to the set: negative if that batch is before the set. Batches between two entries are not visited one by one.
        """
        assert unindexed_bytes >= 0, (position, unindexed_bytes)
        starts, last_offsets, timestamps = columns.starts, columns.last_offsets, columns.max_timestamps
        add_offset, add_position = self.offsets.append, self.positions.append
        add_time, add_time_offset = self.times.append, self.time_offsets.append
        most, offset_of_most = greatest
        count, counted_from, noted = len(starts), -unindexed_bytes, 0
        while noted < count:
            next_start = counted_from + interval_bytes
            due = noted if starts[noted] > next_start else bisect_right(starts, next_start, noted)
            if due == noted:
                found = timestamps[due]
            else:
                found = max(timestamps[noted : due + 1])
            if found > most:
                most, offset_of_most = found, last_offsets[timestamps.index(found, noted)]
            if due == count:
                break
            counted_from, noted = starts[due], due + 1
            add_offset(last_offsets[due])
            add_position(position + counted_from)
            add_time(most)
            add_time_offset(offset_of_most)
        assert counted_from >= -unindexed_bytes, (position, unindexed_bytes, counted_from)
        assert most >= greatest.timestamp, (position, most, greatest)
        return TimestampOffset(most, offset_of_most), counted_from

    def rising_times(self, before: int) -> tuple[list[int], list[int]]:
        """Returns the timestamps that are above `before` and above all earlier ones in the set, and their offsets: only
        these get time entries.
        """
        times, offsets = list[int](), list[int]()
        for time, offset in zip(self.times, self.time_offsets, strict=True):
            if time > before:
                times.append(time)
                offsets.append(offset)
                before = time
        return times, offsets
