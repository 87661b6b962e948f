"""The bounds of what one step does, beyond which work is split into more steps or jobs: no record depends on them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import final

from storage.cleaner.plan import MOST_IN_GROUP, PLANNED_IN_STEP, SLICE_BYTES
from storage.errors import ConfigError
from storage.log.reads import SEGMENTS_A_STEP
from storage.producers.reload import BATCHES_A_SLICE
from storage.segment.file_records import SEARCHED_A_STEP
from storage.validation.work import STEP_REBUILT_BYTES


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StepBounds:
    """The most of each kind of work that one step of a broker does, or one piece of a job. The constructor raises
    ConfigError.

    The rest follows in later steps, between which others come. None of them is a property of Kafka, nor one that an
    operator sets: the defaults keep a step short on logs of any size, and runs with small logs split the same work with
    smaller ones.
    """

    # The logs, and the producers, that a pass visits: what it looks at takes a few milliseconds.
    logs: int = 1_000
    producers: int = 100_000
    # The segments that retention deletes, or that a truncation cuts off. Each waits for the disk, one after the other.
    # At least two: the last one may be empty, and a cut of that alone would leave the log as it is for ever.
    segments: int = 16
    # A log of more segments is deleted by a job. To delete the files of so many takes 6 ms.
    deleted_segments: int = 256
    # A snapshot of more producers is encoded by a job when a segment ends: 200,000 take 50 ms.
    snapshot_producers: int = 20_000
    # The batches that are replayed, or looked at, before a truncation.
    batches: int = BATCHES_A_SLICE
    # The batches that a search by offset passes, where the offset index has no entry for so long.
    searched_batches: int = SEARCHED_A_STEP
    # The segments whose greatest timestamps a search by time reads, and the bytes of a batch that it unpacks. A job
    # searches larger ones.
    searched_segments: int = SEGMENTS_A_STEP
    searched_bytes: int = STEP_REBUILT_BYTES
    # The segments that a compaction plans, and those that it swaps.
    planned_segments: int = PLANNED_IN_STEP
    swapped_segments: int = MOST_IN_GROUP
    # The bytes that a compaction reads in one piece of its job.
    compacted_bytes: int = SLICE_BYTES
    # The deadlines of requests that were answered early: more of them, beside those that wait, are cleared away.
    spare_deadlines: int = 64

    def __post_init__(self) -> None:
        for each in fields(self):
            value, least = getattr(self, each.name), 2 if each.name == "segments" else 1
            if value < least:
                raise ConfigError(f"{each.name}={value}: must be at least {least}")
