"""Tries every crash of every small workload: `python -m tests.crash [WORKLOAD...]`.

Exit status: 0 no violation (and each planted mistake found), 1 otherwise, 2 usage, 3 interrupted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from typing import TypeVar

from tests.arguments import positive
from tests.crash.jobs import BY_NAME, fail_calls, search, sweep
from tests.crash.mistakes import MISTAKES
from tests.crash.replay import replay
from tests.crash.states import StateName
from tests.crash.sweep import Report
from tests.crash.workloads import Workload

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def in_processes(
    jobs: int, function: Callable[[Argument], Result], arguments: Sequence[Argument]
) -> Iterator[Result]:
    """Yield the results in the order of the arguments. Each argument has a process of its own; `jobs` run at once."""
    # Ctrl-C reaches the whole group of processes. The children ignore it; the parent answers it and ends
    # them.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    with get_context("fork").Pool(jobs, signal.signal, ignore, maxtasksperchild=1) as pool:
        yield from pool.imap(function, arguments)


def replay_command(state: StateName) -> str:
    return f"python -m tests.crash --replay '{state}'"


def show(report: Report) -> None:
    """Print the report of a workload's sweep."""
    print(
        f"{report.workload:<18} {report.crash_points:>6} {report.inner_crash_points:>8} {report.states:>8}"
        f" {len(report.violations):>6}",
        flush=True,
    )
    for each in report.violations:
        print(f"  before {each.call}, in {each.operation!r}: {each.problem}")
        print(f"  {replay_command(each.state)}")


def sweep_all(names: list[str], jobs: int, stride: int) -> int:
    began = time.perf_counter()
    print(f"{'workload':<18} {'calls':>6} {'in start':>8} {'states':>8} {'wrong':>6}")
    reports = []
    for report in in_processes(jobs, partial(sweep, stride=stride), names):
        show(report)
        reports.append(report)
    violations = sum(len(report.violations) for report in reports)
    points = sum(report.crash_points + report.inner_crash_points for report in reports)
    print(f"{points} crash points, {time.perf_counter() - began:.0f} s")
    print(f"{sum(report.states for report in reports)} states, {violations} violations", flush=True)
    return 1 if violations else 0


def fail_all(names: list[str], jobs: int, stride: int) -> int:
    """Let every call of every workload fail once, in each of three ways."""
    calls = wrong = 0
    for reports in in_processes(jobs, partial(fail_calls, stride=stride), names):
        for report in reports:
            calls += len(range(0, report.calls, stride))
            wrong += len(report.problems)
            for problem in report.problems[:3]:
                print(f"  {report.workload}, {report.kind.value}: {problem}", flush=True)
    print(f"{calls} failed calls, {wrong} violations", flush=True)
    return 1 if wrong else 0


def find_mistakes(jobs: int) -> int:
    found = 0
    for mistake, violation in zip(
        MISTAKES, in_processes(jobs, search, [mistake.name for mistake in MISTAKES]), strict=True
    ):
        found += violation is not None
        shown = "NOT FOUND" if violation is None else f"{violation.problem[:90]}"
        print(f"{mistake.name:<28} {mistake.found_by:<18} {shown}", flush=True)
    print(f"{found} of {len(MISTAKES)} planted mistakes found")
    return 0 if found == len(MISTAKES) else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(BY_NAME)}; all without one"
    )
    parser.add_argument("--jobs", type=positive, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--stride", type=positive, default=1, help="take every so-manieth crash point")
    parser.add_argument("--no-faults", action="store_true", help="crashes only: no call fails")
    parser.add_argument("--mistakes", action="store_true", help="plant the mistakes too, after the sweep")
    parser.add_argument("--only-mistakes", action="store_true", help="plant the mistakes, no sweep before")
    parser.add_argument(
        "--replay", metavar="STATE", help="make one state again and tell what a start does on it"
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.workloads if name not in BY_NAME]
    if unknown:
        parser.error(f"unknown workload {unknown[0]!r}: known are {', '.join(BY_NAME)}")
    if arguments.replay:
        return replay_or_refuse(parser, arguments.replay, BY_NAME)
    failed = 0
    if not arguments.only_mistakes:
        names = arguments.workloads or list(BY_NAME)
        if not arguments.no_faults:
            failed = fail_all(names, arguments.jobs, arguments.stride)
        failed |= sweep_all(names, arguments.jobs, arguments.stride)
    if arguments.mistakes or arguments.only_mistakes:
        failed |= find_mistakes(arguments.jobs)
    return failed


def replay_or_refuse(parser: argparse.ArgumentParser, text: str, by_name: dict[str, Workload]) -> int:
    try:
        name = StateName.parse(text)
        workload = by_name[name.workload]
    except (ValueError, KeyError):
        parser.error(f"{text!r} is no state's name")
    return replay(workload, name)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(3)
