"""One of the two interpreters of a double run: `python -m sim.determinism.side`.

It reads its work as JSON from standard input and writes a line of JSON for each seed. The parent chooses hash seed,
working directory and environment; the work says how the runs themselves differ: each seed in a fork of a warmed parent
or all in one process, with garbage collection or without, with a trace file or without.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sim.bundled import find_scenario
from sim.determinism.draw_digest import DrawDigest
from sim.determinism.guard import guarded
from sim.run import Run
from sim.scenario.loading import load_scenario
from sim.scenario.model import Scenario
from sim.seed_range import Seeds
from sim.swarm.drawing import NAME as DRAWN
from sim.swarm.drawing import draw
from sim.world.time import without_garbage_collection

# Objects that are allocated between two collections: a run has thousands of collections then.
_ALLOCATIONS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The runs of one side.

    `scenario` is the whole path of a file or a name of a bundled scenario, `swarm` for the scenario that is drawn from
    each seed, or `module:function` for a function that returns the scenario of a seed. `plant` is `module:function` for
    a context manager that plants a mistake first. `is_reversed` runs the last seed first. `trace` is the file of the
    last run's trace; without one the trace is hashed only, or written to nowhere if `is_traced`.
    """

    scenario: str
    seeds: Seeds
    is_forked: bool
    is_reversed: bool
    is_collecting: bool
    is_traced: bool
    is_guarded: bool = True
    plant: str = ""
    trace: str = ""

    @classmethod
    def from_json(cls, text: str) -> Work:
        members: dict[str, Any] = json.loads(text)
        return cls(**members | {"seeds": Seeds(**members["seeds"])})

    def as_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run was: equal in every interpreter. `error` is the text of what ended it, or empty.

    Trace hash, draws and events of a run that an error ended are those up to it.
    """

    trace_hash: str = ""
    draws: str = ""
    verdict: str = ""
    events: int = 0
    error: str = ""


def resolve(name: str) -> Callable[..., Any]:
    """Returns the function that `module:function` names."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def _scenario_of(work: Work, seed: int) -> Scenario:
    """Returns the scenario that the work runs with the seed; it is read before the guard stands."""
    # A path may have colons too.
    if ":" in work.scenario and "/" not in work.scenario:
        scenario = resolve(work.scenario)(seed)
        assert isinstance(scenario, Scenario), type(scenario)
        return scenario
    if work.scenario == DRAWN:
        return draw(seed).scenario
    return load_scenario(find_scenario(work.scenario))


@contextmanager
def _collecting() -> Iterator[None]:
    """Collect garbage often, where a run collects none: objects end at other moments, and nothing may notice."""
    before, was_enabled = gc.get_threshold(), gc.isenabled()
    gc.set_threshold(_ALLOCATIONS, 2, 2)
    gc.enable()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not was_enabled:
            gc.disable()


def run_one(work: Work, seed: int) -> Outcome:
    """Run one seed. An error that ends the run is a result too: it and all before it must be the same on both sides."""
    digest, scenario = DrawDigest(), _scenario_of(work, seed)
    trace = work.trace or (os.devnull if work.is_traced else "")
    guard: AbstractContextManager[None] = guarded() if work.is_guarded else nullcontext()
    collector = _collecting() if work.is_collecting else without_garbage_collection()
    with ExitStack() as stack:
        file = stack.enter_context(Path(trace).open("wb")) if trace else None
        verdict, error, run = "", "", None
        try:
            with digest.watching(), guard, collector:
                run = Run(scenario, seed, file)
                verdict = run.go("").verdict.value
        except Exception as ended:
            error = f"{type(ended).__name__}: {ended}"
        return Outcome(
            trace_hash="" if run is None else run.trace.finish(),
            draws=f"{digest.count}:{digest.value:016x}",
            verdict=verdict,
            events=0 if run is None else run.world.events,
            error=error,
        )


def _report(work: Work, seed: int) -> None:
    """Run one seed and write its line in one piece."""
    line = json.dumps({"seed": seed} | asdict(run_one(work, seed))) + "\n"
    os.write(sys.stdout.fileno(), line.encode())


def _report_from_fork(work: Work, seed: int) -> None:
    """Run one seed in a fork of this process, which stays as it is."""
    child = os.fork()
    if child == 0:
        try:
            _report(work, seed)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    # The child has told why, or a signal ended it.
    if status != 0:
        raise SystemExit(f"the run of seed {seed} ended: wait status {status}" if status < 256 else 1)


def main() -> None:
    """Runs the work that standard input holds."""
    work = Work.from_json(sys.stdin.read())
    with resolve(work.plant)() if work.plant else nullcontext():
        numbers = range(work.seeds.first, work.seeds.end)
        for seed in reversed(numbers) if work.is_reversed else numbers:
            (_report_from_fork if work.is_forked else _report)(work, seed)


if __name__ == "__main__":
    main()
