"""A disk error at any call of a broker's steps and jobs: every request is answered, and the broker's timers stand.

The directory whose disk fails goes offline (KIP-112, AP16); what the other one holds is served as before.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Final

import pytest

from cluster.core.messages import (
    ListOffsetsRequest,
)
from sim.disk.faults import ALL_VERBS, READ_OR_MUTATE
from tests.cluster.broker.driven_broker import FOLLOWED, LED, TOPIC_ID, Driven, elected, fetched, produced

# An error of one call; of all calls of the directory from then on; a process without a descriptor for one call.
FAULTS: Final = ("error", "breaks", "lack")


def story(driven: Driven) -> None:
    """Drive a broker through reads, appends, flushes, checkpoints and roles, and through every request's time."""
    driven.ask(produced(LED, acks=-1))
    driven.ask(fetched(LED, 0, by=2))
    driven.ask(fetched(LED, 0, by=-1))
    driven.ask(fetched(LED, 2, by=2))
    for timestamp in (0, -1, -3):
        driven.ask(ListOffsetsRequest(topic_partition=LED[0], topic_id=TOPIC_ID, timestamp=timestamp))
    for _ in range(3):
        driven.answer_fetches(b"some")
    driven.advance(6_000)
    driven.ask(produced(LED, acks=1))
    driven.ask(fetched(LED, 4, by=2))
    driven.advance(65_000)
    driven.ask(produced(LED, acks=-1))
    driven.settle(driven.setup.metadata(*elected(2, LED), *elected(1, FOLLOWED)))
    # The place of the high watermark, which was below the end, is looked up as the follower gets ahead of it.
    driven.ask(fetched(FOLLOWED, 3, by=2, epoch=1))
    driven.ask(fetched(FOLLOWED, 0, by=-1, epoch=1))
    driven.ask(produced(FOLLOWED, acks=-1))
    driven.ask(fetched(FOLLOWED, 5, by=2, epoch=1, last_epoch=1))
    driven.answer_fetches(b"some")
    driven.advance(65_000)


def standing(driven: Driven) -> set[str]:
    """Return the timers of the broker itself; those of single replicas have a colon."""
    return {key for key in driven.timers if ":" not in key}


def struck(number: int, fault: str) -> Driven | None:
    """Tell the story with an error at the disk's call `number`; return None if it ends before that call.

    With `breaks`, all later calls of the directory fail too; with `lack`, the process has no descriptor left once.
    """
    driven = Driven(breaks_for_good=fault == "breaks")
    is_lack = fault == "lack"
    driven.setup.disk.fail(
        number, errno.EMFILE if is_lack else errno.EIO, verbs=ALL_VERBS if is_lack else READ_OR_MUTATE
    )
    story(driven)
    return None if driven.setup.disk.has_faults and not driven.is_broken else driven


def check_each(fault: str, numbers: Iterable[int]) -> int:
    """Check the broker after a fault at each of these calls, as far as the story has them. Return how many it had."""
    clean = Driven()
    story(clean)
    for count, number in enumerate(numbers):
        driven = struck(number, fault)
        if driven is None:
            return count
        assert not driven.has_stopped, number
        assert not driven.unanswered, (number, driven.unanswered)
        assert standing(driven) >= standing(clean), (number, standing(clean) - standing(driven))
    raise AssertionError("the story had more calls")


def test_without_a_fault_every_request_of_the_story_is_answered() -> None:
    driven = Driven()
    story(driven)
    assert not driven.unanswered and not driven.has_stopped
    assert len(standing(driven)) > 6, standing(driven)


@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_at_some_calls_each_request_is_answered_and_each_timer_stands(fault: str) -> None:
    assert check_each(fault, range(3, 1_000, 31)) > 4


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_at_any_call_each_request_is_answered_and_each_timer_stands(fault: str) -> None:
    assert check_each(fault, range(1, 10_000)) > 120
