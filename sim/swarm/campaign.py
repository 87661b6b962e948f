"""Adds up the rows of a campaign: verdicts, failures by signature, excuses, what starved, and the points reached."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, final

from sim.buggify.points import POINTS as BUGGIFY_POINTS
from sim.checkers.unseen import needs_fault
from sim.run import Verdict
from sim.seed_range import Seeds
from sim.seeds import ERROR
from sim.sometimes.points import POINTS
from sim.swarm.groups import Groups

INTERRUPTED = 3


@final
class Campaign:
    """The sum of a campaign's rows; those of a file that it goes on with count as well."""

    def __init__(self, seeds: Seeds) -> None:
        self._seeds = seeds
        self._counted: set[int] = set()
        self._verdicts: Counter[str] = Counter()
        self._starved: Counter[str] = Counter()
        self._profiles: Counter[str] = Counter()
        self._excused: Counter[str] = Counter()
        # The runs in which a loss needed an excuse.
        self._excused_count = 0
        self._points: Counter[str] = Counter()
        # How often each buggify point fired, and in how many runs some were on.
        self._fired: Counter[str] = Counter()
        self._buggified_count = 0
        self._groups = Groups()
        self.simulated_ms = 0
        self.is_interrupted = False

    @property
    def count(self) -> int:
        """The number of seeds that have run."""
        return len(self._counted)

    def add(self, row: dict[str, Any]) -> bool:
        """Count the row of a seed. Returns whether it is the first failure of its signature."""
        seed, verdict = int(row["seed"]), str(row["verdict"])
        assert seed in self._seeds, (seed, str(self._seeds))
        assert seed not in self._counted, seed
        self._counted.add(seed)
        self._verdicts[verdict] += 1
        self._profiles[str(row.get("profile", "unknown"))] += 1
        self.simulated_ms += int(row.get("simulated_ms", 0))
        self._note_excuses(row)
        if verdict == Verdict.STARVED.value:
            self._starved[re.sub("[0-9]+", "N", str(row.get("starved_because", "")))] += 1
            # What a run that proved nothing has reached is no coverage.
            return False
        self._points.update(dict.fromkeys(row.get("points", ()), 1))
        fired = row.get("buggify", {})
        self._fired.update(fired)
        self._buggified_count += bool(fired)
        return verdict in (Verdict.VIOLATED.value, ERROR) and self._groups.add(row)

    def _note_excuses(self, row: dict[str, Any]) -> None:
        reasons = [reason for reason in row.get("excused", {}) if needs_fault(reason)]
        self._excused.update(reasons)
        self._excused_count += bool(reasons)

    def status(self) -> int:
        """Returns 1 if any run was violated, else 2 if any failed, else 0.

        It is 3 in place of 0 if none held, or if it was interrupted.
        """
        if self._verdicts[Verdict.VIOLATED.value]:
            return 1
        if self._verdicts[ERROR]:
            return 2
        has_held = self._verdicts[Verdict.HELD.value] > 0
        return INTERRUPTED if self.is_interrupted or not has_held else 0

    def never(self) -> list[str]:
        """Returns the points that no run has reached."""
        return [name for name in POINTS if not self._points[name]]

    def never_fired(self) -> list[str]:
        """Returns the buggify points that have fired in no run."""
        return [name for name in BUGGIFY_POINTS if not self._fired[name]]

    def lines(self) -> list[str]:
        """Returns the closing lines."""
        return [
            self._headline(),
            *self._failures(),
            *self._shares(),
            *_counted("starved, and counted for nothing", self._starved),
            *_counted("acknowledged records lost, and excused", self._excused),
            *self._coverage(),
        ]

    def _headline(self) -> str:
        done, wanted = self.count, len(self._seeds)
        runs = f"{done} of {wanted} runs done" if self.is_interrupted else f"{done} run{'s' * (done != 1)}"
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self._verdicts.items()))
        profiles = ", ".join(f"{count} {profile}" for profile, count in sorted(self._profiles.items()))
        text = f"swarm, seeds {self._seeds}: {runs}: {verdicts or 'none'}"
        return f"{text} ({profiles})" if profiles else text

    def _failures(self) -> list[str]:
        lines = []
        for group in self._groups.by_count():
            lines += [f"{group.count:6} x {group.signature}", f"         seed {group.seed}: {group.replay}"]
        return lines

    def _shares(self) -> list[str]:
        """Returns which parts of the runs starved and had losses excused; nothing of both if there are neither."""
        starved, excused = self._verdicts[Verdict.STARVED.value], self._excused_count
        if not starved + excused:
            return []
        return [f"starved {starved / self.count:.1%} of the runs, excused {excused / self.count:.1%}"]

    def _coverage(self) -> list[str]:
        never = self.never()
        lines = [f"points: {len(POINTS) - len(never)} of {len(POINTS)} reached"]
        lines += [f"  never: {name}: {POINTS[name]}" for name in never]
        return lines + self._buggify_lines()

    def _buggify_lines(self) -> list[str]:
        """Returns how many buggify points fired, and those that did not; nothing if none was on in any run."""
        if not self._buggified_count:
            return []
        asleep = self.never_fired()
        runs = f"in {self._buggified_count} run{'s' * (self._buggified_count != 1)}"
        fired = len(BUGGIFY_POINTS) - len(asleep)
        lines = [f"buggify points {runs}: {fired} of {len(BUGGIFY_POINTS)} fired"]
        return lines + [f"  never: {name}: {BUGGIFY_POINTS[name].what}" for name in asleep]

    def as_json(self, cpu_s: float) -> dict[str, object]:
        """Returns the numbers of the closing lines; `end_seed` is excluded.

        `cpu_s` is the processor time in seconds of the runs that were not in the file already.
        """
        verdicts = {each.value: self._verdicts[each.value] for each in Verdict}
        return {
            "first_seed": self._seeds.first,
            "end_seed": self._seeds.end,
            "runs": self.count,
            **verdicts,
            "errors": self._verdicts[ERROR],
            "excused": self._excused_count,
            "simulated_s": self.simulated_ms / 1000,
            "cpu_s": round(cpu_s, 3),
            "sometimes": {name: self._points[name] for name in POINTS},
            "never": self.never(),
            "buggified": self._buggified_count,
            "buggify": {name: self._fired[name] for name in BUGGIFY_POINTS},
            "never_fired": self.never_fired(),
            "failures": [
                {"signature": each.signature, "count": each.count, "seed": each.seed, "replay": each.replay}
                for each in self._groups.by_count()
            ],
            "profiles": dict(sorted(self._profiles.items())),
            "starved_because": dict(_by_count(self._starved)),
            "excuses": dict(_by_count(self._excused)),
            "interrupted": self.is_interrupted,
        }


def _counted(title: str, counts: Counter[str]) -> Iterable[str]:
    """Yields a line for each reason, the most frequent first."""
    for reason, count in _by_count(counts):
        yield f"{count:6} x {title}: {reason}"


def _by_count(counts: Counter[str]) -> list[tuple[str, int]]:
    """Returns the reasons with their counts, the most frequent first: in which order they came does not matter."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
