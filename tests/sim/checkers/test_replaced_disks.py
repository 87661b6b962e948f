"""What checkers forgive of a replica whose disk was replaced, or whose leader's log begins later."""

from __future__ import annotations

from sim.checkers.sightings import (
    Acknowledged,
    Appended,
    Created,
    Died,
    HighWatermark,
    IsrChanged,
    LogStarted,
    Truncated,
)
from tests.sim.checkers.test_checkers import QUIET, P, appended_everywhere, broken, mark, marks


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


def test_what_a_replaced_disk_has_lost_may_be_acknowledged_a_moment_later_although_a_flush_was_promised() -> (
    None
):
    before = [each for each in QUIET[1:] if not isinstance(each, Acknowledged)]

    def acknowledged_after(damage: str) -> list[str]:
        return broken(
            Created(P, 3, True),
            *before,
            *appended_everywhere(5, 8),
            HighWatermark(1, P, 0, 8, True),
            Died(2, P, True, marks(0, 5), 0, damage),
            Acknowledged(1, P, 5, 7, -1, (1, 3), 0),
        )

    assert "acknowledged-durable" in acknowledged_after("")
    assert "acknowledged-durable" not in acknowledged_after("a disk was set back to an older image")


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
