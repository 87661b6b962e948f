"""Runs one scenario with many seeds, several at the same time, each in a new process.

No two runs share a process: a leaked cache or a killed process of one seed must not affect the next.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, SpawnContext
from pathlib import Path
from typing import Any, final

from sim.run import Verdict, replay_command, run_scenario
from sim.seed_range import Seeds

ERROR = "error"
# How many results may wait for an earlier seed that takes longer.
MOST_WAITING = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What every run shares: the scenario's file, its name in the command that replays a run, and a planted bug."""

    path: Path
    source: str
    bug: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedResult:
    """The result of one seed: the keys of `replog sim run --json`, or those of a process that failed.

    `reason` says in one line what did not hold; it is empty if everything did.
    """

    seed: int
    verdict: str
    reason: str
    replay: str
    row: dict[str, Any]


def default_jobs() -> int:
    """Returns the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_seeds(
    job: Job, seeds: Seeds, *, jobs: int, on_done: Callable[[], None] = lambda: None
) -> Generator[SeedResult, None, None]:
    """Yields the result of each seed in their order, as soon as it and those before it are done.

    `on_done` is called after each run, in the order in which they end. Closing the iterator ends all processes at once.
    Raises KeyboardInterrupt when a process ends by Ctrl-C, which every process of a terminal receives.
    """
    assert jobs >= 1, jobs
    running: dict[Connection, _Process] = {}
    done: dict[int, SeedResult] = {}
    seed = first = seeds.first
    try:
        while first < seeds.end:
            while len(running) < jobs and seed < seeds.end and len(done) < MOST_WAITING:
                process = _Process(job, seed)
                running[process.receiver] = process
                seed += 1
            assert running, (first, seed, len(done))
            for receiver in wait(list(running)):
                assert isinstance(receiver, Connection)
                result = running.pop(receiver).result()
                assert first <= result.seed < seed, (first, result.seed, seed)
                done[result.seed] = result
                on_done()
            while first in done:
                yield done.pop(first)
                first += 1
    finally:
        for process in running.values():
            process.end()


@final
class _Process:
    """A process that runs one seed and sends its result."""

    def __init__(self, job: Job, seed: int) -> None:
        self._job, self._seed = job, seed
        context = _context()
        self.receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_run_one, args=(job, seed, sender), daemon=True)
        # The signal is blocked until the process is ready for it.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            sender.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def result(self) -> SeedResult:
        """Wait for the result; a process that ended without one has the verdict `error`."""
        try:
            row = json.loads(self.receiver.recv_bytes())
        except EOFError:
            self._process.join()
            if self._process.exitcode == -signal.SIGINT:
                raise KeyboardInterrupt from None
            row = {ERROR: f"the process of this run ended with {_how(self._process.exitcode)}"}
        self.end()
        return _read(row, self._job, self._seed)

    def end(self) -> None:
        """End the process at once, unless it has ended by itself."""
        self.receiver.close()
        self._process.terminate()
        self._process.join()


def _context() -> ForkContext | SpawnContext:
    return multiprocessing.get_context("fork") if may_fork() else multiprocessing.get_context("spawn")


def may_fork() -> bool:
    """Whether a process may be forked, which starts at once: not beside other threads, which may hold locks, and never
    after gRPC was used.
    """
    return sys.platform == "linux" and "grpc" not in sys.modules and len(sys._current_frames()) == 1


def _run_one(job: Job, seed: int, sender: Connection) -> None:
    """Run one seed in this process, which is new, and send its row. It ends silently on Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        result = run_scenario(job.path, seed, bug=job.bug, source=job.source)
        row = result.as_json()
        if result.starved_because:
            row["starved_because"] = result.starved_because
    # A broken assert of the product is the finding of this seed; the other seeds go on.
    except Exception as error:
        row = {ERROR: " ".join(f"{type(error).__name__}: {error}".split())}
    try:
        sender.send_bytes(json.dumps(row).encode())
    # The command has ended; nobody waits for the result.
    except BrokenPipeError:
        return


def _how(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"signal {-exitcode}" + (", perhaps because memory ran out" if exitcode == -9 else "")
    return f"status {exitcode}"


def _read(row: dict[str, Any], job: Job, seed: int) -> SeedResult:
    replay = replay_command(job.source, seed, job.bug)
    if ERROR in row:
        row = {"scenario": job.path.stem, "seed": seed, "verdict": ERROR, ERROR: row[ERROR], "replay": replay}
    verdict = row["verdict"]
    assert row["seed"] == seed, (row["seed"], seed)
    assert verdict == ERROR or Verdict(verdict), verdict
    return SeedResult(seed=seed, verdict=verdict, reason=_reason(row), replay=replay, row=row)


def _reason(row: dict[str, Any]) -> str:
    violations = row.get("violations", [])
    if not violations:
        return str(row.get(ERROR) or row.get("starved_because", ""))
    first, more = violations[0], len(violations) - 1
    text = f"at {first['at_ms'] / 1000:.3f} s: {first['checker']}: {first['what']}"
    return f"{text} (and {more} more)" if more else text
