"""Shows the second account of followers what each step of a broker did to the partitions that it leads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import final

from cluster.core.broker.broker import Broker
from cluster.core.connection.codec import STREAM_REQUESTS
from cluster.core.effects import Observe, Reply, RunJob, Send, Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Request, Response, TimerFired
from cluster.core.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    TopicPartition,
)
from cluster.core.metadata.image import MetadataImage
from cluster.core.replica.fetch import FetchHandler
from cluster.core.replica.isr import PendingExpandIsr, PendingShrinkIsr, committed_isr
from cluster.core.replica.isr_changes import LAG_TIMER
from cluster.core.replica.leader import Leader
from cluster.core.replica.leader_appends import ACKS_ALL
from cluster.core.replica.replica import Replica
from sim.checkers.base import Jury
from sim.checkers.follower_progress import CountedFetch, FollowerProgress, LeaderState, Progress, StepSeen
from sim.hosts.shell import Shell

_NOBODY: frozenset[int] = frozenset()
_NO_LIVES: Mapping[int, int] = {}
_LOOK_AT_LAG = TimerFired(key=LAG_TIMER)
# Calls with their requests.
Fetches = Sequence[tuple[int, FetchRequest]]
# By call: the answer that left in the same step.
Answers = Mapping[int, FetchResponse]
# A broker, its life and a partition.
Key = tuple[int, int, str]


@final
class Outcome:
    """What the effects of a step say: the partitions whose epoch began and that took appends, and the answers."""

    __slots__ = (
        "answers",
        "appended",
        "begun",
        "has_closed",
        "has_observed",
        "has_stopped",
        "made",
        "proposed",
    )

    def __init__(self) -> None:
        self.begun: set[str] = set()
        self.appended: set[str] = set()
        # The partitions of proposals that are not made again.
        self.made: set[str] = set()
        self.answers: dict[int, FetchResponse] = {}
        # The broker epoch of each follower that a proposal names, by partition.
        self.proposed: dict[TopicPartition, dict[int, int]] = {}
        self.has_observed = self.has_stopped = self.has_closed = False

    def add(self, observe: Observe) -> None:
        """Note what the step has told of itself."""
        self.has_observed = True
        if observe.kind == "replica.appended":
            self.appended.add(str(dict(observe.fields)["topic_partition"]))
        elif observe.kind == "replica.became_leader":
            self.begun.add(str(dict(observe.fields)["topic_partition"]))
        elif observe.kind == "isr.proposed":
            self.made.add(str(dict(observe.fields)["topic_partition"]))


@final
class Glance:
    """What the state of a leader is made of. Two that are alike are of the same state."""

    __slots__ = ("_followers", "_numbers", "_objects")

    def __init__(self, replica: Replica, leader: Leader, image: MetadataImage) -> None:
        log = replica.log.local
        epochs = replica.log.epochs
        self._objects = (leader, leader.isr, log.config, image)
        self._numbers = (
            replica.leader_epoch, log.log_end_offset, log.recovery_point, replica.flushed_ms,
            replica.log.marks.high_watermark, leader.lag_time_max_ms, epochs.last_epoch, epochs.last_start,
        )  # fmt: skip
        self._followers = [
            (number, each.log_end_offset, each.last_caught_up_ms, each.broker_epoch)
            for number, each in leader.followers.items()
        ]

    def is_like(self, other: Glance) -> bool:
        """Whether nothing has changed between the two; equal objects that are not the same count as changed."""
        if self._numbers != other._numbers or self._followers != other._followers:
            return False
        leader, isr, config, image = self._objects
        known_leader, known_isr, known_config, known_image = other._objects
        return leader is known_leader and isr is known_isr and config is known_config and image is known_image


@final
class LeaderWitness:
    """Watches the brokers that lead."""

    def __init__(self, jury: Jury) -> None:
        self._progress = FollowerProgress(jury)
        # What was seen last of each partition that is led.
        self._glances: dict[Key, Glance] = {}
        # The brokers that close their logs, each in its life: they have forgotten what they waited for.
        self._closing: dict[tuple[int, int], None] = {}
        # The fetches of each life that a search goes on for before they count, by call.
        self._searches: dict[tuple[int, int], dict[int, FetchRequest]] = {}

    def on_end(self, broker: int) -> None:
        self._progress.on_end(broker)
        self._glances = {key: each for key, each in self._glances.items() if key[0] != broker}
        self._closing = {life: None for life in self._closing if life[0] != broker}
        self._searches = {life: calls for life, calls in self._searches.items() if life[0] != broker}

    def on_step(self, shell: Shell, core: Broker, events: Sequence[Event], effects: Sequence[object]) -> None:
        """Receives what a broker's core took in one step, and the effects of that."""
        life = (shell.node_id, shell.life_number)
        if life in self._closing or _is_of_a_follower(events):
            return
        # Only requests are handled several in one step.
        is_of_requests = type(events[0]) is Request
        fetches: Fetches = _fetches_of_followers(events) if is_of_requests else []
        outcome = _outcome_of(effects)
        if outcome.has_closed:
            self._closing[life] = None
            return
        # What has broken a core, such as a record that cannot be read, leaves its step unfinished.
        if outcome.has_stopped or (is_of_requests and not fetches and not outcome.has_observed):
            return
        fetches = self._read(life, core.manager.fetches, fetches, outcome.answers)
        counted = _counted(fetches, outcome.answers) if fetches else {}
        is_long, is_mixed = len(events) > 1, len(events) > len(fetches) > 0
        replicas, now_ms = core.replicas(), shell.clock.now_ms()
        asked = _asked(events) if is_of_requests else None
        refused, image = [] if is_of_requests else _refused_joiners(events), core.image
        is_for_all = bool(outcome.appended) and _is_for_all(events)
        looks_at_lag = not is_of_requests and events[0] == _LOOK_AT_LAG
        node_id, life_number = shell.node_id, shell.life_number
        held = replicas.values() if asked is None else [replicas[each] for each in asked if each in replicas]
        for replica in held:
            key = (node_id, life_number, replica.name)
            if replica.leader is None or replica.log.online.reason is not None:
                self._progress.on_follows(key)
                self._glances.pop(key, None)
                continue
            is_new, has_appended = replica.name in outcome.begun, replica.name in outcome.appended
            topic_partition = replica.topic_partition
            glance, before = Glance(replica, replica.leader, image), self._glances.get(key)
            is_touched = is_new or has_appended or topic_partition in counted or topic_partition in refused
            is_judged = is_touched or looks_at_lag or topic_partition in outcome.proposed
            if before is not None and not is_judged:
                # Most steps leave most partitions as they are, and a whole state costs far more than a glance.
                if glance.is_like(before):
                    continue
            self._glances[key] = glance
            # What comes after a job has checked records is all that has waited for the job.
            takes_many = is_long or (has_appended and not is_of_requests)
            named_lives = outcome.proposed.get(topic_partition, _NO_LIVES)
            step = StepSeen(
                now_ms, counted.get(topic_partition, ()), is_new, takes_many, is_mixed, has_appended,
                topic_partition in refused, is_for_all, named_lives,
                is_repeated=bool(named_lives) and replica.name not in outcome.made, looks_at_lag=looks_at_lag,
            )  # fmt: skip
            self._progress.on_step(key, replica.leader, _state(replica, replica.leader, image), step)

    def _read(
        self, life: tuple[int, int], handler: FetchHandler, fetches: Fetches, answers: Answers
    ) -> Fetches:
        """Returns the fetches that a step has read: of those that came, and of those whose search went on."""
        before = self._searches.pop(life, None)
        if before is None and not any([handler.is_searching(call) for call, _ in fetches]):
            return fetches
        read: list[tuple[int, FetchRequest]] = []
        for call, request in (*(before or {}).items(), *fetches):
            if call in answers or call in handler.parked_beside(request):
                read.append((call, request))
            elif handler.is_searching(call):
                self._searches.setdefault(life, {})[call] = request
        return read


