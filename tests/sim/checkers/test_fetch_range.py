"""A fetch is answered from the offset that it names, or refused, and with no more than it asks for."""

from __future__ import annotations

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    EpochEnd,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    TopicPartition,
)
from sim.checkers.base import Jury
from sim.checkers.fetch_range import limit_finding, range_finding
from sim.checkers.ghost import ROTTEN, Ghost
from sim.witness.fetches import FetchWitness
from sim.witness.topic_lives import TopicLives
from storage.batch import Record, build_batch

T0 = TopicPartition("t", 0)
# Two records, from offset 5 on.
RECORDS = build_batch([Record(each, 1, None, b"v") for each in (5, 6)], base_offset=5)


def exchange(
    offset: int, records: bytes = b"", error: ErrorCode = ErrorCode.NONE, diverging: EpochEnd | None = None
) -> tuple[FetchPartition, FetchPartitionResponse]:
    """Returns a fetch from `offset`, and the answer of a log from 4 to 9 (exclusive)."""
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
    return asked, answer


def found(
    offset: int, records: bytes = b"", error: ErrorCode = ErrorCode.NONE, diverging: EpochEnd | None = None
) -> str:
    """Returns what is wrong with that answer."""
    return range_finding(*exchange(offset, records, error, diverging))


def test_rd2_a_fetch_from_outside_the_log_is_not_answered() -> None:
    assert not found(4) and not found(9)
    assert found(3) == "answers a fetch from 3; its log begins at 4 and ends at 9"
    assert found(10)
    assert not found(10, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert not found(10, diverging=EpochEnd(epoch=0, end_offset=9))


def test_led3_who_fetches_from_below_the_log_is_not_told_where_logs_part() -> None:
    parts = EpochEnd(epoch=0, end_offset=2)
    assert not found(4, diverging=parts)
    assert found(3, diverging=parts) == "answers a fetch from 3 with where logs part; its log begins at 4"
    assert not found(3, error=ErrorCode.OFFSET_OUT_OF_RANGE, diverging=parts)


def test_rd1_an_answer_begins_with_the_batch_that_holds_the_offset_or_a_later_one() -> None:
    assert not found(5, RECORDS) and not found(6, RECORDS) and not found(4, RECORDS)
    assert found(7, RECORDS) == "answers a fetch from 7 with a batch that ends at 6"
    # A header that is cut says nothing.
    assert not found(7, RECORDS[:60])


def too_many(*sets: bytes, of_request: int = 1_000, of_partition: int = 1_000, of_broker: int = 1_000) -> str:
    """Returns what is wrong with an answer that has these records of partitions 0, 1 and so on."""
    names = [TopicPartition("t", number) for number in range(len(sets))]
    asked = [
        FetchPartition(
            topic_partition=each,
            topic_id="id",
            fetch_offset=5,
            current_leader_epoch=0,
            max_bytes=of_partition,
        )
        for each in names
    ]
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=of_request,
        partitions=tuple(asked),
    )
    answers = [
        FetchPartitionResponse(topic_partition=each, error=ErrorCode.NONE, records=records)
        for each, records in zip(names, sets, strict=True)
    ]
    return limit_finding(request, FetchResponse(partitions=tuple(answers)), of_broker)


def test_kip74_only_the_first_batch_of_an_answer_may_exceed_the_limits() -> None:
    size = len(RECORDS)
    assert not too_many(b"", RECORDS, of_request=1) and not too_many(RECORDS, of_partition=1)
    assert "t-0: has" in too_many(RECORDS + RECORDS, of_request=2 * size - 1)
    assert not too_many(RECORDS, RECORDS, of_request=2 * size)
    assert too_many(RECORDS, RECORDS, of_request=2 * size - 1) == (
        f"t-1: has {size} bytes where {size - 1} were left"
    )
    assert "t-1" in too_many(RECORDS, RECORDS, of_partition=size - 1)
    assert too_many(RECORDS, RECORDS, of_broker=2 * size - 1)
    assert not too_many(RECORDS, RECORDS, of_broker=2 * size) and not too_many(RECORDS, of_broker=1)


def test_records_that_a_disk_has_changed_are_not_looked_at() -> None:
    ghost = Ghost()
    jury = Jury(ghost, (), now_us=lambda: 0, on_violation=lambda violation: None)
    witness, counts = FetchWitness(jury, TopicLives(), {"t-0": T0}), list[int]()
    for offset in (7, 3):
        asked, answer = exchange(offset, RECORDS)
        request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1, partitions=(asked,))
        witness.on_answer(1, None, request, FetchResponse(partitions=(answer,)))
        counts.append(len(jury.violations))
        ghost.give_up_at_once(ghost.partition("t-0"), 1, ROTTEN)
        witness.on_answer(1, None, request, FetchResponse(partitions=(answer,)))
        counts.append(len(jury.violations))
    # The range of the log is judged all the same.
    assert counts == [1, 1, 2, 3]
