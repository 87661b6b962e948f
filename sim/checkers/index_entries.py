"""Judges the indexes of sealed segments: each entry leads to the batch that its offset or its time needs."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from sim.checkers.chain import Mark

NAME = "index-entries"
_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_PADDING = (0, 0)


class Indexed(NamedTuple):
    """A batch of a segment, and the byte at which it begins."""

    position: int
    mark: Mark


class Timed(NamedTuple):
    """The first offset of a batch of a segment, and the greatest timestamp of its records."""

    base_offset: int
    newest_ms: int


def index_findings(who: str, base_offset: int, batches: Sequence[Indexed], data: bytes) -> Iterator[str]:
    """Yields what is wrong with the bytes of the index of the segment that begins at `base_offset`.

    Offsets rise, each is the last one of a batch, and the position is the start of that batch or of one before it that
    was appended together with it. What follows the entries is zeros, for later ones.
    """
    starts = {each.position: each.mark.base_offset for each in batches}
    lasts = {each.mark.next_offset - 1 for each in batches}
    before = base_offset - 1
    # The file has room for far more entries than it has.
    used, size = len(data.rstrip(b"\0")), _ENTRY.size
    whole = min(used + -used % size, len(data) - len(data) % size)
    for relative, position in _ENTRY.iter_unpack(data[:whole]):
        offset = base_offset + relative
        # Zeros may also be the first entry: one record at the start of the segment.
        if (relative, position) == _PADDING:
            continue
        if offset <= before:
            yield f"{who}: the index goes from offset {before} back to {offset}"
            return
        if offset not in lasts:
            yield f"{who}: the index has offset {offset}, at which no batch ends"
        elif starts.get(position, offset + 1) > offset:
            yield f"{who}: the index leads from offset {offset} to byte {position}, where no batch for it begins"
        before = offset


def time_findings(who: str, base_offset: int, batches: Sequence[Timed], data: bytes) -> Iterator[str]:
    """Yields what is wrong with the bytes of the time index of the segment that begins at `base_offset`.

    The timestamp of each entry is the greatest of all records up to the batch of its offset, the first that has it: a
    look-up of this time, or of a later one, begins there. The last entry has the greatest time of the segment, by which
    retention takes its age (LogSegment.onBecomeInactiveSegment).
    """
    bases = [each.base_offset for each in batches]
    greatest = list(accumulate([each.newest_ms for each in batches], max, initial=-1))
    size, last_ms = _TIME_ENTRY.size, 0
    for newest_ms, relative in _TIME_ENTRY.iter_unpack(data[: len(data) - len(data) % size]):
        offset = base_offset + relative
        place = bisect_right(bases, offset)
        before_ms, latest_ms = greatest[max(place - 1, 0)], greatest[place]
        # What follows the entries is zeros.
        if newest_ms and not before_ms < newest_ms == latest_ms:
            what = f"has time {newest_ms} at offset {offset}; the latest is {latest_ms} there, {before_ms} before"
            yield f"{who}: the index {what}"
            return
        last_ms = max(last_ms, newest_ms)
    if greatest and greatest[-1] > last_ms:
        what = f"ends with time {last_ms}; the latest is {greatest[-1]}"
        yield f"{who}: the index of a sealed segment at {base_offset} {what}"
