"""Producer state under appends: rules PS1 to PS12, PS22, PS25 and Kafka's ProducerStateManagerTest (2.10, 3.15)."""

from __future__ import annotations

import pytest

from storage.batch import Record, RecordBatch, build_batch
from storage.batch.format import TRANSACTIONAL_FLAG
from storage.disk.filesystem import FileSystem
from storage.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from storage.producers.entry import AppendOrigin, BatchMetadata, CompletedTransaction
from storage.producers.state import ProducerStateManager
from storage.segment.place import LogOffsetMetadata
from tests.storage.producers.producers import INT_MAX, NOW, PID, append, data, marker, new_disk, state


@pytest.fixture
def file_system() -> FileSystem:
    return new_disk()[1]


@pytest.fixture
def manager(file_system: FileSystem) -> ProducerStateManager:
    return ProducerStateManager(file_system, "/log")


@pytest.mark.covers("ProducerStateManagerTest.testPrepareUpdateDoesNotMutate")
def test_ps1_prepare_update_does_not_mutate(manager: ProducerStateManager) -> None:
    info = manager.prepare_update(PID, AppendOrigin.CLIENT)
    info.append(data(15, 0, count=6))
    assert manager.last_entry(PID) is None
    manager.update(info)
    before = state(manager)
    info = manager.prepare_update(PID, AppendOrigin.CLIENT)
    info.append(data(21, 6, count=5))
    assert state(manager) == before
    manager.update(info)
    entry = manager.producers[PID]
    assert (entry.first_sequence, entry.last_sequence, entry.last_offset) == (0, 10, 25)


def test_ps1_a_refused_append_leaves_no_trace(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0, transactional=True))
    before = state(manager)
    with pytest.raises(OutOfOrderSequence):
        manager.prepare_append(
            [data(1, 1, transactional=True), data(2, 5, transactional=True)], origin=AppendOrigin.CLIENT
        )
    assert state(manager) == before
    assert [transaction.first_offset for transaction in manager.ongoing_transactions] == [0]


@pytest.mark.covers("ProducerStateManagerTest.testAppendEmptyControlBatch")
def test_ps2_empty_control_batch_makes_an_entry_without_a_transaction(manager: ProducerStateManager) -> None:
    content = bytearray(marker(15, commit=True).tobytes()[:61])
    content[57:61] = bytes(4)
    batch = RecordBatch(bytes(content), 0, 61)
    assert append(manager, batch, origin=AppendOrigin.REPLICATION) == []
    entry = manager.producers[PID]
    assert entry.transaction_first_offset is None and entry.is_empty


def test_ps2_a_control_record_that_is_no_marker_is_refused(manager: ProducerStateManager) -> None:
    content = build_batch(
        [Record(0, NOW, b"\x00\x00\x00\x02", b"")],
        producer_id=PID,
        producer_epoch=0,
        is_control=True,
        is_transactional=True,
    )
    with pytest.raises(InvalidRecord):
        manager.replay(RecordBatch(content, 0, len(content)))
    assert state(manager) == []


@pytest.mark.covers("ProducerStateManagerTest.testOldEpochForControlRecord")
def test_ps3_an_older_epoch_is_refused_but_for_replication(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0, epoch=5))
    for origin in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR):
        with pytest.raises(InvalidProducerEpoch, match="older"):
            manager.prepare_append([data(1, 0, epoch=4)], origin=origin)
        with pytest.raises(InvalidProducerEpoch):
            manager.prepare_append([marker(1, commit=True, epoch=3)], origin=origin)
    append(manager, data(1, 0, epoch=4), origin=AppendOrigin.REPLICATION)
    assert manager.producers[PID].producer_epoch == 4


@pytest.mark.covers("ProducerStateManagerTest.testBasicIdMapping")
def test_ps4_basic_sequences(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0))
    append(manager, data(1, 1))
    for sequence in (5, 3, 0):
        info = manager.prepare_update(PID, AppendOrigin.CLIENT)
        with pytest.raises(OutOfOrderSequence, match=f"sequence {sequence} does not follow 1"):
            info.append(data(2, sequence))
    append(manager, data(2, 0, epoch=1))
    with pytest.raises(InvalidProducerEpoch):
        manager.prepare_append([data(3, 0, epoch=0)], origin=AppendOrigin.CLIENT)


