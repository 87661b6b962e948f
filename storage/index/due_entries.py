"""The index entries that the batches of one set get, column by column.

Kafka: LogSegment.append; rules LS1, T1, T2.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import final

from storage.batch.columns import BatchColumns
from storage.index.time_index import TimestampOffset


@final
class IndexEntries:
    """One row per entry: last offset and position of its batch, the greatest timestamp up to its end and its offset."""

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
        """Add the entries of a set at byte `position`, which `unindexed_bytes` separate from the batch of the last
        entry.

        Returns the greatest timestamp of all, `greatest` being the one before the set, and the first byte, relative to
        the set, of the batch that has the last entry. The batches between two entries are not visited one by one.
        """
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
        return TimestampOffset(most, offset_of_most), counted_from

    def rising_times(self, before: int) -> tuple[list[int], list[int]]:
        """The timestamps that are above `before` and above all before them, and their offsets: each gets a time
        entry.
        """
        times, offsets = list[int](), list[int]()
        for time, offset in zip(self.times, self.time_offsets, strict=True):
            if time > before:
                times.append(time)
                offsets.append(offset)
                before = time
        return times, offsets
