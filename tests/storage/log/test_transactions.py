"""Transactions, the last stable offset, and what a reader of committed records gets.

Rules RD5 to RD7, RD12, AP14, LS10, T35.
"""

from __future__ import annotations

import pytest

from sim.disk import SimFileSystem
from storage.config import LogConfig
from storage.disk.filesystem import OpenMode, read_file
from storage.errors import InvalidProducerEpoch, StorageError, TransactionCoordinatorFenced
from storage.index.transaction_index import AbortedTransaction, AbortedTransactions
from storage.log import Isolation, PartitionLog
from storage.segment import LogSegment
from storage.segment.lookups import fetch_upper_bound_offset
from tests.storage.log.appends import end_transaction
from tests.storage.logs import NOW_MS, SIZE, batch, new_file_system, offsets_in, open_log, produced


def new_log(file_system: SimFileSystem | None = None, segment_bytes: int = 1 << 30) -> PartitionLog:
    shape = LogConfig(segment_index_bytes=1200, index_interval_bytes=0, segment_bytes=segment_bytes)
    return open_log(new_file_system() if file_system is None else file_system, shape)


class Producer:
    """A transactional producer, and the leader's appends of its batches."""

    def __init__(self, log: PartitionLog, producer_id: int, epoch: int = 0) -> None:
        self._log, self._producer_id, self._epoch, self._sequence = log, producer_id, epoch, 0

    def send(self, count: int) -> int:
        """Append `count` records. Returns the first offset."""
        data = batch(
            0,
            count,
            epoch=-1,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            sequence=self._sequence,
            is_transactional=True,
        )
        self._sequence += count
        return self._log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS).first_offset

    def end(self, *, commit: bool, coordinator_epoch: int = 0, epoch: int | None = None) -> int:
        """Append the marker. Returns its offset."""
        return end_transaction(
            self._log,
            self._producer_id,
            is_commit=commit,
            producer_epoch=self._epoch if epoch is None else epoch,
            coordinator_epoch=coordinator_epoch,
        ).last_offset


def plain(log: PartitionLog, count: int) -> None:
    log.append_as_leader(produced(count), leader_epoch=0, now_ms=NOW_MS)


def committed(log: PartitionLog, offset: int, max_size: int = 100_000) -> list[int]:
    return offsets_in(log.read(offset, max_size=max_size, isolation=Isolation.TXN_COMMITTED).records)


def aborted(log: PartitionLog, offset: int, max_size: int = 100_000) -> list[tuple[int, int]] | None:
    found = log.read(offset, max_size=max_size, isolation=Isolation.TXN_COMMITTED).aborted_transactions
    return None if found is None else [(each.producer_id, each.first_offset) for each in found]


def all_aborted(log: PartitionLog) -> list[AbortedTransaction]:
    return [entry for segment in log.local.segments for entry in segment.transaction_index.entries()]


# The last stable offset


@pytest.mark.covers("UnifiedLogTest.testFirstUnstableOffsetNoTransactionalData")
def test_rd7_without_transactions_it_is_the_high_watermark() -> None:
    log = new_log()
    plain(log, 3)
    log.append_as_leader(
        produced(2, producer_id=9, producer_epoch=0, sequence=0), leader_epoch=0, now_ms=NOW_MS
    )
    log.marks.update_high_watermark(4)
    assert log.marks.last_stable_offset == log.high_watermark == 4


@pytest.mark.covers("UnifiedLogTest.testFirstUnstableOffsetWithTransactionalData")
def test_rd12_a_decided_transaction_holds_back_until_the_high_watermark_passes_its_marker() -> None:
    log = new_log()
    producer = Producer(log, 1)
    producer.send(2)
    producer.send(1)
    log.marks.update_high_watermark(3)
    assert log.marks.last_stable_offset == 0
    marker = producer.end(commit=True)
    assert log.marks.last_stable_offset == 0
    log.marks.update_high_watermark(marker)
    assert log.marks.last_stable_offset == 0
    log.marks.update_high_watermark(marker + 1)
    assert log.marks.last_stable_offset == log.high_watermark == 4


