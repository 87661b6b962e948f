"""Measures the simulator: `python -m bench simulate [--before REV]`, in CPU time, which other work disturbs less.

Three nodes at 50 records a second are run with everything on, without a trace and without checkers, in turns, and with
`--before` in the checkout of that commit too. Simulated seconds alone could be bought by a lighter load, so steps and
records a CPU-second stand beside them, and the seeds of whole scenarios with their faults.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import simpy

from bench.children import Child, code_of
from bench.cluster import ROOT
from bench.paired import MARK, worktree
from bench.table import Line

BARE_EVENTS = 200_000
BARE_PROCESSES = 100
ROUNDS = 6
STEADY = """
scenario: steady
duration: {seconds}s
topics: {{t: {{partitions: 1, replicas: 3, config: {{min.insync.replicas: 2}}}}}}
producers: [{{topic: t, rate: 50/s}}]
consumers: [{{topic: t}}]
"""
# Short runs, so that other work meets all kinds alike.
STEADY_S = 15
WARM_UP_S = 3
LARGE = """
scenario: large
duration: 10s
cluster: {brokers: 5}
topics: {t: {partitions: 50, replicas: 3, config: {min.insync.replicas: 2}}}
producers: [{topic: t, rate: 500/s}]
consumers: [{topic: t}]
"""
# Whole scenarios, each with a fault that ends a process, a machine or a link.
SEEDED = ("leader-crash", "all-power-loss", "bad-network")
# The first version that was measured, and how much faster the simulator is to be.
FIRST, OVER_FIRST = "fda2c59", 1.85
MOST_SHARE_PERCENT = 12.0
LARGE_MARK = 3.0
LONG_S = 600
# What a second costs at the end of a long run, and what the run holds then, over a tenth of it.
MOST_GROWTH = 1.1
GROWTH_TURNS = 6
PARTS = ("", "trace", "checkers")

Answer = dict[str, Any]


def bare_events_per_s() -> float:
    """Run only SimPy's own time-outs, in a hundred processes; returns the events a CPU-second."""
    environment = simpy.Environment()

    def ticking() -> Generator[simpy.Event, None, None]:
        for _ in range(BARE_EVENTS // BARE_PROCESSES):
            yield environment.timeout(1)

    for _ in range(BARE_PROCESSES):
        environment.process(ticking())
    start = time.process_time()
    environment.run()
    return BARE_EVENTS / (time.process_time() - start)


def simulating(tree: Path) -> Child:
    """Returns a process that runs scenarios with the code of the checkout."""
    # `-P`: the folder of the script, which has files of the same names as the packages, is no place for imports.
    return Child(["-P", str(ROOT / "bench" / "simulated.py")], env=code_of(tree))


def run(arguments: Sequence[str] = ()) -> list[Line]:
    """Measure as the command line says: two minutes, three with `--before`."""
    parser = argparse.ArgumentParser(prog="python -m bench simulate")
    parser.add_argument("--before", metavar="REV", help="the commit to compare with")
    before: str | None = parser.parse_args(arguments).before
    with ExitStack() as stack:
        old = stack.enter_context(worktree(before)) if before else None
        now = stack.enter_context(simulating(ROOT))
        then = stack.enter_context(simulating(old)) if old else None
        rounds = _rounds(now, then)
        lines = _speed(rounds) + _shares(rounds)
        if before and then:
            lines[1:1] = [_over(before, rounds)]
        lines.append(_seeds(now, then))
    return [*lines, *_growth(), _large()]


def steady(child: Child, without: str = "", seconds: int = STEADY_S) -> Answer:
    """Run three nodes at 50 records a second in the child."""
    answer: Answer = child.ask(what="run", text=STEADY.format(seconds=seconds), without=without)
    # Without its checkers a run cannot say that everything held.
    assert without == "checkers" or answer["verdict"] == "held", answer
    return answer


def _rounds(now: Child, then: Child | None) -> list[dict[str, Answer]]:
    """Returns rounds of one run of each kind, by what is left out; `before` is that of the other commit."""
    kinds = [(part, now, part) for part in PARTS]
    if then is not None:
        # Beside the run that it is compared with.
        kinds.insert(1, ("before", then, ""))
        steady(then, seconds=WARM_UP_S)
    steady(now, seconds=WARM_UP_S)
    # Each is first in every second round.
    orders = [kinds if number % 2 == 0 else kinds[::-1] for number in range(ROUNDS)]
    return [{name: steady(child, without) for name, child, without in order} for order in orders]


def _a_cpu_second(answer: Answer, what: str = "simulated_s") -> float:
    return float(answer[what] / answer["cpu_s"])


def _median(rounds: Sequence[dict[str, Answer]], what: str) -> float:
    return statistics.median(_a_cpu_second(each[""], what) for each in rounds)


def _speed(rounds: Sequence[dict[str, Answer]]) -> list[Line]:
    steps = _median(rounds, "steps")
    return [
        Line(
            what="simulator, 3 nodes at 50 records/s",
            value=_median(rounds, "simulated_s"),
            unit="simulated seconds a CPU-second",
            detail=f"{_median(rounds, 'records'):,.0f} records and {steps:,.0f} steps a CPU-second",
        ),
        Line(
            what="its steps, each of real code",
            value=steps / bare_events_per_s(),
            unit="of bare SimPy time-outs",
        ),
    ]


def _over(before: str, rounds: Sequence[dict[str, Answer]]) -> Line:
    pairs = [(_a_cpu_second(each["before"]), _a_cpu_second(each[""])) for each in rounds]
    return Line(
        what=f"over the simulator of {before[:12]}",
        value=statistics.median(now / then for then, now in pairs),
        unit="times",
        target=OVER_FIRST if before.startswith(FIRST) else MARK,
        detail="; ".join(f"{then:.1f} -> {now:.1f}" for then, now in pairs),
    )


def _shares(rounds: Sequence[dict[str, Answer]]) -> list[Line]:
    """Returns what part of a run's CPU time the trace takes, and what part the checkers."""
    lines = []
    for part in ("trace", "checkers"):
        shares = [100 * (1 - each[part]["cpu_s"] / each[""]["cpu_s"]) for each in rounds]
        lines.append(
            Line(
                what=f"share of the {part}",
                value=statistics.median(shares),
                unit="% of the CPU time",
                target=MOST_SHARE_PERCENT,
                lower_is_better=True,
                detail="; ".join(f"{share:.1f}" for share in shares),
            )
        )
    return lines


def _seeds(now: Child, then: Child | None) -> Line:
    """Measures whole scenarios, with all faults and the judgement at the end."""
    texts = [(ROOT / "scenarios" / f"{name}.yaml").read_text() for name in SEEDED]
    hourly = []
    for child in (now, then) if then else (now,):
        cpu_s = [child.ask(what="run", text=text)["cpu_s"] for text in texts]
        hourly.append(3600 * len(cpu_s) / sum(cpu_s))
    return Line(
        what=f"seeds of {', '.join(SEEDED)}",
        value=hourly[0],
        unit="a CPU-hour",
        detail=f"{hourly[1]:,.0f} before" if then else "",
    )


def _growth() -> list[Line]:
    """Measures the cost of a second and the memory late in a long run, over those early in one, in turns."""
    text, half = STEADY.format(seconds=LONG_S), LONG_S // 20
    with simulating(ROOT) as short, simulating(ROOT) as long:
        starts = {short: half, long: LONG_S - half}
        for child, start_s in starts.items():
            child.ask(what="advance", text=text, to_s=start_s)
        costs = {child: 0.0 for child in starts}
        for turn in range(1, GROWTH_TURNS + 1):
            found = {}
            for child, start_s in starts.items():
                found[child] = child.ask(
                    what="advance", text=text, to_s=start_s + turn * half // GROWTH_TURNS
                )
                costs[child] += found[child]["cpu_s"]
    early, late = found[short], found[long]
    # The logs have no retention, so their disks must keep every record: only what the run has beside them is judged.
    beside = [each["bytes"] - each["disk_bytes"] for each in (early, late)]
    kept = (beside[1] - beside[0]) / (late["records"] - early["records"])
    tenth = 2 * half
    return [
        Line(
            what=f"a second at {LONG_S} s over one at {tenth} s",
            value=costs[long] / costs[short],
            unit="of its CPU time",
            target=MOST_GROWTH,
            lower_is_better=True,
        ),
        Line(
            what=f"memory at {LONG_S} s over that at {tenth} s, without the bytes on the simulated disks",
            value=beside[1] / beside[0],
            unit="times",
            target=MOST_GROWTH,
            lower_is_better=True,
            detail=(
                f"{beside[0] / 1e6:.0f} and {beside[1] / 1e6:.0f} MB, {kept:,.0f} bytes a record; on the disks "
                f"{early['disk_bytes'] / 1e6:.1f} and {late['disk_bytes'] / 1e6:.1f} MB"
            ),
        ),
    ]


def _large() -> Line:
    with simulating(ROOT) as child:
        answer = child.ask(what="run", text=LARGE)
    return Line(
        what="5 nodes, 50 partitions, 500 records/s",
        value=_a_cpu_second(answer),
        unit="simulated seconds a CPU-second",
        target=LARGE_MARK,
        detail=f"{_a_cpu_second(answer, 'records'):,.0f} records a CPU-second; {answer['verdict']}",
    )
