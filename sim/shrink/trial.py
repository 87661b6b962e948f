"""Runs candidates, each in a process of its own, and says how each failed."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, final

from sim.run import run_scenario
from sim.seeds import SeedResult, run_seeds
from sim.shrink.data import Data, scenario_of
from sim.swarm.groups import signature_of

NAME = "shrink"
# A smaller cluster may take more steps to fail, and a candidate with fewer faults more time.
_SPARE_EVENTS = 2_000
_MOST_CPU_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A scenario with a seed."""

    data: Data
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a trial. `signature` is empty for a run that did not fail; `at_us` is when it failed.

    `events` are those of the world, `sends` the records that producers sent. `reason` is the violation in full.
    """

    signature: str
    at_us: int = 0
    events: int = 0
    sends: int = 0
    reason: str = ""
    trace_hash: str = ""
    story: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """A batch of trials, which differ in scenario and seed; their numbers take the place of the seeds of `run_seeds`.

    A run ends after `most_events` events of the world, its process after `most_cpu_s` seconds of processor time.
    """

    trials: Sequence[Trial]
    bug: str | None
    most_events: int | None
    most_cpu_s: int

    @property
    def title(self) -> str:
        return NAME

    def run(self, seed: int) -> dict[str, Any]:
        """Run the trial with that number. It stops at its first violation."""
        # A run that hangs within one event is ended by the operating system.
        resource.setrlimit(resource.RLIMIT_CPU, (self.most_cpu_s, self.most_cpu_s))
        return run_row(self.trials[seed], self.bug, self.most_events) | {"seed": seed}

    def replay(self, seed: int) -> str:
        return ""

    def outcomes(self, jobs: int) -> Iterator[Outcome]:
        """Yields what came of each trial, in their order. Closing the iterator ends those that still run."""
        with closing(run_seeds(self, range(len(self.trials)), jobs=jobs)) as results:
            for result in results:
                yield outcome_of(result)


def run_row(trial: Trial, bug: str | None, most_events: int | None = None) -> dict[str, Any]:
    """Run a trial in this process. Returns what `replog sim run --json` prints, with the story."""
    scenario = scenario_of(trial.data)
    assert scenario is not None, trial.data
    result = run_scenario(scenario, trial.seed, bug=bug, stops_early=True, most_events=most_events)
    return result.as_json() | {"story": list(result.story)}


def outcome_of(result: SeedResult) -> Outcome:
    """Returns what came of a run; one that proved nothing has not failed."""
    row = result.row
    violations = row.get("violations", [])
    return Outcome(
        signature=signature_of(row),
        at_us=round(violations[0]["at_ms"] * 1_000) if violations else 0,
        events=row.get("events", 0),
        sends=sum(row.get("operations", {}).values()),
        reason=result.reason,
        trace_hash=row.get("trace_hash", ""),
        story=tuple(row.get("story", ())),
    )


@final
class Forks:
    """Runs trials in forks of this process, `jobs` at the same time."""

    def __init__(self, bug: str | None, jobs: int) -> None:
        self._bug, self._jobs = bug, jobs

    def run(self, trial: Trial) -> Outcome:
        """Run one trial to its end, however long it takes within a minute of processor time."""
        (outcome,) = Trials(trials=[trial], bug=self._bug, most_events=None, most_cpu_s=60).outcomes(1)
        return outcome

    def outcomes(self, trials: Sequence[Trial], best: Outcome) -> Iterator[Outcome]:
        """Yields what came of each trial. One that runs on for twice the events of the best one has not failed."""
        most_events = 2 * best.events + _SPARE_EVENTS if best.events else None
        batch = Trials(trials=trials, bug=self._bug, most_events=most_events, most_cpu_s=_MOST_CPU_S)
        return batch.outcomes(self._jobs)
