"""The mistakes that `tools/mutants.py` plants: `tools/mistakes.toml`, read."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "mistakes.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """`old` stands exactly once in the file `path`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """`tests` are pytest's ids, `scenarios` names of files below `scenarios/` with `@` and a seed."""

    name: str
    rule: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()


def _read() -> tuple[Mistake, ...]:
    """TypeError where a field is unknown or missing."""
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
