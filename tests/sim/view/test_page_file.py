"""What a page holds of two runs: their first difference, and where it is in the part that is shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sim.view.recording import Window
from sim.view.write import write_view
from tests.sim.view.traces import event, write_trace

SECOND = 1_000_000


def run(count: int, *, other: int | None = None, at_us: int | None = None) -> list[str]:
    """Returns an event a second; one of them, from 0 on, is another one, perhaps at another time."""
    events = [event(number * SECOND, "world", "tell", what=f"step {number}") for number in range(count)]
    if other is not None:
        at = other * SECOND if at_us is None else at_us
        events[other] = event(at, "world", "tell", what="another step")
    return events


def stored_difference(folder: Path, window: Window | None, ours: list[str], theirs: list[str]) -> Any:
    page = folder / "page.html"
    write_view(page, write_trace(folder / "a", ours), write_trace(folder / "b", theirs), window)
    found = re.search(r'id="stored-difference">(.*?)</script>', page.read_text())
    assert found is not None
    stored = json.loads(found[1])
    lines = stored.pop("lines")
    assert bool(lines) is (stored["event"] >= 0), lines
    return stored


@pytest.mark.parametrize(
    ("window", "row"),
    [
        (None, 3),
        (Window(from_us=2 * SECOND), 1),
        (Window(from_us=3 * SECOND), 0),
        (Window(from_us=4 * SECOND), -1),
        (Window(until_us=4 * SECOND), 3),
        (Window(until_us=3 * SECOND), -1),
    ],
)
def test_a_difference_is_numbered_as_in_the_run_and_known_to_be_inside_the_part_shown_or_not(
    tmp_path: Path, window: Window | None, row: int
) -> None:
    stored = stored_difference(tmp_path, window, run(8), run(8, other=3))
    assert stored == {"event": 3, "run": 0, "row": row}


def test_a_difference_that_is_inside_the_part_shown_of_the_second_run_alone_is_shown_there(
    tmp_path: Path,
) -> None:
    window = Window(from_us=3 * SECOND)
    ours = run(8, other=3, at_us=3 * SECOND - 1)
    assert stored_difference(tmp_path, window, ours, run(8)) == {"event": 3, "run": 1, "row": 0}
    assert stored_difference(tmp_path, None, run(3), run(8)) == {"event": 3, "run": 1, "row": 3}


def test_equal_runs_have_no_difference(tmp_path: Path) -> None:
    assert stored_difference(tmp_path, None, run(2), run(2)) == {"event": -1, "run": 0, "row": -1}