def test_ps4_sequences_follow_within_one_append(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0, count=3), data(3, 3), data(4, 4, count=2))
    assert manager.producers[PID].last_sequence == 5
    with pytest.raises(OutOfOrderSequence):
        manager.prepare_append([data(6, 6), data(7, 8)], origin=AppendOrigin.CLIENT)


def test_ps4_new_epoch_must_begin_at_zero(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0))
    with pytest.raises(OutOfOrderSequence, match="expected 0"):
        manager.prepare_append([data(1, 1, epoch=1)], origin=AppendOrigin.CLIENT)
    append(manager, data(1, 0, epoch=1))


def test_ps4_unknown_producer_may_begin_anywhere(manager: ProducerStateManager) -> None:
    append(manager, data(0, 17, epoch=3))
    assert manager.producers[PID].last_sequence == 17
    with pytest.raises(OutOfOrderSequence):
        manager.prepare_append([data(1, 19, epoch=3)], origin=AppendOrigin.CLIENT)


@pytest.mark.covers("ProducerStateManagerTest.testProducerSequenceWrapAround")
def test_ps4_sequence_wraps_around(manager: ProducerStateManager) -> None:
    append(manager, data(0, INT_MAX), origin=AppendOrigin.REPLICATION)
    append(manager, data(1, 0))
    entry = manager.producers[PID]
    assert (entry.first_sequence, entry.last_sequence) == (INT_MAX, 0)


@pytest.mark.covers("ProducerStateManagerTest.testProducerSequenceWithWrapAroundBatchRecord")
def test_ps4_sequence_wraps_within_a_batch(manager: ProducerStateManager) -> None:
    append(manager, data(2000, INT_MAX - 10, count=21), origin=AppendOrigin.REPLICATION)
    assert manager.producers[PID].batch_metadata == [BatchMetadata(9, 2020, 20, NOW)]
    assert manager.producers[PID].first_sequence == INT_MAX - 10
    append(manager, data(2021, 10))


@pytest.mark.covers("ProducerStateManagerTest.testProducerSequenceInvalidWrapAround")
def test_ps4_wrap_to_anything_but_zero_is_refused(manager: ProducerStateManager) -> None:
    append(manager, data(0, INT_MAX), origin=AppendOrigin.REPLICATION)
    with pytest.raises(OutOfOrderSequence):
        manager.prepare_append([data(1, 1)], origin=AppendOrigin.CLIENT)


@pytest.mark.covers(
    "ProducerStateManagerTest.testNoValidationOnFirstEntryWhenLoadingLog",
    "ProducerStateManagerTest.testAcceptAppendWithoutProducerStateOnReplica",
    "ProducerStateManagerTest.testAcceptAppendWithSequenceGapsOnReplica",
    "ProducerStateManagerTest.testSequenceNotValidatedForGroupMetadataTopic",
)
@pytest.mark.parametrize("origin", [AppendOrigin.REPLICATION, AppendOrigin.COORDINATOR])
def test_ps4_only_clients_sequences_are_checked(manager: ProducerStateManager, origin: AppendOrigin) -> None:
    append(manager, data(0, 5), origin=origin)
    append(manager, data(1, 9), origin=origin)
    append(manager, data(2, 9), origin=origin)
    assert manager.producers[PID].last_sequence == 9


def test_ps5_five_batches_are_kept_and_another_epoch_forgets_them(manager: ProducerStateManager) -> None:
    for number in range(7):
        append(manager, data(number, number, timestamp=NOW + number))
    entry = manager.producers[PID]
    assert [batch.last_sequence for batch in entry.batch_metadata] == [2, 3, 4, 5, 6]
    assert entry.last_timestamp == NOW + 6
    append(manager, data(7, 0, epoch=1))
    assert [batch.last_offset for batch in entry.batch_metadata] == [7]


@pytest.mark.covers("ProducerStateManagerTest.testNonTransactionalAppendWithOngoingTransaction")
def test_ps6_data_outside_an_open_transaction_is_refused(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0, transactional=True))
    for origin in AppendOrigin:
        with pytest.raises(InvalidTransactionState, match="begun at 0 is open"):
            manager.prepare_append([data(1, 1)], origin=origin)
    before = state(manager)
    with pytest.raises(InvalidTransactionState):
        manager.replay(data(1, 1))
    assert state(manager) == before


