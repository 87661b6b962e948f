"""Judges where the answer to a fetch begins, by the log's own offsets in it (RD1, RD2)."""

from __future__ import annotations

from cluster.core.errors import ErrorCode
from cluster.core.messages import FetchPartition, FetchPartitionResponse
from storage.batch import HEADER, HEADER_SIZE

NAME = "fetch-range"


def range_finding(asked: FetchPartition, answer: FetchPartitionResponse) -> str:
    """Returns what is wrong with the answer for one partition; empty if nothing is, or it says where logs part.

    Who fetches from below the log's start or above its end is refused: what is below was deleted. The first batch of
    an answer holds the offset, or follows it where nothing holds it: an earlier one would be fetched again for ever.
    """
    if answer.error is not ErrorCode.NONE or answer.diverging is not None:
        return ""
    offset, start, end = asked.fetch_offset, answer.log_start_offset, answer.log_end_offset
    if min(start, end) >= 0 and not start <= offset <= end:
        return f"answers a fetch from {offset}; its log begins at {start} and ends at {end}"
    if len(answer.records) >= HEADER_SIZE:
        fields = HEADER.unpack_from(answer.records)
        if fields[0] + fields[6] < offset:
            return f"answers a fetch from {offset} with a batch that ends at {fields[0] + fields[6]}"
    return ""
