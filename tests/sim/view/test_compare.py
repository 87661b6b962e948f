"""Two traces are compared event by event."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.view.compare import Difference, first_difference
from tests.sim.view.traces import event, write_trace

A, B, C = (event(n, "broker-1", "timer", key=str(n)) for n in range(3))


@pytest.mark.parametrize(
    ("ours", "theirs", "difference"),
    [
        ([A, B], [A, B], None),
        ([A, B], [A, C], Difference(event=1, lines=(B, C))),
        ([A], [A, C], Difference(event=1, lines=("", C))),
        ([A, B, C], [A, B], Difference(event=2, lines=(C, ""))),
    ],
)
def test_the_first_difference_is_the_first_event_that_is_not_shared(
    tmp_path: Path, ours: list[str], theirs: list[str], difference: Difference | None
) -> None:
    paths = (write_trace(tmp_path / "a", ours), write_trace(tmp_path / "b", theirs))
    assert first_difference(*paths) == difference


def test_runs_of_two_seeds_are_compared_by_their_events(tmp_path: Path) -> None:
    other = '{"format":"replog-trace-1","scenario":"by-hand","seed":4}'
    paths = (write_trace(tmp_path / "a", [A]), write_trace(tmp_path / "b", [A], other))
    assert first_difference(*paths) is None