@pytest.mark.covers("ProducerStateManagerTest.testTxnFirstOffsetMetadataCached")
def test_ps6_a_transaction_opens_at_its_first_batch_with_its_place(manager: ProducerStateManager) -> None:
    first, second = data(13, 0, transactional=True), data(14, 1, transactional=True)
    other = data(15, 0, pid=2, transactional=True)
    content = first.tobytes() + second.tobytes() + other.tobytes()
    batches, position = [], 0
    for batch in (first, second, other):
        batches.append(RecordBatch(content, position, batch.size_bytes))
        position += batch.size_bytes
    prepared = manager.prepare_append(
        batches, origin=AppendOrigin.CLIENT, segment_base_offset=10, position=1000
    )
    assert manager.first_unstable_transaction is None
    manager.commit(prepared)
    assert [transaction.place for transaction in manager.ongoing_transactions] == [
        LogOffsetMetadata(13, 10, 1000),
        LogOffsetMetadata(15, 10, 1000 + first.size_bytes + second.size_bytes),
    ]


@pytest.mark.covers("ProducerStateManagerTest.updateProducerTransactionState")
def test_ps7_a_marker_completes_the_transaction(manager: ProducerStateManager) -> None:
    append(manager, data(16, 1, count=5, transactional=True))
    append(manager, data(26, 6, count=5, transactional=True))
    assert append(manager, marker(40, commit=True), origin=AppendOrigin.COORDINATOR) == [
        CompletedTransaction(PID, 16, 40, False)
    ]
    entry = manager.producers[PID]
    assert entry.transaction_first_offset is None and entry.coordinator_epoch == 0
    assert [batch.last_sequence for batch in entry.batch_metadata] == [5, 10]


@pytest.mark.covers("ProducerStateManagerTest.testSkipEmptyTransactions")
def test_ps7_a_marker_without_data_completes_nothing(manager: ProducerStateManager) -> None:
    for offset in (10, 11):
        assert append(manager, marker(offset, commit=False), origin=AppendOrigin.COORDINATOR) == []
    append(manager, data(24, 0, count=4, transactional=True))
    aborted = append(manager, marker(28, commit=False), origin=AppendOrigin.COORDINATOR)
    assert aborted == [CompletedTransaction(PID, 24, 28, True)]
    append(manager, data(30, 4, count=2, transactional=True))
    manager.on_high_watermark_updated(32)
    assert manager.first_unstable_offset == 30


@pytest.mark.covers("ProducerStateManagerTest.testCoordinatorFencing")
def test_ps7_an_older_coordinator_is_fenced_but_for_replication(manager: ProducerStateManager) -> None:
    for offset, coordinator_epoch in ((0, 1), (1, 1), (2, 2)):
        append(
            manager,
            marker(offset, commit=False, coordinator_epoch=coordinator_epoch),
            origin=AppendOrigin.COORDINATOR,
        )
    with pytest.raises(TransactionCoordinatorFenced):
        manager.prepare_append(
            [marker(3, commit=False, coordinator_epoch=1)], origin=AppendOrigin.COORDINATOR
        )
    append(manager, marker(3, commit=False, coordinator_epoch=1), origin=AppendOrigin.REPLICATION)
    assert manager.producers[PID].coordinator_epoch == 1


@pytest.mark.covers(
    "ProducerStateManagerTest.testControlRecordBumpsProducerEpoch",
    "ProducerStateManagerTest.testOutOfSequenceAfterControlRecordEpochBump",
)
def test_ps8_a_marker_of_a_higher_epoch_fences(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0, transactional=True))
    append(manager, marker(1, commit=False, epoch=1), origin=AppendOrigin.COORDINATOR)
    entry = manager.producers[PID]
    assert (entry.producer_epoch, entry.last_sequence, entry.transaction_first_offset) == (1, -1, None)
    for epoch in (1, 2):
        with pytest.raises(OutOfOrderSequence):
            manager.prepare_append([data(2, 2, epoch=epoch)], origin=AppendOrigin.CLIENT)
    append(manager, data(2, 0, epoch=1))


