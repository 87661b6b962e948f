"""A follower that its leader has told to cut its log, or to begin again (EPC-2, EPC-9, FET-11)."""

from __future__ import annotations

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.messages import EpochEnd, FetchPartition, FetchPartitionResponse, TopicPartition
from sim.checkers.cut_logs import CutLog, wrong_cut

T0 = TopicPartition("t", 0)
# The follower has a log from 10 up to 20, and asked from there on.
ASKED = FetchPartition(topic_partition=T0, fetch_offset=20, log_start_offset=10, last_fetched_epoch=5)


def out_of_range(log_start: int, log_end: int, found: CutLog) -> str:
    """Returns what is wrong with the log after its leader has said that its own reaches from `log_start` on."""
    answer = FetchPartitionResponse(
        topic_partition=T0,
        error=ErrorCode.OFFSET_OUT_OF_RANGE,
        log_start_offset=log_start,
        log_end_offset=log_end,
    )
    return wrong_cut(ASKED, answer, found)


def emptied(at: int, *, log_start: int | None = None, segments: int = 1) -> CutLog:
    return CutLog(at if log_start is None else log_start, at, segments, 0, ())


def test_fet_11_a_follower_whose_leader_begins_beyond_its_log_begins_again_there() -> None:
    assert out_of_range(30, 50, emptied(30)) == ""
    said = "begins again at 50; the log of its leader begins at 30"
    assert out_of_range(30, 50, emptied(50)) == said
    assert out_of_range(30, 50, emptied(29)) != ""
    # Some of its many segments are gone. The others go with the next answers.
    assert out_of_range(30, 50, emptied(15, segments=2)) == ""


def test_epc_9_a_follower_that_keeps_nothing_begins_again_where_its_leader_begins() -> None:
    assert out_of_range(3, 8, emptied(3)) == ""
    assert out_of_range(3, 8, emptied(8)) == "begins again at 8; the log of its leader begins at 3"
    # A cut at the start of its own log, which leaves no record.
    assert out_of_range(3, 10, emptied(10)) == ""
    # A cut that leaves some.
    assert out_of_range(3, 12, CutLog(10, 12, 1, 70, ((4, 10),))) == ""


@pytest.mark.parametrize(
    ("found", "is_wrong"),
    [
        (CutLog(10, 14, 1, 70, ((4, 10), (5, 14))), False),
        (CutLog(10, 14, 1, 70, ((4, 10),)), False),
        # It was cut at its leader's end of epoch 4, which is above its own.
        (CutLog(10, 17, 1, 70, ((4, 10), (5, 14))), True),
        # The last of many segments have gone, and left an empty one.
        (CutLog(10, 17, 3, 0, ((4, 10), (5, 14))), False),
        # It has no epoch up to 4, and was cut at its high watermark.
        (CutLog(10, 17, 1, 70, ((5, 10),)), False),
        (CutLog(10, 17, 1, 70, ()), False),
    ],
)
def test_epc_2_a_cut_leaves_no_record_of_an_epoch_that_its_leader_does_not_have(
    found: CutLog, is_wrong: bool
) -> None:
    answer = FetchPartitionResponse(
        topic_partition=T0,
        high_watermark=9,
        log_start_offset=0,
        diverging=EpochEnd(epoch=4, end_offset=17),
    )
    assert bool(wrong_cut(ASKED, answer, found)) is is_wrong


def test_epc_9_a_diverging_answer_makes_an_emptied_log_begin_at_its_leaders_start() -> None:
    answer = FetchPartitionResponse(
        topic_partition=T0, log_start_offset=2, diverging=EpochEnd(epoch=4, end_offset=7)
    )
    assert wrong_cut(ASKED, answer, emptied(2)) == ""
    assert wrong_cut(ASKED, answer, emptied(7)) == "begins again at 7; the log of its leader begins at 2"
