"""The greatest timestamp of the batches that a cut keeps, looked for in slices before the cut. Rule LS13.

A segment that was loaded knows what its time index says, which may lack the greatest timestamp after a crash. Where
timestamps are equal for long, that index has no entry for long, and a cut looks at all the batches since: 200,000 of
them take 0.2 s, in which nothing else runs.
"""

from __future__ import annotations

from typing import final

from storage.segment.file_records import TimestampAndOffset
from storage.segment.segment import LogSegment


@final
class KeptTimestamps:
    """A look at the batches of `segment` from byte `start` up to the one that a cut to `offset` removes.

    It holds until the segment is cut: appends come after that batch.
    """

    __slots__ = ("_cuts", "_end", "_found", "_offset", "_position", "_segment")

    def __init__(self, segment: LogSegment, offset: int, start: int) -> None:
        place = segment.translate_offset(offset)
        self._segment, self._offset, self._cuts = segment, offset, segment.records.cuts
        self._position = start
        self._end = segment.size_bytes if place is None else place.position
        self._found = TimestampAndOffset(timestamp=-1, offset=-1, leader_epoch=None)
        assert start >= 0, (segment, start)

    @property
    def is_done(self) -> bool:
        return self._position >= self._end

    def is_for(self, segment: LogSegment, offset: int) -> bool:
        """Whether it says what a cut of `segment` to `offset` needs."""
        is_uncut = self._segment.records.cuts == self._cuts
        return segment is self._segment and offset == self._offset and is_uncut

    def advance(self, most_batches: int) -> None:
        """Look at a slice of at most `most_batches`. Raises CorruptBatch, OSError."""
        assert not self.is_done, (self._position, self._end)
        before = self._position
        found, self._position = self._segment.records.greatest_timestamp_in(before, self._end, most_batches)
        if found.timestamp > self._found.timestamp:
            self._found = found
        assert before < self._position <= self._end, (before, self._position, self._end)

    def greatest(self, segment: LogSegment, offset: int) -> TimestampAndOffset | None:
        """What was found, for a cut of `segment` to `offset`; None if it is not for that cut, or not done."""
        return self._found if self.is_done and self.is_for(segment, offset) else None


def look_at_kept(segment: LogSegment, offset: int) -> KeptTimestamps | None:
    """Begin the look that a cut of `segment` to `offset` needs. Returns None where it needs none.

    Raises StorageError, OSError.
    """
    start = segment.unseen_from(offset)
    return None if start is None else KeptTimestamps(segment, offset, start)
