"""Choices by name."""

from __future__ import annotations

from collections import Counter

from sim.swarm.choices import Choices
from storage.draws import Draws


def test_a_choice_does_not_depend_on_those_before_it() -> None:
    alone = Choices(Draws(7)).below(1_000_000, "rate")
    choices = Choices(Draws(7))
    choices.pick((1, 2, 3), "size")
    assert choices.below(1_000_000, "rate") == alone != Choices(Draws(8)).below(1_000_000, "rate")


def test_parts_share_no_choice() -> None:
    choices = Choices(Draws(7))
    drawn = [choices.within("kill", number).below(1 << 40, "at") for number in range(20)]
    assert len(set(drawn)) == 20


def test_a_scale_goes_from_end_to_end_and_each_doubling_is_about_as_likely() -> None:
    found = Counter(Choices(Draws(seed)).scale(10, 1_000, "rate") for seed in range(4_000))
    assert min(found) == 10 and max(found) <= 1_000
    counts = [sum(n for value, n in found.items() if low <= value < 2 * low) for low in (10, 40, 160)]
    assert all(450 < count < 700 for count in counts)
    assert any(value > 900 for value in found)


def test_a_scale_of_one_number_is_that_number() -> None:
    assert {Choices(Draws(seed)).scale(5, 5, "x") for seed in range(10)} == {5}
