"""A client gets the controller's answer to what a broker has forwarded, once, and no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.core.connection.outgoing import Answer
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import CreateTopicRequest, CreateTopicResponse, Header, ResponseBody
from sim.checkers.base import Jury
from sim.checkers.forwarding import ForwardedRequests
from sim.checkers.ghost import Ghost
from sim.checkers.unanswered import SLACK_US, UnansweredCalls

LIFE = (1, 1)
ASKED = CreateTopicRequest(name="t")
SIGNED = replace(ASKED, header=Header(broker_id=1, broker_epoch=4, incarnation="a" * 32, cluster_id="c"))
CREATED = CreateTopicResponse(topic_id="1f" * 16)
EXISTS = CreateTopicResponse(error=ErrorCode.TOPIC_ALREADY_EXISTS)
UNKNOWN = CreateTopicResponse(error=ErrorCode.REQUEST_TIMED_OUT)
STALE = CreateTopicResponse(error=ErrorCode.STALE_BROKER_EPOCH)
ELSEWHERE = CreateTopicResponse(error=ErrorCode.BROKER_NOT_AVAILABLE)
LEAVING = CreateTopicResponse(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)


def jury() -> Jury:
    return Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)


def broken(outcome: Answer, *answers: ResponseBody) -> int:
    judge = jury()
    forwarded = ForwardedRequests(judge)
    forwarded.on_sent(LIFE, 7, SIGNED)
    assert forwarded.is_open
    forwarded.on_answered(LIFE, 7, outcome)
    assert not forwarded.is_open
    for answer in answers:
        forwarded.on_reply(LIFE, ASKED, answer)
    return len(judge.violations)


@pytest.mark.parametrize(
    ("outcome", "answers", "count"),
    [
        (CREATED, (CREATED,), 0),
        (EXISTS, (EXISTS,), 0),
        (TransportError(reason="lost"), (UNKNOWN,), 0),
        (EXISTS, (LEAVING,), 0),
        (EXISTS, (CREATED,), 1),
        (CREATED, (CREATED, CREATED), 1),
        (TransportError(reason="lost"), (CREATED,), 1),
        (TransportError(reason="lost"), (EXISTS,), 1),
        (STALE, (ELSEWHERE,), 0),
        (STALE, (STALE,), 1),
        (EXISTS, (ELSEWHERE,), 1),
    ],
)
def test_a_client_gets_what_the_controller_said(
    outcome: Answer, answers: tuple[ResponseBody, ...], count: int
) -> None:
    assert broken(outcome, *answers) == count


def test_who_forwards_says_who_it_is() -> None:
    judge = jury()
    ForwardedRequests(judge).on_sent(LIFE, 7, ASKED)
    assert [each.checker for each in judge.violations] == ["forwarded-requests"]


def test_an_answer_without_an_outcome_is_made_up_also_after_a_new_start() -> None:
    judge = jury()
    forwarded = ForwardedRequests(judge)
    forwarded.on_sent(LIFE, 7, SIGNED)
    forwarded.on_answered(LIFE, 7, CREATED)
    forwarded.on_end(1)
    forwarded.on_reply((1, 3), ASKED, CREATED)
    assert len(judge.violations) == 1


@pytest.mark.parametrize(("longer_us", "count"), [(0, 0), (1, 1)])
def test_what_is_forwarded_is_answered_once_the_controller_is_given_up(longer_us: int, count: int) -> None:
    judge = jury()
    UnansweredCalls(judge, 1_500).on_left("broker-1", ASKED, 1_500_000 + SLACK_US + longer_us)
    assert len(judge.violations) == count
