"""Producers and transactions in an append, and what is left of them when the append stops halfway.

Rules AP12 to AP14, PS2 to PS7, traps T34, T35.
"""

from __future__ import annotations

import pytest

from storage.batch import RecordBatch, iterate_batches
from storage.config import LogConfig
from storage.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    StorageError,
    TransactionCoordinatorFenced,
)
from storage.log import AppendOrigin
from storage.segment.fetch_data import Isolation
from tests.storage.log.appends import INT_MAX, end_transaction, follow, lead, sequenced
from tests.storage.logs import NOW_MS, ROOMY, all_bytes, batch, new_disk, new_file_system, open_log


def test_ap12_a_refused_sequence_is_noticed_after_the_roll() -> None:
    log = open_log(new_file_system(), LogConfig(segment_bytes=200, segment_index_bytes=1200))
    lead(log, sequenced(0, 3))
    with pytest.raises(OutOfOrderSequence):
        lead(log, sequenced(7, 3))
    assert log.local.segments.base_offsets == [0, 3] and log.log_end_offset == 3
    assert lead(log, sequenced(3)).first_offset == 3


def test_ap12_nothing_of_a_set_that_begins_with_a_repeat_is_written() -> None:
    """Only a follower's or an old client's set has several batches. In a client's set the first repeat ends it."""
    log = open_log(new_file_system())
    lead(log, sequenced(0))
    first = RecordBatch(sequenced(0), 0, len(sequenced(0)))
    fresh = RecordBatch(sequenced(1), 0, len(sequenced(1)))
    prepared = log.producers.prepare_append([first, fresh], origin=AppendOrigin.CLIENT)
    assert prepared.duplicate is not None and not prepared.infos
    beside = log.producers.prepare_append([first, fresh], origin=AppendOrigin.REPLICATION)
    assert beside.duplicate is None and beside.infos


@pytest.mark.covers("UnifiedLogTest.testDuplicateAppends")
def test_ap12_repeats_are_the_last_five_batches_by_both_their_sequences() -> None:
    log = open_log(new_file_system(), ROOMY)
    for sequence in range(6):
        lead(log, sequenced(sequence))
    multiple = lead(log, sequenced(6, 3))
    again = lead(log, sequenced(6, 3))
    assert (again.first_offset, again.last_offset) == (multiple.first_offset, multiple.last_offset) == (6, 8)
    with pytest.raises(OutOfOrderSequence):
        lead(log, sequenced(7, 2))
    assert lead(log, sequenced(2)).first_offset == 2
    with pytest.raises(OutOfOrderSequence):
        lead(log, sequenced(1))
    fresh, repeated = lead(log, sequenced(9)), lead(log, sequenced(9))
    assert (fresh.first_offset, fresh.is_duplicate) == (9, False)
    assert (repeated.first_offset, repeated.is_duplicate) == (9, True)


@pytest.mark.covers(
    "UnifiedLogTest.testZombieCoordinatorFenced", "UnifiedLogTest.testZombieCoordinatorFencedEmptyTransaction"
)
@pytest.mark.parametrize("with_data", [True, False])
def test_ps7_a_zombie_coordinator_is_fenced(with_data: bool) -> None:
    log = open_log(new_file_system())
    for sequence, coordinator_epoch in enumerate((1, 2)):
        if with_data:
            lead(log, sequenced(sequence, is_transactional=True))
        end_transaction(log, is_commit=True, coordinator_epoch=coordinator_epoch)
    log_end = log.log_end_offset
    with pytest.raises(TransactionCoordinatorFenced):
        end_transaction(log, is_commit=True, coordinator_epoch=1)
    assert log.log_end_offset == log_end


