"""Choices of a drawn scenario: each depends on the seed and on its own name, never on the choices before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, final

from storage.draws import Draws

Choice = TypeVar("Choice")
# A part of a scenario as its file has it: keys and plain values.
Part = dict[str, object]


@final
class Choices:
    """Named choices: `choices.pick("brokers", (3, 5))`. A choice that is added or left out changes no other one."""

    __slots__ = ("_draws",)

    def __init__(self, draws: Draws) -> None:
        self._draws = draws

    def within(self, *identity: int | str) -> Choices:
        """Returns the choices of one part, such as the third kill; they share no name with those of other parts."""
        return Choices(self._draws.child("part", *identity))

    def below(self, bound: int, name: str) -> int:
        """Returns a number from 0 to `bound` (exclusive)."""
        return self._draws.below(bound, name)

    def between(self, low: int, high: int, name: str) -> int:
        """Returns a number from `low` to `high`, both inclusive."""
        return self._draws.between(low, high, name)

    def chance(self, percent: int, name: str) -> bool:
        """Returns true in `percent` of all seeds."""
        assert 0 <= percent <= 100, (name, percent)
        return self._draws.below(100, name) < percent

    def pick(self, choices: Sequence[Choice], name: str) -> Choice:
        """Returns one of `choices`; one that is named twice is drawn twice as often."""
        assert choices, name
        return choices[self._draws.below(len(choices), name)]

    def scale(self, low: int, high: int, name: str) -> int:
        """Returns a number from `low` to `high`, both inclusive, of which each doubling is about equally likely."""
        assert 0 < low <= high, (name, low, high)
        doublings = (high // low).bit_length()
        least = low << self._draws.below(doublings, name, "doubling")
        return self._draws.between(least, min(2 * least - 1, high), name, "in it")

    def ms(self, choices: Sequence[int], name: str) -> str:
        """Returns one of the durations, as a file writes it."""
        return f"{self.pick(choices, name)}ms"
