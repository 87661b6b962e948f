"""Appends of a part of the node: each outcome is told once, at the end of a step, with the right reason (PRO)."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import replace
from typing import final

import pytest

from cluster.core.effects import Reply, SetTimer
from cluster.core.errors import ErrorCode
from cluster.core.fencing import LogView
from cluster.core.messages import NO_TOPIC_ID, FetchPartition, FetchRequest
from cluster.core.metadata.image import PartitionRegistration
from cluster.core.replica import leader_appends
from cluster.core.replica.leader_appends import ACKS_ALL, ACKS_LEADER
from cluster.core.replica.manager import MAX_SETTLING_ROUNDS, SETTLING_TIMER
from cluster.core.replica.outcomes import Appended, NotCommitted, Outcome
from storage.errors import StorageError
from tests.cluster.broker.cluster_by_hand import batch
from tests.cluster.replica.setup import NO_CONFIGS, T0, Setup, broker_epoch_of, of
from tests.cluster.replica.test_recreated_topics import NEW, OLD, recreate


@final
class Caller:
    """A part of the node that appends, and notes each outcome under the name of its append."""

    def __init__(self, *, isr: tuple[int, ...] = (1, 2), configs: Mapping[str, str] = NO_CONFIGS) -> None:
        self.setup = Setup()
        self.setup.place(leader=1, isr=isr, configs=configs)
        self.appends = self.setup.manager.appends
        self.told: list[tuple[str, Outcome]] = []

    def append(
        self,
        name: str,
        *,
        timeout_ms: int = 10_000,
        acks: int = ACKS_ALL,
        topic_id: str = NO_TOPIC_ID,
        leader_epoch: int | None = None,
        sequence: int = -1,
    ) -> int | None:
        """Append one record with the value `name`, and end no step. Return the number of what waits."""
        records = batch(name.encode(), producer_id=-1 if sequence < 0 else 5, base_sequence=sequence)
        return self.appends.append(
            self.setup.now_ms,
            T0,
            records,
            lambda now_ms, outcome: self.told.append((name, outcome)),
            timeout_ms=timeout_ms,
            acks=acks,
            topic_id=topic_id,
            leader_epoch=leader_epoch,
        )

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.told]

    def reason(self, name: str) -> tuple[ErrorCode, bool]:
        """Return the error and whether the records are in doubt, of the one outcome that was told."""
        (outcome,) = [outcome for known, outcome in self.told if known == name]
        assert isinstance(outcome, NotCommitted), outcome
        return outcome.error, outcome.is_in_doubt

    def offsets(self, name: str) -> tuple[int, int]:
        (outcome,) = [outcome for known, outcome in self.told if known == name]
        assert isinstance(outcome, Appended), outcome
        return outcome.base_offset, outcome.last_offset


def test_pro1_the_callback_gets_the_offsets_once_the_high_watermark_has_passed_them() -> None:
    caller = Caller()
    assert caller.append("a") is not None and caller.append("b") is not None
    caller.setup.fetch(2, 0)
    assert caller.told == []
    caller.setup.fetch(2, 1)
    assert caller.names == ["a"] and caller.offsets("a") == (0, 0)
    caller.setup.fetch(2, 2)
    assert caller.names == ["a", "b"] and caller.offsets("b") == (1, 1)


def test_pro1_the_callback_is_never_called_from_inside_the_append() -> None:
    caller = Caller(isr=(1,))
    assert caller.append("committed at once") is None
    assert caller.append("refused", leader_epoch=7) is None
    assert caller.setup.high_watermark == 1 and caller.told == []
    caller.setup.settle()
    assert caller.names == ["committed at once", "refused"]


def test_pro1_one_that_is_committed_at_once_does_not_overtake_one_that_waits() -> None:
    caller = Caller()
    caller.append("first")
    # The high watermark passes both records in the step of the second one.
    caller.setup.manager.roles.apply(
        caller.setup.now_ms, registration_of(caller.setup, isr=(1,), partition_epoch=1)
    )
    caller.append("second")
    assert caller.setup.high_watermark == 2 and caller.told == []
    caller.setup.settle()
    assert caller.names == ["first", "second"]


def registration_of(setup: Setup, *, isr: tuple[int, ...], partition_epoch: int) -> PartitionRegistration:
    known = setup.image.partition(T0)
    assert known is not None
    return replace(known, isr=isr, partition_epoch=partition_epoch)


def test_pro2_too_few_in_sync_is_told_and_nothing_is_appended() -> None:
    caller = Caller(isr=(1,), configs={"min.insync.replicas": "2"})
    caller.append("a")
    caller.setup.settle()
    assert caller.reason("a") == (ErrorCode.NOT_ENOUGH_REPLICAS, False)
    assert caller.setup.end == 0


def test_hwm3_a_shrink_below_the_minimum_keeps_what_waits_open_and_a_commit_tells_it_first() -> None:
    """No order of a shrink and the last copy ends in NOT_ENOUGH_REPLICAS_AFTER_APPEND without a raised minimum."""
    shrunk, copied = (
        Caller(configs={"min.insync.replicas": "2"}),
        Caller(configs={"min.insync.replicas": "2"}),
    )
    for caller in (shrunk, copied):
        caller.append("a")
    # The follower leaves first: nothing is committed, whoever fetches what.
    shrunk.setup.place(leader=1, isr=(1,), partition_epoch=1)
    shrunk.setup.fetch(2, 1)
    shrunk.setup.settle()
    assert (shrunk.setup.high_watermark, shrunk.told) == (0, [])
    # The copy comes first: the step that commits tells it, and the shrink finds nothing that waits.
    copied.setup.fetch(2, 1)
    copied.setup.settle()
    assert copied.setup.high_watermark == 1 and copied.names == ["a"]
    copied.setup.place(leader=1, isr=(1,), partition_epoch=1)
    assert copied.names == ["a"] and isinstance(copied.told[0][1], Appended)


def test_pro3_too_few_in_sync_at_the_commit_is_told_and_the_record_is_in_doubt() -> None:
    caller = Caller(configs={"min.insync.replicas": "2"})
    caller.append("a")
    caller.setup.replica.log.marks.update_high_watermark(1)
    caller.setup.place(leader=1, isr=(1,), partition_epoch=1)
    assert caller.reason("a") == (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True)
    assert caller.setup.values() == [b"a"]


def test_pro3_nothing_is_told_while_the_high_watermark_waits_for_more_in_sync_replicas() -> None:
    caller = Caller(configs={"min.insync.replicas": "2"})
    caller.append("a")
    caller.setup.place(leader=1, isr=(1,), partition_epoch=1)
    assert caller.told == []
    caller.setup.place(leader=1, isr=(1, 2), partition_epoch=2)
    caller.setup.fetch(2, 1)
    assert caller.offsets("a") == (0, 0)


def test_pro4_a_timeout_is_told_and_the_record_is_in_doubt() -> None:
    caller = Caller()
    caller.append("a", timeout_ms=1_000)
    caller.setup.wait(999, leader_appends.EXPIRY_TIMER)
    assert caller.told == []
    caller.setup.wait(1, leader_appends.EXPIRY_TIMER)
    assert caller.reason("a") == (ErrorCode.REQUEST_TIMED_OUT, True)
    caller.setup.fetch(2, 1)
    assert caller.names == ["a"]


def test_pro4_timeouts_come_in_the_order_of_their_deadlines() -> None:
    caller = Caller()
    caller.append("late", timeout_ms=2_000)
    caller.append("soon", timeout_ms=1_000)
    caller.append("then", timeout_ms=2_000)
    caller.setup.wait(3_000, leader_appends.EXPIRY_TIMER)
    assert caller.names == ["soon", "late", "then"]


def test_pro4_what_an_event_of_the_same_step_has_committed_has_not_timed_out() -> None:
    caller = Caller()
    caller.append("a", timeout_ms=2_000)
    caller.append("b", timeout_ms=1_000)
    caller.append("c", timeout_ms=1_000)
    setup = caller.setup
    setup.now_ms += 1_000
    # The follower's fetch and the timer arrive together: the step ends after both.
    replica = setup.replica
    assert replica.leader is not None
    asked = FetchPartition(
        topic_partition=T0,
        topic_id=replica.topic_id,
        fetch_offset=2,
        current_leader_epoch=replica.leader_epoch,
        last_fetched_epoch=replica.leader_epoch,
        max_bytes=1 << 20,
    )
    request = FetchRequest(replica_id=2, broker_epoch=broker_epoch_of(2), partitions=(asked,), max_wait_ms=0)
    setup.manager.fetches.on_request(setup.now_ms, 77, request)
    setup.outbox.on_timer(setup.now_ms, leader_appends.EXPIRY_TIMER)
    assert setup.high_watermark == 2 and caller.told == []
    setup.settle()
    assert caller.names == ["a", "b", "c"]
    assert (caller.offsets("a"), caller.offsets("b")) == ((0, 0), (1, 1))
    assert caller.reason("c") == (ErrorCode.REQUEST_TIMED_OUT, True)


def test_pro5_lost_leadership_is_told_at_once_in_the_order_of_offsets() -> None:
    caller = Caller()
    caller.append("a")
    caller.append("b")
    caller.setup.place(leader=2, leader_epoch=1, partition_epoch=1)
    assert caller.names == ["a", "b"]
    assert caller.reason("a") == caller.reason("b") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, True)


def test_pro5_a_record_that_a_later_epoch_of_this_leader_commits_stays_in_doubt() -> None:
    caller = Caller()
    caller.append("a")
    caller.setup.place(leader=1, isr=(1,), leader_epoch=2, partition_epoch=1)
    assert caller.setup.high_watermark == 1
    assert caller.reason("a") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, True)


def test_pro6_nothing_is_appended_in_another_leader_epoch_than_the_callers() -> None:
    caller = Caller()
    caller.setup.place(leader=1, leader_epoch=3, partition_epoch=1)
    for name, leader_epoch in (("old", 2), ("ahead", 4)):
        caller.append(name, leader_epoch=leader_epoch)
        caller.setup.settle()
        assert caller.reason(name) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, False)
    assert caller.setup.end == 0
    assert caller.append("right", leader_epoch=3) is not None


def test_pro6_nothing_is_appended_by_a_follower() -> None:
    caller = Caller()
    caller.setup.place(leader=2, leader_epoch=1, partition_epoch=1)
    caller.append("a", leader_epoch=1)
    caller.setup.settle()
    assert caller.reason("a") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, False)


def test_pro7_a_retry_is_told_with_its_first_append_before_what_was_appended_later() -> None:
    caller = Caller()
    caller.append("first", sequence=0)
    caller.append("later", sequence=1)
    caller.append("first", sequence=0)
    caller.setup.fetch(2, 2)
    assert caller.names == ["first", "first", "later"]
    assert [outcome.base_offset for _, outcome in caller.told if isinstance(outcome, Appended)] == [0, 0, 1]


def test_pro9_a_directory_that_failed_is_told_and_the_record_is_in_doubt() -> None:
    caller = Caller()
    caller.append("a")
    caller.setup.manager.roles.go_offline(caller.setup.replica)
    caller.append("b")
    caller.setup.settle()
    assert caller.reason("a") == (ErrorCode.KAFKA_STORAGE_ERROR, True)
    assert caller.reason("b") == (ErrorCode.KAFKA_STORAGE_ERROR, False)


def test_pro9_the_failure_of_the_last_directory_is_raised_and_calls_nothing() -> None:
    caller = Caller(isr=(1,))
    caller.setup.disk.fail(1, errno.EIO)
    with pytest.raises(StorageError):
        caller.append("a")
    assert caller.told == []


def test_c1_the_deletion_of_the_topic_is_told_and_the_next_topic_commits_nothing_of_it() -> None:
    caller = Caller()
    caller.append("a", topic_id=OLD)
    recreate(caller.setup, isr=(1,))
    assert caller.reason("a") == (ErrorCode.UNKNOWN_TOPIC_ID, True)
    caller.append("b", topic_id=OLD)
    caller.append("c", topic_id=NEW)
    caller.setup.settle()
    assert caller.reason("b") == (ErrorCode.INCONSISTENT_TOPIC_ID, False)
    assert caller.offsets("c") == (0, 0)


def test_the_end_of_the_broker_is_told_and_nothing_is_appended_any_more() -> None:
    caller = Caller()
    caller.append("a")
    caller.appends.append(
        caller.setup.now_ms, T0, batch(b"b"), lambda now_ms, outcome: again(caller), timeout_ms=10_000
    )
    caller.setup.manager.stop(caller.setup.now_ms)
    assert caller.names == ["a", "again"]
    assert caller.reason("a") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, True)
    assert caller.reason("again") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, False)
    assert caller.setup.end == 2


def again(caller: Caller) -> None:
    caller.append("again")


def test_a_callback_may_append_and_is_not_called_inside_its_own_append() -> None:
    caller = Caller(isr=(1,))
    offsets: list[int] = []

    def chain(now_ms: int, outcome: Outcome) -> None:
        assert isinstance(outcome, Appended)
        offsets.append(outcome.base_offset)
        told = len(offsets)
        if told < 5:
            caller.appends.append(now_ms, T0, batch(b"next"), chain, timeout_ms=1)
        assert len(offsets) == told

    caller.appends.append(caller.setup.now_ms, T0, batch(b"first"), chain, timeout_ms=1)
    caller.setup.settle()
    assert offsets == [0, 1, 2, 3, 4]


def test_a_chain_of_callbacks_that_is_longer_than_a_step_goes_on_in_the_next() -> None:
    caller = Caller(isr=(1,))
    offsets: list[int] = []

    def chain(now_ms: int, outcome: Outcome) -> None:
        assert isinstance(outcome, Appended)
        offsets.append(outcome.base_offset)
        if len(offsets) < MAX_SETTLING_ROUNDS + 500:
            caller.appends.append(now_ms, T0, batch(b"next"), chain, timeout_ms=1)

    caller.appends.append(caller.setup.now_ms, T0, batch(b"first"), chain, timeout_ms=1)
    effects = caller.setup.settle()
    assert len(offsets) == MAX_SETTLING_ROUNDS
    assert SETTLING_TIMER in [timer.key for timer in of(effects, SetTimer)]
    caller.setup.wait(1, SETTLING_TIMER)
    assert offsets == list(range(MAX_SETTLING_ROUNDS + 500))


def test_a_callback_that_fails_does_not_cost_the_others_theirs() -> None:
    caller = Caller(isr=(1,))

    def fail(now_ms: int, outcome: Outcome) -> None:
        raise StorageError("the disk of another partition")

    caller.appends.append(caller.setup.now_ms, T0, batch(b"a"), fail, timeout_ms=1)
    caller.append("b")
    with pytest.raises(StorageError):
        caller.setup.settle()
    caller.setup.settle()
    assert caller.offsets("b") == (1, 1)


def test_pro1_with_a_promised_flush_acks_1_waits_for_it_behind_no_one_who_waits_for_followers() -> None:
    caller = Caller(configs={"flush.messages": "1"})
    caller.append("all")
    caller.append("leader", acks=ACKS_LEADER)
    caller.setup.run_jobs(caller.setup.settle())
    assert caller.names == ["leader"]
    caller.setup.fetch(2, 2)
    assert caller.names == ["leader", "all"]


def test_what_was_forgotten_stays_in_the_log_and_is_told_to_no_one() -> None:
    caller = Caller()
    number = caller.append("a")
    assert number is not None
    caller.appends.forget(number)
    caller.setup.fetch(2, 1)
    assert caller.told == [] and caller.setup.values() == [b"a"] and caller.appends.waiting() == []


def test_a_produce_whose_client_has_left_waits_no_more() -> None:
    setup = Setup()
    setup.place(leader=1, isr=(1, 2))
    setup.request_append(b"a", acks=-1)
    setup.request_append(b"b", acks=-1)
    assert setup.manager.produces.waiting_count == 2
    setup.manager.produces.forget(1)
    setup.manager.produces.forget(1)
    assert setup.manager.produces.waiting_count == 1 and len(setup.manager.appends.waiting()) == 1
    # The second produce and the fetch.
    assert [reply.call for reply in of(setup.fetch_effects(2, 2), Reply)] == [3, 2]


def test_each_waiting_append_is_bound_to_the_topic_and_the_leader_epoch_of_its_log() -> None:
    caller = Caller()
    caller.append("a")
    view: LogView = (OLD, 0)
    assert [waiting.view for waiting in caller.appends.waiting()] == [view]
