"""Judges what a broker refuses at once: what it is, leads and knows must be the reason (LED-1, LED-2, PRO-2, C1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

from cluster.core.client.config import ACKS_ALL
from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Request, Shutdown
from cluster.core.messages import (
    NO_EPOCH,
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
    RequestBody,
    ResponseBody,
    TopicPartition,
)
from cluster.core.metadata.image import MetadataImage
from cluster.core.replica.replica import Replica
from sim.checkers.base import Jury
from sim.checkers.shutdowns import SignedRequest, is_signed

NAME = "needless-refusals"


class _Refused(NamedTuple):
    """A part of a request and its error. `follower` is the broker that fetches; -1 for a client."""

    topic_partition: TopicPartition
    error: ErrorCode
    topic_id: str
    leader_epoch: int = NO_EPOCH
    follower: int = -1
    broker_epoch: int = -1
    acks: int = 0
    # A consumer may fetch from a follower, too.
    needs_leader: bool = True


@final
class NeedlessRefusals:
    """A rule for each part of a fetch, a set or a look-up that a broker refuses in the step that has taken it.

    Who is told that another broker leads has not asked the leader, or fetches in an earlier life of its own. An epoch
    that is over is lower than the replica's, one that has not begun is higher, or the follower is no replica. An
    unknown topic, or another one of the name, is not that of the replica. Too few are in sync only below
    `min.insync.replicas`, for a set that needs them. A refusal without a reason is asked again, and costs nothing but
    time: nobody else would notice.
    """

    name = NAME

    def __init__(self, jury: Jury) -> None:
        self._jury = jury

    def on_reply(
        self,
        broker: int,
        replicas: Mapping[TopicPartition, Replica],
        image: MetadataImage,
        request: RequestBody,
        body: ResponseBody,
    ) -> None:
        """Receives an answer of the step that has taken its request, with what the broker has and knows after it."""
        for part in _parts(request, body):
            if part.error is not ErrorCode.NONE and (what := _why_needless(part, replicas, image)):
                error = part.error.name
                self._jury.report(
                    self.name, f"{part.topic_partition}: broker {broker} answers {error}, and {what}"
                )


def _parts(request: RequestBody, body: ResponseBody) -> list[_Refused]:
    if isinstance(request, FetchRequest) and isinstance(body, FetchResponse):
        return [
            _Refused(
                asked.topic_partition, answer.error, asked.topic_id, asked.current_leader_epoch,
                request.replica_id, request.broker_epoch, needs_leader=request.replica_id >= 0,
            )
            for asked, answer in zip(request.partitions, body.partitions, strict=False)
            if answer.error is not ErrorCode.NONE
        ]  # fmt: skip
    if isinstance(request, ProduceRequest) and isinstance(body, ProduceResponse):
        return [
            _Refused(asked.topic_partition, answer.error, asked.topic_id, acks=request.acks)
            for asked, answer in zip(request.partitions, body.partitions, strict=False)
            if answer.error is not ErrorCode.NONE
        ]
    if isinstance(request, ListOffsetsRequest) and isinstance(body, ListOffsetsResponse):
        epoch = request.current_leader_epoch
        return [_Refused(request.topic_partition, body.error, request.topic_id, epoch)]
    return []


def _why_needless(part: _Refused, replicas: Mapping[TopicPartition, Replica], image: MetadataImage) -> str:
    """Returns why the error is none; empty where it may be one, and for an error that others judge."""
    replica = replicas.get(part.topic_partition)
    if replica is None or replica.log.online.reason is not None:
        return ""
    leads, epoch = replica.leader is not None, replica.leader_epoch
    match part.error:
        case ErrorCode.NOT_LEADER_OR_FOLLOWER:
            has_role = leads or (replica.follower is not None and not part.needs_leader)
            is_earlier_life = part.broker_epoch < image.broker_epoch(part.follower)
            return f"has the role in epoch {epoch}" if has_role and not is_earlier_life else ""
        case ErrorCode.FENCED_LEADER_EPOCH:
            is_over = NO_EPOCH < part.leader_epoch < epoch
            return "" if is_over else f"is in epoch {epoch}; asked was for {part.leader_epoch}"
        case ErrorCode.UNKNOWN_LEADER_EPOCH:
            is_stranger = part.follower >= 0 and part.follower not in replica.replicas
            is_ahead = part.leader_epoch > epoch
            return (
                "" if is_ahead or is_stranger else f"is in epoch {epoch}; asked was for {part.leader_epoch}"
            )
        case ErrorCode.UNKNOWN_TOPIC_ID | ErrorCode.INCONSISTENT_TOPIC_ID:
            is_other = part.topic_id != replica.topic_id
            return "" if is_other else f"has the replica of topic {replica.topic_id}"
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return f"has the replica of topic {replica.topic_id}"
        case ErrorCode.NOT_ENOUGH_REPLICAS:
            return _enough(part, replica)
        case _:
            return ""


def _enough(part: _Refused, replica: Replica) -> str:
    if part.acks != ACKS_ALL:
        return f"acks={part.acks} asks for the leader alone"
    least = min(replica.log.local.config.min_insync_replicas, len(replica.replicas))
    in_sync = replica.committed_isr
    return f"{list(in_sync)} are in sync, {least} have to be" if len(in_sync) >= least else ""


_OF_BROKERS = (AllocateProducerIdsRequest, AlterPartitionRequest, BrokerHeartbeatRequest)
# What is said to who is not the registered process of its broker.
_OF_SENDERS = (
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
)


@final
class ControllerRefusals:
    """A rule for each request of a broker that the controller refuses in the step that has taken it (KR-CTL-4, CTL-1).

    Who is told that it is not the registered process is not. A proposal that builds on what is over, or on what has not
    been decided, does. One of which the leader or the members are wrong has such.
    """

    name = NAME

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        self._is_closing = False

    def on_died(self) -> None:
        """Receives the end of the controller's process."""
        self._is_closing = False

    def on_step(self, events: Sequence[Event], effects: Sequence[object], image: MetadataImage) -> None:
        """Receives a step of the controller; `image` has all that it has decided, durable or not."""
        self._is_closing |= any(type(event) is Shutdown for event in events)
        event = events[0]
        if self._is_closing or type(event) is not Request or not isinstance(event.body, _OF_BROKERS):
            return
        if len(events) > 1:
            # The next one has changed what the first was judged by.
            return
        for effect in effects:
            if type(effect) is Reply and effect.call == event.call:
                error = getattr(effect.body, "error", ErrorCode.NONE)
                if error is not ErrorCode.NONE and (what := _needless_to(event.body, error, image)):
                    self._jury.report(
                        self.name, f"the controller answers {error.name}, and {what}: {event.body}"
                    )


