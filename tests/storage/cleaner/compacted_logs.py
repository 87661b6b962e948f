"""A compacted log to be written to and cleaned, and its records afterwards, for the tests of the cleaner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import final

from sim.disk import PowerLoss
from sim.disk.life import Life
from storage.batch import Record, RecordBatch, build_batch
from storage.cleaner.compaction import Compaction
from storage.cleaner.offset_map import SLOT_BYTES
from storage.cleaner.plan import PLANNED_IN_STEP, CleanerConfig
from storage.config import LogConfig
from storage.log import AppendOrigin
from storage.log.compaction import CleanableOffsets
from storage.segment import LogSegment
from tests.storage.logs import NOW_MS, batch, marker, new_disk, new_file_system, open_log, open_segment

DAY_MS = 86_400_000
# No group reaches this limit.
HUGE = 2**31 - 1
COMPACTED = LogConfig(
    segment_bytes=1024, segment_index_bytes=1024, cleanup_policy="compact", delete_retention_ms=DAY_MS
)

# A key and its value. Without a value it is a tombstone.
Put = tuple[int, str | None]


def records_of(puts: Iterable[Put | int], timestamp: int = NOW_MS) -> list[Record]:
    """Return a record for each put. A number alone is a key whose value is the same number."""
    pairs = [(each, str(each)) if isinstance(each, int) else each for each in puts]
    return [
        Record(place, timestamp, str(key).encode(), None if value is None else value.encode())
        for place, (key, value) in enumerate(pairs)
    ]


@final
class CleanedLog:
    """A log of which every append is one batch. `clean` takes the log end for replicated."""

    def __init__(self, config: LogConfig = COMPACTED) -> None:
        self.disk = new_disk()
        self.file_system = new_file_system(self.disk)
        self.config = config
        self.log = open_log(self.file_system, config)
        self.sequences: dict[int, int] = {}
        self.now_ms = NOW_MS

    def put(self, *puts: Put | int, producer_id: int = -1, transactional: bool = False) -> bytes:
        """Append a batch. Returns it as it was produced."""
        has_producer = producer_id >= 0
        sequence = self.sequences.get(producer_id, 0) if has_producer else -1
        data = build_batch(
            records_of(puts, self.now_ms),
            producer_id=producer_id,
            producer_epoch=0 if has_producer else -1,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        self.append(data)
        if has_producer:
            self.sequences[producer_id] = sequence + len(puts)
        return data

    def put_each(self, *puts: Put | int) -> None:
        for each in puts:
            self.put(each)

    def in_transaction(self, producer_id: int, *puts: Put | int) -> None:
        self.put(*puts, producer_id=producer_id, transactional=True)

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        data = marker(producer_id, is_commit=is_commit, timestamp=self.now_ms)
        self.append(data, AppendOrigin.COORDINATOR)

    def commit(self, producer_id: int) -> None:
        self.end(producer_id, is_commit=True)

    def abort(self, producer_id: int) -> None:
        self.end(producer_id, is_commit=False)

    def append(self, data: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        self.log.append_as_leader(data, leader_epoch=0, now_ms=self.now_ms, origin=origin)
        self.log.marks.update_high_watermark(self.log.log_end_offset)

    def roll(self) -> None:
        self.log.flushes.roll(now_ms=self.now_ms)

    def fill(self, segments: int, keys: Iterable[int]) -> None:
        """Append one batch for each record until there are `segments` segments."""
        for key in keys:
            if len(self.log.local.segments) >= segments:
                return
            self.put(key)
        raise AssertionError(f"{len(self.log.local.segments)} segments of {segments}")

    def prepare(
        self, first_dirty: int = 0, *, slots: int = 1000, end: int | None = None, now_ms: int | None = None,
        io_buffer_bytes: int = 64 << 10, planned_segments: int = PLANNED_IN_STEP,
    ) -> Compaction:  # fmt: skip
        """Prepare a round with a map of `slots`, up to `end` (by default the active segment)."""
        offsets = CleanableOffsets(
            first_dirty_offset=first_dirty,
            first_uncleanable_offset=self.log.local.segments.active.base_offset if end is None else end,
            is_checkpoint_invalid=False,
        )
        config = CleanerConfig(
            dedupe_buffer_bytes=slots * SLOT_BYTES,
            io_buffer_bytes=io_buffer_bytes,
            max_io_buffer_bytes=io_buffer_bytes,
            planned_segments=planned_segments,
        )
        return self.log.compactions.prepare(offsets, config, self.now_ms if now_ms is None else now_ms)

    def clean(
        self, first_dirty: int = 0, *, slots: int = 1000, end: int | None = None, now_ms: int | None = None,
        io_buffer_bytes: int = 64 << 10, planned_segments: int = PLANNED_IN_STEP,
    ) -> int:  # fmt: skip
        """Run a round. Returns the next first dirty offset."""
        compaction = self.prepare(
            first_dirty, slots=slots, end=end, now_ms=now_ms, io_buffer_bytes=io_buffer_bytes,
            planned_segments=planned_segments,
        )  # fmt: skip
        run(compaction)
        assert compaction.end_offset is not None
        return compaction.end_offset

    def reopen(self, *, clean: bool = False) -> None:
        """Open the log again, after an orderly stop or after a crash."""
        if clean:
            self.log.close()
        else:
            self.log.close_handles()
        self._open(clean=clean)

    def restart_after_power_loss(self, mode: PowerLoss) -> None:
        self.disk.lose_power(mode)
        self.file_system = self.disk.file_system(Life())
        self._open(clean=False)

    def _open(self, *, clean: bool) -> None:
        log_start_offset = self.log.log_start_offset
        self.log = open_log(self.file_system, self.config, clean=clean, log_start_offset=log_start_offset)
        self.log.marks.update_high_watermark(self.log.log_end_offset)

    # What is left

    def batches(self) -> list[RecordBatch]:
        return [batch for segment in self.log.local.segments for batch in segment.records.batches()]

    def records(self) -> list[Record]:
        """The records of data batches."""
        return [record for batch in self.batches() if not batch.is_control for record in batch.records()]

    def keys(self) -> list[int]:
        return [int(record.key) for record in self.records() if record.key is not None]

    def offsets(self) -> list[int]:
        """The offsets of all records, markers too."""
        return [record.offset for batch in self.batches() for record in batch.records()]

    def last_offsets(self) -> list[int]:
        return [batch.last_offset for batch in self.batches()]

    def last_values(self) -> dict[bytes, bytes | None]:
        return {record.key: record.value for record in self.records() if record.key is not None}

    def last_sequences(self) -> dict[int, int]:
        return {entry.producer_id: entry.last_sequence for entry in self.log.producers.producers.values()}

    def aborted(self) -> list[tuple[int, ...]]:
        """Return the entries of all transaction indexes."""
        return [
            tuple(entry)
            for segment in self.log.local.segments
            for entry in segment.transaction_index.entries()
        ]


def run(compaction: Compaction) -> None:
    for work in compaction:
        work()


def sorted_unique(numbers: Sequence[int]) -> bool:
    return all(before < after for before, after in pairwise(numbers))


def segments_of(sizes: list[int]) -> list[LogSegment]:
    """Return segments that begin ten offsets apart, with `sizes` batches of one size each."""
    file_system = new_file_system()
    segments = []
    for place, count in enumerate(sizes):
        segment = open_segment(file_system, 10 * place, replace(COMPACTED, index_interval_bytes=0))
        for offset in range(10 * place, 10 * place + count):
            data = batch(offset, timestamp=NOW_MS + offset)
            segment.append(offset, data)
        segment.on_become_inactive()
        segments.append(segment)
    return segments


def bases_of(groups: Iterable[list[LogSegment]]) -> list[list[int]]:
    return [[segment.base_offset for segment in group] for group in groups]
