"""Merges what waits on a stream into frames: under load a frame has many calls or answers, at rest one."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

from cluster.core.connection.codec import StreamRequest, StreamResponse
from cluster.core.messages import FetchRequest, FetchResponse, ProduceRequest

Body = TypeVar("Body", StreamRequest, StreamResponse)

# A frame takes no further pair that would bring its records above this size; one pair alone may be larger.
MERGE_BYTES = 4 << 20
MERGE_PAIRS = 64
# No broker answers a fetch with more, but for a single batch that is larger.
MOST_FETCHED_BYTES = 55 << 20


def record_bytes(body: StreamRequest | StreamResponse) -> int:
    """Returns the size of the records in a body: 0 for a fetch request and a produce response."""
    match body:
        case ProduceRequest() | FetchResponse():
            return sum([len(partition.records) for partition in body.partitions])
        case _:
            return 0


def bytes_held_by(body: StreamRequest) -> int:
    """Returns how many bytes a node may hold for a call until its answer is written."""
    if isinstance(body, FetchRequest):
        wanted = sum([partition.max_bytes for partition in body.partitions])
        return min(wanted, body.max_bytes, MOST_FETCHED_BYTES)
    return record_bytes(body)


def take_merged(waiting: deque[tuple[int, Body]]) -> list[tuple[int, Body]]:
    """Removes from `waiting` and returns the oldest pairs that fit into one frame, at least one."""
    assert waiting, "nothing to send"
    merged = [waiting.popleft()]
    size_bytes = record_bytes(merged[0][1])
    while waiting and len(merged) < MERGE_PAIRS:
        size_bytes += record_bytes(waiting[0][1])
        if size_bytes > MERGE_BYTES:
            break
        merged.append(waiting.popleft())
    return merged
