"""When a point fires: a matter of the seed and of names, and of nothing else."""

from __future__ import annotations

import re

import pytest

from sim.buggify.buggify import Buggify
from sim.buggify.points import POINTS
from storage.draws import Draws

POINT, OTHER = "timer-late", "step-slow"


def firings(points: list[str], *, seed: int = 1, percent: int | None = None, place: str = "a") -> list[bool]:
    """Returns whether the first of the points fires, for a hundred times; the others are asked in between."""
    buggify = Buggify(Draws(seed), points, percent=percent)
    found = []
    for _ in range(100):
        found.append(buggify.fires(points[0], place))
        for other in points[1:]:
            buggify.fires(other, place)
    return found


def test_a_point_that_is_off_never_fires_and_is_not_counted() -> None:
    buggify = Buggify(Draws(1), [OTHER], percent=100)
    assert not any(buggify.fires(POINT, "a") for _ in range(100))
    assert buggify.fired == {OTHER: 0}


def test_a_point_fires_in_its_share_of_moments() -> None:
    assert sum(firings([POINT], percent=0)) == 0
    assert sum(firings([POINT], percent=100)) == 100
    assert 10 < sum(firings([POINT])) < 40


def test_when_a_point_fires_depends_on_seed_and_place_and_on_no_other_point() -> None:
    assert firings([POINT]) == firings([POINT, OTHER, "turn-split"])
    assert firings([POINT]) != firings([POINT], seed=2)
    assert firings([POINT]) != firings([POINT], place="b")


def test_a_name_that_is_none_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        Buggify(Draws(1), []).fires("nonsense", "a")


def test_each_firing_is_told_and_counted() -> None:
    told: list[tuple[str, str]] = []
    buggify = Buggify(
        Draws(1), [POINT], percent=100, on_fire=lambda point, place: told.append((point, place))
    )
    assert buggify.fires(POINT, "a") and buggify.fires(POINT, "b")
    assert told == [(POINT, "a"), (POINT, "b")]
    assert buggify.fired == {POINT: 2}


def test_after_the_end_nothing_fires() -> None:
    buggify = Buggify(Draws(1), [POINT], percent=100)
    assert buggify.fires(POINT, "a")
    buggify.end()
    assert not buggify.fires(POINT, "a") and buggify.fired == {POINT: 1}


def test_every_point_has_a_plain_name_a_chance_and_a_sentence() -> None:
    for name, point in POINTS.items():
        assert name == point.name and re.fullmatch(r"[a-z]+(-[a-z]+)*", name), name
        assert 0 < point.percent <= 100, name
        assert len(point.what) > 20 and not point.what.endswith("."), name
