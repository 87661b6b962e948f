"""Transactions and producers in a log that is cleaned.

Kafka: LogCleanerTest; rules CL12 to CL14, CL17, CL21, CL22, CL26, CL27.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.batch import Record, RecordBatch, build_batch
from storage.batch.control_records import encode_end_transaction_marker
from storage.cleaner.transactions import CleanedTransactions
from storage.index.transaction_index import AbortedTransaction
from storage.log import AppendOrigin
from storage.segment.fetch_data import Isolation
from tests.storage.cleaner.compacted_logs import COMPACTED, DAY_MS, CleanedLog
from tests.storage.logs import NOW_MS, batch, marker


def clean_twice(log: CleanedLog, first_dirty: int = 0) -> int:
    """Clean once so that horizons begin, and once when they have passed."""
    log.clean(first_dirty)
    return log.clean(first_dirty, now_ms=log.now_ms + DAY_MS + 1)


# Aborted and committed


@pytest.mark.covers("LogCleanerTest.testBasicTransactionAwareCleaning")
def test_cl26_records_of_aborted_transactions_are_removed_and_markers_stay() -> None:
    log = CleanedLog(replace(COMPACTED, segment_bytes=2048))
    log.in_transaction(1, 1, 2)
    log.in_transaction(2, 2, 3)
    log.in_transaction(1, 3, 4)
    log.abort(1)
    log.commit(2)
    log.in_transaction(1, 2)
    log.commit(1)
    log.roll()
    aborted = log.aborted()
    assert [entry[:3] for entry in aborted] == [(1, 0, 6)]
    log.clean()
    assert (log.keys(), log.offsets()) == ([3, 2], [3, 6, 7, 8, 9])
    assert log.aborted() == aborted


@pytest.mark.covers("LogCleanerTest.testCleanWithTransactionsSpanningSegments")
def test_cl26_a_transaction_is_aborted_by_a_marker_in_a_later_segment() -> None:
    log = CleanedLog()
    log.in_transaction(1, 1, 2)
    log.in_transaction(2, 2, 3)
    log.roll()
    log.in_transaction(1, 3)
    log.in_transaction(2, 5)
    log.roll()
    bound = log.log.compactions.cleanable_offsets(0, NOW_MS)
    # The log is undecided from the start.
    assert bound.first_uncleanable_offset == 0
    log.abort(1)
    log.roll()
    log.commit(2)
    log.roll()
    log.clean()
    assert log.keys() == [2, 3, 5]
    assert [entry[:3] for entry in log.aborted()] == [(1, 0, 6)]


@pytest.mark.covers("LogCleanerTest.testCommittedTransactionSpanningSegments")
def test_kafka_8351_a_marker_stays_for_data_in_an_earlier_group() -> None:
    log = CleanedLog(replace(COMPACTED, segment_bytes=140))
    log.in_transaction(1, 1)
    log.roll()
    log.commit(1)
    log.roll()
    assert clean_twice(log) == 2
    assert log.offsets() == [0, 1]
    # Each group is one segment.
    assert len(log.log.local.segments) == 3


@pytest.mark.covers("LogCleanerTest.testAbortedTransactionSpanningSegments")
def test_cl12_an_aborted_batch_that_ends_its_producers_sequence_stays_empty() -> None:
    log = CleanedLog()
    log.in_transaction(1, 1)
    log.roll()
    log.abort(1)
    log.roll()
    for _ in range(2):
        clean_twice(log)
        assert (log.keys(), log.offsets(), log.last_offsets()) == ([], [1], [0, 1])
        assert [entry[:3] for entry in log.aborted()] == [(1, 0, 1)]


@pytest.mark.covers("LogCleanerTest.testCommitMarkerRemoval")
def test_cl12_a_commit_marker_stays_for_its_records_and_then_up_to_its_horizon() -> None:
    log = CleanedLog()
    log.in_transaction(1, 1)
    log.in_transaction(1, 2, 3)
    log.commit(1)
    log.in_transaction(2, 2)
    log.commit(2)
    log.roll()
    dirty = log.clean()
    assert (log.keys(), log.offsets()) == ([1, 3, 2], [0, 2, 3, 4, 5])
    log.in_transaction(1, 1, 3)
    log.commit(1)
    log.roll()
    log.clean(dirty)
    assert (log.keys(), log.offsets()) == ([2, 1, 3], [3, 4, 5, 6, 7, 8])
    # Now the round sees no record of the transaction any more.
    log.clean(5)
    log.clean(5, now_ms=NOW_MS + DAY_MS - 1)
    assert log.offsets() == [3, 4, 5, 6, 7, 8]
    log.clean(5, now_ms=NOW_MS + DAY_MS)
    assert log.offsets() == [4, 5, 6, 7, 8]


def test_cl13_a_marker_is_removed_at_its_horizon_and_not_before() -> None:
    log = CleanedLog()
    log.in_transaction(1, 1)
    log.commit(1)
    log.in_transaction(1, 1)
    log.commit(1)
    log.roll()
    log.clean()
    log.clean()
    marker = log.batches()[0]
    assert (marker.base_offset, marker.is_control, marker.delete_horizon_ms) == (1, True, NOW_MS + DAY_MS)
    assert marker.base_timestamp == NOW_MS + DAY_MS
    assert next(marker.records()).timestamp == marker.max_timestamp == NOW_MS
    log.clean(now_ms=NOW_MS + DAY_MS - 1)
    assert log.offsets() == [1, 2, 3]
    log.clean(now_ms=NOW_MS + DAY_MS)
    assert log.offsets() == [2, 3]


def test_cl17_the_horizon_of_a_marker_begins_in_the_first_pass_without_its_data_and_stays() -> None:
    log = CleanedLog()
    log.in_transaction(1, 1)
    log.commit(1)
    log.in_transaction(1, 1)
    log.commit(1)
    log.roll()
    log.clean()
    assert [each.delete_horizon_ms for each in log.batches()] == [None, None, None]
    log.clean(now_ms=NOW_MS + 1)
    log.clean(now_ms=NOW_MS + 50)
    assert [each.delete_horizon_ms for each in log.batches()] == [NOW_MS + 1 + DAY_MS, None, None]


@pytest.mark.covers("LogCleanerTest.testCommitMarkerRetentionWithEmptyBatch")
def test_cl14_a_marker_stays_while_a_batch_of_its_transaction_stays_empty() -> None:
    log = CleanedLog()
    log.in_transaction(1, 2, 3)
    log.in_transaction(2, 2, 3)
    log.commit(2)
    log.put_each(2, 3)
    log.commit(1)
    log.roll()
    for _ in range(2):
        clean_twice(log)
        assert (log.keys(), log.offsets(), log.last_offsets()) == (
            [2, 3],
            [4, 5, 6, 7],
            [1, 3, 4, 5, 6, 7],
        )
    log.in_transaction(2, 1)
    log.commit(2)
    log.roll()
    clean_twice(log)
    assert (log.keys(), log.offsets()) == ([2, 3, 1], [4, 5, 6, 7, 8, 9])
    assert log.last_offsets() == [1, 4, 5, 6, 7, 8, 9]
    log.now_ms += 3 * DAY_MS
    clean_twice(log)
    assert (log.offsets(), log.last_offsets()) == ([5, 6, 7, 8, 9], [1, 5, 6, 7, 8, 9])


@pytest.mark.covers("LogCleanerTest.testAbortMarkerRemoval")
def test_cl12_an_abort_marker_is_removed_when_no_batch_of_its_transaction_is_left() -> None:
    log = CleanedLog()
    log.in_transaction(1, 1)
    log.in_transaction(1, 2, 3)
    log.abort(1)
    log.in_transaction(1, 3)
    log.commit(1)
    log.roll()
    log.clean()
    assert (log.keys(), log.offsets(), len(log.aborted())) == ([3], [3, 4, 5], 1)
    # Its data is deleted, so its horizon begins.
    log.clean()
    assert (log.offsets(), log.aborted()) == ([3, 4, 5], [])
    log.clean(now_ms=NOW_MS + DAY_MS)
    assert log.offsets() == [4, 5]


@pytest.mark.covers("LogCleanerTest.testAbortMarkerRetentionWithEmptyBatch")
def test_cl21_an_aborted_transaction_is_indexed_while_a_batch_of_it_is_left() -> None:
    log = CleanedLog()
    log.in_transaction(1, 2, 3)
    log.abort(1)
    log.roll()
    for _ in range(2):
        clean_twice(log)
        assert (log.offsets(), log.last_offsets()) == ([2], [1, 2])
        assert [entry[:3] for entry in log.aborted()] == [(1, 0, 2)]
    log.in_transaction(1, 1)
    log.commit(1)
    log.roll()
    log.clean()
    assert (log.offsets(), log.last_offsets()) == ([2, 3, 4], [2, 3, 4])
    clean_twice(log)
    assert (log.offsets(), log.aborted()) == ([3, 4], [])


@pytest.mark.covers("LogCleanerTest.testCleanEmptyControlBatch")
def test_cl12_an_emptied_marker_may_be_cleaned_again() -> None:
    log = CleanedLog()
    # The marker ends a transaction without data.
    log.commit(1)
    log.put_each(2, 3)
    log.roll()
    for _ in range(2):
        clean_twice(log)
        assert (log.keys(), log.offsets(), log.last_offsets()) == ([2, 3], [1, 2], [0, 1, 2])
    assert log.batches()[0].is_control and log.batches()[0].record_count == 0


@pytest.mark.covers("LogCleanerTest.testMultiPassSegmentCleaningWithAbortedTransactions")
def test_kafka_13727_a_round_that_ends_early_keeps_the_aborted_transactions_of_what_it_did_not_reach() -> (
    None
):
    log = CleanedLog(replace(COMPACTED, segment_bytes=100_000))
    log.put_each(1, 2, 3, 4)
    log.in_transaction(1, 5, 6)
    log.abort(1)
    log.in_transaction(2, 7)
    log.abort(2)
    log.put(8)
    log.roll()
    aborted = log.aborted()
    assert log.clean(slots=4) == 3
    assert log.aborted() == aborted
    seen = log.log.read(0, max_size=100_000, isolation=Isolation.TXN_COMMITTED)
    assert seen.aborted_transactions is not None
    assert [entry[:2] for entry in seen.aborted_transactions] == [(1, 4), (2, 7)]


@pytest.mark.covers("LogCleanerTest.testCleaningWithKeysConflictingWithTxnMarkerKeys")
def test_kafka_14055_a_record_with_the_key_of_a_marker_takes_no_marker_away() -> None:
    log = CleanedLog()
    key, _ = encode_end_transaction_marker(is_commit=True, coordinator_epoch=0)
    log.in_transaction(1, 1)
    log.commit(1)
    log.append(build_batch([Record(0, NOW_MS, key, b"mine")]))
    log.roll()
    clean_twice(log)
    assert log.offsets() == [0, 1, 2]


def test_cl12_a_control_batch_that_ends_no_transaction_stays() -> None:
    log = CleanedLog()
    leader_change = build_batch(
        [Record(0, NOW_MS, b"\0\0\0\2", b"\0\0")], base_offset=0, is_control=True, partition_leader_epoch=0
    )
    log.log.append_as_follower(leader_change, leader_epoch=0, now_ms=NOW_MS)
    log.put(1)
    log.roll()
    clean_twice(log)
    assert log.offsets() == [0, 1]


def test_cl22_an_aborted_transaction_is_found_that_began_segments_before_its_marker() -> None:
    log = CleanedLog(replace(COMPACTED, segment_bytes=150))
    log.in_transaction(1, 1)
    for key in (2, 3, 4):
        log.roll()
        log.put(key)
    log.roll()
    log.abort(1)
    log.roll()
    end = log.log.local.segments.base_offsets[1]
    # The marker is above the end of the round.
    log.clean(end=end)
    assert log.keys() == [2, 3, 4]


def test_cl22_transactions_that_end_below_the_log_start_are_not_looked_for() -> None:
    log = CleanedLog()
    log.in_transaction(1, 1)
    log.abort(1)
    log.put(2)
    log.roll()
    log.log.marks.maybe_increment_log_start_offset(2)
    log.clean(2)
    assert log.aborted() == []


def test_cl22_a_transaction_whose_marker_is_the_first_record_left_is_looked_for() -> None:
    log = CleanedLog()
    log.in_transaction(1, 1)
    log.abort(1)
    log.put(2)
    log.roll()
    log.log.marks.maybe_increment_log_start_offset(1)
    log.clean(1)
    assert [entry[1:3] for entry in log.aborted()] == [(0, 1)]


# Producers


@pytest.mark.covers("LogCleanerTest.testDuplicateCheckAfterCleaning")
def test_cl27_the_last_batch_of_a_producer_stays_and_its_repeats_are_known() -> None:
    log = CleanedLog(replace(COMPACTED, segment_bytes=2048))
    produced = [
        log.put(1, 2, 3, producer_id=1),
        log.put(3, 1, 4, producer_id=2),
        log.put(1, 4, producer_id=3),
    ]
    log.roll()
    log.clean()
    assert (log.last_offsets(), log.keys(), log.offsets()) == ([2, 5, 7], [2, 3, 1, 4], [1, 3, 6, 7])
    assert log.last_sequences() == {1: 2, 2: 2, 3: 1}
    log.reopen()
    ranges = [(0, 2), (3, 5), (6, 7)]
    for data, expected in zip(produced, ranges, strict=True):
        info = log.log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
        assert (info.first_offset, info.last_offset) == expected
    log.put(2, producer_id=4)
    log.roll()
    log.clean()
    assert (log.last_offsets(), log.offsets()) == ([2, 5, 7, 8], [3, 6, 7, 8])
    assert log.last_sequences() == {1: 2, 2: 2, 3: 1, 4: 0}
    info = log.log.append_as_leader(produced[0], leader_epoch=0, now_ms=NOW_MS)
    assert (info.first_offset, info.last_offset) == (0, 2)


@pytest.mark.covers("LogCleanerTest.testLogCleanerRetainsProducerLastSequence")
def test_kafka_5490_only_the_newest_batch_of_a_producer_is_kept_for_its_sequence() -> None:
    log = CleanedLog()
    log.put(0)
    log.put(0, producer_id=1)
    log.put(0, producer_id=2)
    log.put(0, producer_id=2)
    log.put(1, producer_id=3)
    log.roll()
    log.clean()
    assert (log.last_offsets(), log.offsets()) == ([1, 3, 4], [3, 4])
    assert log.last_sequences() == {1: 0, 2: 1, 3: 0}


@pytest.mark.covers("LogCleanerTest.testLogCleanerRetainsLastSequenceEvenIfTransactionAborted")
def test_cl14_the_last_sequence_stays_though_its_transaction_was_aborted() -> None:
    log = CleanedLog()
    log.in_transaction(1, 1)
    log.in_transaction(1, 2, 3)
    log.abort(1)
    log.roll()
    clean_twice(log)
    assert (log.last_offsets(), log.last_sequences()) == ([2, 3], {1: 2})
    log.in_transaction(1, 2, 3)
    log.commit(1)
    log.roll()
    log.clean()
    assert log.last_offsets() == [3, 5, 6]


@pytest.mark.covers("LogCleanerTest.testEmptyBatchRemovalWithSequenceReuse")
def test_kafka_8335_sequences_that_start_again_protect_no_old_batch() -> None:
    log = CleanedLog()
    for _ in range(2):
        data = build_batch(
            [Record(log.log.log_end_offset, NOW_MS, b"2", b"2")],
            base_offset=log.log.log_end_offset,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
            partition_leader_epoch=0,
        )
        log.log.append_as_follower(data, leader_epoch=0, now_ms=NOW_MS)
        log.log.marks.update_high_watermark(log.log.log_end_offset)
        log.commit(1)
    log.put_each(2, 1)
    log.roll()
    log.clean()
    assert log.last_offsets() == [1, 2, 3, 4, 5]
    clean_twice(log)
    assert log.last_offsets() == [2, 3, 4, 5]


def test_cl14_a_producer_without_data_is_kept_by_the_marker_of_its_epoch() -> None:
    """Only this marker holds its fencing epoch."""
    log = CleanedLog()
    log.commit(1)
    log.commit(1)
    log.put(2)
    log.roll()
    clean_twice(log)
    assert log.last_offsets() == [0, 1, 2]
    assert [each.record_count for each in log.batches()] == [0, 0, 1]
    log.append(marker(1, is_commit=True, producer_epoch=1), AppendOrigin.COORDINATOR)
    log.roll()
    clean_twice(log)
    assert log.last_offsets() == [2, 3]


def test_cl14_a_producer_that_was_forgotten_keeps_no_batch() -> None:
    log = CleanedLog()
    log.put(1, producer_id=1)
    log.put(1)
    log.roll()
    log.log.producers.remove_expired(NOW_MS + 2 * DAY_MS)
    log.clean()
    assert log.last_offsets() == [1]


@pytest.mark.covers("LogCleanerTest.testCleanSegmentsRetainingLastEmptyBatch")
def test_kafka_17076_the_last_batch_of_a_round_stays_though_it_is_empty() -> None:
    log = CleanedLog()
    log.put_each(1, 2)
    log.put((1, None), (2, None))
    log.roll()
    end = log.log.log_end_offset
    log.now_ms += 1
    log.clean()
    log.clean(now_ms=NOW_MS + 2 * DAY_MS)
    assert (log.offsets(), log.last_offsets()) == ([], [end - 1])
    only = log.batches()[0]
    assert (only.base_offset, only.record_count, only.size_bytes) == (2, 0, 61)


# The walk by itself


def control(offset: int, producer_id: int, *, is_commit: bool) -> RecordBatch:
    data = marker(producer_id, is_commit=is_commit, offset=offset)
    return RecordBatch(data, 0, len(data))


def transactional(offset: int, producer_id: int) -> RecordBatch:
    data = batch(offset, producer_id=producer_id, producer_epoch=0, sequence=offset, is_transactional=True)
    return RecordBatch(data, 0, len(data))


def test_cl12_data_before_the_first_offset_of_an_aborted_transaction_is_not_of_it() -> None:
    walk = CleanedTransactions()
    walk.add_aborted([AbortedTransaction(1, 5, 9, 10)])
    assert not walk.can_discard(transactional(2, 1))
    assert not walk.can_discard(control(3, 1, is_commit=True))
    assert walk.can_discard(transactional(5, 1))
    assert not walk.can_discard(transactional(6, 2))
    assert not walk.can_discard(control(9, 1, is_commit=False))
    # Nothing was seen of another transaction.
    assert walk.can_discard(control(10, 1, is_commit=False))


def test_cl12_data_outside_transactions_is_not_discarded() -> None:
    walk = CleanedTransactions()
    walk.add_aborted([AbortedTransaction(1, 0, 9, 10)])
    data = batch(1, producer_id=1, producer_epoch=0, sequence=0)
    assert not walk.can_discard(RecordBatch(data, 0, len(data)))


def test_cl21_the_callback_gets_the_aborted_transactions_whose_data_was_seen() -> None:
    kept: list[AbortedTransaction] = []
    walk = CleanedTransactions(kept.append)
    first, second = AbortedTransaction(1, 0, 3, 4), AbortedTransaction(2, 1, 4, 5)
    walk.add_aborted([second, first])
    # A later segment names it again.
    walk.add_aborted([first])
    assert walk.can_discard(transactional(0, 1))
    assert not walk.can_discard(control(3, 1, is_commit=False))
    assert walk.can_discard(control(4, 2, is_commit=False))
    assert kept == [first]
