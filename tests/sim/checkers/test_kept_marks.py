"""The checkpoints of a log that was cut below its marks, as a job that was under way leaves them (RT16)."""

from __future__ import annotations

import pytest

from cluster.core.broker.broker import Broker
from cluster.core.replica.replica import Replica
from sim.hosts.node import Node
from sim.run import Run
from sim.scenario.loading import parse_scenario
from storage.directory.manager import LogManager, PreparedCheckpoint

QUIET = """\
scenario: quiet
warm_up: 500ms
duration: 2s
cluster: {brokers: 1}
topics: {t: {replicas: 1}}
producers: [{topic: t, rate: 40/s}]
"""


@pytest.fixture
def run() -> Run:
    """A run whose broker has appended for a second."""
    made = Run(parse_scenario(QUIET), 1)
    made.begin()
    made.world.run_to(1_500_000)
    return made


def parts_of(run: Run) -> tuple[Node, Replica, LogManager]:
    node = run.cluster.brokers[1]
    assert isinstance(node.core, Broker)
    (replica,) = node.core.replicas().values()
    return node, replica, node.core._logs.directories.online[0]


def cut_and_go_on(run: Run) -> PreparedCheckpoint:
    """Cut the log below its high watermark, and append; returns what a job had taken before and has written since."""
    node, replica, manager = parts_of(run)
    manager.checkpoint_high_watermarks()
    prepared = manager.prepare_checkpoint()
    high_watermark = replica.log.high_watermark
    replica.log.truncate_to(high_watermark - 5, now_ms=node.clock.now_ms())
    run.witness.flushes.on_cut(1, "t-0", high_watermark - 5, lowers_marks=replica.log.marks.are_lowered)
    run.world.run_to(run.world.now_us + 60_000)
    assert high_watermark - 5 < replica.log.log_end_offset < high_watermark
    prepared()
    return prepared


@pytest.mark.parametrize("is_adopted", [False, True])
def test_rt16_a_job_that_was_under_way_does_not_raise_the_marks_that_a_cut_has_lowered(
    run: Run, monkeypatch: pytest.MonkeyPatch, *, is_adopted: bool
) -> None:
    prepared = cut_and_go_on(run)
    node, _, _ = parts_of(run)
    before = len(run.jury.violations)
    if is_adopted:
        monkeypatch.setattr(prepared, "_forgotten_count", lambda: prepared._count_before)
    assert prepared.adopt() is is_adopted
    assert isinstance(node.core, Broker)
    run.witness.flushes.on_job_done(node, node.core)
    found = [each.checker for each in run.jury.violations[before:]]
    assert found == ["checkpoint-offsets"] * is_adopted


def test_a_cut_that_lowers_no_mark_asks_for_no_checkpoint(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that has adopted a lower high watermark of its leader has the higher one in its checkpoint."""
    monkeypatch.setattr(LogManager, "_write_lowered_marks", lambda self: None)
    _, replica, _ = parts_of(run)
    cut_and_go_on(run)
    before = len(run.jury.violations)
    run.witness.flushes.on_cut(1, "t-0", replica.log.log_end_offset)
    run.world.run_to(run.world.now_us + 60_000)
    assert "checkpoint-offsets" not in [each.checker for each in run.jury.violations[before:]]


def test_rt16_the_first_append_after_a_cut_writes_the_lowered_marks(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogManager, "_write_lowered_marks", lambda self: None)
    cut_and_go_on(run)
    assert "checkpoint-offsets" in [each.checker for each in run.jury.violations]


@pytest.mark.parametrize("is_lowered", [True, False])
def test_rt16_a_start_that_has_lost_records_lowers_the_checkpoint_before_it_appends(
    run: Run, *, is_lowered: bool
) -> None:
    """Else what is appended in their place would count as committed at the next start."""
    node, replica, manager = parts_of(run)
    end = replica.log.log_end_offset
    run.witness.flushes.on_loaded(1, "t-0", end, end + 9)
    assert manager._high_watermarks is not None
    manager._high_watermarks.write({("t", 0): replica.log.high_watermark if is_lowered else end + 9})
    before = len(run.jury.violations)
    run.witness.flushes.on_appended(1, node.core, "t-0")
    run.witness.flushes.on_appended(1, node.core, "t-0")
    found = [each.checker for each in run.jury.violations[before:]]
    assert found == ["checkpoint-offsets"] * (not is_lowered)
