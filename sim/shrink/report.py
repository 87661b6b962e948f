"""A whole shrink: the search, the proof of its result, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

from sim.run import replay_command
from sim.shrink.again import Proof, prove
from sim.shrink.critical_pair import CriticalPair, critical_pair
from sim.shrink.data import Data, as_yaml, neat, scenario_of
from sim.shrink.likelihood import Point, TurningPoint, likelihood, turning_point
from sim.shrink.passes import PASSES
from sim.shrink.search import Failing, Search, shrink
from sim.shrink.telling import client_counts, five_lines
from sim.shrink.trial import Forks, Trial

# Returns the processor time of all processes that have ended, in seconds. It bounds the search and changes no run.
CpuClock = Callable[[], float]
OnSmaller = Callable[[str, Failing], None]
OnFound = Callable[[Failing], None]


class NothingFails(Exception):
    """The run that should be shrunk fails with no violation and no error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a failing run is; `events` are those of the world, from its start to the failure."""

    steps: int
    clients: int
    sends: int
    events: int

    @classmethod
    def of(cls, failing: Failing) -> Size:
        """Returns the size of a failing run."""
        scenario = scenario_of(failing.data)
        assert scenario is not None, failing.data
        return cls(
            steps=len(scenario.steps),
            clients=sum(client_counts(scenario).values()),
            sends=failing.outcome.sends,
            events=failing.outcome.events,
        )

    def __str__(self) -> str:
        return f"{self.steps} steps, {self.clients} clients, {self.sends} sends, {self.events} events"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """The result of a shrink. `is_interrupted` says that Ctrl-C ended the search: the result is the best until then."""

    first: Failing
    last: Failing
    bug: str | None
    trials: int
    cpu_s: float
    is_interrupted: bool
    proof: Proof
    curve: tuple[Point, ...]
    turning_point: TurningPoint | None
    critical_pair: CriticalPair | None

    def replay(self, path: str) -> str:
        """Returns the command that repeats the failure from the file at `path`."""
        return _replay(self.last, self.bug, path)

    def story(self) -> list[str]:
        scenario = scenario_of(self.last.data)
        assert scenario is not None, self.last.data
        return five_lines(self.last, scenario)

    def as_json(self, path: str) -> dict[str, object]:
        """Returns the result as `replog sim shrink --json` prints it; `path` is the file of the scenario."""
        return {
            "signature": self.first.outcome.signature,
            "seed": self.last.seed,
            "bug": self.bug,
            "before": asdict(Size.of(self.first)),
            "after": asdict(Size.of(self.last)),
            "trials": self.trials,
            "cpu_s": round(self.cpu_s, 1),
            "interrupted": self.is_interrupted,
            "proof": asdict(self.proof),
            "story": self.story(),
            "likelihood": [asdict(point) for point in self.curve],
            "turning_point": None if self.turning_point is None else asdict(self.turning_point),
            "critical_pair": None if self.critical_pair is None else asdict(self.critical_pair),
            "file": path,
            "replay": self.replay(path),
        }

    def lines(self, path: str) -> Iterator[str]:
        """Yields the result for a reader."""
        yield f"fails: {self.last.outcome.reason}"
        yield f"before: {Size.of(self.first)}"
        yield f"after: {Size.of(self.last)}"
        yield f"search: {self.trials} runs, {self.cpu_s:.1f} s of processor time"
        same = "the same run each time" if self.proof.is_same_run else "the runs differ"
        yield f"proof: {self.proof.failed} of {self.proof.runs} runs failed in two new interpreters, {same}"
        yield "story:"
        yield from (f"  {line}" for line in self.story())
        if self.curve:
            yield from self._curve_lines()
            yield from self._pair_lines()
        yield f"file: {path}"
        yield f"replay: {self.replay(path)}"

    def _curve_lines(self) -> Iterator[str]:
        yield "likelihood, with fresh randomness from a time on:"
        for point in self.curve:
            share = 100 * point.failed // point.runs
            when = f"{point.at_us / 1e6:9.3f} s" if point.at_us >= 0 else "nothing left"
            yield f"  {when:>12}  event {point.event:6}  {share:3} %  {'#' * (share // 5)}".rstrip()
        if self.turning_point is not None:
            event, at_s = self.turning_point.event, self.turning_point.at_us / 1e6
            yield f"turning point: event {event} at {at_s:.6f} s: fresh from there on the run holds, one later it fails"
        elif self.curve[0].failed == self.curve[0].runs:
            yield "turning point: none, it fails with any randomness"

    def _pair_lines(self) -> Iterator[str]:
        if self.critical_pair is not None:
            yield from self.critical_pair.lines()
        else:
            yield "critical pair: none, it fails in every order tried"


def file_text(last: Failing, bug: str | None, path: str) -> str:
    """Returns the minimal scenario as the file at `path`, with what it shows and how to run it."""
    head = [f"Fails with seed {last.seed}: {last.outcome.reason}", _replay(last, bug, path)]
    return as_yaml(last.data, head)


def _replay(last: Failing, bug: str | None, path: str) -> str:
    # Without a slash and a suffix it would be the name of a bundled scenario.
    source = path if "/" in path or Path(path).suffix else f"./{path}"
    return replay_command(source, last.seed, bug, stops_early=True)


def shrink_failure(
    data: Data, seed: int, bug: str | None, *,
    jobs: int, budget_s: float, most_trials: int, cpu_clock: CpuClock, on_smaller: OnSmaller, on_found: OnFound,
) -> Shrunk:  # fmt: skip
    """Shrink the failure of a scenario with a seed, prove the result, and find out when and by what it is decided.

    The budget bounds the search; `on_found` gets its result, before proof and likelihood, which come on top. Raises
    NothingFails.
    """
    assert jobs > 0, jobs
    forks = Forks(bug, jobs)
    outcome = forks.run(Trial(data=data, seed=seed))
    if not outcome.signature:
        why = f"{outcome.reason} and has not failed by then" if outcome.took_longer else "does not fail"
        raise NothingFails(f"nothing to shrink: the run with seed {seed} {why}")
    first = Failing(data=data, seed=seed, outcome=outcome)
    search = Search(
        first, forks,
        may_go_on=lambda count: count < most_trials and cpu_clock() < budget_s, on_smaller=on_smaller,
    )  # fmt: skip
    is_whole = shrink(search, PASSES)
    cpu_s = cpu_clock()
    small = search.best.data
    try:
        small = neat(small)
    except KeyboardInterrupt:
        is_whole = False
    last = Failing(data=small, seed=search.best.seed, outcome=search.best.outcome)
    on_found(last)
    curve, turn, pair = _when(last, bug, jobs) if is_whole else ((), None, None)
    return Shrunk(
        first=first, last=last, bug=bug, trials=search.count, cpu_s=cpu_s, is_interrupted=not is_whole,
        proof=prove(last, outcome.signature, bug), curve=curve, turning_point=turn,
        critical_pair=pair,
    )  # fmt: skip


def _when(
    last: Failing, bug: str | None, jobs: int
) -> tuple[tuple[Point, ...], TurningPoint | None, CriticalPair | None]:
    """Returns the curve, the turning point and the critical pair; none of a run that an error of the product ended."""
    if not last.outcome.events:
        return (), None, None
    turn = turning_point(last, bug)
    near = last.outcome.events if turn is None else turn.event
    return tuple(likelihood(last, bug, jobs)), turn, critical_pair(last, bug, near, jobs)
