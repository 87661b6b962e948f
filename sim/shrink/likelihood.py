"""When a failure becomes certain: its run again with fresh randomness from some event on.

Up to a cut the run is as it was, draw for draw. After it every draw is another one, so the world goes on in another
way: messages take other times, clients other pauses. The share of such runs that fail, over the cuts, rises where the
failure is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Any, final

from sim.bugs.planting import Replacement, replaced
from sim.seeds import run_seeds
from sim.shrink.families import are_alike
from sim.shrink.replay import run_changed
from sim.shrink.search import Failing
from sim.shrink.trial import outcome_of
from sim.world.time import World
from storage.draws import Draws

CUTS = 12
RUNS_A_CUT = 8
# Every draw of a run ends in one of these.
_SOURCES = ("sim.world.streams:Stream.bits", "storage.draws:Draws.bits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """How many of some runs failed that were fresh from event number `event` on, at `at_us` of the first run."""

    event: int
    at_us: int
    runs: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurningPoint:
    """Two runs that part at one event: fresh from event `event` on it holds, fresh from the next one on it fails."""

    event: int
    at_us: int


@final
class FreshDraws:
    """Replaces every draw from one event of a world on. `at_us` is the time of the first one, or -1."""

    def __init__(self, world: World, event: int, variant: int) -> None:
        self._world, self._event = world, event
        # Random bits stay random under exclusive or.
        self._mask = Draws(variant).bits("fresh")
        self.at_us = -1

    def _fresh(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def bits(*arguments: object) -> int:
            drawn: int = original(*arguments)
            if self._world.events < self._event:
                return drawn
            if self.at_us < 0:
                self.at_us = self._world.now_us
                self._world.draw_ties_again(self._mask)
            return drawn ^ self._mask

        return bits

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """Replace the draws of the block."""
        first, second = (Replacement(target=source, make=self._fresh) for source in _SOURCES)
        with replaced(first), replaced(second):
            yield


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """The work of many processes: a failing run, fresh from an event on; number N is the N-th of `asked`."""

    failing: Failing
    bug: str | None
    # The event from which a run is fresh, and which of the fresh runs it is.
    asked: Sequence[tuple[int, int]]

    @property
    def title(self) -> str:
        return "likelihood"

    def run(self, seed: int) -> dict[str, Any]:
        """Run number `seed`. The row says where the run became fresh."""
        event, variant = self.asked[seed]
        made: list[FreshDraws] = []

        def change(world: World) -> AbstractContextManager[None]:
            made.append(FreshDraws(world, event, variant))
            return made[0].replacing()

        row = run_changed(self.failing, self.bug, change)
        return row | {"seed": seed, "fresh_at_us": made[0].at_us}

    def replay(self, seed: int) -> str:
        return ""

    def results(self, jobs: int) -> Iterator[tuple[bool, int]]:
        """Yields whether each run failed alike, and when it became fresh."""
        with closing(run_seeds(self, range(len(self.asked)), jobs=jobs)) as results:
            for result in results:
                signature = outcome_of(result).signature
                alike = are_alike(signature, self.failing.outcome.signature)
                yield alike, result.row.get("fresh_at_us", -1)


def likelihood(failing: Failing, bug: str | None, jobs: int) -> list[Point]:
    """Returns the curve, from the start of the run to its failure."""
    events = sorted({failing.outcome.events * cut // CUTS for cut in range(CUTS)})
    asked = [(event, variant) for event in events for variant in range(1, RUNS_A_CUT + 1)]
    results = list(Restarts(failing=failing, bug=bug, asked=asked).results(jobs))
    assert len(results) == len(asked), (len(results), len(asked))
    points = []
    for number, event in enumerate(events):
        runs = results[number * RUNS_A_CUT : (number + 1) * RUNS_A_CUT]
        times = [at_us for _, at_us in runs if at_us >= 0]
        points.append(
            Point(
                event=event, at_us=min(times, default=-1), runs=len(runs), failed=sum(alike for alike, _ in runs)
            )
        )  # fmt: skip
    return points


def turning_point(failing: Failing, bug: str | None) -> TurningPoint | None:
    """Returns the event that decides, by bisection; None if the first fresh variants all fail from the start."""

    def fails(event: int, variant: int) -> tuple[bool, int]:
        (result,) = Restarts(failing=failing, bug=bug, asked=[(event, variant)]).results(1)
        return result

    for variant in range(1, RUNS_A_CUT + 1):
        if fails(0, variant)[0]:
            continue
        holds, fails_from, at_us = 0, failing.outcome.events, 0
        while fails_from - holds > 1:
            middle = (holds + fails_from) // 2
            alike, fresh_at_us = fails(middle, variant)
            if alike:
                fails_from = middle
            else:
                holds, at_us = middle, fresh_at_us
        assert holds < fails_from, (holds, fails_from)
        return TurningPoint(event=holds, at_us=at_us)
    return None
