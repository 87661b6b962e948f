"""Requests that reach a node by mistake or by malice: each of them must be refused, and must change nothing.

A stray is a request that the node has just got, with another cluster, sender, life, topic, epoch or in-sync set in it,
or one of a client that asks for what there cannot be; a client with a topic of its own is no stray, and as little known
to the rest of the run. Such requests come from a node of another cluster under an old
address, from a process whose disk was copied, from a program that makes mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from cluster.core.messages import (
    LATEST_TIMESTAMP,
    NO_TOPIC_ID,
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AlterTopicConfigsRequest,
    BrokerHeartbeatRequest,
    CreatePartitionsRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    FetchMetadataRequest,
    FetchPartition,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
    RegisterBrokerRequest,
    RequestBody,
    TopicPartition,
)
from sim.buggify.buggify import Buggify
from sim.buggify.spoiled_sets import Pick, spoiled
from storage.batch import iterate_batches
from storage.errors import CorruptBatch

SET = "stray-set"
# No cluster, process, topic, broker or epoch of a run is called so.
_CLUSTER, _INCARNATION, _TOPIC_ID, _BROKER, _NOWHERE = "elsewhere", "f" * 32, "f" * 32, 99, "nowhere"
# More epochs than a run has.
_LATER = 1_000
_TOPIC = "stray"
# Larger than a batch of the metadata log in nearly all drawn runs.
_LARGE = "1" + " " * (9 << 10)


class Stray(NamedTuple):
    """A request, and why the node must refuse it; empty where it may grant it."""

    body: RequestBody
    why: str


_OfBroker = AllocateProducerIdsRequest | AlterPartitionRequest | BrokerHeartbeatRequest
_Forwarded = CreateTopicRequest | DeleteTopicRequest | AlterTopicConfigsRequest | CreatePartitionsRequest
_Signed = _OfBroker | FetchMetadataRequest | FetchRequest


def _of_another_cluster(body: RequestBody, pick: Pick) -> Stray | None:
    why = "of another cluster"
    if isinstance(body, RegisterBrokerRequest):
        header = None if body.header is None else replace(body.header, cluster_id=_CLUSTER)
        return Stray(replace(body, header=header, cluster_id=_CLUSTER), why)
    if isinstance(body, _Signed | _Forwarded) and body.header is not None:
        return Stray(replace(body, header=replace(body.header, cluster_id=_CLUSTER)), why)
    return None


def _of_another_sender(body: RequestBody, pick: Pick) -> Stray | None:
    if not isinstance(body, _Signed) or body.header is None:
        return None
    header = body.header
    match pick(3):
        case 0:
            return Stray(replace(body, header=None), "without a header")
        case 1:
            header = replace(header, broker_id=_BROKER)
        case _:
            header = replace(header, broker_epoch=header.broker_epoch + _LATER)
    why = f"with the header of broker {header.broker_id} in epoch {header.broker_epoch}"
    return Stray(replace(body, header=header), why)


def _of_another_life(body: RequestBody, pick: Pick) -> Stray | None:
    if not isinstance(body, _Signed | _Forwarded) or body.header is None:
        return None
    header, is_fetch = body.header, isinstance(body, FetchRequest)
    if header.broker_epoch <= 0:
        return None
    if pick(2):
        # A leader that lags does not know the life yet, and may answer: what it knows is judged elsewhere.
        why = "" if is_fetch else "of another process"
        return Stray(replace(body, header=replace(header, incarnation=_INCARNATION)), why)
    earlier = header.broker_epoch - 1
    body = replace(body, header=replace(header, broker_epoch=earlier))
    if isinstance(body, _OfBroker | FetchRequest):
        body = replace(body, broker_epoch=earlier)
    return Stray(body, "" if is_fetch else f"of broker epoch {earlier}, which never was")


def _about_another_topic(body: RequestBody, pick: Pick) -> Stray | None:
    why = "about another topic of the name"
    match body:
        case FetchRequest():
            # A consumer may omit it, a follower may not.
            topic_id = NO_TOPIC_ID if body.replica_id >= 0 and pick(2) else _TOPIC_ID
            fetched = tuple([replace(each, topic_id=topic_id) for each in body.partitions])
            return Stray(replace(body, partitions=fetched), why)
        case ProduceRequest() if body.acks:
            produced = tuple([replace(each, topic_id=_TOPIC_ID) for each in body.partitions])
            return Stray(replace(body, partitions=produced), why)
        case AlterPartitionRequest() | ListOffsetsRequest():
            return Stray(replace(body, topic_id=_TOPIC_ID), why)
        case _:
            return None


def _of_another_epoch(body: RequestBody, pick: Pick) -> Stray | None:
    # Not one that is over: a leader that lags would take the sender's place in its log for that of a follower there.
    match body:
        case FetchRequest():
            partitions = tuple([_later(each) for each in body.partitions])
            return Stray(replace(body, partitions=partitions), "in leader epochs that never were")
        case ListOffsetsRequest():
            epoch = body.current_leader_epoch + _LATER
            return Stray(replace(body, current_leader_epoch=epoch), f"in the leader epoch {epoch}")
        case _:
            return None


def _later(partition: FetchPartition) -> FetchPartition:
    return replace(partition, current_leader_epoch=partition.current_leader_epoch + _LATER)


def _proposal(body: RequestBody, pick: Pick) -> Stray | None:
    if not isinstance(body, AlterPartitionRequest) or not body.new_isr:
        return None
    members, chosen = body.new_isr, body.new_isr[pick(len(body.new_isr))]
    earlier = replace(chosen, broker_epoch=chosen.broker_epoch - 1)
    in_earlier_life = tuple([earlier if each is chosen else each for each in members])
    leaderless = tuple([each for each in members if each.broker_id != body.broker_id])
    wrong = (
        ("that builds on a later state", replace(body, partition_epoch=body.partition_epoch + _LATER)),
        ("that builds on an earlier state", replace(body, partition_epoch=body.partition_epoch - 1)),
        ("of a later leader epoch", replace(body, leader_epoch=body.leader_epoch + _LATER)),
        ("of an earlier leader epoch", replace(body, leader_epoch=body.leader_epoch - 1)),
        ("with a member in an earlier life", replace(body, new_isr=in_earlier_life)),
        ("with a stranger", replace(body, new_isr=(*members, replace(chosen, broker_id=_BROKER)))),
        ("with a member twice", replace(body, new_isr=(*members, chosen))),
        ("without the leader", replace(body, new_isr=leaderless)),
    )
    why, changed = wrong[pick(len(wrong))]
    return Stray(changed, why)


# What no controller grants, whatever topics there are.
_WISHES: tuple[RequestBody, ...] = (
    CreateTopicRequest(name="no/name"),
    CreateTopicRequest(name="__cluster_metadata"),
    CreateTopicRequest(name=_TOPIC, partitions=0),
    CreateTopicRequest(name=_TOPIC, replication_factor=0),
    CreateTopicRequest(name=_TOPIC, replication_factor=_BROKER),
    CreateTopicRequest(name=_TOPIC, configs=(("no.such.property", "1"),)),
    CreateTopicRequest(name=_TOPIC, configs=(("retention.ms", "soon"),)),
    CreateTopicRequest(name=_TOPIC, assignment=((1, 1),)),
    CreateTopicRequest(name=_TOPIC, assignment=((1,), (1, 2))),
    CreateTopicRequest(name=_TOPIC, assignment=((1,), (_BROKER,))),
    DeleteTopicRequest(name=_NOWHERE),
    AlterTopicConfigsRequest(name=_NOWHERE, configs=(("retention.ms", "1"),)),
    CreatePartitionsRequest(name=_NOWHERE, count=3),
    CreatePartitionsRequest(name="t", count=1),
)


def _of_a_client(body: RequestBody, pick: Pick) -> Stray | None:
    if not isinstance(body, BrokerHeartbeatRequest):
        return None
    return Stray(_WISHES[pick(len(_WISHES))], "of a client that asks for what cannot be")


def _too_large(body: RequestBody, pick: Pick) -> Stray | None:
    if not isinstance(body, BrokerHeartbeatRequest):
        return None
    return Stray(CreateTopicRequest(name=_TOPIC, configs=(("retention.ms", _LARGE),)), "")


# Two names that metrics could not tell apart: where one is there, the other is refused.
_DOTTED, _UNDERSCORED = "by.stander", "by_stander"
# What a client may want of a topic of its own, which nobody uses: what is not granted now may be granted later.
_OF_BYSTANDER: tuple[RequestBody, ...] = (
    CreateTopicRequest(name=_DOTTED, partitions=1, replication_factor=1),
    CreateTopicRequest(name=_UNDERSCORED, partitions=1, replication_factor=1),
    CreateTopicRequest(name=_UNDERSCORED, partitions=2, replication_factor=1),
    DeleteTopicRequest(name=_DOTTED),
    CreateTopicRequest(name=_TOPIC, partitions=2, replication_factor=1),
    CreateTopicRequest(name=_TOPIC, partitions=1, replication_factor=2),
    CreateTopicRequest(name=_TOPIC, partitions=3, replication_factor=3, configs=(("segment.ms", "700"),)),
    AlterTopicConfigsRequest(name=_TOPIC, configs=(("segment.ms", ""), ("retention.ms", "2000"))),
    AlterTopicConfigsRequest(name=_TOPIC, configs=(("flush.messages", "1"), ("retention.ms", ""))),
    AlterTopicConfigsRequest(name=_TOPIC, configs=(("min.insync.replicas", "2"), ("flush.messages", ""))),
    CreatePartitionsRequest(name=_TOPIC, count=4),
    DeleteTopicRequest(name=_TOPIC),
    DeleteTopicRequest(name=_TOPIC),
)


def _of_a_bystander(body: RequestBody, pick: Pick) -> Stray | None:
    if not isinstance(body, BrokerHeartbeatRequest):
        return None
    return Stray(_OF_BYSTANDER[pick(len(_OF_BYSTANDER))], "")


def _of_a_copy(body: RequestBody, pick: Pick) -> Stray | None:
    """Returns the registration of a process that was started under the broker's id, and is never heard again.

    It is granted where the broker has no live session: the broker ends its roles then, and registers again.
    """
    # One that still wishes to be fenced has no roles yet.
    if not isinstance(body, BrokerHeartbeatRequest) or body.want_fence or body.header is None:
        return None
    broker, incarnation = body.header.broker_id, f"{_INCARNATION[:28]}{body.header.broker_id:04x}"
    copy = RegisterBrokerRequest(
        header=replace(body.header, incarnation=incarnation), broker_id=broker, incarnation=incarnation,
        host="copy", port=9_000, cluster_id=body.header.cluster_id,
    )  # fmt: skip
    return Stray(copy, "")


def _question(body: RequestBody, pick: Pick) -> Stray | None:
    # Clients ask brokers; but whoever has its address may ask the controller, too.
    return Stray(MetadataRequest(topics=None), "") if isinstance(body, _OfBroker) else None


# How long before the newest record of a produced set the time lies that is looked up: what is there may be new too.
_BACK_MS = (0, 20, 100, 500, 2_000)


def _question_of_offsets(body: RequestBody, pick: Pick) -> Stray | None:
    """Returns a look-up beside a fetch or a set: of an end that is not committed yet, or of a time near to it."""
    if isinstance(body, FetchRequest) and body.replica_id >= 0 and body.partitions:
        fetched = body.partitions[pick(len(body.partitions))]
        return Stray(_look_up(fetched.topic_partition, fetched.topic_id, LATEST_TIMESTAMP), "")
    if isinstance(body, ProduceRequest) and body.acks and body.partitions:
        produced = body.partitions[pick(len(body.partitions))]
        try:
            batch = next(iterate_batches(produced.records), None)
        except CorruptBatch:
            return None
        if batch is not None:
            time_ms = max(0, batch.max_timestamp - _BACK_MS[pick(len(_BACK_MS))])
            return Stray(_look_up(produced.topic_partition, produced.topic_id, time_ms), "")
    return None


def _look_up(topic_partition: TopicPartition, topic_id: str, timestamp: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(topic_partition=topic_partition, topic_id=topic_id, timestamp=timestamp)


# What the points make of a request, by name: None where it is not of their kind.
STRAYS: Mapping[str, Callable[[RequestBody, Pick], Stray | None]] = {
    "stray-of-another-cluster": _of_another_cluster,
    "stray-of-another-sender": _of_another_sender,
    "stray-of-another-life": _of_another_life,
    "stray-about-another-topic": _about_another_topic,
    "stray-of-another-epoch": _of_another_epoch,
    "stray-proposal": _proposal,
    "stray-of-a-client": _of_a_client,
    "stray-too-large": _too_large,
    "topic-of-a-bystander": _of_a_bystander,
    "registration-of-a-copy": _of_a_copy,
    "question-to-the-controller": _question,
    "question-of-offsets": _question_of_offsets,
}


def strays(
    buggify: Buggify, place: str, body: RequestBody, compacted: Collection[str] = ()
) -> Iterator[Stray]:
    """Yields the requests that reach a node beside the one that it has just got; `compacted` are names of topics."""
    for point, make in STRAYS.items():
        if not buggify.is_on(point) or make(body, _first) is None or not buggify.fires(point, place):
            continue
        stray = make(body, partial(_pick, buggify, point, place))
        assert stray is not None, (point, body)
        yield stray
    # Whether a set can be spoiled is known only when it is, and that takes long.
    if buggify.is_on(SET) and isinstance(body, ProduceRequest) and buggify.fires(SET, place):
        made = spoiled(body, partial(_pick, buggify, SET, place), compacted)
        if made is not None:
            yield Stray(*made)


def _pick(buggify: Buggify, point: str, place: str, count: int) -> int:
    return buggify.between(0, count - 1, point, place)


def _first(count: int) -> int:
    """Returns the first of so many, where it is only asked whether there are any."""
    return 0
