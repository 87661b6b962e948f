"""The confirmation that a producer needs before it begins a transaction: rules PS23, PS4a, PS13, AP13 (KIP-890)."""

from __future__ import annotations

import pytest

from storage.errors import InvalidProducerEpoch, InvalidTransactionState, OutOfOrderSequence
from storage.log import PartitionLog
from storage.producers.entry import AppendOrigin
from storage.producers.state import ProducerStateManager
from storage.producers.verification import TransactionVerifications, VerificationGuard
from tests.storage.log.appends import end_transaction
from tests.storage.logs import NOW_MS, batch, new_file_system, open_log
from tests.storage.producers.producers import DAY_MS, PID, append, data, marker, new_disk

WRITERS = [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR]


@pytest.fixture
def manager() -> ProducerStateManager:
    return ProducerStateManager(new_disk()[1], "/log", verifies_transactions=True)


@pytest.fixture
def log() -> PartitionLog:
    opened = open_log(new_file_system())
    opened.producers.verifies_transactions = True
    return opened


def ask(
    manager: ProducerStateManager,
    sequence: int = 0,
    epoch: int = 0,
    *,
    now_ms: int = 0,
    supports_epoch_bump: bool = False,
) -> VerificationGuard:
    guard = manager.maybe_start_verification(
        PID,
        sequence=sequence,
        producer_epoch=epoch,
        supports_epoch_bump=supports_epoch_bump,
        now_ms=now_ms,
    )
    assert guard is not None
    return guard


def begun(
    log: PartitionLog,
    guard: VerificationGuard | None,
    *,
    sequence: int = 0,
    epoch: int = 0,
    is_transactional: bool = True,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> None:
    records = batch(
        producer_id=PID,
        producer_epoch=epoch,
        sequence=sequence,
        is_transactional=is_transactional,
        epoch=-1,
    )
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, origin=origin, guard=guard)


def ended(log: PartitionLog, *, epoch: int = 0) -> None:
    end_transaction(log, PID, is_commit=True, producer_epoch=epoch)


def asked(log: PartitionLog, *, sequence: int = 0, epoch: int = 0) -> VerificationGuard | None:
    return log.appends.maybe_start_transaction_verification(
        PID, sequence=sequence, producer_epoch=epoch, supports_epoch_bump=False, now_ms=NOW_MS
    )


@pytest.mark.covers("VerificationGuardTest.testEqualsAndHashCode", "VerificationGuardTest.testVerify")
def test_ps23_a_guard_is_equal_to_itself_alone() -> None:
    first, second = VerificationGuard(), VerificationGuard()
    assert first == first and first != second
    assert len({first, second, first}) == 2
    verifications = TransactionVerifications()
    assert not verifications.is_verified(PID, None)
    guard = verifications.note(PID, sequence=0, producer_epoch=0, now_ms=0).guard
    assert verifications.is_verified(PID, guard)
    assert not verifications.is_verified(PID, None) and not verifications.is_verified(PID, first)
    assert not verifications.is_verified(PID + 1, guard)


@pytest.mark.covers("ProducerStateManagerTest.testEntryForVerification")
def test_ps23_an_entry_keeps_its_guard_until_the_producer_writes(manager: ProducerStateManager) -> None:
    guard = ask(manager)
    assert ask(manager) is guard, "asked twice, one guard"
    prepared = manager.prepare_append(
        [data(0, 0, transactional=True)], origin=AppendOrigin.CLIENT, guard=guard
    )
    manager.commit(prepared)
    assert manager.verifications.entry(PID) is None
    append(manager, marker(1, commit=True), origin=AppendOrigin.COORDINATOR)
    assert ask(manager, 1) is not guard, "the next transaction has a guard of its own"


def test_ps23_idempotent_data_leaves_the_entry(manager: ProducerStateManager) -> None:
    guard = ask(manager)
    append(manager, data(0, 0))
    assert ask(manager, 1) is guard


@pytest.mark.covers("ProducerStateManagerTest.testSequenceAndEpochInVerificationEntry")
def test_ps23_the_least_sequence_of_the_highest_epoch_counts(manager: ProducerStateManager) -> None:
    ask(manager, 1, 0)
    entry = manager.verifications.entry(PID)
    assert entry is not None
    seen = []
    for sequence, epoch in ((2, 0), (0, 0), (3, 1), (1, 0), (2, 1), (4, 1)):
        ask(manager, sequence, epoch)
        seen.append((entry.lowest_sequence, entry.producer_epoch))
    assert seen == [(1, 0), (0, 0), (3, 1), (3, 1), (2, 1), (2, 1)]
    assert manager.verifications.entry(PID) is entry


def test_ps23_an_old_epoch_may_not_ask(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0, epoch=3))
    with pytest.raises(InvalidProducerEpoch, match="epoch 2 is older than the last seen epoch 3"):
        ask(manager, 0, 2)
    assert len(manager.verifications) == 0


def test_ps23_a_transaction_that_is_open_here_needs_no_guard(manager: ProducerStateManager) -> None:
    prepared = manager.prepare_append(
        [data(0, 0, transactional=True)], origin=AppendOrigin.CLIENT, guard=ask(manager)
    )
    manager.commit(prepared)
    assert manager.maybe_start_verification(PID, sequence=1, producer_epoch=0, now_ms=0) is None
    assert manager.maybe_start_verification(PID, sequence=0, producer_epoch=1, now_ms=0) is not None