def _is_of_a_follower(events: Sequence[Event]) -> bool:
    """Whether a step takes what its broker has fetched, and nothing else: that changes nothing that it leads."""
    for event in events:
        if type(event) is not Response or type(event.body) is not FetchResponse:
            return False
    return True


def _outcome_of(effects: Sequence[object]) -> Outcome:
    outcome = Outcome()
    for effect in effects:
        if type(effect) is Observe:
            outcome.add(effect)
        elif type(effect) is Reply:
            if type(effect.body) is FetchResponse:
                outcome.answers[effect.call] = effect.body
        elif type(effect) is Send and isinstance(effect.body, AlterPartitionRequest):
            outcome.proposed[effect.body.topic_partition] = _named_lives(effect.body)
        elif type(effect) is Stop:
            outcome.has_stopped = True
        elif type(effect) is RunJob and effect.kind == "shutdown":
            outcome.has_closed = True
    return outcome


def _named_lives(proposal: AlterPartitionRequest) -> dict[int, int]:
    return {
        each.broker_id: each.broker_epoch for each in proposal.new_isr if each.broker_id != proposal.broker_id
    }


def _fetches_of_followers(events: Iterable[Event]) -> list[tuple[int, FetchRequest]]:
    return [
        (event.call, event.body)
        for event in events
        if type(event) is Request and isinstance(event.body, FetchRequest) and event.body.replica_id >= 0
    ]


