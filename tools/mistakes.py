"""The mistakes that `tools/mutants.py` plants, read from `tools/mistakes.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "mistakes.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A replacement of one text, which must occur exactly once in the file `path`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A protection taken away. `tests` are pytest's ids; `scenarios` are names of files below `scenarios/`, each with
    `@` and a seed.
    """

    name: str
    rule: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()


def _read() -> tuple[Mistake, ...]:
    """Parse the file. Raises TypeError for an unknown or missing field."""
    rows = tomllib.loads(PAGE.read_text(encoding="utf-8"))["mistake"]
    return tuple(
        Mistake(
            edits=tuple(Edit(**edit) for edit in row.pop("edits")),
            tests=tuple(row.pop("tests", ())),
            scenarios=tuple(row.pop("scenarios", ())),
            **row,
        )
        for row in rows
    )


MISTAKES = _read()
