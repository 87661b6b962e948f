"""Judges where the answer to a fetch begins, by the log's own offsets in it (RD1, RD2), and how much it has."""

from __future__ import annotations

from cluster.core.errors import ErrorCode
from cluster.core.messages import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse
from storage.batch import HEADER, HEADER_SIZE

NAME = "fetch-range"
LIMITS = "fetch-limits"
# What a batch has before the bytes that its length counts.
_LOG_OVERHEAD = 12


def range_finding(
    asked: FetchPartition, answer: FetchPartitionResponse, *, may_be_damaged: bool = False
) -> str:
    """Returns what is wrong with the answer for one partition; empty if nothing is, or it says where logs part.

    Who fetches from below the log's start or above its end is refused: what is below was deleted. The first batch of
    an answer holds the offset, or follows it where nothing holds it: an earlier one would be fetched again for ever.
    Records that `may_be_damaged` on a disk are not looked at: a leader sends them as they are, and who reads them finds
    the damage. Where logs part is not said to who fetches from below the log's start: it is out of range (KAFKA-12996).
    """
    offset, start, end = asked.fetch_offset, answer.log_start_offset, answer.log_end_offset
    if answer.error is not ErrorCode.NONE:
        return ""
    if answer.diverging is not None:
        is_below = 0 <= offset < start
        return (
            f"answers a fetch from {offset} with where logs part; its log begins at {start}"
            if is_below
            else ""
        )
    if min(start, end) >= 0 and not start <= offset <= end:
        return f"answers a fetch from {offset}; its log begins at {start} and ends at {end}"
    if len(answer.records) >= HEADER_SIZE and not may_be_damaged:
        fields = HEADER.unpack_from(answer.records)
        if fields[0] + fields[6] < offset:
            return f"answers a fetch from {offset} with a batch that ends at {fields[0] + fields[6]}"
    return ""


def limit_finding(request: FetchRequest, body: FetchResponse, broker_max_bytes: int) -> str:
    """Returns the first partition of an answer that has more bytes than it may have; empty if none has (KIP-74).

    Only the first one with records may exceed the limits of the request, its own, and the broker's `fetch.max.bytes`,
    and then with one batch.
    """
    room = whole = min(request.max_bytes, broker_max_bytes)
    for asked, answer in zip(request.partitions, body.partitions, strict=False):
        size_bytes, limit = len(answer.records), max(0, min(room, asked.max_bytes))
        is_first = room == whole
        if size_bytes > limit and not (is_first and _is_one_batch(answer.records)):
            return f"{answer.topic_partition}: has {size_bytes} bytes where {limit} were left"
        room -= size_bytes
    return ""


def _is_one_batch(records: bytes) -> bool:
    return len(records) < HEADER_SIZE or HEADER.unpack_from(records)[1] + _LOG_OVERHEAD >= len(records)
