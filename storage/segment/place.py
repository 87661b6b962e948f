"""An offset with its place on disk. Kafka: LogOffsetMetadata."""

from __future__ import annotations

from dataclasses import dataclass

from storage.values import quickly_made

UNKNOWN_SEGMENT = -1
UNKNOWN_POSITION = -1


@quickly_made
@dataclass(frozen=True, slots=True)
class LogOffsetMetadata:
    """An offset, `position` bytes into the segment with base offset `segment_base_offset`.

    The place is unknown when both are -1. A roll or a truncation changes places: a value that is kept across one must
    be requested from the log again.
    """

    offset: int
    segment_base_offset: int = UNKNOWN_SEGMENT
    position: int = UNKNOWN_POSITION

    def __post_init__(self) -> None:
        assert (self.segment_base_offset < 0) == (self.position < 0), self

    @property
    def is_message_only(self) -> bool:
        """Whether the place is unknown."""
        return self.segment_base_offset < 0

    def is_on_older_segment(self, other: LogOffsetMetadata) -> bool:
        """Whether this offset is on an older segment than `other`; False where either place is unknown."""
        return self._are_known(other) and self.segment_base_offset < other.segment_base_offset

    def is_on_same_segment(self, other: LogOffsetMetadata) -> bool:
        """Whether both are on one segment; False where either place is unknown."""
        return self._are_known(other) and self.segment_base_offset == other.segment_base_offset

    def position_difference(self, other: LogOffsetMetadata) -> int:
        """The bytes from `other` to this one. Raises ValueError for different segments and unknown places."""
        if not self.is_on_same_segment(other):
            raise ValueError(f"{self} and {other} are not in the same segment")
        return self.position - other.position

    def _are_known(self, other: LogOffsetMetadata) -> bool:
        return not self.is_message_only and not other.is_message_only


UNKNOWN_OFFSET = LogOffsetMetadata(-1)
