"""Random numbers with names: each depends on the seed and on its own name alone, never on a shared stream.

Removing one decision changes no other draw (SplitMix64 over a hash of the name). A real node takes its seed from the
operating system, the simulator from the run.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import final

_MASK = (1 << 64) - 1


def _mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


@lru_cache(maxsize=65_536)
def _name_hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")


@final
class Draws:
    """A source of draws by name: `draws.bits("latency", "1->2", 17)` depends only on the seed and these arguments."""

    __slots__ = ("seed",)

    def __init__(self, seed: int) -> None:
        self.seed = seed & _MASK

    def bits(self, kind: str, *identity: int | str) -> int:
        """Draw 64 bits, as a number from 0 on."""
        value = _mix(self.seed ^ _name_hash(kind))
        for part in identity:
            value = _mix(value ^ (part & _MASK if isinstance(part, int) else _name_hash(part)))
        return value

    def below(self, bound: int, kind: str, *identity: int | str) -> int:
        """Draw from 0 to `bound` (exclusive); the bias of the modulus is below 2^-40 for bounds below 2^24."""
        assert bound > 0, bound
        return self.bits(kind, *identity) % bound

    def between(self, low: int, high: int, kind: str, *identity: int | str) -> int:
        """Draw from `low` to `high`, both inclusive."""
        assert low <= high, (low, high)
        return low + self.bits(kind, *identity) % (high - low + 1)

    def counted(self, kind: str, *identity: int | str) -> CountedDraws:
        """Returns the draws of these names and of a count behind them: the names are hashed once."""
        return CountedDraws(self.bits(kind, *identity))

    def child(self, kind: str, *identity: int | str) -> Draws:
        """Returns an independent source, for instance one for each component."""
        return Draws(self.bits(kind, *identity))


@final
class CountedDraws:
    """The draws of one name by a count: `draws.counted(kind, place).bits(7)` is `draws.bits(kind, place, 7)`."""

    __slots__ = ("_named",)

    def __init__(self, named: int) -> None:
        self._named = named

    def bits(self, count: int) -> int:
        """Draw 64 bits, as a number from 0 on."""
        return _mix(self._named ^ (count & _MASK))
