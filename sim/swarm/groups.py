"""Groups failures by what went wrong: two with the same signature are most likely one mistake."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, final

from sim.seeds import ERROR

_LONGEST = 160
# Values and ids, then topics of drawn runs, then numbers, then lists of them.
_PLAIN = (
    (re.compile(r"b?'[^']*'|b?\"[^\"]*\""), "VALUE"),
    (re.compile(r"\b[0-9a-f]{16,}\b"), "ID"),
    (re.compile(r"\b[tu]-[0-9]+"), "PARTITION"),
    (re.compile(r"[0-9]+(?:\.[0-9]+)?"), "N"),
    (re.compile(r"N(?:, -?N)+"), "N…"),
)


def signature(checker: str, what: str) -> str:
    """Returns a violation without its numbers and values: two of one kind have the same."""
    for pattern, word in _PLAIN:
        what = pattern.sub(word, what)
    return f"{checker}: {what[:_LONGEST]}"


def signature_of(row: dict[str, Any]) -> str:
    """Returns the signature of a row's first violation, or of the error that ended its run; else an empty text."""
    if violations := row.get("violations"):
        return signature(violations[0]["checker"], violations[0]["what"])
    return signature(ERROR, row[ERROR]) if ERROR in row else ""


@final
@dataclass(slots=True, kw_only=True)
class Group:
    """Failures of one signature: how many, and the smallest seed with the command that replays it."""

    signature: str
    count: int
    seed: int
    replay: str


@final
class Groups:
    """The failures of a campaign, by signature."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def add(self, row: dict[str, Any]) -> bool:
        """Count a failed run. Returns whether it is the first of its signature."""
        name, seed = signature_of(row), int(row["seed"])
        assert name, row
        group = self._groups.get(name)
        if group is None:
            self._groups[name] = Group(signature=name, count=1, seed=seed, replay=str(row["replay"]))
            return True
        group.count += 1
        if seed < group.seed:
            group.seed, group.replay = seed, str(row["replay"])
        assert group.seed <= seed, (group.seed, seed)
        return False

    def by_count(self) -> list[Group]:
        """Returns the groups, the largest first, then by their smallest seed."""
        return sorted(self._groups.values(), key=lambda group: (-group.count, group.seed))
