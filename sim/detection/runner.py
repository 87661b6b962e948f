"""Runs searches side by side, each run in a process that is forked from a warmed parent."""

from __future__ import annotations

import math
import resource
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Protocol, final

from sim.cpu_limit import MOST_CPU_S, Hung
from sim.detection.search import Probe, Row, Search
from sim.seeds import ERROR, SeedProcess, error_text
from sim.swarm.job import SwarmJob


class Runner(Protocol):
    """Does runs, several at the same time."""

    def begin(self, search: Search) -> None:
        """Start the run that the search asks for now."""

    def ended(self) -> list[tuple[Search, Probe, Row]]:
        """Wait until a run has ended; returns those that have, with their rows."""


def search_all(searches: Iterable[Search], runner: Runner, *, jobs: int) -> Iterator[Search]:
    """Yields each search when it is over; at most `jobs` of them are under way."""
    assert jobs > 0, jobs
    left, under_way = iter(searches), 0
    while True:
        while under_way < jobs and (search := next(left, None)) is not None:
            runner.begin(search)
            under_way += 1
        if not under_way:
            return
        for search, probe, row in runner.ended():
            search.add(probe, row)
            if not search.is_over:
                runner.begin(search)
                continue
            under_way -= 1
            yield search


@final
class ProcessRunner:
    """A process for each run; `close` ends those that still run."""

    def __init__(self, cpu_s: Callable[[], float]) -> None:
        """`cpu_s` returns the processor time of the process that calls it."""
        self._cpu_s = cpu_s
        self._running: dict[Connection, tuple[Search, Probe, SeedProcess]] = {}

    def begin(self, search: Search) -> None:
        """Start a process that does the run that the search asks for now."""
        probe = search.next_probe()
        job = SwarmJob(bug=probe.bug, is_search=True)
        work = ProbeWork(job=job, limit_s=probe.limit_s, cpu_s=self._cpu_s)
        process = SeedProcess(work, probe.seed, MOST_CPU_S)
        self._running[process.receiver] = (search, probe, process)

    def ended(self) -> list[tuple[Search, Probe, Row]]:
        """Wait until a process has ended; returns what those that have ended sent."""
        assert self._running, "no run to wait for"
        found = []
        for receiver in wait(list(self._running)):
            assert isinstance(receiver, Connection)
            search, probe, process = self._running.pop(receiver)
            found.append((search, probe, process.result().row))
        return found

    def close(self) -> None:
        for _, _, process in self._running.values():
            process.end()
        self._running.clear()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeWork:
    """A drawn run whose row has its processor time as `cpu_s`. The run is ended when it takes more than the limit."""

    job: SwarmJob
    limit_s: float
    cpu_s: Callable[[], float]

    @property
    def title(self) -> str:
        return self.job.title

    def replay(self, seed: int) -> str:
        return self.job.replay(seed)

    def run(self, seed: int) -> Row:
        """Run the seed. A broken assert of the product is a result too, and has its time."""
        _limit_cpu(self.limit_s + self.cpu_s())
        try:
            row = self.job.run(seed)
        except (Exception, Hung) as error:
            row = {ERROR: error_text(error)}
        return row | {"cpu_s": self.cpu_s()}


def _limit_cpu(limit_s: float) -> None:
    """Let the operating system end this process when it has used that much processor time, rounded up."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(limit_s) + 1
    resource.setrlimit(
        resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard)
    )
