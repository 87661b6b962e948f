"""Shows the second account of followers what each step of a broker did to the partitions that it leads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import final

from cluster.core.broker.broker import Broker
from cluster.core.effects import Observe, Reply, Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Request, Response
from cluster.core.messages import (
    AlterPartitionResponse,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    TopicPartition,
)
from cluster.core.metadata.image import MetadataImage
from cluster.core.replica.isr import PendingExpandIsr, PendingShrinkIsr, committed_isr
from cluster.core.replica.leader import Leader
from cluster.core.replica.replica import Replica
from sim.checkers.base import Jury
from sim.checkers.follower_progress import CountedFetch, FollowerProgress, LeaderState, Progress, StepSeen
from sim.hosts.shell import Shell

_NOBODY: frozenset[int] = frozenset()
# Calls with their requests.
Fetches = Sequence[tuple[int, FetchRequest]]
# By call: the answer that left in the same step.
Answers = Mapping[int, FetchResponse]


@final
class LeaderWitness:
    """Watches the brokers that lead."""

    def __init__(self, jury: Jury) -> None:
        self._progress = FollowerProgress(jury)

    def on_end(self, broker: int) -> None:
        self._progress.on_end(broker)

    def on_step(self, shell: Shell, events: Sequence[Event], effects: Sequence[object]) -> None:
        """Receives what a broker's core took in one step, and the effects of that."""
        core = shell.core
        if not isinstance(core, Broker) or _is_of_a_follower(events):
            return
        observes: list[Observe] = []
        answers: dict[int, FetchResponse] = {}
        for effect in effects:
            if isinstance(effect, Observe):
                observes.append(effect)
            elif isinstance(effect, Reply):
                if isinstance(effect.body, FetchResponse):
                    answers[effect.call] = effect.body
            elif isinstance(effect, Stop):
                # What has broken a core, such as a record that cannot be read, leaves its step unfinished.
                return
        fetches = _fetches_of_followers(events)
        if not observes and not fetches and type(events[0]) is Request:
            return
        replicas = core.replicas()
        asked = _asked(events)
        named = list(replicas) if asked is None else [each for each in asked if each in replicas]
        for topic_partition in named:
            replica = replicas[topic_partition]
            key = (shell.node_id, shell.life_number, replica.name)
            if replica.leader is None or replica.log.online.reason is not None:
                self._progress.on_follows(key)
                continue
            state = _state(replica, replica.leader, core.image)
            step = StepSeen(
                now_ms=shell.clock.now_ms(),
                fetches=_counted(topic_partition, fetches, answers),
                is_new=_has(observes, "replica.became_leader", replica.name),
                is_long=len(events) > 1,
                is_mixed=len(events) > len(fetches) > 0,
                has_appended=_has(observes, "replica.appended", replica.name),
                refused_joiner=_is_refusal(events, topic_partition),
            )
            self._progress.on_step(key, replica.leader, state, step)


def _is_of_a_follower(events: Sequence[Event]) -> bool:
    """Whether a step takes what its broker has fetched, and nothing else: that changes nothing that it leads."""
    return all([type(event) is Response and type(event.body) is FetchResponse for event in events])


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
        if isinstance(event.body, FetchRequest | ProduceRequest):
            asked |= dict.fromkeys([each.topic_partition for each in event.body.partitions])
    return asked


def _counted(topic_partition: TopicPartition, fetches: Fetches, answers: Answers) -> list[CountedFetch]:
    """Returns the fetches of the partition that count: those that wait, and those with an answer that is no refusal."""
    counted: list[CountedFetch] = []
    for call, request in fetches:
        answer = answers.get(call)
        parts = None if answer is None else {each.topic_partition: each for each in answer.partitions}
        for asked in request.partitions:
            if asked.topic_partition != topic_partition:
                continue
            part = None if parts is None else parts.get(topic_partition)
            if parts is None or (part is not None and _is_promise(part)):
                counted.append(CountedFetch(request.replica_id, asked.fetch_offset, request.broker_epoch))
    return counted


def _is_promise(answer: FetchPartitionResponse) -> bool:
    return answer.error is ErrorCode.NONE and answer.diverging is None


def _has(observes: Iterable[Observe], kind: str, partition: str) -> bool:
    return any(each.kind == kind and dict(each.fields)["topic_partition"] == partition for each in observes)


def _is_refusal(events: Iterable[Event], topic_partition: TopicPartition) -> bool:
    return any(
        type(event) is Response
        and isinstance(event.body, AlterPartitionResponse)
        and event.body.topic_partition == topic_partition
        and event.body.error is ErrorCode.INELIGIBLE_REPLICA
        for event in events
    )


def _state(replica: Replica, leader: Leader, image: MetadataImage) -> LeaderState:
    isr, log = leader.isr, replica.log.local
    committed = committed_isr(isr)
    followers = {
        number: Progress(each.log_end_offset, each.last_caught_up_ms, each.broker_epoch)
        for number, each in leader.followers.items()
    }
    is_promised = log.config.flush_messages == 1
    return LeaderState(
        leader_epoch=replica.leader_epoch,
        partition_epoch=committed.partition_epoch,
        committed=committed.isr,
        joiners=frozenset([isr.joiner]) if isinstance(isr, PendingExpandIsr) else _NOBODY,
        leavers=isr.leavers if isinstance(isr, PendingShrinkIsr) else _NOBODY,
        followers=followers,
        log_end_offset=log.log_end_offset,
        own_end_offset=min(log.recovery_point, log.log_end_offset) if is_promised else log.log_end_offset,
        is_flush_promised=is_promised,
        flushed_ms=replica.flushed_ms,
        high_watermark=replica.log.marks.high_watermark,
        min_insync_replicas=log.config.min_insync_replicas,
        lag_time_max_ms=leader.lag_time_max_ms,
        active={number: image.broker_epoch(number) for number in followers if image.is_active(number)},
    )
