"""What is settled is forgotten, and judged as well as before."""

from __future__ import annotations

from sim.checkers.base import Jury
from sim.checkers.chain import Mark
from sim.checkers.ghost import Ghost
from sim.checkers.log_matching import LogMatching
from sim.checkers.sightings import Appended, Created, Elected, HighWatermark, Sighting
from sim.witness.places import Place, no_places
from sim.world.packed import BLOCK_ITEMS, KEPT_ITEMS
from tests.sim.checkers.stories import P, mark

COMMITTED = 600


def led(batches: int, committed: bool) -> tuple[LogMatching, Jury]:
    """Return the checker after that many batches of a leader, each committed at once if `committed`."""
    checker = LogMatching(ghost := Ghost())
    jury = Jury(ghost, [checker], now_us=lambda: 0, on_violation=lambda violation: None)
    begin: list[Sighting] = [Created(P, 1, False), Elected(P, 1, 0, (1, 2), True)]
    for sighting in begin:
        jury.see(sighting)
    for offset in range(batches):
        jury.see(Appended(1, P, 0, (mark(offset),), is_leader=True))
        if committed:
            jury.see(HighWatermark(1, P, 0, offset + 1, True))
    return checker, jury


def known(checker: LogMatching) -> int:
    return sum(map(len, checker._origins.values()))


def test_committed_batches_are_not_remembered() -> None:
    assert known(led(COMMITTED, committed=True)[0]) <= 256
    assert known(led(COMMITTED, committed=False)[0]) == COMMITTED


def test_r8_a_follower_that_copies_a_committed_batch_is_judged_by_the_truth() -> None:
    for batches, expected in (
        ([mark(0), mark(1)], 0),
        ([mark(0), mark(1, crc=5)], 1),
        ([mark(0), mark(2)], 1),
    ):
        _, jury = led(COMMITTED, committed=True)
        jury.see(Appended(2, P, 0, tuple(batches)))
        assert len(jury.violations) == expected, batches


def test_places_of_a_long_log_are_those_that_were_added() -> None:
    places, count = no_places(), KEPT_ITEMS + BLOCK_ITEMS + 3
    added = [Place(mark(n), f"{n // 2}.log", n // 2, 10 * n, 10, n) for n in range(count)]
    places.extend(added)
    assert list(places) == added
    assert places[4] == added[4] and isinstance(places[4].mark, Mark)
