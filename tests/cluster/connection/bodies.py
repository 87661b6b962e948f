"""Short requests and answers, for tests of connections."""

from __future__ import annotations

from cluster.core.connection.codec import Codec, StreamRequest
from cluster.core.effects import Send
from cluster.core.messages import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    RequestBody,
    TopicPartition,
)

T0 = TopicPartition("t", 0)


def produce(size_bytes: int, *, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks, partitions=(ProducePartition(topic_partition=T0, records=bytes(size_bytes)),)
    )


def produced(base_offset: int) -> ProduceResponse:
    return ProduceResponse(
        partitions=(ProducePartitionResponse(topic_partition=T0, base_offset=base_offset),)
    )


def fetch(max_bytes: int, *, replica_id: int = -1) -> FetchRequest:
    item = FetchPartition(topic_partition=T0, fetch_offset=0, max_bytes=max_bytes)
    return FetchRequest(replica_id=replica_id, partitions=(item,))


def fetched(size_bytes: int) -> FetchResponse:
    return FetchResponse(partitions=(FetchPartitionResponse(topic_partition=T0, records=bytes(size_bytes)),))


def send(call: int, body: RequestBody, *, timeout_ms: int = 1_000, expects_reply: bool = True) -> Send:
    return Send(to=1, call=call, body=body, timeout_ms=timeout_ms, expects_reply=expects_reply)


def frame_of(codec: Codec, *calls: tuple[int, StreamRequest]) -> bytes:
    """The calls as one frame of the stream of the first."""
    return codec.stream_of(calls[0][1]).calls_to_bytes(calls)