@pytest.mark.covers("ProducerStateManagerTest.testThrowOutOfOrderSequenceWithVerificationSequenceCheck")
@pytest.mark.parametrize("supports_epoch_bump", [False, True])
def test_ps4a_a_sequence_above_the_least_one_verified_is_refused(
    manager: ProducerStateManager, supports_epoch_bump: bool
) -> None:
    guard = ask(manager, 0, supports_epoch_bump=supports_epoch_bump)
    with pytest.raises(OutOfOrderSequence):
        manager.prepare_append([data(0, 4, transactional=True)], origin=AppendOrigin.CLIENT, guard=guard)
    if not supports_epoch_bump:
        return
    prepared = manager.prepare_append(
        [data(0, 0, transactional=True)], origin=AppendOrigin.CLIENT, guard=guard
    )
    manager.commit(prepared)
    assert manager.last_entry(PID) is not None


def test_ps4a_a_producer_that_may_raise_its_epoch_begins_at_zero(manager: ProducerStateManager) -> None:
    guard = ask(manager, 4, supports_epoch_bump=True)
    with pytest.raises(OutOfOrderSequence, match="is unknown and begins at offset 0 with sequence 4"):
        manager.prepare_append([data(0, 4, transactional=True)], origin=AppendOrigin.CLIENT, guard=guard)


def test_ps4a_a_known_producer_that_may_raise_its_epoch_goes_on_in_sequence(
    manager: ProducerStateManager,
) -> None:
    append(manager, data(0, 0, count=4))
    guard = ask(manager, 4, supports_epoch_bump=True)
    batches = [data(4, 4, transactional=True)]
    assert manager.prepare_append(batches, origin=AppendOrigin.CLIENT, guard=guard).infos


def test_ps4a_replication_and_coordinator_are_not_held_to_it(manager: ProducerStateManager) -> None:
    ask(manager, 0)
    for origin in (AppendOrigin.REPLICATION, AppendOrigin.COORDINATOR):
        assert manager.prepare_append([data(0, 4)], origin=origin).infos


@pytest.mark.covers("ProducerStateManagerTest.testVerificationStateEntryExpiration")
def test_ps13_verification_entries_expire_at_the_limit(manager: ProducerStateManager) -> None:
    guard = ask(manager, now_ms=1000)
    manager.remove_expired(1000 + DAY_MS - 1)
    assert ask(manager, now_ms=2000) is guard
    manager.remove_expired(1000 + DAY_MS)
    assert manager.verifications.entry(PID) is None
    assert ask(manager, now_ms=1000 + DAY_MS) is not guard


@pytest.mark.covers("UnifiedLogTest.testTransactionIsOngoingAndVerificationGuard")
@pytest.mark.parametrize("origin", WRITERS)
def test_ap13_the_first_batch_of_a_transaction_needs_its_guard(
    log: PartitionLog, origin: AppendOrigin
) -> None:
    with pytest.raises(InvalidTransactionState, match="has not confirmed"):
        begun(log, None, origin=origin)
    guard = asked(log, sequence=1)
    assert guard is not None
    with pytest.raises(InvalidTransactionState):
        begun(log, VerificationGuard(), origin=origin)
    # Without a transaction the guard stays.
    begun(log, None, is_transactional=False, origin=origin)
    assert asked(log, sequence=1) is guard
    begun(log, guard, sequence=1, origin=origin)
    assert asked(log, sequence=2) is None
    begun(log, None, sequence=2, origin=origin)
    ended(log)
    with pytest.raises(InvalidTransactionState):
        begun(log, guard, sequence=3, origin=origin)
    assert asked(log, sequence=3) is not guard
    assert log.log_end_offset == 4


@pytest.mark.covers("UnifiedLogTest.testEmptyTransactionStillClearsVerificationGuard")
def test_ap13_a_marker_without_data_takes_the_guard_back(log: PartitionLog) -> None:
    guard = asked(log)
    ended(log)
    assert asked(log) is not guard
    with pytest.raises(InvalidTransactionState):
        begun(log, guard)


@pytest.mark.covers("UnifiedLogTest.testDisabledVerificationClearsVerificationGuard")
def test_ap13_switched_off_nothing_is_needed_and_the_guard_is_dropped(log: PartitionLog) -> None:
    guard = asked(log)
    log.producers.verifies_transactions = False
    begun(log, None)
    assert asked(log) is None and guard is not None
    assert log.producers.verifications.entry(PID) is None


@pytest.mark.covers("UnifiedLogTest.testEnablingVerificationWhenRequestIsAtLogLayer")
def test_ap13_a_request_under_way_when_verification_is_enabled_is_refused(log: PartitionLog) -> None:
    log.producers.verifies_transactions = False
    # The request was checked before the setting changed.
    log.producers.verifies_transactions = True
    with pytest.raises(InvalidTransactionState):
        begun(log, None)
    assert log.log_end_offset == 0
    begun(log, asked(log))
    assert log.log_end_offset == 1


@pytest.mark.covers("UnifiedLogTest.testAllowNonZeroSequenceOnFirstAppendNonZeroEpoch")
def test_ap13_an_unknown_producer_of_a_later_epoch_may_begin_at_any_sequence(log: PartitionLog) -> None:
    begun(log, asked(log, sequence=3, epoch=1), sequence=3, epoch=1)
    entry = log.producers.last_entry(PID)
    assert entry is not None and (entry.producer_epoch, entry.last_sequence) == (1, 3)


def test_ap13_a_follower_accepts_what_its_leader_accepted(log: PartitionLog) -> None:
    records = batch(producer_id=PID, producer_epoch=0, sequence=0, is_transactional=True)
    log.append_as_follower(records, leader_epoch=0, now_ms=NOW_MS)
    assert log.log_end_offset == 1


def test_ap13_an_open_transaction_of_another_producer_epoch_confirms_nothing(log: PartitionLog) -> None:
    begun(log, asked(log))
    with pytest.raises(InvalidTransactionState, match="has not confirmed"):
        begun(log, None, sequence=0, epoch=1)
    assert log.log_end_offset == 1
