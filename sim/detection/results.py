"""The sum of all searches, one line a bug. Found means that the median start found it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from sim.bugs import Bug
from sim.detection.search import Row


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """How one bug was found: the medians over its starts, None where the median start found nothing.

    `starts` of `planned` were made. Where they decided the median before the rest was made, the numbers are at least
    those of the median start.
    """

    bug: Bug
    starts: int
    planned: int
    starts_found: int
    median_seeds: int | None
    median_cpu_s: float | None
    # The one that found it most often; empty if no start found it.
    checker: str

    @property
    def is_found(self) -> bool:
        return self.median_seeds is not None

    @property
    def is_bound(self) -> bool:
        """Whether the numbers are upper bounds of the medians."""
        return self.is_found and self.starts < self.planned

    def as_json(self) -> dict[str, object]:
        """Returns a line of the table as `--json` prints it."""
        return {
            "id": self.bug.name,
            "ticket": self.bug.ticket,
            "found": self.is_found,
            "median_seeds": self.median_seeds,
            "median_cpu_s": self.median_cpu_s,
            "checker": self.checker,
            "starts": self.starts,
            "starts_found": self.starts_found,
            "starts_planned": self.planned,
            "median_is_bound": self.is_bound,
        }


def is_decided(verdicts: Sequence[str], planned: int) -> bool:
    """Returns whether these verdicts of starts decide the median of `planned` ones, whatever the others find."""
    assert planned > 0, planned
    found = sum(verdict == "found" for verdict in verdicts)
    majority = planned // 2 + 1
    # Of two middle starts the worse one counts.
    return found >= majority or len(verdicts) - found > planned - majority


def detection_of(bug: Bug, rows: Sequence[Row], planned: int | None = None) -> Detection:
    """Returns the result of the starts of one bug, of which there is at least one; `planned` were to be made."""
    assert rows, bug.name
    assert all(row["bug"] == bug.name for row in rows), bug.name
    found = [row for row in rows if row["verdict"] == "found"]
    planned = max(planned or 0, len(rows))
    seeds, cpu_s = _median(rows, "seeds", planned), _median(rows, "cpu_s", planned)
    checkers = Counter(str(row["checker"]) for row in found)
    return Detection(
        bug=bug,
        starts=len(rows),
        planned=planned,
        starts_found=len(found),
        median_seeds=None if seeds is None else int(seeds),
        median_cpu_s=cpu_s,
        checker=min(checkers, key=lambda name: (-checkers[name], name)) if checkers else "",
    )


def _median(rows: Sequence[Row], key: str, planned: int) -> float | None:
    """Returns the median, of two middle ones the larger; a start that found nothing is larger than any that did.

    Where the rows decide the median of the planned starts, it is their value at its place: more starts can only
    lower it. Else it is the median of the rows.
    """
    values = sorted(float(row[key]) if row["verdict"] == "found" else math.inf for row in rows)
    place = planned // 2 if is_decided([str(row["verdict"]) for row in rows], planned) else len(values) // 2
    middle = values[place] if place < len(values) else math.inf
    return None if middle == math.inf else middle


def detections(bugs: Mapping[str, Bug], rows: Iterable[Row], planned: int | None = None) -> list[Detection]:
    """Returns a result for each bug that has rows, in the order of the catalogue; `planned` starts of each."""
    by_bug: dict[str, list[Row]] = {name: [] for name in bugs}
    for row in rows:
        if row["bug"] in by_bug:
            by_bug[row["bug"]].append(row)
    return [detection_of(bugs[name], found, planned) for name, found in by_bug.items() if found]


def table(found: Sequence[Detection]) -> list[str]:
    """Returns the lines of the table, and how many of the bugs are found."""
    rows = [
        ("bug", "ticket", "found", "seeds", "cpu s", "checker"),
        *(
            (
                each.bug.name,
                each.bug.ticket or "-",
                f"{each.starts_found} of {each.starts}",
                _text(each.median_seeds, is_bound=each.is_bound),
                _text(each.median_cpu_s, is_bound=each.is_bound),
                each.checker or "-",
            )
            for each in found
        ),
    ]
    count = sum(each.is_found for each in found)
    return [*columns(rows), f"found: {count} of {len(found)} bugs"]


def _text(number: float | None, *, is_bound: bool) -> str:
    return "-" if number is None else f"{'<= ' if is_bound else ''}{number:g}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the rows as lines with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pad: Callable[[Sequence[str]], str] = lambda row: "  ".join(  # noqa: E731
        f"{text:{width}}" for text, width in zip(row, widths, strict=True)
    )
    return [pad(row).rstrip() for row in rows]
