"""Appends of a part of the node under whatever Hypothesis thinks of: one outcome each, in order, and the right one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cluster.core.effects import Effect, Send
from cluster.core.errors import ErrorCode
from cluster.core.fencing import LogView
from cluster.core.messages import AlterPartitionRequest
from cluster.core.metadata.records import MetadataRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from cluster.core.replica.leader_appends import EXPIRY_TIMER, LeaderAppends
from cluster.core.replica.outcomes import Appended, NotCommitted, Outcome
from cluster.core.replica.replica import Replica
from sim.bugs import install
from tests.cluster.broker.cluster_by_hand import batch
from tests.cluster.replica.setup import T0, Setup, sent

LAG_MS = 30_000
PRODUCER_ID = 5
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT


@dataclass(frozen=True, slots=True)
class Asked:
    """One append that was asked for, as the test knows it."""

    number: int
    value: bytes
    # The topic id and leader epoch in which it was asked for; None if this broker did not lead then.
    view: LogView | None
    # The end of the log before it, and the number of members of the committed ISR.
    end: int
    in_sync: int
    names_right_epoch: bool
    deadline_ms: int
    sequence: int
    is_retry: bool
    # Whether its log directory had failed before.
    was_offline: bool


class AppendMachine(RuleBasedStateMachine):
    """Broker 1 with one partition, of which it is leader, follower or nothing; brokers 2 and 3 fetch when asked."""

    def __init__(self) -> None:
        super().__init__()
        self.setup = Setup()
        self.min_isr = 1
        self.lives = 0
        self.next_sequence = 0
        self.asked: list[Asked] = []
        # The sequences of this topic that were appended.
        self.appended: list[Asked] = []
        self.told: list[tuple[Asked, Outcome]] = []
        # How many were told before the present step.
        self.told_before = 0
        # The largest high watermark, by topic id and leader epoch.
        self.high: dict[LogView, int] = {}
        # Topics and leader epochs that are over.
        self.over: set[LogView] = set()
        self.was_offline = self.is_stopped = False
        # Whether the last append did not end its step.
        self.is_in_step = False
        self.proposals: list[Send] = []

    @property
    def replica(self) -> Replica | None:
        return self.setup.manager.context.replicas.get(T0)

    @property
    def appends(self) -> LeaderAppends:
        return self.setup.manager.appends

    @property
    def topic_id(self) -> str:
        return f"{self.lives:032x}"

    def is_leading(self) -> bool:
        return self.replica is not None and self.replica.leader is not None

    @initialize(min_isr=st.sampled_from((1, 2)))
    def begin(self, min_isr: int) -> None:
        self.min_isr = min_isr
        self.create(leader=1, isr=(1, 2, 3))

    # Steps

    def create(self, *, leader: int, isr: tuple[int, ...]) -> None:
        """Replay the creation of the topic, after the deletion of the one before it."""
        records: list[MetadataRecord] = []
        if self.lives:
            records.append(RemoveTopicRecord(name="t", topic_id=self.topic_id))
            self.note_over()
        self.lives += 1
        self.next_sequence, self.appended, self.was_offline, self.proposals = 0, [], False, []
        configs = (("min.insync.replicas", str(self.min_isr)),)
        records.append(TopicRecord(name="t", topic_id=self.topic_id, configs=configs))
        records.append(PartitionRecord(topic="t", partition=0, replicas=(1, 2, 3), isr=isr, leader=leader))
        self.note(self.setup.replay(*records))

    def settle(self) -> None:
        self.note(self.setup.settle())

    def note(self, effects: list[Effect]) -> None:
        """Note what a step did, and judge the outcomes that it told."""
        self.is_in_step = False
        self.proposals += sent(effects, AlterPartitionRequest)
        self.note_high_watermark()
        self.judge()

    def note_high_watermark(self) -> None:
        if self.replica is not None and self.replica.leader is not None:
            view = self.replica.view
            self.high[view] = max(self.high.get(view, 0), self.replica.log.high_watermark)

    def note_over(self) -> None:
        if self.replica is not None:
            self.over.add(self.replica.view)

    @rule(
        epoch=st.sampled_from((None, 0, 0, 1, -1)),
        timeout_ms=st.sampled_from((10_000, 500, 0)),
        retries=st.booleans(),
        ends_step=st.booleans(),
    )
    def append(self, epoch: int | None, timeout_ms: int, retries: bool, ends_step: bool) -> None:
        """Append one record; `epoch` is how far the caller's leader epoch is from the right one."""
        replica, leader = self.replica, None if self.replica is None else self.replica.leader
        again = self.appended[-1] if retries and self.appended else None
        number = len(self.asked)
        asked = Asked(
            number=number,
            value=b"%d" % number if again is None else again.value,
            view=replica.view if replica is not None and leader is not None else None,
            end=0 if replica is None else replica.log.log_end_offset,
            in_sync=0 if replica is None else len(replica.committed_isr),
            names_right_epoch=epoch in (None, 0),
            deadline_ms=self.setup.now_ms + timeout_ms,
            sequence=self.next_sequence if again is None else again.sequence,
            is_retry=again is not None,
            was_offline=self.was_offline,
        )
        self.asked.append(asked)
        known_epoch = 0 if replica is None else replica.leader_epoch
        told = len(self.told)
        self.appends.append(
            self.setup.now_ms,
            T0,
            batch(asked.value, producer_id=PRODUCER_ID, base_sequence=asked.sequence),
            lambda now_ms, outcome: self.told.append((asked, outcome)),
            timeout_ms=timeout_ms,
            leader_epoch=None if epoch is None else known_epoch + epoch,
        )
        assert len(self.told) == told, "called back from inside the append"
        if replica is not None and replica.log.log_end_offset > asked.end:
            self.appended.append(asked)
            self.next_sequence += 1
        self.note_high_watermark()
        self.is_in_step = True
        if ends_step:
            self.settle()

    @precondition(lambda self: self.is_leading())
    @rule(broker=st.sampled_from((2, 3)), behind=st.sampled_from((0, 0, 1, 2)))
    def fetch(self, broker: int, behind: int) -> None:
        assert self.replica is not None
        offset = max(0, self.replica.log.log_end_offset - behind)
        self.note(self.setup.fetch_effects(broker, offset))

    @precondition(lambda self: self.is_leading())
    @rule()
    def replicate(self) -> None:
        """Let both followers fetch at the log end."""
        for broker in (2, 3):
            self.fetch(broker, 0)

    @precondition(lambda self: self.proposals)
    @rule(error=st.sampled_from((ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST)))
    def answer_proposal(self, error: ErrorCode) -> None:
        send = self.proposals.pop(0)
        changes = {} if error is ErrorCode.NONE else {"error": error, "isr": ()}
        self.note(self.setup.answer_alter(send, **changes))
        if error is ErrorCode.NONE and self.replica is not None:
            self.follow_replica()

    def follow_replica(self) -> None:
        """Let the image know what the controller has committed."""
        known, replica = self.setup.image.partition(T0), self.replica
        assert known is not None and replica is not None
        if replica.leader is not None:
            isr, partition_epoch = replica.committed_isr, replica.partition_epoch
            self.setup.set_partition(replace(known, isr=isr, partition_epoch=partition_epoch))

    @rule()
    def lag(self) -> None:
        """Let the members that have not fetched for too long leave the ISR, as far as this leader proposes it."""
        self.note(self.setup.wait(LAG_MS, "isr.lag"))
        self.pass_time(0)

    @rule(milliseconds=st.sampled_from((100, 500, 10_000)))
    def pass_time(self, milliseconds: int) -> None:
        self.note(self.setup.wait(milliseconds, EXPIRY_TIMER))
        assert all(self.setup.now_ms < self.asked_of(each).deadline_ms for each in self.waiting())

    @precondition(lambda self: self.replica is not None)
    @rule(leader=st.sampled_from((1, 2)), isr=st.sampled_from(((1, 2, 3), (1, 2), (1,))))
    def elect(self, leader: int, isr: tuple[int, ...]) -> None:
        """Begin a new leader epoch."""
        known = self.setup.image.partition(T0)
        assert known is not None
        self.note_over()
        self.proposals = []
        self.note(
            self.setup.place(
                leader=leader,
                isr=isr if leader in isr else (*isr, leader),
                leader_epoch=known.leader_epoch + 1,
                partition_epoch=max(known.partition_epoch, self.replica.partition_epoch) + 1
                if self.replica is not None
                else 0,
            )
        )

    @precondition(lambda self: self.is_leading())
    @rule(isr=st.sampled_from(((1, 2, 3), (1, 2), (1,))))
    def change_isr(self, isr: tuple[int, ...]) -> None:
        """Let the controller change the ISR within the leader epoch."""
        known, replica = self.setup.image.partition(T0), self.replica
        assert known is not None and replica is not None
        self.proposals = []
        self.note(
            self.setup.place(
                leader=1,
                isr=isr,
                leader_epoch=known.leader_epoch,
                partition_epoch=max(known.partition_epoch, replica.partition_epoch) + 1,
            )
        )

    @rule(
        what=st.sampled_from(("nothing", "nothing", "re-creation", "failure", "failure and re-creation")),
        leader=st.sampled_from((1, 1, 1, 2)),
        isr=st.sampled_from(((1, 2), (1, 2, 3))),
    )
    def end_life(self, what: str, leader: int, isr: tuple[int, ...]) -> None:
        """Let the log directory fail, or delete the topic and create it again, or both."""
        if what.startswith("failure") and self.replica is not None:
            self.note_over()
            self.was_offline = True
            self.setup.manager.roles.go_offline(self.replica)
            self.settle()
        if what.endswith("re-creation"):
            self.create(leader=leader, isr=isr)

    # What must hold

    def waiting(self) -> list[bytes]:
        """Return the values of what waits, found by the offsets that the test knows."""
        return [b"%d" % each.number for each in self.asked if not self.is_told(each)]

    def asked_of(self, value: bytes) -> Asked:
        return self.asked[int(value)]

    def is_told(self, asked: Asked) -> bool:
        return any(known.number == asked.number for known, _ in self.told)

    def judge(self) -> None:
        """Judge what the present step has told; it ends here."""
        told, self.told_before = self.told[self.told_before :], len(self.told)
        for asked, outcome in told:
            if isinstance(outcome, Appended):
                self.judge_committed(asked, outcome)
            else:
                self.judge_not_committed(asked, outcome)
        self.judge_order(told)

    def judge_committed(self, asked: Asked, outcome: Appended) -> None:
        assert asked.view is not None and asked.names_right_epoch, asked
        assert outcome.leader_epoch == asked.view[1], (asked, outcome)
        assert outcome.last_offset < self.high[asked.view], (asked, outcome, self.high)
        if not asked.is_retry:
            assert outcome.base_offset == asked.end, (asked, outcome)
        if self.replica is not None and self.replica.view == asked.view:
            assert self.setup.values()[outcome.base_offset] == asked.value, (asked, outcome)

    def judge_not_committed(self, asked: Asked, outcome: NotCommitted) -> None:
        match outcome.error:
            case ErrorCode.REQUEST_TIMED_OUT:
                holds = outcome.is_in_doubt and self.setup.now_ms >= asked.deadline_ms
            case ErrorCode.NOT_ENOUGH_REPLICAS:
                holds = not outcome.is_in_doubt and asked.in_sync < self.min_isr
            case ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
                holds = outcome.is_in_doubt and self.min_isr > 1
            case ErrorCode.KAFKA_STORAGE_ERROR:
                holds = asked.was_offline or self.was_offline
            case ErrorCode.UNKNOWN_TOPIC_ID:
                holds = outcome.is_in_doubt and asked.view is not None and asked.view[0] != self.topic_id
            case ErrorCode.NOT_LEADER_OR_FOLLOWER if outcome.is_in_doubt:
                holds = asked.view in self.over or self.is_stopped
            case ErrorCode.NOT_LEADER_OR_FOLLOWER:
                holds = asked.view is None or not asked.names_right_epoch
            case _:
                holds = False
        assert holds, (asked, outcome)
        if not outcome.is_in_doubt and self.replica is not None and not asked.is_retry:
            assert asked.value not in self.setup.values(), asked

    def judge_order(self, told: list[tuple[Asked, Outcome]]) -> None:
        """In one step, of one leader epoch, whatever is committed comes in the order of its offsets."""
        offsets: dict[LogView, list[int]] = {}
        for asked, outcome in told:
            if isinstance(outcome, Appended) and asked.view is not None:
                offsets.setdefault(asked.view, []).append(outcome.base_offset)
        for view, each in offsets.items():
            assert each == sorted(each), (view, each)
        lost = [each.end for each, outcome in told if self.is_lost(each, outcome)]
        assert lost == sorted(lost), lost

    def is_lost(self, asked: Asked, outcome: Outcome) -> bool:
        """Whether the append ended with its leader epoch."""
        if asked.is_retry or isinstance(outcome, Appended):
            return False
        return outcome.is_in_doubt and outcome.error is not TIMED_OUT

    @invariant()
    def each_is_told_at_most_once(self) -> None:
        counts = Counter(asked.number for asked, _ in self.told)
        assert all(count == 1 for count in counts.values()), counts

    @invariant()
    def each_waits_or_ends_or_is_told(self) -> None:
        known = len(self.appends.waiting()) + len(self.appends.done) + len(self.told)
        assert known == len(self.asked), (known, len(self.asked))

    @invariant()
    def nothing_waits_that_has_an_outcome(self) -> None:
        if self.is_in_step:
            return
        assert not self.appends.done, self.appends.done
        for waiting in self.appends.waiting():
            assert waiting.view not in self.over, waiting
            assert self.replica is not None and self.replica.leader is not None, waiting
            assert self.replica.log.high_watermark <= waiting.appended.last_offset, waiting

    def teardown(self) -> None:
        if not self.lives:
            return
        self.settle()
        self.is_stopped = True
        self.setup.manager.stop(self.setup.now_ms)
        self.judge()
        assert len(self.told) == len(self.asked), (len(self.told), len(self.asked))


def assert_machine_holds(examples: int) -> None:
    run_state_machine_as_test(
        AppendMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_pro1_to_pro9_each_append_has_one_outcome_in_order_and_the_right_one() -> None:
    assert_machine_holds(examples=10)


@pytest.mark.slow
def test_each_append_has_one_outcome_in_many_more_runs() -> None:
    assert_machine_holds(examples=1_000)


@pytest.mark.parametrize(
    "bug", ["ack-before-high-watermark", "append-called-back-twice", "append-outlives-leadership"]
)
def test_the_machine_notices_the_planted_bug(bug: str) -> None:
    with install(bug), pytest.raises(AssertionError):
        assert_machine_holds(examples=60)
