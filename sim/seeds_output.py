"""Prints the results of many seeds: a line for each seed that did not hold, a closing line, and a bar on a terminal."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, final

import click

from sim.run import Verdict
from sim.seed_range import Seeds
from sim.seeds import ERROR, Job, SeedResult, run_seeds

if TYPE_CHECKING:
    from rich.progress import Progress

INTERRUPTED = 3
# The first of these that any run has is the status of all runs together.
_STATUSES = ((Verdict.VIOLATED.value, 1), (ERROR, 2), (Verdict.STARVED.value, 3))


def print_seeds(job: Job, seeds: Seeds, *, jobs: int, as_json: bool) -> int:
    """Run the seeds and print their results in order of seed; returns the exit status."""
    assert jobs > 0, jobs
    tally = Tally(job, seeds)
    with ExitStack() as stack:
        bar = progress_bar(stack, len(seeds), job.title)
        advance: Callable[[], None] = (
            (lambda: bar.update(bar.task_ids[0], advance=1, refresh=True))
            if bar is not None
            else lambda: None
        )
        results = stack.enter_context(closing(run_seeds(job, seeds, jobs=jobs, on_done=advance)))
        try:
            for result in results:
                tally.add(result)
                if lines := [json.dumps(result.row)] if as_json else failure_lines(result):
                    echo_beside(lines, bar)
        except KeyboardInterrupt:
            tally.is_interrupted = True
    # A seed without a result would count as one that held.
    assert tally.is_interrupted or tally.count == len(seeds), (tally.count, len(seeds))
    click.echo(json.dumps({"summary": tally.as_json()}) if as_json else tally.line())
    if tally.is_interrupted:
        click.echo("interrupted", err=True)
    return tally.status()


@final
class Tally:
    """Counts verdicts, and the seeds that did not hold."""

    def __init__(self, job: Job, seeds: Seeds) -> None:
        self._job, self._seeds = job, seeds
        self._verdicts: Counter[str] = Counter()
        self._failing: list[int] = []
        self.is_interrupted = False

    @property
    def count(self) -> int:
        return self._verdicts.total()

    def add(self, result: SeedResult) -> None:
        """Count one result; they come in order of seed."""
        assert result.seed == self._seeds.first + self.count, (result.seed, self.count)
        assert result.seed < self._seeds.end, (result.seed, self._seeds.end)
        self._verdicts[result.verdict] += 1
        if result.verdict != Verdict.HELD.value:
            self._failing.append(result.seed)

    def line(self) -> str:
        """Returns the closing line: the counts of all verdicts that occurred."""
        counts = (
            ", ".join(f"{count} {verdict}" for verdict, count in sorted(self._verdicts.items())) or "none"
        )
        done, wanted = self.count, len(self._seeds)
        runs = f"{done} of {wanted} runs done" if self.is_interrupted else f"{done} run{'s' * (done != 1)}"
        return f"{self._job.path.stem}, seeds {self._seeds}: {runs}: {counts}"

    def as_json(self) -> dict[str, object]:
        """Returns the closing line's numbers; `end_seed` is excluded."""
        return {
            "scenario": self._job.path.stem,
            "first_seed": self._seeds.first,
            "end_seed": self._seeds.end,
            "runs": self.count,
            "verdicts": dict(sorted(self._verdicts.items())),
            "failing": self._failing,
            "interrupted": self.is_interrupted,
        }

    def status(self) -> int:
        """Returns 1 if any run was violated, else 2 if any failed, else 3 if any was starved or missing, else 0."""
        found = next((status for verdict, status in _STATUSES if self._verdicts[verdict]), 0)
        return found or (INTERRUPTED if self.is_interrupted else 0)


def failure_lines(result: SeedResult) -> list[str]:
    """Returns what did not hold in a run, and the command that replays it; nothing for a run that held."""
    if result.verdict == Verdict.HELD.value:
        return []
    return [f"seed {result.seed}: {result.verdict}: {result.reason}", f"  replay: {result.replay}"]


def echo_beside(lines: list[str], bar: Progress | None) -> None:
    """Print lines above the bar, if there is one."""
    if bar is not None:
        bar.stop()
    for line in lines:
        click.echo(line)
    if bar is not None:
        bar.start()


def progress_bar(stack: ExitStack, count: int, title: str) -> Progress | None:
    """Returns a bar of runs on a terminal; None in a pipe. It has no thread, beside which no process may be forked."""
    if not sys.stderr.isatty() or count < 2:
        return None
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
    bar.add_task(title, total=count)
    return stack.enter_context(bar)
