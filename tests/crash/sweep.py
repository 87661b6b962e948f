"""Every crash of a workload, every state that it can leave, and a start on each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import final

from sim.disk import SimDisk
from storage.config import LogConfig
from storage.directory.manager import LogManager
from storage.draws import Draws
from tests.crash.model import Expectation, Found, judge
from tests.crash.recovery import START_MS, start_and_check
from tests.crash.stage import CrashPoint, Recording
from tests.crash.states import (
    AFTER_AN_APPEND,
    Loss,
    StateName,
    few_losses,
    name_losses,
    survivor_sets,
    torn_losses,
)
from tests.crash.workloads import Workload, record
from tests.storage.logs import batch

# Among states on which a start makes the same calls, this many starts are crashed at each call.
REPRESENTATIVES = 1
# A sweep stops after this many violations.
MOST_VIOLATIONS = 5

Findings = dict[str, Found]


@dataclass(frozen=True, slots=True)
class Violation:
    """A state on which a promise is broken. `call` and `operation` are those of the first crash."""

    state: StateName
    call: str
    operation: str
    problem: str


@dataclass(slots=True, kw_only=True)
class Report:
    """The result of the sweep of one workload."""

    workload: str
    crash_points: int = 0
    # Calls of starts at which a crash was tried, too.
    inner_crash_points: int = 0
    # Different trees on which a start was tried.
    states: int = 0
    violations: list[Violation] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the start on one state found, and what was wrong."""

    state: StateName
    findings: Findings
    problems: tuple[str, ...]


