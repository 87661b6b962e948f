"""What a broker answers about the places in its log: sequences that must pass, and those that must fail."""

from __future__ import annotations

import pytest

from cluster.core.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from sim.checkers.base import Jury, Violation
from sim.checkers.chain import Mark
from sim.checkers.ghost import Ghost
from sim.checkers.registry import all_checkers
from sim.checkers.sightings import (
    Appended,
    BecameLeader,
    Created,
    Elected,
    HighWatermark,
    OffsetLookedUp,
    Sighting,
)

P = "t-0"
# Broker 1 leads, has the records 0 to 9, and has committed those below 6; its log begins at 2.
MARKS = tuple(Mark(offset, offset + 1, 0, offset, 1) for offset in range(10))
LED: tuple[Sighting, ...] = (
    Created(P, 1, flush_promised=False),
    Elected(P, 1, 0, (1,), clean=True),
    BecameLeader(1, P, 0, 0),
    Appended(1, P, 0, MARKS, is_leader=True),
    HighWatermark(1, P, 0, 6, True, 2),
)
# Broker 2 is elected, and does not lead yet.
ELECTED = Elected(P, 2, 1, (1, 2), clean=True)


def broken(*sightings: Sighting) -> bool:
    told: list[Violation] = []
    jury = Jury(ghost := Ghost(), all_checkers(ghost), now_us=lambda: 0, on_violation=told.append)
    for sighting in (*LED, *sightings):
        jury.see(sighting)
    return any(each.checker == "offset-answers" for each in jury.violations)


@pytest.mark.parametrize(("offset", "is_wrong"), [(2, False), (1, True), (0, True)])
def test_the_earliest_offset_is_not_below_the_start_of_the_log(offset: int, *, is_wrong: bool) -> None:
    assert broken(OffsetLookedUp(1, P, EARLIEST_TIMESTAMP, offset)) is is_wrong


@pytest.mark.parametrize(("offset", "is_wrong"), [(6, False), (5, True), (7, True)])
def test_con5_the_latest_offset_of_the_leader_is_the_end_of_what_is_committed(
    offset: int, *, is_wrong: bool
) -> None:
    answer = OffsetLookedUp(1, P, LATEST_TIMESTAMP, offset, committed_before=6)
    assert broken(answer) is is_wrong
    # An answer may be as old as the request.
    assert broken(answer._replace(committed_before=5)) is (offset == 7)
    # One that was replaced need not know what its successor has committed.
    assert not broken(ELECTED, answer)


@pytest.mark.parametrize(
    ("offset", "found_ms", "found", "is_wrong"),
    [
        (4, 400, (4, 400), False),
        # Another record, or another time than that of the record.
        (5, 500, (4, 400), True),
        (4, 401, (4, 400), True),
        (4, 400, None, True),
        # Not committed.
        (6, 600, (6, 600), True),
        (-1, -1, (6, 600), False),
        # It is there, and committed.
        (-1, -1, (5, 500), True),
        (-1, -1, None, False),
    ],
)
def test_a_time_begins_at_the_first_committed_record_as_late(
    offset: int, found_ms: int, found: tuple[int, int] | None, *, is_wrong: bool
) -> None:
    assert broken(OffsetLookedUp(1, P, 350, offset, found_ms, 6, True, found)) is is_wrong


# Broker 1 leads again, in epoch 1, and has appended the records 10 and 11 in it.
LED_AGAIN: tuple[Sighting, ...] = (
    Elected(P, 1, 1, (1,), clean=True),
    BecameLeader(1, P, 1, 10),
    Appended(1, P, 1, (Mark(10, 12, 1, 10, 1),), is_leader=True),
    HighWatermark(1, P, 1, 12, True, 2),
)


@pytest.mark.parametrize(
    ("timestamp", "offset", "found_epoch", "is_wrong"),
    [
        (EARLIEST_TIMESTAMP, 5, 0, False),
        (EARLIEST_TIMESTAMP, 5, 1, True),
        # After a crash a log may begin earlier than the epochs that it knows.
        (EARLIEST_TIMESTAMP, 5, -1, False),
        (350, 5, -1, True),
        (EARLIEST_TIMESTAMP, 11, 1, False),
        (EARLIEST_TIMESTAMP, 11, 0, True),
        (LATEST_TIMESTAMP, 12, 1, False),
        (LATEST_TIMESTAMP, 12, 0, True),
    ],
)
def test_kip320_the_epoch_of_an_offset_is_that_of_the_record_there(
    timestamp: int, offset: int, found_epoch: int, *, is_wrong: bool
) -> None:
    answer = OffsetLookedUp(1, P, timestamp, offset, committed_before=12, epoch=1, found_epoch=found_epoch)
    assert broken(*LED_AGAIN, answer) is is_wrong
    # A broker that was replaced knows no later epoch, and its log may be cut.
    assert not broken(*LED_AGAIN, Elected(P, 2, 2, (1, 2), clean=True), answer)


def test_a_log_that_cannot_be_read_is_no_evidence() -> None:
    assert not broken(OffsetLookedUp(1, P, 350, 4, 400, 6, False, None))


@pytest.mark.parametrize(("asked_epoch", "is_wrong"), [(0, False), (-1, False), (1, True)])
def test_kip320_an_offset_is_looked_up_for_who_lives_in_the_epoch_of_the_leader(
    asked_epoch: int, *, is_wrong: bool
) -> None:
    jury = Jury(ghost := Ghost(), all_checkers(ghost), now_us=lambda: 0, on_violation=lambda violation: None)
    for sighting in (*LED, OffsetLookedUp(1, P, EARLIEST_TIMESTAMP, 2, asked_epoch=asked_epoch, epoch=0)):
        jury.see(sighting)
    assert [each.checker for each in jury.violations] == ["fencing"] * is_wrong
