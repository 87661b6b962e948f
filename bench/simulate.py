"""Measures the simulator: its events a second over those of bare SimPy, and its simulated seconds a second."""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Generator

import simpy

from bench.table import Line
from sim.run import Verdict, run_scenario
from sim.scenario.model import parse_scenario

BARE_EVENTS = 200_000
BARE_PROCESSES = 100
ROUNDS = 3
STEADY = """
scenario: steady
duration: 60s
topics: {t: {partitions: 1, replicas: 3, config: {min.insync.replicas: 2}}}
producers: [{topic: t, rate: 50/s}]
consumers: [{topic: t}]
"""


def bare_events_per_s() -> float:
    """Run only SimPy's own time-outs, in a hundred processes; returns the events a second."""
    environment = simpy.Environment()

    def ticking() -> Generator[simpy.Event, None, None]:
        for _ in range(BARE_EVENTS // BARE_PROCESSES):
            yield environment.timeout(1)

    for _ in range(BARE_PROCESSES):
        environment.process(ticking())
    start = time.perf_counter()
    environment.run()
    return BARE_EVENTS / (time.perf_counter() - start)


def steady() -> tuple[float, float]:
    """Run three nodes at 50 records a second, with checkers and trace.

    Returns events a second and simulated seconds a second.
    """
    scenario = parse_scenario(STEADY, "steady.yaml")
    start = time.perf_counter()
    result = run_scenario(scenario, 7, trace_file=io.BytesIO())
    seconds = time.perf_counter() - start
    assert result.verdict is Verdict.HELD, result.violations
    return result.events / seconds, result.simulated_ms / 1000 / seconds


def run() -> list[Line]:
    """Measure both in turns, and compare the medians."""
    pairs = [(bare_events_per_s(), *steady()) for _ in range(ROUNDS)]
    over_bare = statistics.median(events / bare for bare, events, _ in pairs)
    events = statistics.median(events for _, events, _ in pairs)
    simulated = statistics.median(each for _, _, each in pairs)
    return [
        Line(
            what="simulator, 3 nodes at 50 records/s",
            value=over_bare,
            unit="of bare SimPy time-outs a second",
            detail=f"{events:,.0f} events/s, each a step of real code",
        ),
        Line(what="simulator, checkers and trace on", value=simulated, unit="simulated seconds a second"),
    ]
