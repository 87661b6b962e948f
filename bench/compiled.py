"""Measures the compiled build beside the interpreter and the first simulator: `python -m bench compiled`.

`make compiled` must have made it of the present files. All processes take turns. CPU time is compared, which other work
disturbs less; the three nodes are compared by batches a second too.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from bench.children import Child, code_of
from bench.cluster import BATCH_BYTES, ROOT
from bench.paired import measured, worktree
from bench.simulate import FIRST, ROUNDS, STEADY_S, WARM_UP_S, simulating, steady
from bench.table import Line

BUILT = ROOT / "build" / "compiled"
# How much faster than the first simulator the compiled one is to be.
OVER_FIRST = 3.3
STORED_ROUNDS = 5
NODE_ROUNDS = 2


def is_made() -> bool:
    """Whether the compiled build is there, and was made from the files as they are."""
    command = [sys.executable, str(ROOT / "tools" / "compiled.py"), "status"]
    return subprocess.run(command, check=False).returncode == 0


def run() -> list[Line]:
    """Measure the simulator, appends and fetches, and three nodes: two minutes. Returns nothing without a build."""
    if not is_made():
        print("the compiled build is not measured: run `make compiled`", file=sys.stderr)
        return []
    return [*_simulator(), *_storage(), *_nodes()]


def _simulator() -> list[Line]:
    """Returns the simulated seconds a CPU-second of the build, over those of the interpreter and of the first one."""
    with ExitStack() as stack:
        first = stack.enter_context(worktree(FIRST))
        trees = {"first": first, "interpreted": ROOT, "compiled": BUILT}
        children = {name: stack.enter_context(simulating(tree)) for name, tree in trees.items()}
        for child in children.values():
            steady(child, seconds=WARM_UP_S)
        rounds = [
            {name: STEADY_S / steady(child)["cpu_s"] for name, child in children.items()}
            for _ in range(ROUNDS)
        ]
    speeds = {name: statistics.median(each[name] for each in rounds) for name in trees}
    return [
        Line(
            what="compiled simulator, 3 nodes at 50 records/s",
            value=speeds["compiled"],
            unit="simulated seconds a CPU-second",
            detail=f"interpreted {speeds['interpreted']:.1f}, {FIRST} {speeds['first']:.1f}",
        ),
        Line(
            what=f"  over the simulator of {FIRST}",
            value=statistics.median(each["compiled"] / each["first"] for each in rounds),
            unit="times",
            target=OVER_FIRST,
        ),
        Line(
            what="  over the interpreted one",
            value=statistics.median(each["compiled"] / each["interpreted"] for each in rounds),
            unit="times",
        ),
    ]


def _storage() -> list[Line]:
    trees = {"interpreted": ROOT, "compiled": BUILT}
    with ExitStack() as stack:
        children = {name: stack.enter_context(_storing(tree)) for name, tree in trees.items()}
        rounds = [{name: child.ask() for name, child in children.items()} for _ in range(STORED_ROUNDS)]
    return [
        Line(
            what=f"compiled {part}, 1 KiB batches",
            value=statistics.median(each["interpreted"][part] / each["compiled"][part] for each in rounds),
            unit="times as many a CPU-second",
            detail=f"{_median_us(rounds, 'interpreted', part)} -> {_median_us(rounds, 'compiled', part)} µs",
        )
        for part in ("leader append", "fetch")
    ]


def _storing(tree: Path) -> Child:
    return Child(["-P", str(ROOT / "bench" / "stored.py")], env=code_of(tree))


def _median_us(rounds: list[dict[str, dict[str, float]]], name: str, part: str) -> str:
    return f"{statistics.median(each[name][part] for each in rounds):.1f}"


def _nodes() -> list[Line]:
    turns = [measured((ROOT, BUILT), BATCH_BYTES, False) for _ in range(NODE_ROUNDS)]
    return [
        Line(
            what="compiled: three nodes, acks=all, 16 KiB batches",
            value=statistics.median(each[BUILT].per_s / each[ROOT].per_s for each in turns),
            unit="times the interpreted batches/s",
            detail="; ".join(f"{each[ROOT].per_s:,.0f} -> {each[BUILT].per_s:,.0f}" for each in turns),
        ),
        Line(
            what="  CPU of a batch, nodes and client",
            value=statistics.median(each[BUILT].cpu_us / each[ROOT].cpu_us for each in turns),
            unit="of the interpreted",
            lower_is_better=True,
            detail="; ".join(f"{each[ROOT].cpu_us:,.0f} -> {each[BUILT].cpu_us:,.0f} µs" for each in turns),
        ),
    ]
