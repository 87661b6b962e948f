"""What `bench/scale.py` measures: rows at several sizes, the CPU time of steps, and the exponent of growth."""

from __future__ import annotations

import gc
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self, TypeVar, final

Result = TypeVar("Result")

LINEAR: Final = 1.15
INDEPENDENT: Final = 0.15
ROUNDS: Final = 5
# How often a row that misses its mark is measured.
PASSES: Final = 3
# A step that works longer makes every reader and writer of the node wait.
STEP_S: Final = 0.05

# More than the caches of a processor core hold.
_OTHER_MEMORY: Final = bytes(32 << 20)

_AT_END: Final[list[Callable[[], object]]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The result of one round: CPU seconds of the measured part, or whatever the unit of the row says.

    `longest_step_s` is the CPU time of the longest piece of work that a node does in one step; None where the work is
    no step of a node.
    """

    value: float
    longest_step_s: float | None = None


# Prepares in a new directory something of a size. The function that it returns is called for each round.
Once = Callable[[], Sample]
Prepare = Callable[[int, Path], Once]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing that is measured at several sizes. `most` is the greatest exponent.

    `most_share` is the greatest share of the cost before, with `--before`.
    """

    name: str
    what: str
    sizes: tuple[int, ...]
    most: float
    prepare: Prepare
    unit: str = "s"
    rounds: int = ROUNDS
    most_share: float | None = None

    @property
    def part(self) -> str:
        """The name of the file that has the row, without its suffix."""
        return self.prepare.__module__.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The medians of a row, one for each size; `before` are the values of another revision."""

    row: Row
    sizes: tuple[int, ...]
    samples: tuple[Sample, ...]
    before: tuple[float, ...] = ()
    # The rounds at each size.
    rounds: int = 1

    @property
    def exponent(self) -> float:
        return exponent(self.sizes, [sample.value for sample in self.samples])

    @property
    def share(self) -> float | None:
        """The value at the greatest size over that of before; None where before was not measured."""
        return self.samples[-1].value / self.before[-1] if self.before else None

    @property
    def longest_step_s(self) -> float | None:
        """The longest step at any size; None where the row is no step of a node."""
        return max(
            (each.longest_step_s for each in self.samples if each.longest_step_s is not None), default=None
        )

    @property
    def is_met(self) -> bool:
        """Whether all marks of the row are reached; a share only where before was measured."""
        share, longest = self.share, self.longest_step_s
        if self.row.most_share is not None and share is not None and share > self.row.most_share:
            return False
        return (longest is None or longest <= STEP_S) and self.exponent <= self.row.most


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """The slope of the straight line through the logarithms of sizes and values, by least squares."""
    assert len(sizes) == len(values) > 1, (sizes, values)
    # A value of 0 has no logarithm; nothing measured here is below a nanosecond.
    points = [(math.log(size), math.log(max(value, 1e-9))) for size, value in zip(sizes, values, strict=True)]
    mean_x, mean_y = (statistics.fmean(column) for column in zip(*points, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


@contextmanager
def scratch() -> Iterator[Path]:
    """Create a temporary directory, in memory if the machine has such a place: a real sync takes time, not work."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="replog-scale-", dir=memory if memory.is_dir() else None) as root:
        yield Path(root)


def _settle() -> None:
    """Collect garbage and read other memory, so that every size begins with caches that hold nothing of it.

    A collection leaves a small size in the caches, and drives a large one out: then what depends on no size seems to.
    """
    gc.collect()
    _OTHER_MEMORY.count(b"\1")


def cpu(work: Callable[[], object], count: int = 1) -> Sample:
    """Measure `work`, which does a thing `count` times: the CPU seconds of one, in this process, all threads."""
    _settle()
    start = time.process_time()
    work()
    return Sample(value=(time.process_time() - start) / count)


@final
class Steps:
    """The CPU seconds of one round, by step of the node and by job of a worker. No garbage is collected meanwhile: what
    was prepared would be walked at some step.
    """

    def __init__(self) -> None:
        self._steps: list[float] = []
        self._jobs: list[float] = []

    def __enter__(self) -> Self:
        _settle()
        gc.disable()
        return self

    def __exit__(self, *_: object) -> None:
        gc.enable()

    def step(self, work: Callable[[], Result]) -> Result:
        """Do `work` as one step, in which nothing else of the node runs. Returns its result."""
        return self._timed(self._steps, work)

    def job(self, work: Callable[[], Result]) -> Result:
        """Do `work` as a job of a worker, beside which the node goes on. Returns its result."""
        return self._timed(self._jobs, work)

    def _timed(self, taken: list[float], work: Callable[[], Result]) -> Result:
        start = time.process_time()
        result = work()
        taken.append(time.process_time() - start)
        return result

    @property
    def total(self) -> Sample:
        """The sum of steps and jobs, with the longest step."""
        return Sample(value=sum(self._steps) + sum(self._jobs), longest_step_s=max(self._steps))

    @property
    def mean(self) -> Sample:
        """The mean of the steps, with the longest one."""
        return Sample(value=statistics.fmean(self._steps), longest_step_s=max(self._steps))


def steps(works: Iterable[Callable[[], object]]) -> Sample:
    """Measure steps of a node one by one: the mean of their CPU seconds, and the longest."""
    with Steps() as taken:
        for work in works:
            taken.step(work)
    return taken.mean


def sliced(step: Callable[[], bool]) -> Sample:
    """Measure a task that a node does in slices: `step` is called until it returns False. The value is their sum."""
    with Steps() as taken:
        while taken.step(step):
            pass
    return taken.total


def at_end(close: Callable[[], object]) -> None:
    """Call `close` after the rounds of the size that is measured: the next size needs the descriptors."""
    _AT_END.append(close)


def _rounds(row: Row, size: int, rounds: int) -> list[Sample]:
    with scratch() as root:
        try:
            once = row.prepare(size, root)
            return [once() for _ in range(rounds)]
        finally:
            while _AT_END:
                _AT_END.pop()()


def collect(row: Row, sizes: Sequence[int], rounds: int) -> list[list[Sample]]:
    """The samples of that many rounds, for each size."""
    return [_rounds(row, size, rounds) for size in sizes]


def medians(collected: Sequence[Sequence[Sample]]) -> tuple[Sample, ...]:
    """The median value and the median of the longest steps, for each size."""
    found = []
    for samples in collected:
        longest = [each.longest_step_s for each in samples if each.longest_step_s is not None]
        found.append(
            Sample(
                value=statistics.median(each.value for each in samples),
                longest_step_s=statistics.median(longest) if longest else None,
            )
        )
    return tuple(found)


def judge(row: Row, sizes: Sequence[int], before: tuple[float, ...] = ()) -> Measured:
    """Measure the row; where its medians miss a mark, measure it again and judge by the medians of all samples.

    One size that another process slows down for a second bends the line of all. What is really above its mark stays
    above it with three times as many samples.
    """
    collected: list[list[Sample]] = [[] for _ in sizes]
    for _ in range(PASSES):
        for samples, more in zip(collected, collect(row, sizes, row.rounds), strict=True):
            samples += more
        measured = Measured(row=row, sizes=tuple(sizes), samples=medians(collected), before=before)
        if measured.is_met:
            break
    return replace(measured, rounds=len(collected[0]))
