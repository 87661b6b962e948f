"""A range of seeds, as a user writes it. It imports nothing of a run, so that Spark's workers load it at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MOST_SEEDS = (1 << 63) - 1


def check_seed(seed: object) -> None:
    """Raise TypeError or ValueError unless `seed` is a whole number from 0 to MOST_SEEDS."""
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise TypeError(f"seed: expected an int, got {type(seed).__name__}")
    if not 0 <= seed <= MOST_SEEDS:
        raise ValueError(f"seed: expected 0 to {MOST_SEEDS}, got {seed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """The seeds from `first` to `end` (exclusive)."""

    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.end))

    def __contains__(self, seed: int) -> bool:
        return self.first <= seed < self.end

    def __str__(self) -> str:
        return f"{self.first}..{self.end}"

    @classmethod
    def parse(cls, text: str) -> Seeds:
        """Parse `A..B`, B excluded. Raises ValueError, whose message names the mistake."""
        first, separator, end = text.partition("..")
        if not separator or not all(part.isascii() and part.isdigit() for part in (first, end)):
            raise ValueError(f"seeds are A..B with whole numbers, B excluded, not {text!r}")
        if len(end) > len(str(MOST_SEEDS)) or int(end) > MOST_SEEDS:
            raise ValueError(f"seeds {text}: the end must be at most {MOST_SEEDS}")
        if int(first) >= int(end):
            raise ValueError(f"seeds {text}: the first must be below the end, which is excluded")
        return cls(first=int(first), end=int(end))
