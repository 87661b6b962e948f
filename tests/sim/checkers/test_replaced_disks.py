"""What checkers forgive of a replica whose disk was replaced, or whose leader's log begins later."""

from __future__ import annotations

import pytest

from sim.checkers.chain import Mark
from sim.checkers.sightings import (
    Acknowledged,
    Appended,
    Created,
    Died,
    Elected,
    EpochsSeen,
    HighWatermark,
    IsrChanged,
    Loaded,
    LogStarted,
    Sighting,
    Truncated,
)
from tests.sim.checkers.stories import QUIET, P, appended_everywhere, broken, jury_of, mark, marks


def committed_after_a_disk_was_replaced(damage: str) -> list[str]:
    """Broker 2 reports offsets to 7, its disk loses them, and then the leader commits them; a flush is promised."""
    return broken(
        Created(P, 3, True),
        *QUIET[1:],
        *appended_everywhere(5, 8),
        Died(2, P, True, marks(0, 5), 0, damage),
        HighWatermark(1, P, 0, 8, True),
    )


def test_what_a_replaced_disk_has_lost_counts_as_held_although_a_flush_was_promised() -> None:
    assert "min-in-sync" in committed_after_a_disk_was_replaced("")
    replaced = "a disk was set back to an older image"
    assert "min-in-sync" not in committed_after_a_disk_was_replaced(replaced)


def acknowledged_after_a_disk_was_replaced(offset: int, damage: str) -> list[str]:
    """Broker 2 reports offsets to 7 and dies; the leader acknowledges one that only it and broker 3 still have."""
    quiet = [each for each in QUIET[1:] if not isinstance(each, Acknowledged)]
    return broken(
        Created(P, 3, True),
        *quiet,
        *appended_everywhere(5, 8),
        Appended(1, P, 0, marks(8, 9)),
        Appended(3, P, 0, marks(8, 9)),
        Died(2, P, True, marks(0, 5), 0, damage),
        HighWatermark(1, P, 0, 9, True),
        Acknowledged(1, P, offset, offset, -1, (1, 3)),
    )


def test_what_a_replaced_disk_has_lost_counts_as_durable_when_it_is_acknowledged() -> None:
    replaced = "a disk was replaced by an empty one"
    assert "acknowledged-durable" in acknowledged_after_a_disk_was_replaced(7, "")
    assert "acknowledged-durable" not in acknowledged_after_a_disk_was_replaced(7, replaced)
    # Broker 2 never had this one.
    assert "acknowledged-durable" in acknowledged_after_a_disk_was_replaced(8, replaced)


def test_what_is_before_the_start_of_the_log_may_differ_in_a_joining_follower() -> None:
    def joins(log_start: int) -> list[str]:
        return broken(
            *QUIET,
            IsrChanged(P, (1, 2)),
            Truncated(3, P, 3, 0),
            Appended(3, P, 0, (mark(3, crc=1), mark(4, crc=1))),
            LogStarted(1, P, log_start),
            IsrChanged(P, (1, 2, 3)),
        )

    assert "in-sync-replicas" in joins(log_start=4)
    assert "in-sync-replicas" not in joins(log_start=5)


def test_a_joining_follower_that_differs_before_the_start_of_the_log_alone_holds_what_is_committed() -> None:
    def joins(last: Mark) -> list[str]:
        return broken(
            *QUIET,
            IsrChanged(P, (1, 2)),
            Truncated(3, P, 3, 0),
            Appended(3, P, 0, (mark(3, crc=1), last)),
            LogStarted(1, P, 4),
            IsrChanged(P, (1, 2, 3)),
        )

    assert "in-sync-replicas" not in joins(mark(4))
    assert "in-sync-replicas" in joins(mark(4, crc=1))


def test_a_joining_follower_need_not_reach_the_start_of_a_log_that_is_ahead_of_its_leaders() -> None:
    joins = [
        *QUIET,
        IsrChanged(P, (1, 2)),
        Truncated(3, P, 3, 0),
        Appended(3, P, 0, (mark(3, crc=1), mark(4, crc=1))),
        LogStarted(1, P, 5),
        LogStarted(2, P, 9),
        IsrChanged(P, (1, 2, 3)),
    ]
    assert "in-sync-replicas" not in broken(*joins)


def dies(damage: str) -> list[Sighting]:
    """Broker 2 dies and starts again, with its whole log; `damage` says what its disk has lost beside it."""
    return [Died(2, P, True, marks(0, 5), 0, damage), Loaded(2, P, marks(0, 5), "")]


def test_st2_what_is_below_the_log_start_may_be_lost_whatever_the_recovery_point() -> None:
    """The log's start takes the recovery point along, within the active segment, of which nothing was synced."""

    def dies_after(log_start: int) -> list[str]:
        started = HighWatermark(2, P, 0, 5, False, log_start)
        return broken(*QUIET, started, Died(2, P, True, marks(0, 2), recovery_point=4))

    assert "recovery-point" in dies_after(3)
    assert "recovery-point" not in dies_after(4)