@pytest.mark.covers("ProducerStateManagerTest.testAppendTxnMarkerWithNoProducerState")
def test_ps8_a_marker_makes_an_unknown_producer_known(manager: ProducerStateManager) -> None:
    append(manager, marker(27, commit=True, epoch=2), origin=AppendOrigin.COORDINATOR)
    assert manager.producers[PID].last_sequence == -1
    with pytest.raises(InvalidProducerEpoch):
        manager.prepare_append([data(28, 0, epoch=0)], origin=AppendOrigin.CLIENT)
    with pytest.raises(OutOfOrderSequence):
        manager.prepare_append([data(28, 17, epoch=2)], origin=AppendOrigin.CLIENT)
    append(manager, data(28, 0, epoch=2))


def test_ps10_a_retry_of_one_of_the_last_five_is_known(manager: ProducerStateManager) -> None:
    for number in range(6):
        append(manager, data(number * 2, number * 2, count=2))
    for number in range(1, 6):
        prepared = manager.prepare_append(
            [data(50, number * 2, count=2), data(99, 77)], origin=AppendOrigin.CLIENT
        )
        assert prepared.duplicate == BatchMetadata(number * 2 + 1, number * 2 + 1, 1, NOW)
        assert prepared.duplicate.first_offset == number * 2
    for unknown in (data(50, 0, count=2), data(50, 2), data(50, 2, count=3), data(50, 3), data(50, 9)):
        with pytest.raises(OutOfOrderSequence):
            manager.prepare_append([unknown], origin=AppendOrigin.CLIENT)
    assert manager.find_duplicate(data(50, 2, count=2, epoch=1)) is None
    assert manager.find_duplicate(data(50, 2, count=2, pid=9)) is None


def test_ps10_replication_knows_no_duplicates(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0))
    append(manager, data(1, 0), origin=AppendOrigin.REPLICATION)
    assert manager.producers[PID].last_offset == 1


@pytest.mark.covers("ProducerStateManagerTest.testLastStableOffsetCompletedTxn")
def test_ps11_last_stable_offset_of_overlapping_transactions(manager: ProducerStateManager) -> None:
    for pid, offset in ((1, 99), (2, 100), (3, 104)):
        append(manager, data(offset, 0, pid=pid, transactional=True))

    def complete(pid: int, offset: int) -> int:
        prepared = manager.prepare_append(
            [marker(offset, commit=True, pid=pid)], origin=AppendOrigin.COORDINATOR
        )
        manager.commit(prepared)
        (completed,) = prepared.completed
        last_stable_offset = manager.last_stable_offset(completed)
        manager.complete_transaction(completed)
        manager.on_high_watermark_updated(offset + 1)
        assert manager.first_unstable_offset == manager.first_undecided_offset
        return last_stable_offset

    assert [complete(1, 105), complete(3, 106), complete(2, 107)] == [100, 100, 108]


def test_ps12_completing_a_transaction_that_is_not_open_is_refused(manager: ProducerStateManager) -> None:
    with pytest.raises(InvalidTransactionState, match="not open"):
        manager.complete_transaction(CompletedTransaction(PID, 5, 6, False))


@pytest.mark.covers("ProducerStateManagerTest.testFirstUnstableOffset")
def test_ps12_unstable_until_the_high_watermark_has_passed_the_marker(
    manager: ProducerStateManager,
) -> None:
    append(manager, data(99, 0, transactional=True))
    append(manager, data(105, 0, pid=2, transactional=True))
    append(manager, marker(109, commit=True), origin=AppendOrigin.COORDINATOR)
    assert (manager.first_unstable_offset, manager.first_undecided_offset) == (99, 105)
    manager.on_high_watermark_updated(109)
    assert manager.first_unstable_offset == 99
    manager.on_high_watermark_updated(110)
    assert manager.first_unstable_offset == 105
    append(manager, marker(112, commit=False, pid=2), origin=AppendOrigin.COORDINATOR)
    manager.on_high_watermark_updated(113)
    assert manager.first_unstable_transaction is None and manager.first_undecided_offset is None


