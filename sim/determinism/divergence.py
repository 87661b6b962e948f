"""The first event at which two traces of one seed differ."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The number of the first line that differs, from 1 on, and that line in both traces; empty after the end."""

    line: int
    first: str
    second: str

    def lines(self) -> list[str]:
        """Returns the divergence for a reader."""
        return [
            f"first difference at event {self.line}:",
            f"  first run:  {self.first or '(ended)'}",
            f"  second run: {self.second or '(ended)'}",
        ]


def first_divergence(first: Path, second: Path) -> Divergence | None:
    """Compare two trace files line by line. Returns None if they are equal."""
    with first.open(encoding="ascii") as left, second.open(encoding="ascii") as right:
        for number, (one, other) in enumerate(zip_longest(left, right, fillvalue=""), start=1):
            if one != other:
                return Divergence(line=number, first=one.rstrip("\n"), second=other.rstrip("\n"))
    return None