@pytest.mark.covers("UnifiedLogTest.testFetchUpToLastStableOffset")
def test_rd7_a_reader_of_committed_records_sees_records_below_the_last_stable_offset() -> None:
    log = new_log()
    one, two = Producer(log, 1), Producer(log, 2)
    one.send(5)
    plain(log, 3)
    two.send(2)
    one.send(4)
    plain(log, 2)
    one.send(10)

    def assert_readable_below(stable: int) -> None:
        assert log.marks.last_stable_offset == stable
        for offset in range(log.log_end_offset):
            assert bool(committed(log, offset)) == (offset < stable), offset

    assert_readable_below(0)
    log.marks.update_high_watermark(log.log_end_offset)
    assert_readable_below(0)
    one.end(commit=True)
    assert_readable_below(0)
    log.marks.update_high_watermark(log.log_end_offset)
    assert_readable_below(8)
    two.end(commit=False)
    assert_readable_below(8)
    log.marks.update_high_watermark(log.log_end_offset)
    assert_readable_below(log.log_end_offset)


@pytest.mark.covers("UnifiedLogTest.testLastStableOffsetWithMixedProducerData")
def test_rd7_the_oldest_open_transaction_counts() -> None:
    log = new_log()
    first, second = Producer(log, 137, 5), Producer(log, 983)
    first.send(3)
    plain(log, 1)
    begun = second.send(2)
    log.marks.update_high_watermark(log.log_end_offset)
    assert log.marks.last_stable_offset == 0
    first.end(commit=False)
    log.marks.update_high_watermark(log.log_end_offset)
    assert log.marks.last_stable_offset == begun
    second.end(commit=True)
    log.marks.update_high_watermark(log.log_end_offset)
    assert log.marks.last_stable_offset == log.high_watermark


@pytest.mark.covers(
    "UnifiedLogTest.testLastStableOffsetDoesNotExceedLogStartOffsetMidSegment",
    "UnifiedLogTest.testLastStableOffsetDoesNotExceedLogStartOffsetAfterSegmentDeletion",
)
@pytest.mark.parametrize("is_rolled", [False, True])
def test_rd7_the_last_stable_offset_is_never_below_the_log_start_offset(is_rolled: bool) -> None:
    log = new_log()
    producer = Producer(log, 1)
    for _ in range(5):
        producer.send(1)
    if is_rolled:
        log.flushes.roll(now_ms=NOW_MS)
    for _ in range(5):
        producer.send(1)
    log.marks.update_high_watermark(10)
    assert log.marks.last_stable_offset == 0
    log.marks.maybe_increment_log_start_offset(5)
    log.retention.delete_old(NOW_MS)
    assert log.log_start_offset == 5 and log.marks.last_stable_offset == 5
    assert len(log.local.segments) == 1


def test_rd7_a_truncation_above_the_high_watermark_leaves_it() -> None:
    """A rebuilt producer state takes old transactions for undecided. The last stable offset must not go back."""
    log = new_log()
    producer = Producer(log, 1)
    producer.send(2)
    producer.end(commit=True)
    plain(log, 5)
    log.marks.update_high_watermark(5)
    assert log.marks.last_stable_offset == 5
    log.truncate_to(7, now_ms=NOW_MS)
    assert log.marks.last_stable_offset == log.high_watermark == 5


