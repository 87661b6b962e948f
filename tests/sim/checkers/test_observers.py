"""Fetches of metadata are answered in the step that commits what they wait for."""

from __future__ import annotations

import pytest

from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.events import JobDone, Request, TimerFired
from cluster.core.messages import FetchMetadataRequest, FetchMetadataResponse
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.observers import Observers

FETCH = Request(call=3, body=FetchMetadataRequest(broker_id=1, offset=10))
ANSWER = Reply(call=3, body=FetchMetadataResponse(high_watermark=11))


REFUSAL = Reply(call=3, body=FetchMetadataResponse(error=ErrorCode.STALE_BROKER_EPOCH))


@pytest.mark.parametrize(
    ("committed", "answer", "count"), [(11, ANSWER, 1), (10, ANSWER, 0), (11, REFUSAL, 0)]
)
def test_a_fetch_that_only_its_timer_wakes_is_late_if_there_was_something_to_read(
    committed: int, answer: Reply, count: int
) -> None:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    observers = Observers(jury)
    observers.on_step([FETCH], [], 10)
    observers.on_step([JobDone(job=1)], [], committed)
    # Its sender may have left: nobody is late before it is answered.
    assert not jury.violations
    observers.on_step([TimerFired(key="controller.fetch:3")], [answer], committed)
    assert [each.checker for each in jury.violations] == ["observers"] * count


def test_a_fetch_that_the_commit_wakes_is_in_time_and_the_next_process_knows_nothing_of_it() -> None:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    observers = Observers(jury)
    observers.on_step([FETCH], [], 10)
    observers.on_step([JobDone(job=1)], [ANSWER], 11)
    observers.on_step([FETCH], [], 11)
    observers.on_died()
    observers.on_step([TimerFired(key="controller.fetch:3")], [ANSWER], 11)
    assert not jury.violations
