"""A process that runs scenarios in the checkout that its PYTHONPATH names: `python -P bench/simulated.py`.

Each line on its standard input is an order, each answer one line (`bench/children.py`). The checkout may be an older
one, so nothing here is imported from `bench`. What an order leaves out, the trace or the checkers, is replaced in this
process alone: the product has no such switch.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, final
from unittest.mock import patch

SEED = 7
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Nowhere(io.RawIOBase):
    """A file for a trace that nobody reads."""

    def write(self, data: Any) -> int:
        return len(data)


class Blind:
    """A part of a watcher that looks at nothing, whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        # The next call takes no way round.
        setattr(self, name, nothing)
        return nothing


class Unwatched(Blind):
    """A watcher that asks no checker. It writes the lines of the trace and the story, which are no part of them."""

    def __init__(self, chronicle: Any, *parts: object) -> None:
        self._chronicle, self.parts = chronicle, parts
        # The run itself looks at these.
        self.standing = Blind()

    def on_observes(self, shell: Any, observes: list[Any]) -> None:
        """Write the observations of one step down."""
        for observe in observes:
            self._chronicle.observe(shell.name, observe)


def nothing(*arguments: object, **options: object) -> None:
    """Do nothing."""


def parse(text: str) -> Any:
    """Returns the scenario; older checkouts have the parser in another file."""
    for name in ("sim.scenario.loading", "sim.scenario.model", "sim.scenario"):
        try:
            module: Any = importlib.import_module(name)
        except ModuleNotFoundError as error:
            # A fault within such a file is no older form; of the oldest, `sim.scenario` is no package.
            if error.name not in (name, name.rpartition(".")[0]):
                raise
            continue
        if hasattr(module, "parse_scenario"):
            return module.parse_scenario(text, "bench.yaml")
    raise ImportError("the checkout has no parser of scenarios")


def leave_out(what: str, stack: ExitStack) -> None:
    """Replace the trace or the checkers until the stack ends."""
    if what == "trace":
        stack.enter_context(patch("sim.hosts.shell._describe", lambda *parts: ("", "")))
        for name in ("event", "fields"):
            stack.enter_context(patch(f"sim.world.trace.Trace.{name}", nothing))
    elif what == "checkers":
        stack.enter_context(patch("sim.run.Watch", Unwatched))
        stack.enter_context(patch("sim.witness.witness.Witness.look", nothing))


def run(text: str, seed: int = SEED, without: str = "") -> dict[str, object]:
    """Run a scenario; returns its CPU time, and what was simulated in it."""
    scenario, run_scenario = parse(text), importlib.import_module("sim.run").run_scenario
    with ExitStack() as stack:
        leave_out(without, stack)
        start = time.process_time()
        result = run_scenario(scenario, seed, trace_file=io.BytesIO())
        cpu_s = time.process_time() - start
    return {
        "cpu_s": cpu_s,
        "simulated_s": result.simulated_ms / 1000,
        "steps": result.events,
        "records": result.operations["ok"],
        "verdict": str(result.verdict.value),
    }


@final
class Longer:
    """A run that is advanced in parts, and never judged."""

    def __init__(self) -> None:
        self._run: Any = None

    def advance(self, text: str, to_s: int) -> dict[str, object]:
        """Begin the run with the first order, and run it until `to_s`; returns what that took and what it has kept."""
        module = importlib.import_module("sim.run")
        with module.without_garbage_collection():
            if self._run is None:
                self._run = module.Run(parse(text), SEED, Nowhere())
                self._run.begin()
            start = time.process_time()
            while self._run.world.now_us < to_s * 1_000_000:
                self._run.world.run_to(self._run.world.now_us + module.LOOK_US)
                self._run.witness.look(self._run.cluster.controller.runs_since_us)
            cpu_s = time.process_time() - start
        with open("/proc/self/statm") as file:
            resident_bytes = int(file.read().split()[1]) * PAGE_BYTES
        nodes = [*self._run.cluster.brokers.values(), self._run.cluster.controller]
        return {
            "cpu_s": cpu_s,
            "bytes": resident_bytes,
            "disk_bytes": sum(node.disk.held_bytes() for node in nodes),
            "records": len(self._run.history.sends),
        }


def main() -> None:
    """Answer the orders until the input ends."""
    actions: dict[str, Callable[..., dict[str, object]]] = {"run": run, "advance": Longer().advance}
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(actions[order.pop("what")](**order)), flush=True)


if __name__ == "__main__":
    main()
