"""Each checker has a hand-made sequence that must pass and one that must fail it."""

from __future__ import annotations

import pytest

from sim.checkers.chain import Chain
from sim.checkers.ghost import Ghost
from sim.checkers.registry import all_checkers
from sim.checkers.sightings import (
    BecameLeader,
    Died,
    Elected,
    HighWatermark,
    IsrChanged,
    Sighting,
    Truncated,
)
from tests.sim.checkers.bad_sequences import BAD
from tests.sim.checkers.good_sequences import GOOD
from tests.sim.checkers.stories import (
    FETCHED_AND_LOST,
    LATE,
    LED_ON,
    QUIET,
    P,
    broken,
    jury_of,
    mark,
    marks,
)


@pytest.mark.parametrize("name", GOOD)
def test_sequence_that_must_pass(name: str) -> None:
    assert jury_of(*GOOD[name]).violations == []


@pytest.mark.parametrize("name", BAD)
def test_sequence_that_must_fail(name: str) -> None:
    checker, sightings = BAD[name]
    assert checker in broken(*sightings)


def test_every_checker_has_a_sequence_that_fails_it() -> None:
    assert {checker.name for checker in all_checkers(Ghost())} == {checker for checker, _ in BAD.values()}


def test_a_loss_on_every_in_sync_disk_is_excused_and_reported() -> None:
    jury = jury_of(*GOOD["all disks lose their tail"])
    assert [(excuse.start, excuse.end) for excuse in jury.ghost.excuses] == [(3, 5)]


@pytest.mark.parametrize("sightings", [[*FETCHED_AND_LOST, *LATE], [*LED_ON, *LATE]])
def test_a_late_commit_of_batches_that_every_electable_disk_lost_is_excused_and_never_true(
    sightings: list[Sighting],
) -> None:
    ghost = jury_of(*sightings).ghost
    assert [(excuse.start, excuse.end) for excuse in ghost.excuses] == [(6, 7)]
    assert mark(6) not in ghost.partition(P).truth.marks


def test_a_late_commit_of_batches_that_survive_is_true() -> None:
    ghost = jury_of(*FETCHED_AND_LOST, HighWatermark(1, P, 0, 7, True)).ghost
    assert ghost.partition(P).truth.end == 6


def test_all_records_of_a_partition_are_excused_only_if_it_is_judged_no_further() -> None:
    ghost = jury_of(*QUIET).ghost
    ghost.excuse_all(P)
    assert ghost.excuses == []
    ghost.stop_judging(ghost.partition(P), 3, "a disk lied")
    ghost.excuse_all(P)
    assert [(excuse.start, excuse.reason) for excuse in ghost.excuses] == [
        (3, "a disk lied"),
        (0, "a disk lied"),
    ]


def test_loss_is_not_excused_while_one_electable_replica_holds_it() -> None:
    jury = jury_of(*QUIET, Died(1, P, True, marks(0, 3)), Died(2, P, True, marks(0, 3)))
    assert jury.ghost.excuses == []


def test_a_forbidden_unclean_election_excuses_nothing() -> None:
    cut = [*QUIET, IsrChanged(P, (1, 2)), Truncated(3, P, 3, 0)]
    for is_allowed, excused in ((True, [(3, 5)]), (False, [])):
        jury = jury_of(*cut, Elected(P, 3, 1, (3,), False, is_allowed), BecameLeader(3, P, 1, 3))
        assert [(excuse.start, excuse.end) for excuse in jury.ghost.excuses] == excused
        assert [found.checker for found in jury.violations] == ([] if is_allowed else ["leader-completeness"])


def test_truncation_by_the_protocol_excuses_nothing() -> None:
    jury = jury_of(*QUIET, *(Truncated(broker, P, 3, 0) for broker in (1, 2, 3)), IsrChanged(P, (1,)))
    assert jury.ghost.excuses == []


def test_chain_truncation_drops_the_batch_that_holds_the_offset() -> None:
    chain = Chain([mark(0, count=3), mark(3, count=3)])
    assert chain.truncate_to(4) == [mark(3, count=3)]
    assert chain.end == 3


@pytest.mark.parametrize("length", [5, 700, 2_600])
def test_long_chains_agree_up_to_the_first_difference_and_are_cut_there(length: int) -> None:
    mine, other = (
        Chain(marks(0, 2_610)),
        Chain([*marks(0, length), mark(length, crc=1), *marks(length + 1, 2_610)]),
    )
    assert mine.agreed_end(other) == other.agreed_end(mine) == length
    assert mine.agreed_end(other, since=3) == length
    late = Chain(marks(3, 2_610), 3)
    assert late.agreed_end(other) == length
    assert mine.between(length - 2, length) == [*marks(length - 2, length)]
    assert mine.at(length) == mark(length) != other.at(length)
    assert other.truncate_to(length) == [mark(length, crc=1), *marks(length + 1, 2_610)]
    assert mine.agreed_end(other) == other.end == length
    assert tuple(other.marks) == marks(0, length)
    assert mine.begin_at(length) == [*marks(0, length)]
    assert tuple(mine.marks) == marks(length, 2_610)


def test_chain_agreement_ends_at_the_first_difference() -> None:
    mine, other = Chain(marks(0, 9)), Chain([*marks(0, 6), mark(6, crc=1), *marks(7, 9)])
    assert mine.agreed_end(other) == 6
    assert mine.agreed_end(Chain()) == 0
    assert mine.agreed_end(Chain(marks(0, 20))) == 9


def test_chains_agree_on_a_last_batch_in_which_the_start_is() -> None:
    """A broker that has lost its log uncleanly may have had a start there, between shorter batches."""
    mine = Chain([*marks(0, 8), mark(8, count=2)])
    assert mine.agreed_end(Chain(mine.marks), since=9) == 10
    assert mine.agreed_end(Chain([*mine.marks, mark(10)]), since=9) == 10
    # What only one of both has does not count.
    assert mine.agreed_end(Chain([*marks(0, 8), mark(8, count=2, crc=1)]), since=9) == 9
    assert mine.agreed_end(Chain(marks(0, 9)), since=9) == 9
    # A batch that ends before the start says nothing of what begins there.
    assert Chain(marks(0, 9)).agreed_end(Chain([*marks(0, 9), mark(9)]), since=9) == 9
