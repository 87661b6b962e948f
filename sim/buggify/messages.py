"""Points at messages: requests that ask for less or come twice, answers that hold less or are lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cluster.core.client.config import ACKS_ALL
from cluster.core.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    FetchMetadataRequest,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    InitProducerIdResponse,
    ProduceRequest,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RequestBody,
    ResponseBody,
)
from sim.buggify.buggify import Buggify
from storage.batch import iterate_batches
from storage.errors import CorruptBatch

# More than any partition of a run has.
_MANY_BYTES = 1 << 24
# The unary calls whose answer may be lost although it was given, and the requests that may come again.
LOST: Mapping[type, str] = {
    AllocateProducerIdsResponse: "allocation-answer-lost",
    AlterPartitionResponse: "proposal-answer-lost",
    BrokerHeartbeatResponse: "heartbeat-answer-lost",
    InitProducerIdResponse: "producer-id-answer-lost",
    RegisterBrokerResponse: "registration-answer-lost",
}
REPEATED: Mapping[type, str] = {
    AllocateProducerIdsRequest: "allocation-twice",
    AlterPartitionRequest: "proposal-twice",
    BrokerHeartbeatRequest: "heartbeat-twice",
    RegisterBrokerRequest: "registration-twice",
}


def perturbed_request(buggify: Buggify, place: str, body: RequestBody) -> RequestBody:
    """Returns the request that leaves the node instead of `body`: mostly the same one."""
    if isinstance(body, FetchRequest):
        return _fetch(buggify, place, body)
    if isinstance(body, ProduceRequest):
        is_hasty = body.acks == ACKS_ALL and buggify.fires("append-times-out", place)
        return replace(body, timeout_ms=1) if is_hasty else body
    if isinstance(body, FetchMetadataRequest) and buggify.fires("metadata-asks-for-one-batch", place):
        return replace(body, max_bytes=1)
    if isinstance(body, AlterPartitionRequest):
        return _proposal(buggify, place, body)
    return body


def _proposal(buggify: Buggify, place: str, body: AlterPartitionRequest) -> AlterPartitionRequest:
    """Returns the proposal, which may name one of the followers in the life before its present one."""
    followers = [each for each in body.new_isr if each.broker_id != body.broker_id and each.broker_epoch > 0]
    point = "proposal-of-an-earlier-life"
    if not followers or not buggify.fires(point, place):
        return body
    chosen = followers[buggify.between(0, len(followers) - 1, point, place)]
    earlier = replace(chosen, broker_epoch=chosen.broker_epoch - 1)
    return replace(body, new_isr=tuple([earlier if each is chosen else each for each in body.new_isr]))


def _fetch(buggify: Buggify, place: str, body: FetchRequest) -> FetchRequest:
    if buggify.fires("fetch-asks-for-one-batch", place):
        partitions = tuple([replace(each, max_bytes=1) for each in body.partitions])
        body = replace(body, max_bytes=1, partitions=partitions)
    if buggify.fires("fetch-does-not-wait", place):
        body = replace(body, max_wait_ms=0)
    if buggify.fires("fetch-waits-for-more", place):
        body = replace(body, min_bytes=_MANY_BYTES)
    return body


def perturbed_reply(buggify: Buggify, place: str, body: ResponseBody) -> ResponseBody:
    """Returns the answer that leaves the node instead of `body`: mostly the same one."""
    if not isinstance(body, FetchResponse) or not any(each.records for each in body.partitions):
        return body
    partitions = body.partitions
    if buggify.fires("fetch-answer-cut", place):
        partitions = tuple([_first_batch(each) for each in partitions])
    if buggify.fires("fetch-answer-empty", place):
        chosen = buggify.between(0, len(partitions) - 1, "fetch-answer-empty", place)
        partitions = tuple(
            [replace(each, records=b"") if at == chosen else each for at, each in enumerate(partitions)]
        )
    return body if partitions is body.partitions else replace(body, partitions=partitions)


def _first_batch(partition: FetchPartitionResponse) -> FetchPartitionResponse:
    """Returns the answer of a partition with the first batch of its records only."""
    try:
        first = next(iterate_batches(partition.records), None)
    except CorruptBatch:
        # A disk that rots may serve anything, and whoever asked has to notice it.
        return partition
    if first is None or first.size_bytes >= len(partition.records):
        return partition
    return replace(partition, records=partition.records[: first.size_bytes])


def is_lost(buggify: Buggify, place: str, body: ResponseBody) -> bool:
    """Whether the answer never reaches the node that asked."""
    point = LOST.get(type(body))
    return point is not None and buggify.fires(point, place)


def is_repeated(buggify: Buggify, place: str, body: RequestBody) -> bool:
    """Whether the node gets a request twice, as from a sender that repeats what was not answered."""
    point = REPEATED.get(type(body))
    return point is not None and buggify.fires(point, place)
