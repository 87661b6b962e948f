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
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, SpawnContext
from pathlib import Path
from typing import Any, Protocol, final

from sim.cpu_limit import Hung, cpu_limit
from sim.interruption import die_with
from sim.run import Verdict, replay_command, run_scenario

ERROR = "error"
# A key of the rows of processes that were killed from outside: these say nothing about their seeds.
KILLED = "killed"
# The operating system takes SIGKILL where memory runs out, and SIGTERM is what `kill` sends.
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)
_ENDINGS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
# How many results may wait for an earlier seed that takes longer.
MOST_WAITING = 10_000


class Work(Protocol):
    """What is done with each seed. A process that is not forked gets a pickled copy."""

    @property
    def title(self) -> str:
        """The name of the whole in a line of results."""

    def run(self, seed: int) -> dict[str, Any]:
        """Returns the row of that seed, which has at least `seed` and `verdict`."""

    def replay(self, seed: int) -> str:
        """Returns the command that repeats the run of that seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What every run of a scenario shares: its file, its name in the command that replays a run, and a planted bug."""

    path: Path
    source: str
    bug: str | None = None
    stops_early: bool = False

    @property
    def title(self) -> str:
        return self.path.stem

    def run(self, seed: int) -> dict[str, Any]:
        """Run the scenario with that seed. Returns what `replog sim run --json` prints."""
        result = run_scenario(self.path, seed, bug=self.bug, source=self.source, stops_early=self.stops_early)
        row = result.as_json()
        if result.starved_because:
            row["starved_because"] = result.starved_because
        return row

    def replay(self, seed: int) -> str:
        return replay_command(self.source, seed, self.bug, stops_early=self.stops_early)


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
    work: Work,
    seeds: Iterable[int],
    *,
    jobs: int,
    on_done: Callable[[], None] = lambda: None,
    most_cpu_s: float | None = None,
) -> Generator[SeedResult, None, None]:
    """Yields the result of each seed in their order, as soon as it and those before it are done.

    `on_done` is called after each run, in the order in which they end. A run that uses more than `most_cpu_s` seconds
    of processor time is ended, and an error. Closing the iterator ends all processes at once.
    Raises KeyboardInterrupt when a process ends by Ctrl-C, which every process of a terminal receives.
    """
    assert jobs >= 1, jobs
    running: dict[Connection, SeedProcess] = {}
    # The seeds that were started and not yielded yet, in their order, and the results that wait for earlier ones.
    waiting: deque[int] = deque()
    done: dict[int, SeedResult] = {}
    left = iter(seeds)
    try:
        while True:
            while len(running) < jobs and len(done) < MOST_WAITING and (seed := next(left, None)) is not None:
                process = SeedProcess(work, seed, most_cpu_s)
                running[process.receiver] = process
                waiting.append(seed)
            if not waiting:
                return
            assert running, (waiting[0], len(waiting), len(done))
            for receiver in wait(list(running)):
                assert isinstance(receiver, Connection)
                result = running.pop(receiver).result()
                assert result.seed not in done, result.seed
                done[result.seed] = result
                on_done()
            while waiting and waiting[0] in done:
                yield done.pop(waiting.popleft())
    finally:
        for process in running.values():
            process.end()


@final
class SeedProcess:
    """A process that runs one seed and sends its result."""

    def __init__(self, work: Work, seed: int, most_cpu_s: float | None = None) -> None:
        self._work, self._seed = work, seed
        context = _context()
        self.receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_run_one, args=(work, seed, sender, most_cpu_s, os.getpid()), daemon=True
        )
        # The signals are blocked until the process is ready for them.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
        try:
            self._process.start()
        finally:
            sender.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def result(self) -> SeedResult:
        """Wait for the result; a process that ended without one has the verdict `error`.

        Its row has the key `killed` if somebody has killed the process: the seed may hold when it runs again.
        """
        try:
            row = json.loads(self.receiver.recv_bytes())
        # A process that ends in the middle of its row leaves an OSError.
        except (EOFError, OSError):
            self._process.join()
            if self._process.exitcode == -signal.SIGINT:
                raise KeyboardInterrupt from None
            row = {ERROR: f"the process of this run ended with {_how(self._process.exitcode)}"}
            if self._process.exitcode in _FROM_OUTSIDE:
                row[KILLED] = True
        self.end()
        return _read(row, self._work, self._seed)

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


def _run_one(work: Work, seed: int, sender: Connection, most_cpu_s: float | None, parent: int) -> None:
    """Run one seed in this process, which is new, and send its row. It ends silently on Ctrl-C, and with its parent."""
    die_with(parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    # A terminal that is closed tells every process; the parent takes this one along.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDINGS)
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        with cpu_limit(most_cpu_s) if most_cpu_s is not None else nullcontext():
            row = work.run(seed)
    except Hung as hung:
        row = {ERROR: str(hung)}
    # A broken assert of the product is the finding of this seed; the other seeds go on.
    except Exception as error:
        row = {ERROR: error_text(error)}
    try:
        sender.send_bytes(json.dumps(row).encode())
    # The command has ended; nobody waits for the result.
    except BrokenPipeError:
        return


def error_text(error: Exception | Hung) -> str:
    """Returns in one line what ended a run, and where."""
    return " ".join(f"{type(error).__name__}: {error} ({_place(error)})".split())


def _place(error: Exception | Hung) -> str:
    """Returns the file and the function that raised the error; a line would differ between versions."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"in {Path(frame.filename).name}, {frame.name}"


def _how(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"signal {-exitcode}" + (", perhaps because memory ran out" if exitcode == -9 else "")
    return f"status {exitcode}"


def _read(row: dict[str, Any], work: Work, seed: int) -> SeedResult:
    replay = work.replay(seed)
    if ERROR in row:
        failed = {"scenario": work.title, "seed": seed, "verdict": ERROR, ERROR: row[ERROR], "replay": replay}
        row = failed | row
    verdict = row["verdict"]
    assert row["seed"] == seed, (row["seed"], seed)
    assert verdict == ERROR or Verdict(verdict), verdict
    return SeedResult(seed=seed, verdict=verdict, reason=reason_of(row), replay=replay, row=row)


def reason_of(row: dict[str, Any]) -> str:
    """Returns in one line what did not hold in the run of a row; empty if everything did."""
    violations = row.get("violations", [])
    if not violations:
        return str(row.get(ERROR) or row.get("starved_because", ""))
    first, more = violations[0], len(violations) - 1
    text = f"at {first['at_ms'] / 1000:.3f} s: {first['checker']}: {first['what']}"
    return f"{text} (and {more} more)" if more else text
