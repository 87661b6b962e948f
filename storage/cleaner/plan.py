"""What one round of compaction reads: which segments, in which groups, and which bytes of them.

The plan is made in the log's own step, from segments that take no more appends, so that a worker need not ask the log.
Kafka: Cleaner.groupSegmentsBySize, LogCleaner's configuration; rules CL10, CL22.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from storage.cleaner.offset_map import SLOT_BYTES
from storage.errors import ConfigError
from storage.index.memory_mapped import MAX_RELATIVE_OFFSET
from storage.index.transaction_index import AbortedTransaction
from storage.segment import LogSegment

# Each takes four renames in the step that swaps the group in.
MOST_IN_GROUP: Final = 128
# The segments that one step of the log prepares for the worker, so that no step takes long.
PLANNED_IN_STEP: Final = 256
SLICE_BYTES: Final = 4 << 20

_POSITIVE: Final = (
    "io_buffer_bytes", "max_io_buffer_bytes", "slice_bytes", "planned_segments", "swapped_segments",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """Sizes and limits of one round. Raises ConfigError. Kafka: CleanerConfig, with the share of one of its threads."""

    dedupe_buffer_bytes: int = 128 << 20
    dedupe_buffer_load_factor: float = 0.9
    # Half of log.cleaner.io.buffer.size: Kafka splits it into a buffer to read and a buffer to write.
    io_buffer_bytes: int = 256 << 10
    # The message.max.bytes of the broker.
    max_io_buffer_bytes: int = 1_048_588
    # The bytes that are read and filtered before the worker does other work.
    slice_bytes: int = SLICE_BYTES
    # The segments that one step plans, and the most that are swapped in one. Kafka has no such limits.
    planned_segments: int = PLANNED_IN_STEP
    swapped_segments: int = MOST_IN_GROUP

    def __post_init__(self) -> None:
        if not 0 < self.dedupe_buffer_load_factor <= 1:
            raise ConfigError(
                f"dedupe_buffer_load_factor={self.dedupe_buffer_load_factor}: must be in (0, 1]"
            )
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}={getattr(self, name)}: must be positive")
        if self.dedupe_buffer_bytes // SLOT_BYTES * self.dedupe_buffer_load_factor <= 1:
            raise ConfigError(
                f"dedupe_buffer_bytes={self.dedupe_buffer_bytes}: too small for a single key, "
                "so cleaning could never progress"
            )


class Source(NamedTuple):
    """One segment to be read from byte `start_position` on.

    `end_offset` is exclusive: the base offset of the next segment. `aborted` are the transactions that overlap it.
    """

    base_offset: int
    path: str
    start_position: int
    size_bytes: int
    modified_ms: int
    end_offset: int
    aborted: tuple[AbortedTransaction, ...]


def group_segments(
    segments: Sequence[LogSegment],
    max_segment_bytes: int,
    max_index_bytes: int,
    round_end_offset: int,
    most_segments: int = MOST_IN_GROUP,
) -> Iterator[list[LogSegment]]:
    """Group neighbouring segments that together fit one segment, by size, index sizes and range of offsets (CL10).

    Each group is made when it is asked for. It has at most `most_segments`, because they are swapped in one step
    of the log. Kafka has no such limit.
    """
    group: list[LogSegment] = []
    log_bytes = index_bytes = time_index_bytes = 0
    for place, segment in enumerate(segments):
        last_offset = _last_offset_bound(segments, place, round_end_offset)
        indexes = segment.indexes
        sizes = (segment.size_bytes, indexes.lazy_offset.entries_bytes(), indexes.lazy_time.entries_bytes())
        fits = (
            0 < len(group) < most_segments
            and log_bytes + sizes[0] <= max_segment_bytes
            and index_bytes + sizes[1] <= max_index_bytes
            and time_index_bytes + sizes[2] <= max_index_bytes
            and (sizes[0] == 0 or last_offset - group[0].base_offset <= MAX_RELATIVE_OFFSET)
        )
        if group and not fits:
            yield group
            group, log_bytes, index_bytes, time_index_bytes = [], 0, 0, 0
        group.append(segment)
        log_bytes, index_bytes = log_bytes + sizes[0], index_bytes + sizes[1]
        time_index_bytes += sizes[2]
    if group:
        yield group


def _last_offset_bound(segments: Sequence[LogSegment], place: int, round_end_offset: int) -> int:
    """An upper bound of the last offset of the segment at `place`, found without reading it: its index may be empty."""
    following = segments[place + 1].base_offset if place + 1 < len(segments) else round_end_offset
    return following - 1