@pytest.mark.covers("UnifiedLogTest.testEndTxnWithFencedProducerEpoch")
def test_ps3_a_marker_of_an_older_producer_epoch_is_refused() -> None:
    log = open_log(new_file_system())
    end_transaction(log, is_commit=True, producer_epoch=5, coordinator_epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        end_transaction(log, is_commit=True, producer_epoch=4, coordinator_epoch=1)


def test_ap14_when_the_transaction_index_cannot_be_written_data_and_log_end_stay() -> None:
    disk = new_disk()
    file_system = new_file_system(disk)
    log = open_log(file_system)
    lead(log, sequenced(0, 10, is_transactional=True))
    disk.fail(1, verbs={"write_at"}, path_suffix=".txnindex")
    with pytest.raises(StorageError):
        end_transaction(log, is_commit=False)
    assert log.log_end_offset == 11 and log.online.reason is not None
    assert log.producers.map_end_offset == 10, "what was not taken in is replayed by the next start"
    assert log.producers.first_unstable_offset == 0
    log.close_handles()
    again = open_log(file_system)
    assert again.log_end_offset == 11
    again.marks.update_high_watermark(11)
    aborted = again.read(0, max_size=10_000, isolation=Isolation.TXN_COMMITTED).aborted_transactions
    assert [(each.producer_id, each.first_offset) for each in aborted or ()] == [(9, 0)]


@pytest.mark.covers("UnifiedLogTest.testAppendToTransactionIndexFailure")
def test_kafka_7866_the_log_end_moves_before_the_transaction_index() -> None:
    check_the_offsets_of_a_failed_marker_are_used()


def test_t35_the_log_end_moves_right_after_the_bytes() -> None:
    check_the_offsets_of_a_failed_marker_are_used()


def check_the_offsets_of_a_failed_marker_are_used() -> None:
    disk = new_disk()
    log = open_log(new_file_system(disk))
    lead(log, sequenced(0, 10, is_transactional=True))
    log.marks.update_high_watermark(10)
    size = log.local.segments.size_bytes
    disk.fail(1, verbs={"write_at"}, path_suffix=".txnindex")
    with pytest.raises(StorageError):
        end_transaction(log, is_commit=False)
    assert log.log_end_offset == 11 and log.local.segments.size_bytes > size
    assert log.marks.last_stable_offset == 0, "nobody reads what may have been aborted"


@pytest.mark.covers("UnifiedLogTest.testNonSequentialAppend")
def test_kafka_6683_a_failed_append_leaves_the_cached_batches_alone() -> None:
    disk = new_disk()
    file_system = new_file_system(disk)
    log = open_log(file_system)
    lead(log, sequenced(0))
    entry = log.producers.last_entry(9)
    assert entry is not None
    before = repr(entry)
    with pytest.raises(OutOfOrderSequence):
        lead(log, sequenced(2))
    assert repr(entry) == before
    disk.fail(1, verbs={"write_at"}, path_suffix=".log")
    with pytest.raises(StorageError):
        lead(log, sequenced(1))
    assert repr(entry) == before


def test_kafka_6683_a_snapshot_at_a_roll_holds_nothing_beyond_its_offset() -> None:
    file_system = new_file_system()
    log = open_log(file_system, LogConfig(segment_bytes=200, segment_index_bytes=1200))
    lead(log, sequenced(0, 3))
    lead(log, sequenced(3, 3))
    assert log.local.segments.base_offsets == [0, 3]
    log.close_handles()
    again = open_log(file_system, LogConfig(segment_bytes=200, segment_index_bytes=1200), recovery_point=6)
    again.truncate_to(3, now_ms=NOW_MS)
    entry = again.producers.last_entry(9)
    assert entry is not None and (entry.last_sequence, entry.last_offset) == (2, 2)


def test_kafka_6003_a_follower_without_state_takes_any_sequence() -> None:
    log = open_log(new_file_system())
    data = batch(5, producer_id=9, producer_epoch=3, sequence=17)
    assert follow(log, data).last_offset == 5
    entry = log.producers.last_entry(9)
    assert entry is not None and (entry.producer_epoch, entry.last_sequence) == (3, 17)


@pytest.mark.parametrize("sequence", [INT_MAX, INT_MAX - 1])
def test_kafka_5283_sequences_wrap_around_on_a_leader(sequence: int) -> None:
    log = open_log(new_file_system())
    lead(log, sequenced(sequence, 3))
    entry = log.producers.last_entry(9)
    assert entry is not None and entry.last_sequence == (sequence + 2) & INT_MAX >= 0
    assert lead(log, sequenced(sequence, 3)).is_duplicate
    assert lead(log, sequenced(entry.last_sequence + 1)).last_offset == 3


def test_kafka_7692_a_producer_epoch_may_be_the_largest() -> None:
    log = open_log(new_file_system())
    lead(log, sequenced(0, epoch=2**15 - 2))
    lead(log, sequenced(0, epoch=2**15 - 1))
    with pytest.raises(InvalidProducerEpoch):
        lead(log, sequenced(1, epoch=2**15 - 2))


def test_t34_a_coordinator_has_epochs_but_no_sequences() -> None:
    log = open_log(new_file_system())
    for _ in range(2):
        lead(log, sequenced(5, epoch=1), origin=AppendOrigin.COORDINATOR)
    with pytest.raises(InvalidProducerEpoch):
        lead(log, sequenced(6, epoch=0), origin=AppendOrigin.COORDINATOR)
    assert log.log_end_offset == 2


def test_ap13_data_outside_an_open_transaction_is_refused() -> None:
    log = open_log(new_file_system())
    lead(log, sequenced(0, is_transactional=True))
    with pytest.raises(InvalidTransactionState):
        lead(log, sequenced(1))
    assert lead(log, sequenced(1, is_transactional=True)).first_offset == 1


@pytest.mark.covers("UnifiedLogTest.testDuplicateAppendToFollower")
def test_t34_the_same_sequence_twice_from_a_leader_is_taken() -> None:
    log = open_log(new_file_system())
    for first in (0, 2):
        follow(log, batch(first, 2, producer_id=9, producer_epoch=0, sequence=10))
    assert log.log_end_offset == 4


@pytest.mark.covers(
    "UnifiedLogTest.testMultipleProducersWithDuplicatesInSingleAppend",
    "UnifiedLogTest.testMultipleProducerIdsPerMemoryRecord",
)
def test_ps2_many_producers_in_one_set_of_a_follower() -> None:
    log = open_log(new_file_system(), ROOMY)
    chosen = [(1, 0), (1, 0), (1, 1), (2, 0), (2, 0)]
    data = b"".join(
        batch(offset, producer_id=pid, producer_epoch=0, sequence=sequence)
        for offset, (pid, sequence) in enumerate(chosen)
    )
    assert follow(log, data).batch_count == 5 and log.log_end_offset == 5
    read = list(iterate_batches(all_bytes(log)))
    assert [(each.producer_id, each.base_offset, each.base_sequence) for each in read] == [
        (pid, offset, sequence) for offset, (pid, sequence) in enumerate(chosen)
    ]
    assert {pid: entry.last_sequence for pid, entry in log.producers.producers.items()} == {1: 1, 2: 0}


@pytest.mark.covers("UnifiedLogTest.testOldProducerEpoch")
def test_ps3_an_old_epoch_is_refused_by_a_leader() -> None:
    log = open_log(new_file_system())
    lead(log, sequenced(0, epoch=1))
    with pytest.raises(InvalidProducerEpoch):
        lead(log, sequenced(0, epoch=0))
