"""The result of a run on processes, in the shape of a simulated one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sim.checkers.base import Violation
from sim.judgement import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RealResult:
    """The result of one run; `again` is the command for another one, which is never quite the same."""

    scenario: str
    seed: int
    verdict: Verdict
    real_ms: int
    violations: tuple[Violation, ...]
    again: str
    story: tuple[str, ...]
    # The number of sends by outcome.
    operations: dict[str, int]
    # The number of records that all consumers have read, each counted at each of them.
    reads: int
    # The number of acknowledged records that are lost and excused, by reason.
    excused: dict[str, int]
    # The number of sends that did not succeed because their topic could take no records, by reason.
    excused_sends: dict[str, int]
    starved_because: str
    never_struck: tuple[str, ...]
    # What processes cannot suffer, in words: the steps by their number, and what beside steps differs.
    skipped: tuple[str, ...]
    # What nodes and clients wrote; None where nothing is kept.
    data: Path | None

    def as_json(self) -> dict[str, object]:
        """Returns the result as `replog sim run --real --json` prints it; the story is left out."""
        return {
            "scenario": self.scenario,
            "seed": self.seed,
            "verdict": self.verdict.value,
            "real_ms": self.real_ms,
            "violations": [
                {"checker": found.checker, "at_ms": found.at_us / 1000, "what": found.what}
                for found in self.violations
            ],
            "again": self.again,
            "operations": self.operations,
            "reads": self.reads,
            "excused": self.excused,
            "excused_sends": self.excused_sends,
            "starved_because": self.starved_because,
            "never_struck": list(self.never_struck),
            "skipped": list(self.skipped),
            "data": None if self.data is None else str(self.data),
        }