def _asked(events: Iterable[Event]) -> dict[TopicPartition, None] | None:
    """Returns the partitions that a step of requests can change; None for any other step, which may change all."""
    asked: dict[TopicPartition, None] = {}
    for event in events:
        if type(event) is not Request:
            return None
        if isinstance(event.body, STREAM_REQUESTS):
            asked |= dict.fromkeys([each.topic_partition for each in event.body.partitions])
    return asked


def _is_for_all(events: Iterable[Event]) -> bool:
    """Whether a step took requests only, and no records but those that all in-sync replicas must have."""
    return all(
        type(event) is Request and (not isinstance(event.body, ProduceRequest) or event.body.acks == ACKS_ALL)
        for event in events
    )


def _counted(fetches: Fetches, answers: Answers) -> dict[TopicPartition, list[CountedFetch]]:
    """Returns the fetches that count, by partition: those that wait, and those with an answer that is no refusal."""
    counted: dict[TopicPartition, list[CountedFetch]] = {}
    for call, request in fetches:
        answer = answers.get(call)
        parts = None if answer is None else {each.topic_partition: each for each in answer.partitions}
        for asked in request.partitions:
            topic_partition = asked.topic_partition
            part = None if parts is None else parts.get(topic_partition)
            if parts is None or (part is not None and _is_promise(part)):
                fetch = CountedFetch(request.replica_id, asked.fetch_offset, request.broker_epoch)
                counted.setdefault(topic_partition, []).append(fetch)
    return counted


def _is_promise(answer: FetchPartitionResponse) -> bool:
    return answer.error is ErrorCode.NONE and answer.diverging is None


def _refused_joiners(events: Iterable[Event]) -> list[TopicPartition]:
    """Returns the partitions whose leaders are told that the joiner of their proposal may not join."""
    return [
        event.body.topic_partition
        for event in events
        if type(event) is Response
        and isinstance(event.body, AlterPartitionResponse)
        and event.body.error is ErrorCode.INELIGIBLE_REPLICA
    ]


def _state(replica: Replica, leader: Leader, image: MetadataImage) -> LeaderState:
    isr, log = leader.isr, replica.log.local
    committed, joiners = committed_isr(isr), _NOBODY
    if isinstance(isr, PendingExpandIsr):
        joiners = frozenset([isr.joiner])
    is_promised = log.config.flush_messages == 1
    followers: dict[int, Progress] = {}
    active: dict[int, int] = {}
    members = committed.isr
    for number, each in leader.followers.items():
        followers[number] = Progress(each.log_end_offset, each.last_caught_up_ms, each.broker_epoch)
        if number not in members and number not in joiners and image.is_active(number):
            active[number] = image.broker_epoch(number)
    # By position: names would take twice as long, and a timer of a broker looks at all that it leads.
    return LeaderState(
        replica.leader_epoch,
        committed.partition_epoch,
        committed.isr,
        joiners,
        isr.leavers if isinstance(isr, PendingShrinkIsr) else _NOBODY,
        followers,
        log.log_end_offset,
        min(log.recovery_point, log.log_end_offset) if is_promised else log.log_end_offset,
        is_promised,
        replica.flushed_ms,
        replica.log.marks.high_watermark,
        log.config.min_insync_replicas,
        leader.lag_time_max_ms,
        active,
        _epoch_start(replica),
        frozenset([number for number in joiners if not image.is_active(number)]) if joiners else _NOBODY,
        log.config.is_compacted,
        leader.proposal_call is not None,
    )


def _epoch_start(replica: Replica) -> int:
    """Returns where the log says that the replica's leader epoch begins; -1 if it does not say it."""
    epochs = replica.log.epochs
    return epochs.last_start if epochs.last_epoch == replica.leader_epoch else -1
