"""A fetch is answered from the offset that it names, or refused."""

from __future__ import annotations

from cluster.core.errors import ErrorCode
from cluster.core.messages import EpochEnd, FetchPartition, FetchPartitionResponse, TopicPartition
from sim.checkers.fetch_range import range_finding
from storage.batch import Record, build_batch

T0 = TopicPartition("t", 0)
# Two records, from offset 5 on.
RECORDS = build_batch([Record(each, 1, None, b"v") for each in (5, 6)], base_offset=5)


def found(
    offset: int, records: bytes = b"", error: ErrorCode = ErrorCode.NONE, diverging: EpochEnd | None = None
) -> str:
    """Returns what is wrong with an answer of a log from 4 to 9 (exclusive) to a fetch from `offset`."""
    asked = FetchPartition(
        topic_partition=T0, topic_id="id", fetch_offset=offset, current_leader_epoch=0, max_bytes=1
    )
    answer = FetchPartitionResponse(
        topic_partition=T0,
        error=error,
        log_start_offset=4,
        log_end_offset=9,
        diverging=diverging,
        records=records,
    )
    return range_finding(asked, answer)


def test_rd2_a_fetch_from_outside_the_log_is_not_answered() -> None:
    assert not found(4) and not found(9)
    assert found(3) == "answers a fetch from 3; its log begins at 4 and ends at 9"
    assert found(10)
    assert not found(10, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert not found(10, diverging=EpochEnd(epoch=0, end_offset=9))


def test_rd1_an_answer_begins_with_the_batch_that_holds_the_offset_or_a_later_one() -> None:
    assert not found(5, RECORDS) and not found(6, RECORDS) and not found(4, RECORDS)
    assert found(7, RECORDS) == "answers a fetch from 7 with a batch that ends at 6"
    # A header that is cut says nothing.
    assert not found(7, RECORDS[:60])