def _needless_to(body: SignedRequest, error: ErrorCode, image: MetadataImage) -> str:
    """Returns why the error is none; empty where it may be one, and for an error that others judge."""
    if not is_signed(body, image):
        return ""
    if error in _OF_SENDERS:
        return "the sender is the registered process"
    if not isinstance(body, AlterPartitionRequest):
        return ""
    topic = image.topics.get(body.topic_partition.topic)
    known = image.partition(body.topic_partition)
    if topic is None or known is None or topic.topic_id != body.topic_id:
        return ""
    state = (
        f"the partition is in leader epoch {known.leader_epoch} and partition epoch {known.partition_epoch}"
    )
    named, present = (body.leader_epoch, body.partition_epoch), (known.leader_epoch, known.partition_epoch)
    match error:
        case ErrorCode.UNKNOWN_TOPIC_ID | ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return "the topic is there"
        case ErrorCode.FENCED_LEADER_EPOCH:
            return "" if named[0] < present[0] else state
        case ErrorCode.INVALID_UPDATE_VERSION:
            return "" if named[1] < present[1] else state
        case ErrorCode.NOT_CONTROLLER:
            return "" if named[0] > present[0] or named[1] > present[1] else state
        case ErrorCode.INVALID_REQUEST:
            members = [each.broker_id for each in body.new_isr]
            is_sound = len(set(members)) == len(members) and set(members) <= set(known.replicas)
            leads = body.broker_id == known.leader and known.leader in members
            return f"broker {known.leader} leads {list(known.replicas)}" if is_sound and leads else ""
        case _:
            return ""
