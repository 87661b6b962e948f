"""The controller begins a snapshot when its log has grown enough, also after one that could not be written."""

from __future__ import annotations

import pytest

from cluster.core.controller.config import ControllerConfig
from cluster.core.effects import Effect, RunJob, Stop
from cluster.core.events import Event, JobDone
from sim.checkers.base import Jury
from sim.checkers.due_snapshots import DueSnapshots
from sim.checkers.ghost import Ghost
from tests.cluster.controller.setup import ControllerBench

Story = list[tuple[list[Event], list[Effect]]]


def found(story: Story, *, most: int = 1, is_stopping: bool = False) -> int:
    """Returns how often something is wrong with the steps of a controller whose log has grown by more than a byte."""
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    checker = DueSnapshots(jury)
    controller = ControllerBench(ControllerConfig(metadata_log_max_record_bytes_between_snapshots=1 << 20))
    controller.register(1)
    controller.controller.config = ControllerConfig(metadata_log_max_record_bytes_between_snapshots=most)
    for events, effects in story:
        checker.on_step(controller.controller, events, effects, is_stopping=is_stopping)
    assert all(each.checker == "snapshot-due" for each in jury.violations)
    return len(jury.violations)


def job(number: int, kind: str) -> RunJob:
    return RunJob(job=number, kind=kind, work=lambda: None)


FLUSHES: tuple[list[Event], list[Effect]] = ([], [job(1, "flush")])
FLUSHED: list[Event] = [JobDone(job=1)]
FAILED = JobDone(job=2, error=OSError("the disk is full"))


def test_kr_snp_5_a_log_that_has_grown_enough_has_a_snapshot_begun() -> None:
    assert found([FLUSHES, (FLUSHED, [])]) == 1
    assert found([FLUSHES, (FLUSHED, [job(2, "snapshot")])]) == 0
    # Too few bytes, or no flush that has ended well.
    assert found([FLUSHES, (FLUSHED, [])], most=1 << 20) == 0
    assert found([FLUSHES, ([JobDone(job=1, error=OSError())], [])]) == 0
    assert found([FLUSHES, ([], [])]) == 0


def test_kr_snp_5_one_that_is_written_is_waited_for_and_one_that_failed_is_not() -> None:
    begun: Story = [FLUSHES, (FLUSHED, [job(2, "snapshot"), job(3, "flush")])]
    assert found([*begun, ([JobDone(job=3)], [])]) == 0
    assert found([*begun, ([FAILED], []), ([JobDone(job=3)], [])]) == 1


@pytest.mark.parametrize("how", ["stopping", "stopped"])
def test_a_controller_that_ends_begins_none(how: str) -> None:
    effects: list[Effect] = [Stop(reason="flush")] if how == "stopped" else []
    assert found([FLUSHES, (FLUSHED, effects)], is_stopping=how == "stopping") == 0


def test_what_a_life_has_begun_ends_with_it() -> None:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    bench = ControllerBench(ControllerConfig(metadata_log_max_record_bytes_between_snapshots=1 << 20))
    bench.register(1)
    bench.controller.config = ControllerConfig(metadata_log_max_record_bytes_between_snapshots=1)
    checker = DueSnapshots(jury)
    checker.on_step(bench.controller, *FLUSHES, is_stopping=False)
    checker.on_died()
    checker.on_step(bench.controller, FLUSHED, [], is_stopping=False)
    assert not jury.violations