def test_below_the_leaders_log_start_a_log_may_be_of_two_histories() -> None:
    """A follower starts again at its leader's log start; the checkers remember what it had before."""
    led = [*QUIET, Elected(P, 2, 1, (1, 2, 3), True), Appended(2, P, 1, (mark(5, 1),))]
    follows = Appended(3, P, 1, (mark(5, 1), mark(6, 0), mark(7, 1)))
    assert "log-shape" in broken(*led, follows)
    assert "log-shape" in broken(*led, HighWatermark(2, P, 1, 6, True, 6), follows)
    assert "log-shape" not in broken(*led, HighWatermark(2, P, 1, 6, True, 7), follows)


DECEIVED = "a disk lost what a sync had said to be durable"
EMPTY, WHOLE = EpochsSeen(2, P, ()), EpochsSeen(2, P, ((0, 0),))


def test_a_replica_whose_disk_lost_the_epoch_cache_alone_proves_nothing() -> None:
    diverges = Appended(2, P, 0, (mark(7, crc=1),))
    assert "log-shape" in broken(*QUIET, *dies(""), EMPTY)
    assert not broken(*QUIET, *dies(DECEIVED), EMPTY, diverges)
    # A crash before anybody has looked at the cache brings nothing back.
    assert not broken(*QUIET, *dies(DECEIVED), *dies(""), EMPTY, diverges)


def test_an_epoch_cache_that_the_disk_has_kept_is_judged_as_any_other() -> None:
    assert "log-shape" in broken(*QUIET, *dies(DECEIVED), WHOLE, EMPTY)
    assert "log-shape" in broken(*QUIET, *dies(DECEIVED), WHOLE, Appended(2, P, 0, (mark(7),)))
    # Nor does a disk excuse another broker's cache, or what no disk loses.
    assert "log-shape" in broken(*QUIET, *dies(DECEIVED), EpochsSeen(3, P, ()))
    assert "log-shape" in broken(*QUIET, *dies(DECEIVED), EpochsSeen(2, P, ((0, 0), (1, 9))))


@pytest.mark.parametrize(
    "left", [(*marks(0, 2), *marks(3, 5)), marks(2, 5)], ids=["between two", "the first"]
)
def test_a_replica_whose_disk_lost_a_segment_that_others_follow_proves_nothing(
    left: tuple[Mark, ...],
) -> None:
    def starts_with_a_hole(damage: str) -> list[str]:
        return broken(*QUIET, Died(2, P, True, left, 0, damage), Loaded(2, P, left, ""))

    assert "log-shape" in starts_with_a_hole("")
    assert not starts_with_a_hole(DECEIVED)


def test_a_disk_that_is_lost_after_its_log_had_a_hole_excuses_all_records() -> None:
    left = (*marks(0, 2), *marks(3, 5))
    jury = jury_of(*QUIET, Died(2, P, True, left, 0, DECEIVED), Loaded(2, P, left, ""))
    assert [excuse.start for excuse in jury.ghost.excuses] == [2]
    jury.see(Died(2, P, True, (), 0, "a disk was replaced by an empty one"))
    assert [excuse.start for excuse in jury.ghost.excuses] == [2, 0]


@pytest.mark.parametrize(("is_clean", "starts"), [(False, [2, 0]), (True, [2])])
def test_an_unclean_election_after_a_log_had_a_hole_excuses_all_records(
    is_clean: bool, starts: list[int]
) -> None:
    """Nobody knows any more where the log of the new leader ends."""
    left = (*marks(0, 2), *marks(3, 5))
    jury = jury_of(*QUIET, Died(2, P, True, left, 0, DECEIVED), Loaded(2, P, left, ""))
    jury.see(Elected(P, 3, 1, (3,), is_clean, is_allowed=True))
    assert [excuse.start for excuse in jury.ghost.excuses] == starts


def test_a_follower_that_was_cut_at_the_start_of_its_leaders_log_may_differ_before_it() -> None:
    def follows(log_start: int) -> list[str]:
        return broken(
            *QUIET,
            IsrChanged(P, (1, 2)),
            LogStarted(1, P, log_start),
            Truncated(3, P, 3, 0),
            Appended(3, P, 0, (mark(3, crc=1), mark(4))),
            HighWatermark(3, P, 0, 4, False),
            HighWatermark(3, P, 0, 5, False),
        )

    assert "committed-prefix" in follows(log_start=3)
    assert "committed-prefix" not in follows(log_start=4)


def test_st2_a_follower_may_have_adopted_the_log_start_of_its_leader_without_a_sign() -> None:
    def dies_after(log_start: int) -> list[str]:
        started = HighWatermark(1, P, 0, 5, True, log_start)
        return broken(*QUIET, started, Died(2, P, True, marks(0, 2), recovery_point=4))

    assert "recovery-point" in dies_after(3)
    assert "recovery-point" not in dies_after(4)


def test_a_member_whose_disk_was_replaced_lacks_what_the_leader_has_deleted_too() -> None:
    """The leader has proposed it, and the controller decided, before the disk was replaced."""

    def joins(log_start: int) -> list[str]:
        return broken(
            *QUIET,
            IsrChanged(P, (1, 2)),
            LogStarted(1, P, 3),
            HighWatermark(1, P, 0, 5, True, log_start),
            LogStarted(3, P, 3),
            Died(3, P, True, (), 0, "a disk was replaced by an empty one"),
            Loaded(3, P, (), ""),
            IsrChanged(P, (1, 2, 3)),
        )

    assert "in-sync-replicas" not in joins(log_start=3)