@pytest.mark.covers(
    "UnifiedLogTest.testTruncateBelowFirstUnstableOffset",
    "UnifiedLogTest.testTruncateFullyAndStartBelowFirstUnstableOffset",
)
@pytest.mark.parametrize("is_full", [False, True])
def test_kafka_12153_a_truncation_below_it_forgets_the_transaction(is_full: bool) -> None:
    file_system = new_file_system()
    log = new_log(file_system)
    plain(log, 3)
    Producer(log, 1).send(4)
    log.close_handles()
    log = new_log(file_system)
    log.marks.update_high_watermark(7)
    assert log.marks.last_stable_offset == 3
    if is_full:
        log.truncation.truncate_fully_and_start_at(0, now_ms=NOW_MS)
    else:
        log.truncate_to(0, now_ms=NOW_MS)
    assert log.marks.last_stable_offset == log.high_watermark == 0
    assert not log.producers.producers
    plain(log, 3)
    log.marks.update_high_watermark(3)
    assert log.marks.last_stable_offset == 3


@pytest.mark.covers("UnifiedLogTest.testOffsetSnapshot")
def test_rd11_marks_that_are_offsets_alone_get_their_places() -> None:
    log = new_log()
    for _ in range(4):
        plain(log, 1)
    log.marks.update_high_watermark(2)
    place = log.marks.high_watermark_metadata
    assert (place.offset, place.segment_base_offset, place.position) == (2, 0, 2 * SIZE)
    assert log.marks.last_stable_metadata == place


# Aborted transactions


def write_interleaved(log: PartitionLog) -> None:
    """Write with four producers up to offset 90; 1 and 2 abort. The number beside each call is its first offset."""
    one, two, three, four = (Producer(log, producer_id) for producer_id in (1, 2, 3, 4))
    one.send(5)  # 0
    plain(log, 3)  # 5
    two.send(2)  # 8
    one.send(4)  # 10
    plain(log, 2)  # 14
    one.send(10)  # 16
    three.send(3)  # 26
    one.end(commit=False)  # 29
    three.send(6)  # 30
    four.send(8)  # 36
    three.send(9)  # 44
    two.send(21)  # 53
    two.end(commit=False)  # 74
    four.send(10)  # 75
    four.end(commit=True)  # 85
    three.end(commit=True)  # 86


@pytest.mark.covers("UnifiedLogTest.testTransactionIndexUpdated")
def test_rd6_the_index_holds_each_abort_with_the_last_stable_offset_of_then() -> None:
    log = new_log()
    write_interleaved(log)
    assert all_aborted(log) == [(1, 0, 29, 8), (2, 8, 74, 26)]
    log.marks.update_high_watermark(30)
    assert log.marks.last_stable_offset == 8
    log.marks.update_high_watermark(75)
    assert log.marks.last_stable_offset == 26
    log.marks.update_high_watermark(log.log_end_offset)
    assert log.marks.last_stable_offset == log.log_end_offset


@pytest.mark.covers("UnifiedLogTest.testTransactionIndexUpdatedThroughReplication")
def test_rd6_a_follower_has_the_same_index() -> None:
    log, follower = new_log(), new_log()
    write_interleaved(log)
    follower.append_as_follower(log.read(0, max_size=1 << 20).records, leader_epoch=0, now_ms=NOW_MS)
    assert all_aborted(follower) == all_aborted(log)
    follower.marks.update_high_watermark(30)
    assert follower.marks.last_stable_offset == 8
    follower.marks.update_high_watermark(follower.log_end_offset)
    assert aborted(follower, 0) == [(1, 0), (2, 8)]


def test_rd5_a_read_reports_the_transactions_that_reach_into_its_bytes() -> None:
    log = new_log()
    for producer_id in (1, 2, 3):
        producer = Producer(log, producer_id)
        producer.send(1)
        producer.end(commit=False)
    plain(log, 1)
    log.marks.update_high_watermark(7)
    assert aborted(log, 0) == [(1, 0), (2, 2), (3, 4)]
    assert aborted(log, 2) == [(2, 2), (3, 4)]
    assert aborted(log, 6) == []
    assert aborted(log, 0, max_size=2 * SIZE)[:1] == [(1, 0)]  # type: ignore[index]
    assert (3, 4) not in (aborted(log, 0, max_size=SIZE) or [])


