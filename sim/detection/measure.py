"""A measurement: all starts of all bugs that its file has not yet, and what they found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import final

from sim.detection.results import is_decided
from sim.detection.runner import ProcessRunner, Runner, search_all
from sim.detection.search import Row, Search
from sim.interruption import terminated_like_interrupted
from sim.seeds_output import progress_bar
from sim.swarm.job import SwarmJob, warm
from sim.swarm.results import ResultsFile
from sim.swarm.rows import is_count, wrong_in_start


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure: bugs by name, starts of each, processor seconds of a start. Without a base one is drawn."""

    bugs: tuple[str, ...]
    starts: int
    budget_s: float
    base: int | None
    jobs: int
    out: Path | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the starts of one file have in common."""

    base: int
    budget_s: float

    def identity(self) -> dict[str, object]:
        return {"measures": "bugs", "base": self.base, "budget_s": self.budget_s}

    def wrong_in(self, row: Row) -> str:
        """Returns the name of a member that the row of a start must have otherwise; empty if there is none."""
        return wrong_in_start(row)


@final
@dataclass(slots=True, kw_only=True)
class Measured:
    """The rows of the starts that are over, those of the file included."""

    base: int
    budget_s: float
    rows: list[Row]
    is_interrupted: bool = False

    def is_decided(self, bug: str, planned: int) -> bool:
        """Returns whether the starts that are over decide the median of `planned` ones."""
        return is_decided([row["verdict"] for row in self.rows if row["bug"] == bug], planned)

    def as_json(self) -> dict[str, object]:
        """Returns what the numbers rest on."""
        return {
            "seed": self.base,
            "budget_s": self.budget_s,
            "cpu_s": round(sum(row["cpu_s"] for row in self.rows), 1),
            "false_alarms": sum(row["false_alarms"] for row in self.rows),
            # Earlier files have no such count.
            "undecided": sum(row.get("undecided", 0) for row in self.rows),
            "interrupted": self.is_interrupted,
        }

    def line(self) -> str:
        """Returns how to repeat the measurement."""
        spent = sum(row["cpu_s"] for row in self.rows)
        return f"{len(self.rows)} starts of {self.budget_s:g} s, {spent:.0f} s of processor time; --seed {self.base}"


def measure(plan: Plan, *, draw_base: Callable[[], int], cpu_s: Callable[[], float]) -> Measured:
    """Run every start that the file has not yet, of a bug only until its median is decided.

    `cpu_s` returns the processor time of the process that calls it.

    Raises ResultsError for a file that the measurement cannot go on with.
    """
    base = plan.base if plan.base is not None else _base_in(plan.out)
    header = Header(base=draw_base() if base is None else base, budget_s=plan.budget_s)
    with ExitStack() as stack:
        stack.enter_context(terminated_like_interrupted())
        known: dict[int, Row] = {}
        file = None
        if plan.out is not None:
            file = stack.enter_context(
                closing(ResultsFile(plan.out, header, lambda row: known.update({row["seed"]: row})))
            )
        measured = Measured(base=header.base, budget_s=plan.budget_s, rows=[])
        left = []
        for search in searches_of(plan, header.base):
            if search.first_seed in known:
                measured.rows.append(known[search.first_seed])
            else:
                left.append(search)
        warm(SwarmJob())
        left_open = (search for search in left if not measured.is_decided(search.bug, plan.starts))
        runner = stack.enter_context(closing(ProcessRunner(cpu_s)))
        try:
            _run(measured, left_open, len(left), runner, plan.jobs, file)
        except KeyboardInterrupt:
            measured.is_interrupted = True
    return measured


def searches_of(plan: Plan, base: int) -> Iterator[Search]:
    """Yields every start: the first one of each bug, then the second of each, so that an early end leaves medians."""
    for start in range(plan.starts):
        for bug in plan.bugs:
            yield Search(bug=bug, start=start, base=base, budget_s=plan.budget_s)


def _run(
    measured: Measured,
    left: Iterable[Search],
    most: int,
    runner: Runner,
    jobs: int,
    file: ResultsFile | None,
) -> None:
    with ExitStack() as stack:
        bar = progress_bar(stack, most, "starts at most")
        for search in search_all(left, runner, jobs=jobs):
            row = search.as_row()
            if file is not None:
                file.add(row)
            measured.rows.append(row)
            if bar is not None:
                bar.update(bar.task_ids[0], advance=1, refresh=True)


def _base_in(out: Path | None) -> int | None:
    """Returns the base of the measurement that the file holds; None for one that holds none."""
    if out is None or not out.is_file():
        return None
    with out.open("rb") as file:
        first = file.readline()
    try:
        header = json.loads(first)
    # It is refused, or begun again, when it is opened as a file of results.
    except ValueError:
        return None
    base = header.get("base") if isinstance(header, dict) else None
    return base if is_count(base) else None
