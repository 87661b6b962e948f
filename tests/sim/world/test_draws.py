"""Tests of the draws that are named once and then counted."""

from __future__ import annotations

from storage.draws import Draws


def test_counted_draws_are_those_of_the_names_and_the_count() -> None:
    draws = Draws(7)
    counted = draws.counted("disk-slow", "broker-1")
    assert [counted.bits(count) for count in range(5)] == [
        draws.bits("disk-slow", "broker-1", count) for count in range(5)
    ]
