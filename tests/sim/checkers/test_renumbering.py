"""A producer's batch that may be in the log, or reach it yet, is never sent under a second sequence (KIP-360)."""

from __future__ import annotations

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.events import Response, TransportError
from cluster.core.messages import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    TopicPartition,
)
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.renumbering import Client, Renumbering
from storage.batch import Record, build_batch

T0 = TopicPartition("t", 0)
CLIENT: Client = ("c", 1)
MISSING = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
REFUSED = ErrorCode.INVALID_RECORD


class Story:
    """One producer; each call carries one batch, which its value names."""

    def __init__(self) -> None:
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self.renumbering = Renumbering(self.jury)

    def sent(self, call: int, value: str, sequence: int, epoch: int = 0) -> int:
        """Returns how often the rule is broken by now."""
        records = build_batch(
            [Record(offset=0, timestamp=0, key=None, value=value.encode())],
            producer_id=9, producer_epoch=epoch, base_sequence=sequence,
        )  # fmt: skip
        body = ProduceRequest(acks=-1, partitions=(ProducePartition(topic_partition=T0, records=records),))
        self.renumbering.on_sent(CLIENT, call, body)
        return len(self.jury.violations)

    def answered(self, call: int, error: ErrorCode | None = ErrorCode.NONE) -> None:
        """Pass on the answer; None for a call that fails."""
        body: ProduceResponse | TransportError = TransportError(reason="reset")
        if error is not None:
            part = ProducePartitionResponse(topic_partition=T0, error=error)
            body = ProduceResponse(partitions=(part,))
        self.renumbering.on_step(CLIENT, [Response(call=call, body=body)])


IN_DOUBT = (None, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR)


@pytest.mark.parametrize("first", IN_DOUBT)
def test_kip360_a_batch_in_doubt_keeps_its_sequence_whatever_comes_later(first: ErrorCode | None) -> None:
    story = Story()
    story.sent(1, "a", 0)
    story.answered(1, first)
    assert story.sent(2, "a", 0) == 0
    story.answered(2, MISSING)
    assert story.sent(3, "a", 0, epoch=1) == 1
    assert story.jury.violations[0].checker == "second-sequence"


def test_kip360_a_batch_whose_attempts_were_all_refused_may_have_another_sequence() -> None:
    story = Story()
    story.sent(1, "a", 7)
    story.answered(1, MISSING)
    assert story.sent(2, "a", 0, epoch=1) == 0


def test_kip360_that_a_batch_before_is_missing_is_old_news_if_it_was_under_way() -> None:
    story = Story()
    story.sent(1, "a", 0)
    story.sent(2, "b", 1)
    story.answered(1, ErrorCode.NOT_ENOUGH_REPLICAS)
    story.answered(2, MISSING)
    assert story.sent(3, "b", 0, epoch=1) == 1


def test_kip360_an_earlier_batch_that_was_refused_cuts_later_ones_off() -> None:
    story = Story()
    story.sent(1, "a", 0)
    story.sent(2, "b", 1)
    story.answered(2, None)
    story.answered(1, REFUSED)
    assert story.sent(3, "b", 0, epoch=1) == 0


def test_kip360_a_later_batch_that_was_refused_does_not() -> None:
    story = Story()
    story.sent(1, "a", 0)
    story.sent(2, "b", 1)
    story.answered(2, REFUSED)
    story.answered(1, None)
    assert story.sent(3, "a", 0, epoch=1) == 1


def test_kip360_a_batch_that_a_later_one_proves_to_be_there_is_not_under_way() -> None:
    story = Story()
    story.sent(1, "a", 0)
    story.sent(2, "b", 1)
    story.answered(2)
    story.sent(3, "c", 2)
    story.answered(3, MISSING)
    assert story.sent(4, "c", 0, epoch=1) == 0


def test_the_same_sequence_again_and_another_partition_break_nothing() -> None:
    story = Story()
    story.sent(1, "a", 0)
    story.answered(1, None)
    assert story.sent(2, "a", 0) == 0
    story.answered(2, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert story.sent(3, "b", 1) == 0
