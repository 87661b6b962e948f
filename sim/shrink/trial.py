"""Runs candidates, each in a process of its own, and says how each failed."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import FrameType
from typing import Any, final

from sim.cpu_limit import MOST_CPU_S
from sim.run import run_scenario
from sim.seeds import ERROR, SeedResult, run_seeds
from sim.shrink.data import Data, scenario_of
from sim.swarm.groups import signature_of

NAME = "shrink"
# A smaller cluster may take more steps to fail, and a candidate with fewer faults more time.
_SPARE_EVENTS = 2_000
_MOST_CPU_S = 20
# What the first run may take.
_FIRST_CPU_S = 60
# After so many seconds more the operating system kills a run that did not end by itself.
_GRACE_S = 5
# Marks the row of a run that was ended because it took too long.
_TOOK_LONGER = "took_longer"


class TakesLonger(BaseException):
    """A run has used up its processor time. It is no Exception: a core that raised one would only be killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A scenario with a seed."""

    data: Data
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a trial. `signature` is empty for a run that did not fail; `at_us` is when it failed.

    `events` are those of the world, `sends` the records that producers sent. `reason` is the violation in full.
    `took_longer` says that the run was ended because its processor time was up: it has not failed.
    """

    signature: str
    at_us: int = 0
    events: int = 0
    sends: int = 0
    reason: str = ""
    trace_hash: str = ""
    story: tuple[str, ...] = ()
    took_longer: bool = False


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
        _limit_cpu(self.most_cpu_s)
        try:
            return run_row(self.trials[seed], self.bug, self.most_events) | {"seed": seed}
        except TakesLonger:
            # The signal comes again each second.
            signal.signal(signal.SIGXCPU, signal.SIG_IGN)
            return {
                "seed": seed,
                _TOOK_LONGER: True,
                ERROR: f"takes longer than {self.most_cpu_s} s of processor time",
            }

    def replay(self, seed: int) -> str:
        return ""

    def outcomes(self, jobs: int) -> Iterator[Outcome]:
        """Yields what came of each trial, in their order. Closing the iterator ends those that still run.

        An event without an end is an error, which a scenario may be shrunk for: it is ended long before `MOST_CPU_S`.
        """
        numbers = range(len(self.trials))
        with closing(run_seeds(self, numbers, jobs=jobs, most_cpu_s=MOST_CPU_S)) as results:
            for result in results:
                yield outcome_of(result)


def _limit_cpu(limit_s: int) -> None:
    """Raise TakesLonger in this process, which is new, when it has used that much processor time."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TakesLonger

    signal.signal(signal.SIGXCPU, end)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    hard = limit_s + _GRACE_S if most == resource.RLIM_INFINITY else min(limit_s + _GRACE_S, most)
    resource.setrlimit(resource.RLIMIT_CPU, (min(limit_s, hard), hard))


def run_row(trial: Trial, bug: str | None, most_events: int | None = None) -> dict[str, Any]:
    """Run a trial in this process. Returns what `replog sim run --json` prints, with the story."""
    scenario = scenario_of(trial.data)
    assert scenario is not None, trial.data
    result = run_scenario(scenario, trial.seed, bug=bug, stops_early=True, most_events=most_events)
    return result.as_json() | {"story": list(result.story)}


def outcome_of(result: SeedResult) -> Outcome:
    """Returns what came of a run; one that proved nothing or took too long has not failed."""
    row = result.row
    took_longer = _TOOK_LONGER in row
    violations = row.get("violations", [])
    return Outcome(
        signature="" if took_longer else signature_of(row),
        at_us=round(violations[0]["at_ms"] * 1_000) if violations else 0,
        events=row.get("events", 0),
        sends=sum(row.get("operations", {}).values()),
        reason=result.reason,
        trace_hash=row.get("trace_hash", ""),
        story=tuple(row.get("story", ())),
        took_longer=took_longer,
    )


@final
class Forks:
    """Runs trials in forks of this process, `jobs` at the same time."""

    def __init__(self, bug: str | None, jobs: int) -> None:
        self._bug, self._jobs = bug, jobs

    def run(self, trial: Trial) -> Outcome:
        """Run one trial to its end, however long it takes within a minute of processor time."""
        alone = Trials(trials=[trial], bug=self._bug, most_events=None, most_cpu_s=_FIRST_CPU_S)
        (outcome,) = alone.outcomes(1)
        return outcome

    def outcomes(self, trials: Sequence[Trial], best: Outcome) -> Iterator[Outcome]:
        """Yields what came of each trial. One that runs on for twice the events of the best one has not failed."""
        most_events = 2 * best.events + _SPARE_EVENTS if best.events else None
        batch = Trials(trials=trials, bug=self._bug, most_events=most_events, most_cpu_s=_MOST_CPU_S)
        return batch.outcomes(self._jobs)