def test_ps25_replay_makes_the_state_that_the_appends_made(file_system: FileSystem) -> None:
    live, replayed = (ProducerStateManager(file_system, "/log") for _ in range(2))
    batches = [
        data(0, 0),
        data(1, 1, count=4),
        data(5, 0, pid=2, transactional=True),
        data(6, 5),
        marker(7, commit=True, pid=2, timestamp=NOW + 3),
        data(8, 0, epoch=1),
        data(9, 1, pid=2, transactional=True),
        marker(10, commit=False, pid=2, epoch=1),
        data(11, INT_MAX - 1, pid=3, count=5),
    ]
    completed = []
    for batch in batches:
        append(live, batch, origin=AppendOrigin.REPLICATION)
        done = replayed.replay(batch)
        if done is not None:
            completed.append(done)
            replayed.complete_transaction(done)
    assert state(replayed) == state(live)
    assert completed == [CompletedTransaction(2, 5, 7, False), CompletedTransaction(2, 9, 10, True)]
    assert replayed.producers[3].last_sequence == 2
    assert replayed.replay(RecordBatch(build_batch([Record(0, 1, None, b"")]), 0, 68)) is None


def test_ps25_replayed_header_opens_transactions_in_order(manager: ProducerStateManager) -> None:
    manager.replay_data(TRANSACTIONAL_FLAG, 0, NOW, 5, 0, 0, 30)
    manager.replay_data(TRANSACTIONAL_FLAG, 0, NOW, 6, 0, 0, 20)
    manager.replay_data(TRANSACTIONAL_FLAG, 0, NOW, 5, 0, 1, 40)
    assert [transaction.first_offset for transaction in manager.ongoing_transactions] == [20, 30]
    assert manager.first_unstable_offset == 20


def test_ps22_the_first_unstable_offset_is_the_least_of_open_and_unreplicated(
    manager: ProducerStateManager,
) -> None:
    append(manager, data(10, 0, pid=1, transactional=True), data(20, 0, pid=2, transactional=True))
    append(manager, marker(30, commit=True, pid=2), origin=AppendOrigin.COORDINATOR)
    assert manager.first_unstable_offset == 10, "the open one begins lower"
    append(manager, marker(31, commit=True, pid=1), origin=AppendOrigin.COORDINATOR)
    append(manager, data(32, 0, pid=3, transactional=True))
    assert (manager.first_unstable_offset, manager.first_undecided_offset) == (10, 32)
    manager.on_high_watermark_updated(31)
    assert manager.first_unstable_offset == 10, "the marker at 31 is not replicated"
    manager.on_high_watermark_updated(32)
    assert manager.first_unstable_offset == 32


def test_ps9_an_update_is_merged_with_the_existing_entry(manager: ProducerStateManager) -> None:
    for number in range(4):
        append(manager, data(number, number, timestamp=NOW + number))
    append(manager, data(4, 4), data(5, 5, timestamp=NOW + 9))
    entry = manager.producers[PID]
    assert [batch.last_sequence for batch in entry.batch_metadata] == [1, 2, 3, 4, 5]
    assert entry.last_timestamp == NOW + 9
    with pytest.raises(AssertionError):
        manager.prepare_update(-1, AppendOrigin.CLIENT)


@pytest.mark.covers("ProducerStateManagerTest.testProducerStateAfterFencingAbortMarker")
def test_ps7_an_aborting_marker_of_a_later_epoch_leaves_no_batches(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0, transactional=True))
    append(manager, marker(1, commit=False, epoch=1), origin=AppendOrigin.COORDINATOR)
    entry = manager.producers[PID]
    assert (entry.last_offset, entry.last_sequence, entry.is_empty) == (-1, -1, True)
    assert entry.last_timestamp == NOW, "that of the marker"
    manager.remove_expired(NOW + 1)
    assert manager.last_entry(PID) is not None


def test_ps7_a_marker_of_the_same_epoch_keeps_the_batches(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0, transactional=True))
    append(manager, marker(1, commit=True, timestamp=NOW + 5), origin=AppendOrigin.COORDINATOR)
    entry = manager.producers[PID]
    assert (entry.last_offset, entry.last_sequence, entry.last_timestamp) == (0, 0, NOW + 5)
    assert manager.find_duplicate(data(9, 0)) is not None


def test_ps21_an_unreplicated_transaction_of_a_forgotten_producer_counts(
    manager: ProducerStateManager,
) -> None:
    append(manager, data(0, 0, transactional=True))
    append(manager, marker(1, commit=True), origin=AppendOrigin.COORDINATOR)
    manager.remove_expired(NOW + 86_400_000)
    assert not manager.producers and not manager.is_empty
    manager.on_high_watermark_updated(2)
    assert manager.is_empty
