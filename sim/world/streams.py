"""Streams of random numbers for the simulated world: the n-th draw is a function of the seed, the identity and n.

`storage.draws.Draws` hashes the name of each single decision. A link or a node draws thousands of times, and hashing a
name each time would cost more than the event, so its identity is hashed once and the count is mixed in (SplitMix64).
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import final

from storage.draws import Draws

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_ONE = 1 << 16


def _exponential_table() -> tuple[int, ...]:
    """Returns -ln(u) in units of 2^-16 at 1,024 even points.

    Decimal rounds in the same way on every platform, which the C library does not promise.
    """
    context = Context(prec=12)
    return tuple(int(-context.ln(Decimal(2 * point + 1) / Decimal(2048)) * _ONE) for point in range(1024))


EXPONENTIAL = _exponential_table()


@final
class Stream:
    """A stream of draws, as in `Stream(draws, "latency", "1->2")`, which does not depend on draws of other streams."""

    __slots__ = ("_state",)

    def __init__(self, draws: Draws, kind: str, *identity: int | str) -> None:
        self._state = draws.bits(kind, *identity)

    def bits(self) -> int:
        """Returns the next 64 bits."""
        self._state = value = (self._state + _GOLDEN) & _MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        return value ^ (value >> 31)

    def below(self, bound: int) -> int:
        """Returns a number from 0 to `bound` (exclusive)."""
        return self.bits() % bound

    def exponential(self, mean: int) -> int:
        """Returns an integer of an exponential distribution with this mean, at most 7.6 times the mean."""
        return EXPONENTIAL[self.bits() & 1023] * mean >> 16
