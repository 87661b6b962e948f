"""A reader at the high watermark beside a replica that changes roles and truncates. Kafka: LogConcurrencyTest."""

from __future__ import annotations

from dataclasses import replace
from typing import final

import pytest

from storage.batch import iterate_batches, stamp
from storage.config import LogConfig
from storage.draws import Draws
from storage.log import AppendOrigin, Isolation, PartitionLog
from storage.segment.place import LogOffsetMetadata
from tests.storage.logs import (
    NOW_MS,
    SMALL,
    append_each,
    batch,
    marker,
    new_file_system,
    open_log,
    produced,
)

# Base offset and leader epoch of a batch.
Read = tuple[int, int]


@final
class Replica:
    """A replica that, each turn, appends one to nine records or changes its role.

    A new follower cuts to its high watermark.
    """

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.epoch = 1
        self.leads = True
        self.cuts = 0

    def append(self, count: int) -> None:
        log, end = self.log, self.log.local.log_end
        if self.leads:
            log.append_as_leader(produced(count), leader_epoch=self.epoch, now_ms=NOW_MS)
            log.marks.maybe_increment_high_watermark(end)
        else:
            data = bytearray(batch(end.offset, count))
            stamp(data, 0, base_offset=end.offset, partition_leader_epoch=self.epoch)
            log.append_as_follower(bytes(data), leader_epoch=self.epoch, now_ms=NOW_MS)
            log.marks.update_high_watermark(end.offset)

    def change_role(self) -> None:
        self.leads = not self.leads
        self.epoch += 1
        if not self.leads:
            self.cuts += self.log.truncate_to(self.log.high_watermark, now_ms=NOW_MS)


def consume(log: PartitionLog, offset: int) -> list[Read]:
    """Read at most one batch, and only what is committed."""
    data = log.read(offset, max_size=1, isolation=Isolation.HIGH_WATERMARK).records
    return [(each.base_offset, each.partition_leader_epoch) for each in iterate_batches(data)]


@pytest.mark.covers(
    "LogConcurrencyTest.testUncommittedDataNotConsumed",
    "LogConcurrencyTest.testUncommittedDataNotConsumedFrequentSegmentRolls",
)
@pytest.mark.parametrize("segment_bytes", [LogConfig().segment_bytes, 237])
@pytest.mark.parametrize("seed", range(3))
def test_rd3_records_that_were_read_are_never_truncated_afterwards(seed: int, segment_bytes: int) -> None:
    log = open_log(new_file_system(), replace(SMALL, segment_bytes=segment_bytes))
    replica, draws = Replica(log), Draws(seed)
    consumed: list[Read] = []
    for turn in range(150):
        if draws.below(3, "role", turn) == 0:
            replica.change_role()
        else:
            replica.append(draws.between(1, 9, "count", turn))
        for each in range(draws.below(4, "reads", turn)):
            offset = log.reads.place_of(0).offset if not consumed else next_offset(log, consumed[-1])
            assert offset <= log.high_watermark, (turn, each)
            consumed += consume(log, offset)
    stored = [
        (each.base_offset, each.partition_leader_epoch)
        for segment in log.local.segments
        for each in segment.records.batches()
    ]
    assert replica.cuts > 10 and len(consumed) > 30
    assert consumed == stored[: len(consumed)]


def next_offset(log: PartitionLog, last: Read) -> int:
    data = log.read(last[0], max_size=1).records
    return next(iter(iterate_batches(data))).next_offset


@pytest.mark.parametrize("sets", [1, 3])
def test_rd3_committed_reads_reach_a_transaction_that_plain_batches_precede_in_its_set(sets: int) -> None:
    """A follower gets plain batches and the first one of a transaction in one set, or one by one."""
    log = open_log(new_file_system())
    first = batch(2, producer_id=7, producer_epoch=0, sequence=0, is_transactional=True)
    # Another length, so that a place which is wrong is no batch's either.
    batches = [batch(0, value_bytes=300), batch(1, producer_id=5, producer_epoch=0, sequence=0), first]
    for data in batches if sets == 3 else [b"".join(batches)]:
        log.append_as_follower(data, leader_epoch=0, now_ms=NOW_MS)
    log.marks.update_high_watermark(3)
    (transaction,) = log.producers.ongoing_transactions
    assert transaction.place == LogOffsetMetadata(2, 0, len(batches[0]) + len(batches[1]))
    for offset in (0, 1):
        data = log.read(offset, max_size=10_000, isolation=Isolation.TXN_COMMITTED).records
        assert data == b"".join(batches[offset:2])


def test_rd5_a_committed_read_asks_only_segments_with_aborted_transactions() -> None:
    """Asking every later segment makes each read as long as the log."""
    log = open_log(new_file_system(), replace(SMALL, segment_bytes=100))

    def append(data: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS, origin=origin)

    def aborted_by(producer_id: int) -> int:
        first = log.log_end_offset
        append(batch(0, producer_id=producer_id, producer_epoch=0, sequence=0, is_transactional=True))
        append(marker(producer_id, is_commit=False), AppendOrigin.COORDINATOR)
        return first

    def read(offset: int) -> list[int]:
        found = log.read(offset, max_size=1, isolation=Isolation.TXN_COMMITTED).aborted_transactions
        assert found is not None
        return [each.first_offset for each in found]

    append_each(log, 40)
    first = aborted_by(1)
    append_each(log, 40)
    second = aborted_by(2)
    append_each(log, 40)
    log.marks.update_high_watermark(log.log_end_offset)
    assert (read(0), read(first), read(second), read(second + 10)) == ([], [first], [second], [])
    segments = log.local.segments
    later = [each.base_offset for each in segments.with_transactions_from(segments.values(0, 1)[0])]
    assert len(later) == 3 and len(segments) > 60, later
    # What a truncation makes the last segment takes appends again.
    log.truncate_to(second - 20, now_ms=NOW_MS)
    third = aborted_by(3)
    append_each(log, 10)
    log.marks.update_high_watermark(log.log_end_offset)
    assert (read(first), read(third)) == ([first], [third])
