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

    def sent(
        self, call: int, value: str, sequence: int, epoch: int = 0, *, leader: int = 1, count: int = 1
    ) -> int:
        """Returns how often the rule is broken by now."""
        records = build_batch(
            [Record(offset=place, timestamp=0, key=None, value=value.encode()) for place in range(count)],
            producer_id=9, producer_epoch=epoch, base_sequence=sequence,
        )  # fmt: skip
        body = ProduceRequest(acks=-1, partitions=(ProducePartition(topic_partition=T0, records=records),))
        self.renumbering.on_sent(CLIENT, call, body, leader)
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


def test_kip360_a_batch_does_not_go_again_to_a_leader_that_has_found_a_gap_before_it() -> None:
    story = Story()
    story.sent(1, "a", 7)
    story.answered(1, MISSING)
    assert story.sent(2, "a", 7) == 1
    assert story.jury.violations[0].checker == "hopeless-retries"


def test_kip360_it_does_so_to_another_leader_or_where_a_batch_before_it_was_under_way() -> None:
    story = Story()
    story.sent(1, "a", 7)
    story.answered(1, MISSING)
    assert story.sent(2, "a", 7, leader=2) == 0
    story = Story()
    story.sent(1, "a", 0)
    story.sent(2, "b", 1)
    story.answered(2, MISSING)
    story.answered(1)
    assert story.sent(3, "b", 1) == 0


def test_kip360_it_does_so_while_another_batch_is_under_way_whose_answer_decides() -> None:
    story = Story()
    story.sent(1, "a", 0)
    story.sent(2, "b", 1)
    story.sent(3, "c", 2)
    story.answered(1, REFUSED)
    story.answered(2, MISSING)
    assert story.sent(4, "b", 1) == 0
    story.answered(4, MISSING)
    assert story.sent(5, "b", 1) == 0
    story.answered(5, MISSING)
    story.answered(3, MISSING)
    assert story.sent(6, "b", 1) == 1


@pytest.mark.parametrize(("parts", "broken"), [(3, 0), (2, 1)])
def test_kip360_a_batch_behind_a_part_that_was_never_sent_may_have_another_sequence(
    parts: int, broken: int
) -> None:
    """One part of a split batch gets into the log, one is in doubt, and a third is given up unsent."""
    story = Story()
    story.sent(1, "whole", 0, count=parts)
    story.sent(2, "next", parts)
    story.answered(1, ErrorCode.MESSAGE_TOO_LARGE)
    story.answered(2, MISSING)
    story.sent(3, "a", 0)
    story.answered(3)
    story.sent(4, "b", 1)
    story.answered(4, None)
    # Without a third part all before it may be in the log, and so may this one.
    assert story.sent(5, "next", 0, epoch=1) == broken


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


def test_kip360_a_batch_is_under_way_although_a_later_one_is_there() -> None:
    """A leader that has forgotten the producer accepts any sequence: that proves nothing of the one before."""
    story = Story()
    story.sent(1, "a", 0)
    story.sent(2, "b", 1)
    story.answered(2)
    story.sent(3, "c", 2)
    story.answered(3, MISSING)
    # The gap before it may have been filled since.
    assert story.sent(4, "c", 2) == 0
    story.answered(1, None)
    assert story.sent(5, "c", 0, epoch=1) == 1


def test_kip360_a_batch_in_doubt_keeps_its_sequence_although_a_later_one_is_there() -> None:
    for error, count in ((None, 1), (MISSING, 0)):
        story = Story()
        story.sent(1, "a", 0)
        story.sent(2, "b", 1)
        story.answered(1, error)
        story.answered(2)
        assert story.sent(3, "a", 0, epoch=1) == count


def test_kip360_a_refused_batch_says_nothing_of_those_after_one_that_is_there() -> None:
    story = Story()
    for call, value in enumerate("abc"):
        story.sent(call, value, call)
    story.answered(0, REFUSED)
    story.answered(1)
    story.answered(2, None)
    assert story.sent(4, "c", 0, epoch=1) == 1


def test_the_same_sequence_again_and_another_partition_break_nothing() -> None:
    story = Story()
    story.sent(1, "a", 0)
    story.answered(1, None)
    assert story.sent(2, "a", 0) == 0
    story.answered(2, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert story.sent(3, "b", 1) == 0


def test_five_batches_may_be_without_an_outcome() -> None:
    story = Story()
    for sequence in range(5):
        assert story.sent(sequence, f"v{sequence}", sequence) == 0
    story.answered(3, None)
    assert story.sent(5, "v3", 3) == 0
    assert story.sent(6, "v5", 5) == 1
    assert story.jury.violations[0].checker == "batches-under-way"


def test_a_sixth_may_follow_once_the_oldest_are_known_to_be_there() -> None:
    story = Story()
    for sequence in range(5):
        story.sent(sequence, f"v{sequence}", sequence)
    story.answered(1)
    story.answered(0)
    assert story.sent(5, "v5", 5) == story.sent(6, "v6", 6) == 0
    assert story.sent(7, "v7", 7) == 1


def test_one_that_is_under_way_counts_although_a_later_one_is_there() -> None:
    story = Story()
    for sequence in range(5):
        story.sent(sequence, f"v{sequence}", sequence)
    story.answered(4)
    assert story.sent(5, "v5", 5) == 0
    for sequence in range(6, 10):
        story.answered(sequence - 1)
        story.sent(sequence, f"v{sequence}", sequence)
    # Four have waited all the while, beside one of those that came later.
    assert story.sent(10, "v10", 10) == 1


def test_one_that_was_repeated_behind_what_is_there_and_then_given_up_does_not_count() -> None:
    story = Story()
    story.sent(0, "v0", 0)
    story.sent(1, "v1", 1)
    story.answered(0, None)
    story.answered(1)
    story.sent(2, "v0", 0)
    story.answered(2, None)
    assert [story.sent(call, f"v{call}", call) for call in range(3, 8)] == [0] * 5
    assert story.sent(8, "v8", 8) == 1


def test_those_of_another_epoch_and_those_that_may_be_split_do_not_count() -> None:
    story = Story()
    for sequence in range(5):
        story.sent(sequence, f"v{sequence}", sequence)
    story.answered(4, ErrorCode.MESSAGE_TOO_LARGE)
    assert story.sent(5, "half", 4) == story.sent(6, "other half", 5) == 0
    assert story.sent(7, "new", 0, epoch=1) == 0


def test_a_batch_in_doubt_that_may_be_split_does_not_count() -> None:
    for error, count in ((ErrorCode.MESSAGE_TOO_LARGE, 0), (ErrorCode.NOT_ENOUGH_REPLICAS, 1)):
        story = Story()
        for call in range(5):
            story.sent(call, str(call), call)
        story.answered(4, None)
        story.sent(5, "4", 4)
        story.answered(5, error)
        assert story.sent(6, "a part", 5) == count, error


def test_batches_are_under_way_to_one_leader_at_a_time() -> None:
    story = Story()
    story.sent(1, "a", 0)
    assert story.sent(2, "b", 1, leader=2) == 1
    assert story.jury.violations[0].checker == "one-leader-asked"


def test_the_next_leader_is_asked_once_all_answers_of_the_last_one_are_known() -> None:
    story = Story()
    story.sent(1, "a", 0)
    story.sent(2, "b", 1)
    story.answered(1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    story.answered(2, None)
    assert story.sent(3, "a", 0, leader=2) == story.sent(4, "b", 1, leader=2) == 0
