"""Runs seeds twice, each time in an interpreter of its own, and compares what came out.

| what must not matter | first side | second side |
| --- | --- | --- |
| hash seed (`PYTHONHASHSEED`) | 0 | 4242 |
| addresses | one process | another process |
| working directory | the caller's | an empty one |
| environment, time zone, locale | `TZ=UTC`, `LC_ALL=C` | 200 variables more, `TZ=Asia/Kolkata`, `LC_ALL=C.UTF-8` |
| runs before this one | none: a fork a seed | all seeds above it, in one process |
| garbage collection | off | every 500 allocations |
| trace file | none | written |
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from sim.determinism.guard import MachineUsed
from sim.determinism.side import Outcome, Work
from sim.seed_range import Seeds

# The directory that holds the packages: a side finds them from any working directory.
ROOT = Path(__file__).resolve().parent.parent.parent
FIRST_ENVIRONMENT = {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C"}
SECOND_ENVIRONMENT = {
    "PYTHONHASHSEED": "4242",
    "TZ": "Asia/Kolkata",
    "LC_ALL": "C.UTF-8",
    **{f"REPLOG_CHECK_{number}": "x" * number for number in range(200)},
}


class SideError(Exception):
    """A side ended before it had run all seeds; the text has what it printed last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubleRun:
    """The two outcomes of one seed."""

    seed: int
    first: Outcome
    second: Outcome

    @property
    def is_equal(self) -> bool:
        return not self.difference()

    @property
    def is_error(self) -> bool:
        """Whether an error ended a run: nothing after it was compared."""
        return bool(self.first.error or self.second.error)

    def difference(self) -> str:
        """Returns what differs, or an empty text. A run that used the machine is no proof, even if both did."""
        for outcome in (self.first, self.second):
            if outcome.error.startswith(MachineUsed.__name__):
                return outcome.error
        for name in ("error", "verdict", "trace_hash", "draws", "events"):
            first, second = getattr(self.first, name), getattr(self.second, name)
            if first != second:
                return f"{name}: {str(first) or 'none'} and {str(second) or 'none'}"
        return ""


def works(scenario: str, seeds: Seeds, *, plant: str = "", is_guarded: bool = True) -> tuple[Work, Work]:
    """Returns the work of both sides; the second one runs the seeds from the last to the first."""
    first = Work(
        scenario=scenario, seeds=seeds, plant=plant, is_guarded=is_guarded,
        is_forked=True, is_reversed=False, is_collecting=False, is_traced=False,
    )  # fmt: skip
    return first, replace(first, is_forked=False, is_reversed=True, is_collecting=True, is_traced=True)


def double_runs(
    scenario: str, seeds: Seeds, *, plant: str = "", is_guarded: bool = True
) -> Generator[DoubleRun, None, None]:
    """Run each seed on both sides, at the same time; yield the pairs as they become complete.

    `scenario`, `plant`: see Work. Raises SideError when a side ends early; closing the iterator ends both.
    """
    first, second = works(scenario, seeds, plant=plant, is_guarded=is_guarded)
    with ExitStack() as stack:
        left = stack.enter_context(_Side(first, FIRST_ENVIRONMENT, Path.cwd()))
        elsewhere = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        right = stack.enter_context(_Side(second, SECOND_ENVIRONMENT, elsewhere))
        waiting: dict[int, Outcome] = {}
        # The sides meet in the middle: from there on every line completes a pair.
        for _ in seeds:
            for is_first, side in ((True, left), (False, right)):
                seed, outcome = side.next()
                other = waiting.pop(seed, None)
                if other is None:
                    waiting[seed] = outcome
                else:
                    pair = (outcome, other) if is_first else (other, outcome)
                    yield DoubleRun(seed=seed, first=pair[0], second=pair[1])
        assert not waiting, sorted(waiting)


# What is watched in a run is replaced in it, and compiled code would not see that: the first import takes sources.
_SIDE = "import replog, runpy; runpy.run_module('sim.determinism.side', run_name='__main__', alter_sys=True)"


class _Side:
    """The process of one side."""

    def __init__(self, work: Work, environment: Mapping[str, str], directory: Path) -> None:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])])
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SIDE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=directory,
            env={**os.environ, "PYTHONPATH": path, "REPLOG_INTERPRETED": "1", **environment},
        )
        assert self._process.stdin is not None
        self._process.stdin.write(work.as_json().encode())
        self._process.stdin.close()

    def __enter__(self) -> _Side:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def next(self) -> tuple[int, Outcome]:
        """Wait for the next line. Raises SideError if there is none."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            self._process.wait()
            self._errors.seek(0)
            told = self._errors.read().decode(errors="replace").strip().splitlines()
            raise SideError(told[-1] if told else f"status {self._process.returncode}")
        members = json.loads(line)
        return members.pop("seed"), Outcome(**members)


def traces(scenario: str, seed: int, directory: Path, *, plant: str = "") -> tuple[Path, Path]:
    """Run one seed again on both sides, unguarded, and return the files of their traces."""
    paths = directory / "first.trace", directory / "second.trace"
    both = works(scenario, Seeds(first=seed, end=seed + 1), plant=plant, is_guarded=False)
    for work, path, environment in zip(both, paths, (FIRST_ENVIRONMENT, SECOND_ENVIRONMENT), strict=True):
        with _Side(replace(work, trace=str(path.resolve())), environment, directory) as side:
            side.next()
    return paths
