"""The segments of one log, in order of base offset. Kafka: LogSegments."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import final

from storage.segment.segment import LogSegment


@final
class LogSegments:
    """The segments of one log by base offset. Ranges are ranges of offsets, with an exclusive end.

    Anybody may read `last`, the segment with the greatest base offset, None without segments; only the methods here
    set it.
    """

    __slots__ = ("_bases", "_by_base", "_older_bytes", "_unsorted", "_with_transactions", "last")

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._by_base: dict[int, LogSegment] = {}
        # Kept apart, because every append reads it.
        self.last: LogSegment | None = None
        # The bytes of all but the last one, whose size changes with each append; None while nobody has asked.
        self._older_bytes: int | None = None
        # The bases of the segments below the last one that have a transaction index, ascending, and of those that were
        # not looked at yet: a read of committed records must not ask each segment.
        self._with_transactions: list[int] = []
        self._unsorted: set[int] = set()

    def __len__(self) -> int:
        return len(self._bases)

    def __iter__(self) -> Iterator[LogSegment]:
        """The segments there are now. A thread that asks beside a change may see the changed segment or not."""
        return iter([each for base in self._bases[:] if (each := self._by_base.get(base)) is not None])

    def __reversed__(self) -> Iterator[LogSegment]:
        """The segments from the last one back, which must not change meanwhile; the others are not looked at."""
        return map(self._by_base.__getitem__, reversed(self._bases))

    def oldest(self) -> Iterator[tuple[LogSegment, LogSegment | None]]:
        """Each segment with the one after it, None after the last, which must not change meanwhile."""
        bases = self._bases
        for number, base in enumerate(bases, 1):
            yield self._by_base[base], self._by_base[bases[number]] if number < len(bases) else None

    def __contains__(self, base_offset: int) -> bool:
        return base_offset in self._by_base

    @property
    def base_offsets(self) -> list[int]:
        """The base offsets, ascending; a copy."""
        return self._bases[:]

    @property
    def first_base_offset(self) -> int:
        """The base offset of the first segment. Raises IndexError without segments."""
        return self._bases[0]

    def last_base_offsets(self, count: int) -> list[int]:
        """The base offsets of the last `count` segments, ascending; all where there are fewer."""
        assert count > 0, count
        return self._bases[-count:]

    @property
    def first(self) -> LogSegment | None:
        return self._by_base[self._bases[0]] if self._bases else None

    @property
    def active(self) -> LogSegment:
        """The last segment, which takes appends. Every open log has one."""
        active = self.last
        assert active is not None, "a log without a segment"
        return active

    @property
    def size_bytes(self) -> int:
        """The bytes of all `.log` files. All but the last one are added up once, and followed from then on."""
        last_bytes = 0 if self.last is None else self.last.size_bytes
        if self._older_bytes is None:
            self._older_bytes = sum(segment.size_bytes for segment in self._by_base.values()) - last_bytes
        assert self._older_bytes >= 0, (self._older_bytes, self.last)
        return self._older_bytes + last_bytes

    def get(self, base_offset: int) -> LogSegment | None:
        return self._by_base.get(base_offset)

    def add(self, segment: LogSegment) -> LogSegment | None:
        """Add a segment. Returns the one that had its base offset, if any: the caller closes or deletes it."""
        before, last = self._by_base.get(segment.base_offset), self.last
        if last is None or segment.base_offset <= last.base_offset:
            self._older_bytes = None
        elif self._older_bytes is not None:
            self._older_bytes += last.size_bytes
        # The segment that was the last one may have got its transaction index since it was looked at.
        self._unsorted.update((segment.base_offset, *self._bases[-1:]))
        self._by_base[segment.base_offset] = segment
        if before is None:
            self._bases.insert(bisect_left(self._bases, segment.base_offset), segment.base_offset)
        self.last = self._by_base[self._bases[-1]]
        assert len(self._bases) == len(self._by_base), (self._bases, segment.base_offset)
        assert self.last.base_offset >= segment.base_offset, (self.last, segment)
        return before

    def remove(self, base_offset: int) -> None:
        """Remove the segment with that base offset, if there is one."""
        removed = self._by_base.pop(base_offset, None)
        if removed is not None:
            if removed is self.last:
                self._older_bytes = None
            elif self._older_bytes is not None:
                self._older_bytes -= removed.size_bytes
            self._unsorted.add(base_offset)
            del self._bases[bisect_left(self._bases, base_offset)]
            self.last = self._by_base[self._bases[-1]] if self._bases else None
            assert len(self._bases) == len(self._by_base), (self._bases, base_offset)

    def clear(self) -> None:
        """Remove all segments; their files stay as they are."""
        self._bases.clear()
        self._by_base.clear()
        self.last = None
        self._older_bytes = None
        self._with_transactions.clear()
        self._unsorted.clear()

    def with_transactions_from(self, segment: LogSegment) -> Iterator[LogSegment]:
        """The segments from `segment` on that may have a transaction index, ascending. The last one always counts."""
        found = self._with_transactions
        for base in sorted(self._unsorted):
            place = bisect_left(found, base)
            is_noted = place < len(found) and found[place] == base
            noted = self._by_base.get(base)
            has_index = noted is not None and noted.transaction_index.is_present()
            if has_index and not is_noted:
                found.insert(place, base)
            elif is_noted and not has_index:
                del found[place]
        self._unsorted.clear()
        last = self.last
        place = bisect_left(found, segment.base_offset)
        while place < len(found) and last is not None and found[place] < last.base_offset:
            yield self._by_base[found[place]]
            place += 1
        if last is not None and last.base_offset >= segment.base_offset:
            yield last

    def update_parent_directory(self, directory: str) -> None:
        """Use the new name of the directory; only the remembered paths change."""
        for segment in self:
            segment.update_parent_directory(directory)

    def floor(self, offset: int) -> LogSegment | None:
        """The last segment whose base offset is at most `offset`; None without one."""
        index = bisect_right(self._bases, offset)
        return self._by_base[self._bases[index - 1]] if index > 0 else None

    def lower(self, offset: int) -> LogSegment | None:
        """The last segment whose base offset is below `offset`; None without one."""
        index = bisect_left(self._bases, offset)
        return self._by_base[self._bases[index - 1]] if index > 0 else None

    def higher(self, offset: int) -> LogSegment | None:
        """The first segment whose base offset is above `offset`; None without one."""
        index = bisect_right(self._bases, offset)
        return self._by_base[self._bases[index]] if index < len(self._bases) else None

    def from_offset(self, offset: int) -> list[LogSegment]:
        """The segments whose base offset is at least `offset`."""
        return [self._by_base[base] for base in self._bases[bisect_left(self._bases, offset) :]]

    def values(self, from_offset: int, to_offset: int) -> list[LogSegment]:
        """The segments that may hold offsets in [from_offset, to_offset).

        They begin with the floor of `from_offset` or, without a floor, with the first segment. The list is empty when
        both offsets are equal. Raises ValueError when `to_offset` is below `from_offset` (FL3).
        """
        if from_offset == to_offset:
            return []
        if to_offset < from_offset:
            raise ValueError(
                f"cannot list segments from offset {from_offset} to {to_offset}: the end is below the start"
            )
        first = max(bisect_right(self._bases, from_offset) - 1, 0)
        end = bisect_left(self._bases, to_offset)
        return [self._by_base[base] for base in self._bases[first:end]]

    def non_active_from(self, offset: int) -> list[LogSegment]:
        """The segments with a base offset of at least `offset`, without the active one.

        Kafka: nonActiveLogSegmentsFrom.
        """
        if not self._bases or offset > self._bases[-1]:
            return []
        return self.values(offset, self._bases[-1])
