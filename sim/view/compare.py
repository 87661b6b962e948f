"""Finds the first event in which two traces differ."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from sim.view.trace_file import TraceFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first event that two runs do not share; it counts from 0. An ended run has an empty line there."""

    event: int
    lines: tuple[str, str]


def first_difference(path: Path, other: Path) -> Difference | None:
    """Returns the first difference of two traces; None if they are equal. Headers may differ. Raises TraceFileError."""
    with path.open("rb") as file, other.open("rb") as other_file:
        ours, theirs = TraceFile(path, file).events(), TraceFile(other, other_file).events()
        for number, (a, b) in enumerate(zip_longest(ours, theirs)):
            lines = [each.text if each is not None else b"" for each in (a, b)]
            if lines[0] != lines[1]:
                return Difference(event=number, lines=(_text(lines[0]), _text(lines[1])))
    return None


def _text(line: bytes) -> str:
    """Returns a line; bytes that are no UTF-8 are escaped."""
    return line.decode(errors="backslashreplace")
