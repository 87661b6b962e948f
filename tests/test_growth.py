"""Tests how `bench scale` judges a row: noise of a moment fails none, real growth does."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.growth import INDEPENDENT, PASSES, ROUNDS, STEP_S, Once, Row, Sample, judge

SIZES = (100, 1_000, 10_000)


def row(value: dict[int, list[float]], step_s: float | None = None) -> Row:
    """Returns a row whose rounds of each size have these values, the last one again and again."""

    def prepare(size: int, _: Path) -> Once:
        values = value[size]
        return lambda: Sample(value=values.pop(0) if len(values) > 1 else values[0], longest_step_s=step_s)

    return Row(name="row", what="a thing", sizes=SIZES, most=INDEPENDENT, prepare=prepare)


def test_a_row_that_meets_its_marks_is_measured_once() -> None:
    measured = judge(row({size: [1.0] for size in SIZES}), SIZES)
    assert (measured.is_met, measured.rounds, measured.exponent) == (True, ROUNDS, 0)


def test_a_size_that_was_slow_for_a_moment_fails_no_row() -> None:
    measured = judge(row({100: [1.0], 1_000: [1.0], 10_000: [9.0] * ROUNDS + [1.0]}), SIZES)
    assert measured.is_met
    assert measured.rounds == PASSES * ROUNDS


def test_what_grows_fails_however_often_it_is_measured() -> None:
    measured = judge(row({size: [size / 100] for size in SIZES}), SIZES)
    assert (measured.is_met, measured.rounds) == (False, PASSES * ROUNDS)
    assert measured.exponent == pytest.approx(1)


def test_a_step_that_is_too_long_fails_a_row_that_does_not_grow() -> None:
    measured = judge(row({size: [1.0] for size in SIZES}, step_s=2 * STEP_S), SIZES)
    assert not measured.is_met
