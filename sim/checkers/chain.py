"""The chain of a log as checkers remember it: one mark per batch, in order."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, final

from sim.hosts.history import text_of
from sim.world.packed import BLOCK_ITEMS, PackedList, Packing
from storage.batch import HEADER, HEADER_SIZE, iterate_batches
from storage.batch.format import DELETE_HORIZON_FLAG
from storage.codec.buffer import Buffer
from storage.errors import CorruptBatch


class Mark(NamedTuple):
    """One batch: its offsets (`next_offset` exclusive), leader epoch, checksum and number of records.

    `record_count` is 0 for one that compaction has written again, with the time at which its tombstones may go (CL17).
    """

    base_offset: int
    next_offset: int
    epoch: int
    crc: int
    record_count: int

    @property
    def is_dense(self) -> bool:
        """Whether every offset from `base_offset` to `next_offset` (exclusive) has a record."""
        return self.next_offset - self.base_offset == self.record_count


MARKS: Packing[Mark] = Packing(tuple, Mark._make)


def values_of(records: Buffer) -> Iterator[tuple[int, str]]:
    """Yields the offset and value of each record, up to the first batch that is damaged: no client takes that one."""
    with suppress(CorruptBatch):
        for batch in iterate_batches(records):
            if not batch.is_valid():
                return
            for record in batch.records():
                yield record.offset, text_of(record)


def counted(attributes: int, record_count: int) -> int:
    """Returns the number of records for a mark, from the fields of the batch."""
    return 0 if attributes & DELETE_HORIZON_FLAG else record_count


def marks_of(records: Buffer) -> tuple[Mark, ...]:
    """Returns the marks of the whole batches in a buffer, from their headers alone; a batch cut off is left out."""
    found: list[Mark] = []
    position, size = 0, len(records)
    while position + HEADER_SIZE <= size:
        fields = HEADER.unpack_from(records, position)
        base_offset, length, epoch, crc, last_delta = fields[0], fields[1], fields[2], fields[4], fields[6]
        count = counted(fields[5], fields[12])
        position += 12 + length
        if position > size or length < HEADER_SIZE - 12:
            break
        found.append(Mark(base_offset, base_offset + last_delta + 1, epoch, crc, count))
    return tuple(found)


@final
class Chain:
    """Marks in the order of their offsets; `start` is the log's first offset, `end` its end (exclusive)."""

    __slots__ = ("_bases", "end", "last", "marks", "start")

    def __init__(self, marks: Iterable[Mark] = (), start: int = 0) -> None:
        self.marks = PackedList(MARKS)
        # The newest batch.
        self.last: Mark | None = None
        self._bases = array("q")
        self.start = self.end = start
        self.extend(marks)

    def extend(self, marks: Iterable[Mark]) -> None:
        """Add batches at the end, whatever their offsets: the checkers judge these."""
        assert self.last is None or self.end == self.last.next_offset, (self.end, self.last)
        for mark in marks:
            self.marks.append(mark)
            self._bases.append(mark.base_offset)
            self.last, self.end = mark, mark.next_offset
        assert len(self.marks) == len(self._bases), (len(self.marks), len(self._bases))

    def truncate_to(self, offset: int) -> list[Mark]:
        """Drop every batch that holds `offset` or a later one, as a log does. Returns the dropped marks."""
        keep, before = bisect_left(self._bases, offset), len(self.marks)
        if keep and self.marks[keep - 1].next_offset > offset:
            keep -= 1
        dropped = self.marks.truncate(keep)
        del self._bases[keep:]
        self.last = self.marks[-1] if keep else None
        self.end = min(self.start, offset) if self.last is None else self.last.next_offset
        assert len(self.marks) == len(self._bases), (len(self.marks), len(self._bases))
        assert len(self.marks) + len(dropped) == before, (len(self.marks), len(dropped), before)
        return dropped

    def begin_at(self, start: int) -> list[Mark]:
        """Drop every batch below `start`, where the log begins now, as retention does. Returns the dropped marks."""
        gone = bisect_right(self._bases, start)
        while gone and self.marks[gone - 1].next_offset > start:
            gone -= 1
        dropped = self.marks.drop_first(gone)
        del self._bases[:gone]
        self.start = start
        if not self.marks:
            self.last, self.end = None, start
        assert len(self.marks) == len(self._bases), (len(self.marks), len(self._bases))
        assert not self.marks or self.marks[0].next_offset > start, (self.marks[0], start)
        return dropped

    def between(self, start: int, end: int) -> list[Mark]:
        """Returns the batches that begin in [start, end) and end at or below `end`."""
        bases, last = self._bases, self.last
        if last is None or bases[-1] < start:
            return []
        # Most questions are about the newest batch alone.
        if len(bases) == 1 or bases[-2] < start:
            return [last] if bases[-1] < end >= last.next_offset else []
        first = bisect_left(bases, start)
        found = self.marks[first : bisect_left(bases, end, first)]
        return found[:-1] if found and found[-1].next_offset > end else found

    def at(self, base_offset: int) -> Mark | None:
        """Returns the batch that begins at `base_offset`, if any."""
        index = bisect_left(self._bases, base_offset)
        return self.marks[index] if index < len(self.marks) and self._bases[index] == base_offset else None

    def end_below(self, offset: int) -> int:
        """Returns where the last batch that ends at or below `offset` ends (exclusive); the log's start without one."""
        index = bisect_left(self._bases, offset)
        if index and self.marks[index - 1].next_offset > offset:
            index -= 1
        return self.marks[index - 1].next_offset if index else self.start

    def covering(self, offset: int) -> Mark | None:
        """Returns the batch that holds `offset`, if any."""
        index = bisect_right(self._bases, offset) - 1
        return self.marks[index] if index >= 0 and self.marks[index].next_offset > offset else None

    def agreed_end(self, other: Chain, since: int = 0) -> int:
        """Returns the offset (exclusive) up to which both hold the same batches; those below `since` do not count."""
        # Where one chain begins later, only the batches from there on are compared.
        start = max(self.start, other.start, since)
        first = others_first = 0
        if self.marks and other.marks and (self._bases[0] != other._bases[0] or since > self._bases[0]):
            start = max(start, self._bases[0], other._bases[0])
            first, others_first = bisect_left(self._bases, start), bisect_left(other._bases, start)
        count = self._agreed_count(first, other, others_first)
        if count:
            return self.marks[first + count - 1].next_offset
        # A chain that has no batch of the other's stretch holds nothing else either: all before its start was deleted.
        end = min(start, self.end, other.end)
        if first and others_first and self.marks[first - 1] == other.marks[others_first - 1]:
            # The start may be inside a batch that both have.
            return max(end, self.marks[first - 1].next_offset)
        return end

    def _agreed_count(self, first: int, other: Chain, others_first: int) -> int:
        """Returns how many batches are equal, from that index of each chain on."""
        most = min(len(self.marks) - first, len(other.marks) - others_first)
        count = self.marks.equal_items(other.marks) if first == others_first == 0 else 0
        while count < most:
            step = min(BLOCK_ITEMS, most - count)
            mine = self.marks[first + count : first + count + step]
            theirs = other.marks[others_first + count : others_first + count + step]
            if mine != theirs:
                return count + _first_difference(mine, theirs)
            count += step
        return count

    def epoch_starts(self) -> list[tuple[int, int]]:
        """Returns pairs of an epoch and the base offset of its first batch, ascending."""
        starts: list[tuple[int, int]] = []
        for mark in self.marks:
            if not starts or starts[-1][0] != mark.epoch:
                starts.append((mark.epoch, mark.base_offset))
        return starts


def _first_difference(mine: list[Mark], theirs: list[Mark]) -> int:
    """Returns the first index at which two lists of one length, which are not equal, differ."""
    index = 0
    while mine[index] == theirs[index]:
        index += 1
    return index
