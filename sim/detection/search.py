"""One start of the search for a bug: drawn runs from one seed on, until one shows the bug or the budget is spent.

A violation counts only if the same seed without the bug holds: what the clean build violates too is a false alarm, and
one whose clean run was ended from outside is undecided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from sim.cpu_limit import MOST_CPU_S
from sim.run import Verdict
from sim.seeds import ERROR
from storage.draws import Draws

# A row of `sim.seeds`, with the processor time of the run as `cpu_s`; without it, the run was ended.
Row = dict[str, Any]
# Far below the largest seed, so that no search runs out of seeds.
_FIRST_SEEDS = 1 << 40


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A run that a search asks for, with its bug or clean, and the most processor time that it may take."""

    bug: str | None
    seed: int
    limit_s: float


@final
class Search:
    """One start: `seeds` are the seeds it has run with the bug, `cpu_s` is what all its runs took."""

    def __init__(self, *, bug: str, start: int, base: int, budget_s: float) -> None:
        assert budget_s > 0, budget_s
        assert start >= 0, start
        self.bug, self.start = bug, start
        self.first_seed = Draws(base).child("search", bug, start).below(_FIRST_SEEDS, "first")
        self.seeds, self.cpu_s, self.false_alarms, self.undecided = 0, 0.0, 0, 0
        # What broke, and the seed; empty and -1 until the bug is found.
        self.checker, self.seed = "", -1
        self._budget_s = budget_s
        # The checker of a violation that the clean build has yet to be asked about.
        self._doubted = ""

    @property
    def is_found(self) -> bool:
        return self.seed >= 0

    @property
    def is_over(self) -> bool:
        """Whether the bug is found, or the budget is spent and no violation is in doubt."""
        return self.is_found or (not self._doubted and self.cpu_s >= self._budget_s)

    def next_probe(self) -> Probe:
        """Returns the run to do now: the next seed with the bug, or the clean run of a seed that was violated."""
        assert not self.is_over, self
        if self._doubted:
            # The clean run is no part of the search, and may take as long as any.
            return Probe(bug=None, seed=self.first_seed + self.seeds - 1, limit_s=MOST_CPU_S)
        return Probe(
            bug=self.bug, seed=self.first_seed + self.seeds, limit_s=max(self._budget_s - self.cpu_s, 1)
        )

    def add(self, probe: Probe, row: Row) -> None:
        """Count the row of the run that `next_probe` asked for."""
        assert not self.is_over, self
        assert (probe.bug is None) == bool(self._doubted), (probe, self._doubted)
        self.cpu_s += float(row.get("cpu_s", probe.limit_s))
        if probe.bug is None:
            self._judge(probe, row)
            return
        self.seeds += 1
        # What was found after the budget was spent is not found.
        if self.cpu_s <= self._budget_s:
            self._doubted = what_broke(row)

    def _judge(self, probe: Probe, row: Row) -> None:
        """Take the doubted violation as the bug's own, unless the clean run of the seed failed too.

        A clean run that was ended from outside, perhaps for want of memory, says neither.
        """
        if "cpu_s" not in row:
            self.undecided += 1
        elif _is_sound(row):
            self.checker, self.seed = self._doubted, probe.seed
        else:
            self.false_alarms += 1
        self._doubted = ""

    def as_row(self) -> Row:
        """Returns the result as a line of the file, where `seed` is the first one and names the start."""
        assert self.is_over, self
        return {
            "seed": self.first_seed,
            "verdict": "found" if self.is_found else "missed",
            "bug": self.bug,
            "start": self.start,
            "seeds": self.seeds,
            "cpu_s": round(self.cpu_s, 2),
            "false_alarms": self.false_alarms,
            "undecided": self.undecided,
            "checker": self.checker,
            "found_seed": self.seed if self.is_found else None,
        }


def what_broke(row: Row) -> str:
    """Returns the checker of the first violation, or the kind of the error that ended the run; empty if it held.

    A run that was ended because its time was up shows nothing.
    """
    if violations := row.get("violations"):
        return str(violations[0]["checker"])
    if ERROR in row and "cpu_s" in row:
        return str(row[ERROR]).partition(":")[0]
    return ""


def _is_sound(row: Row) -> bool:
    return row["verdict"] in (Verdict.HELD.value, Verdict.STARVED.value)
