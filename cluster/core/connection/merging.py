"""Merges what waits on a stream into frames: under load a frame has many calls or answers, at rest one."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

from cluster.core.connection.codec import StreamRequest, StreamResponse
from cluster.core.messages import FetchRequest, FetchResponse, ProduceRequest

Body = TypeVar("Body", StreamRequest, StreamResponse)

# A frame takes no further pair that would bring it above this size; one pair alone may be larger.
MERGE_BYTES = 4 << 20
# The same for a frame of calls: what is around them included, it is sent in one piece.
MERGE_CALLS_BYTES = 15 << 16
MERGE_PAIRS = 64
# No broker answers a fetch with more, but for a single batch that is larger.
MOST_FETCHED_BYTES = 55 << 20
# What a partition of a request or of an answer takes beside its records, with its topic's name and id. The first one of
# each belongs to the call: the limits of calls bound it.
PARTITION_BYTES = 512


def bytes_of_partitions(body: StreamRequest | StreamResponse) -> int:
    """Returns what the partitions of a body take without their records, but for the first."""
    return PARTITION_BYTES * max(0, len(body.partitions) - 1)


def bytes_of(body: StreamRequest | StreamResponse) -> int:
    """Returns what a body takes: its records, where it has some, and its partitions."""
    size_bytes = bytes_of_partitions(body)
    match body:
        case ProduceRequest() | FetchResponse():
            return size_bytes + sum([len(partition.records) for partition in body.partitions])
        case _:
            return size_bytes


def bytes_held_by(body: StreamRequest) -> int:
    """Returns how many bytes a node may hold for a call until its answer is written."""
    if isinstance(body, FetchRequest):
        wanted = sum([partition.max_bytes for partition in body.partitions])
        return bytes_of_partitions(body) + min(wanted, body.max_bytes, MOST_FETCHED_BYTES)
    return bytes_of(body)


def take_merged(waiting: deque[tuple[int, Body]], most_bytes: int = MERGE_BYTES) -> list[tuple[int, Body]]:
    """Removes from `waiting` and returns the oldest pairs that fit into one frame of `most_bytes`, at least one."""
    assert waiting, "nothing to send"
    merged = [waiting.popleft()]
    size_bytes = bytes_of(merged[0][1])
    while waiting and len(merged) < MERGE_PAIRS:
        size_bytes += bytes_of(waiting[0][1])
        if size_bytes > most_bytes:
            break
        merged.append(waiting.popleft())
    return merged