def test_rd5_only_a_reader_of_committed_records_gets_aborted_transactions() -> None:
    log = new_log()
    Producer(log, 1).send(1)
    for isolation in (Isolation.LOG_END, Isolation.HIGH_WATERMARK):
        assert log.read(0, max_size=100, isolation=isolation).aborted_transactions is None
    assert aborted(log, 0) == [] and aborted(log, 1) == []


@pytest.mark.covers("UnifiedLogTest.testAbortedTransactionSpanningMultipleSegments")
def test_rd5_the_abort_is_looked_for_in_later_segments() -> None:
    log = new_log(segment_bytes=SIZE)
    producer = Producer(log, 7)
    for _ in range(10):
        producer.send(1)
    producer.end(commit=False)
    log.marks.update_high_watermark(log.log_end_offset)
    assert len(log.local.segments) == 11
    assert aborted(log, 0, max_size=1) == [(7, 0)]
    assert aborted(log, 5, max_size=1) == [(7, 0)]


def test_rd5_the_search_ends_at_an_abort_that_knows_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    collect = LogSegment.collect_aborted

    def noting(segment: LogSegment, fetch_offset: int, upper_bound_offset: int) -> AbortedTransactions:
        asked.append(segment.base_offset)
        return collect(segment, fetch_offset, upper_bound_offset)

    monkeypatch.setattr(LogSegment, "collect_aborted", noting)
    log = new_log(segment_bytes=2 * SIZE)
    for producer_id in (1, 2, 3):
        producer = Producer(log, producer_id)
        producer.send(1)
        producer.end(commit=False)
    assert log.local.collect_aborted(0, 1, log.local.segments.first) == ((1, 0, 1, 2),)
    assert asked == [0] and len(log.local.segments) > 1


@pytest.mark.covers(
    "LogSegmentTest.testRecoverTransactionIndex", "UnifiedLogTest.testRebuildTransactionalState"
)
def test_ls10_recovery_makes_the_same_transaction_index() -> None:
    file_system = new_file_system()
    log = new_log(file_system, segment_bytes=450)
    write_interleaved(log)
    entries = all_aborted(log)
    paths = [each.transaction_index.path for each in log.local.segments if each.transaction_index.exists]
    contents = [read_file(file_system, path) for path in paths]
    log.close_handles()
    file_system.unlink(paths[0])
    log = new_log(file_system, segment_bytes=450)
    assert all_aborted(log) == entries and len(paths) == 2, paths
    assert [read_file(file_system, path) for path in paths] == contents
    log.marks.update_high_watermark(log.log_end_offset)
    assert log.marks.last_stable_offset == log.log_end_offset


def test_ls17_a_transaction_index_that_contradicts_its_segment_is_rebuilt() -> None:
    file_system = new_file_system()
    log = new_log(file_system, segment_bytes=450)
    write_interleaved(log)
    entries = all_aborted(log)
    segment = next(
        each for each in log.local.segments if each.base_offset > 0 and each.transaction_index.exists
    )
    recovery_point = log.log_end_offset
    log.close()
    path = segment.transaction_index.path
    for content in (bytes(34), b"\x01" + bytes(33)):
        file = file_system.open(path, OpenMode.CREATE)
        file.set_length(0)
        file.write_at(0, content)
        file.close()
        log = open_log(file_system, log.config, clean=True, recovery_point=recovery_point)
        assert all_aborted(log) == entries
        log.close()


def test_ls13_truncation_removes_the_entries_whose_marker_is_cut() -> None:
    log = new_log()
    write_interleaved(log)
    log.truncate_to(74, now_ms=NOW_MS)
    assert all_aborted(log) == [(1, 0, 29, 8)]
    log.truncate_to(29, now_ms=NOW_MS)
    assert all_aborted(log) == []
    Producer(log, 1, epoch=1).end(commit=False)
    assert all_aborted(log) == [(1, 0, 29, 8)]


# What may fail