@final
class Sweep:
    """All crashes of one recorded workload.

    For a short run, `stride` takes every `stride`-th crash point, and `at_most` bounds the states of each.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        stride: int = 1,
        at_most: int = 1 << 30,
        representatives: int = REPRESENTATIVES,
        most_violations: int = MOST_VIOLATIONS,
    ) -> None:
        self._workload, self._stride, self._at_most = workload, stride, at_most
        self._representatives, self._most_violations = representatives, most_violations
        self._recording: Recording = record(workload)
        self._known: dict[bytes, list[Verdict]] = {}
        self._started: dict[bytes, Verdict] = {}
        self._classes: dict[tuple[str, ...], int] = {}
        self._draws = Draws(0)
        self.report = Report(workload=workload.name)

    @property
    def _config(self) -> LogConfig:
        return self._recording.config

    def run(self) -> Report:
        """Try the states of all crash points. It stops early after many violations."""
        ever_pending: set[int] = set()
        tried: set[tuple[frozenset[int], object]] = set()
        for number, point in enumerate(self._recording.points):
            if len(self.report.violations) >= self._most_violations:
                break
            pending = point.disk.pending_sequences()
            ever_pending.update(pending)
            if number % self._stride:
                continue
            self.report.crash_points += 1
            on_disk = frozenset(ever_pending.difference(pending))
            expected = self._recording.expectation_of(point)
            for count, loss in enumerate(self._losses(point, pending, number)):
                # Two crashes that leave the same changes on the disk are one state, at whichever call they
                # come. The expectation may differ, but before a change it is stricter than after it.
                key = (
                    (on_disk.union(loss.kept or ()), loss.tear)
                    if loss.kept is not None
                    else (on_disk, number)
                )
                if (key in tried and not self._is_new_expectation(number)) or count >= self._at_most:
                    continue
                tried.add(key)
                self._try(StateName(self._workload.name, number, loss), point, expected)
                if len(self.report.violations) >= self._most_violations:
                    break
        self.report.states = len(self._started)
        return self.report

    def _is_new_expectation(self, number: int) -> bool:
        points = self._recording.points
        return number == 0 or points[number].operation != points[number - 1].operation

    def _losses(self, point: CrashPoint, pending: list[int], number: int) -> Iterator[Loss]:
        yield Loss(None)
        yield Loss(tuple(pending))
        yield Loss(())
        yield from name_losses(point.disk, pending)
        yield from torn_losses(point.disk, pending)
        yield from map(Loss, survivor_sets(pending, self._draws, number))

    def _try(self, name: StateName, point: CrashPoint, expected: Expectation) -> None:
        for verdict in self._verdicts(name, point.disk):
            problems = list(verdict.problems) or judge(expected, verdict.findings)
            if problems:
                violation = Violation(verdict.state, point.call, expected.operation, problems[0])
                self.report.violations.append(violation)
                return

    def _verdicts(self, name: StateName, before: SimDisk) -> list[Verdict]:
        """Return the verdicts on the state, on a second start, and on crashes inside its start."""
        disk = before.snapshot()
        name.loss.apply(disk)
        key = _key(disk)
        if key not in self._known:
            self._known[key] = list(self._explore(name, disk, key))
        return self._known[key]

    def _explore(self, name: StateName, disk: SimDisk, key: bytes) -> Iterator[Verdict]:
        points: list[SimDisk] = []
        disk.observer = lambda verb, path: points.append(disk.snapshot())
        disk.call_log = []
        manager, outcome = start_and_check(disk, self._config)
        calls = tuple(disk.call_log)
        disk.observer = None
        problems = outcome.problems
        if manager is not None:
            problems += self._problems_of_repetition(disk, manager.was_clean)
        verdict = Verdict(name, outcome.findings, tuple(problems))
        self._started[key] = verdict
        yield verdict
        if problems:
            return
        seen = self._classes[calls] = self._classes.get(calls, 0) + 1
        if seen <= self._representatives:
            self.report.inner_crash_points += len(points)
            yield from self._explore_within(name, [*points, disk])
            assert manager is not None
            yield from self._explore_next_life(name, disk, manager, outcome.findings)

    def _problems_of_repetition(self, disk: SimDisk, was_clean: bool) -> list[str]:
        """Check that a second start finds the same and leaves the same bytes.

        After a clean stop the first start recovered nothing: then the second and third are compared.
        """
        first = disk.snapshot()
        if was_clean:
            start_and_check(first, self._config)
            first.crash_process()
        first_bytes = first.fingerprint()
        manager, outcome = start_and_check(first, self._config)
        if outcome.problems:
            return [f"second start: {problem}" for problem in outcome.problems]
        assert manager is not None
        return (
            [] if first.fingerprint() == first_bytes else ["a second start leaves other bytes than the first"]
        )

    def _explore_within(self, name: StateName, points: list[SimDisk]) -> Iterator[Verdict]:
        for call, point in enumerate(points):
            for loss in few_losses(point):
                yield self._start_after(name.within(call, loss), point, loss)

    def _start_after(self, name: StateName, before: SimDisk, loss: Loss) -> Verdict:
        disk = before.snapshot()
        loss.apply(disk)
        key = _key(disk)
        known = self._started.get(key)
        if known is None:
            _, outcome = start_and_check(disk, self._config)
            known = self._started[key] = Verdict(name, outcome.findings, tuple(outcome.problems))
        return known

    def _explore_next_life(
        self, name: StateName, disk: SimDisk, manager: LogManager, first: Findings
    ) -> Iterator[Verdict]:
        """Append another history after the start, then cut the power: no old byte may come back after the new ones."""
        written = append_everywhere(manager)
        for loss in few_losses(disk):
            verdict = self._start_after(name.within(AFTER_AN_APPEND, loss), disk, loss)
            findings = {
                partition: _without(found, written.get(partition), first.get(partition))
                for partition, found in verdict.findings.items()
            }
            yield Verdict(verdict.state, findings, verdict.problems)


def append_everywhere(manager: LogManager) -> dict[str, bytes]:
    """Append a batch of a new epoch to each log. Returns the batches by partition."""
    written = {}
    for partition, log in manager.logs.items():
        epoch = (log.epochs.latest_epoch or 0) + 1
        data = batch(log.log_end_offset, 1, epoch=epoch, value_bytes=33)
        log.append_as_follower(data, leader_epoch=epoch, now_ms=START_MS)
        written[partition] = data
    return written


def _without(found: Found, written: bytes | None, first: Found | None) -> Found:
    """Return `found` without the appended batch, if that follows exactly what the first start had found."""
    if first is None or not found.batches or found.batches[-1].data != written:
        return found
    return first if found.batches[:-1] == first.batches else found


def _key(disk: SimDisk) -> bytes:
    """Return a key of the tree, and of what a later power loss can still change."""
    pending = disk.pending_sequences()
    if not pending:
        return disk.fingerprint()
    durable = disk.snapshot()
    durable.lose_power_keeping(())
    return disk.fingerprint() + durable.fingerprint() + b"%d" % len(pending)
