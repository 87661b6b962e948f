"""The table of a measurement: medians in which a start that found nothing is the worst."""

from __future__ import annotations

import pytest

from sim.bugs import Bug
from sim.detection.results import detection_of, detections, is_decided, table
from sim.detection.search import Row

BUG = Bug(name="b", story="s", replacements=(), ticket="KAFKA-1")


def row(seeds: int | None, cpu_s: float = 2.0, checker: str = "roles") -> Row:
    """The row of a start; without a number of seeds it found nothing."""
    verdict = "missed" if seeds is None else "found"
    return {"bug": "b", "verdict": verdict, "seeds": seeds or 99, "cpu_s": cpu_s, "checker": checker}


@pytest.mark.parametrize(
    ("seeds", "median"),
    [
        ([3], 3),
        ([None], None),
        ([1, 9, 2], 2),
        ([1, None, 2], 2),
        ([None, 1, None], None),
        # Of two middle starts the worse one counts.
        ([1, 4], 4),
        ([1, None], None),
    ],
)
def test_found_means_that_the_median_start_found_it(seeds: list[int | None], median: int | None) -> None:
    found = detection_of(BUG, [row(each) for each in seeds])
    assert (found.median_seeds, found.is_found) == (median, median is not None)
    assert (found.median_cpu_s is None) == (median is None)


def test_the_checker_is_the_one_that_found_it_most_often() -> None:
    rows = [row(1, checker="a"), row(1, checker="z"), row(1, checker="z"), row(None, checker="a")]
    assert detection_of(BUG, rows).checker == "z"


def test_the_table_counts_what_is_found() -> None:
    other = Bug(name="c", story="s", replacements=())
    rows = [row(2), row(None) | {"bug": "c"}, row(1) | {"bug": "left the catalogue"}]
    lines = table(detections({"b": BUG, "c": other}, rows))
    assert lines == [
        "bug  ticket   found   seeds  cpu s  checker",
        "b    KAFKA-1  1 of 1  2      2      roles",
        "c    -        0 of 1  -      -      -",
        "found: 1 of 2 bugs",
    ]


@pytest.mark.parametrize(
    ("found", "missed", "planned", "decided"),
    [(5, 0, 9, True), (5, 4, 9, True), (4, 4, 9, False), (0, 5, 9, True), (1, 1, 2, True), (1, 0, 2, False)],
)
def test_the_median_is_decided_as_soon_as_no_other_start_can_change_it(
    found: int, missed: int, planned: int, *, decided: bool
) -> None:
    verdicts = ["found"] * found + ["missed"] * missed
    assert is_decided(verdicts, planned) is decided


def test_the_median_of_a_decided_bug_is_an_upper_bound() -> None:
    found = detection_of(BUG, [row(each) for each in (4, None, 1, 2, 3, 9)], planned=9)
    assert (found.median_seeds, found.is_bound, found.starts) == (9, True, 6)
    # The worst that the starts left out could make of it is no worse.
    whole = detection_of(BUG, [row(each) for each in (4, None, 1, 2, 3, 9, None, None, None)], planned=9)
    assert (whole.median_seeds, whole.is_bound) == (9, False)
    lines = table(detections({"b": BUG}, [row(1), row(2)], 3))
    assert lines[1] == "b    KAFKA-1  2 of 2  <= 2   <= 2   roles"