@pytest.mark.covers("UnifiedLogTest.testAppendToTransactionIndexFailure")
def test_kafka_7866_t35_bytes_stay_when_the_index_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    file_system = new_file_system()
    log = new_log(file_system)
    producer = Producer(log, 1)
    producer.send(10)

    def failing(entry: AbortedTransaction) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(
        type(log.local.segments.active.transaction_index), "append", lambda self, entry: failing(entry)
    )
    with pytest.raises(StorageError, match="append failed"):
        producer.end(commit=False)
    monkeypatch.undo()
    assert log.log_end_offset == 11 and log.marks.last_stable_offset == 0
    with pytest.raises(StorageError, match="offline"):
        plain(log, 1)
    log.close_handles()
    log = new_log(file_system)
    assert log.log_end_offset == 11 and all_aborted(log) == [(1, 0, 10, 11)]
    log.marks.update_high_watermark(11)
    assert log.marks.last_stable_offset == 11


@pytest.mark.covers(
    "UnifiedLogTest.testZombieCoordinatorFenced", "UnifiedLogTest.testZombieCoordinatorFencedEmptyTransaction"
)
@pytest.mark.parametrize("has_records", [True, False])
def test_ps5_a_marker_of_an_older_coordinator_is_refused(has_records: bool) -> None:
    log = new_log()
    producer = Producer(log, 1)
    for coordinator_epoch in (1, 2):
        if has_records:
            producer.send(1)
        producer.end(commit=True, coordinator_epoch=coordinator_epoch)
    if has_records:
        producer.send(1)
    with pytest.raises(TransactionCoordinatorFenced):
        producer.end(commit=True, coordinator_epoch=1)


@pytest.mark.covers("UnifiedLogTest.testEndTxnWithFencedProducerEpoch")
def test_ps3_a_marker_of_an_older_producer_epoch_is_refused() -> None:
    log = new_log()
    producer = Producer(log, 1, epoch=5)
    producer.send(1)
    with pytest.raises(InvalidProducerEpoch):
        producer.end(commit=False, epoch=4)


@pytest.mark.covers("UnifiedLogTest.testReadCommittedWithConcurrentHighWatermarkUpdates")
def test_rd7_no_open_transaction_is_ever_read_as_committed() -> None:
    log = new_log()
    producer = Producer(log, 1)
    for _ in range(50):
        first = producer.send(3)
        for high_watermark in range(first, log.log_end_offset + 1):
            log.marks.update_high_watermark(high_watermark)
            assert all(offset < first for offset in committed(log, 0))
        producer.end(commit=True)
        log.marks.update_high_watermark(log.log_end_offset)
        assert log.marks.last_stable_offset == log.log_end_offset


def test_ix19_bytes_that_end_at_the_first_index_entry_are_bounded_by_the_second() -> None:
    """Kafka's search skips the first entry even if it matches: a reader gets one transaction more."""
    log = new_log()
    plain(log, 1)
    for producer_id in (1, 2, 3):
        producer = Producer(log, producer_id)
        producer.send(1)
        producer.end(commit=False)
    log.marks.update_high_watermark(7)
    first = log.local.segments.active.offset_index.entry(0)
    assert (first.offset, first.position) == (1, SIZE)
    assert aborted(log, 0, max_size=SIZE) == [(1, 1)]
    # Bytes that end before the first entry are bounded by it.
    assert fetch_upper_bound_offset(log.local.segments.active, 0, SIZE - 1) == 1
    log.flushes.roll(now_ms=NOW_MS)
    single = new_log()
    single.append_as_follower(batch(0) + batch(1), leader_epoch=0, now_ms=NOW_MS)
    assert fetch_upper_bound_offset(single.local.segments.active, 0, SIZE) is None
    single.append_as_follower(batch(2), leader_epoch=0, now_ms=NOW_MS)
    assert single.local.segments.active.offset_index.entries == 2
    assert fetch_upper_bound_offset(single.local.segments.active, 0, SIZE) == 2
