"""Logs that a broker should have deleted: those of topics that do not exist any more, or are not placed there."""

from __future__ import annotations

from cluster.core.broker.broker import Broker
from cluster.core.broker.maintenance import DELETION_TIMER
from replog.testing import SimCluster
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.disk.life import Life
from sim.left_logs import NAME, judge_deleted_logs, judge_deleted_segments, judge_left_logs, left_logs
from storage.disk.filesystem import OpenMode

ASIDE = "t-0.0123456789abcdef0123456789abcdef-stray"


def test_rol5_a_log_that_is_placed_nowhere_is_found_and_files_are_not() -> None:
    names = ["t-0", "u-1", ASIDE, ASIDE.replace("stray", "delete"), "meta.properties", ".lock"]
    assert list(left_logs(iter(names), {"u-1"})) == ["t-0"]
    assert list(left_logs(iter(names), {"t-0", "u-1"})) == []


def test_a_broker_that_has_just_started_is_not_judged_before_it_has_read_what_is_placed_there() -> None:
    cluster = SimCluster(seed=1)
    cluster.produce()
    cluster.advance(500)
    node, jury = cluster._node(2), Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    cluster.stop(2)
    cluster.advance(3_000)
    assert not cluster.is_up(2)
    cluster.restart(2)
    assert isinstance(node.core, Broker) and not node.core.replicas()
    judge_left_logs([node], jury)
    assert not jury.violations
    cluster.advance(3_000)
    judge_left_logs([node], jury)
    assert not jury.violations
    node.core._context.replicas.clear()
    judge_left_logs([node], jury)
    assert [violation.checker for violation in jury.violations] == [NAME]


def test_rt13_the_files_of_a_deleted_log_are_gone_once_no_job_is_left_for_them() -> None:
    cluster = SimCluster(seed=1)
    cluster.produce()
    cluster.advance(500)
    node, jury = cluster._node(2), Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    judge_deleted_logs([node], jury)
    assert node.is_at_leisure and not jury.violations
    name = ASIDE.replace("stray", "delete")
    node.disk.file_system(Life("hand")).make_directory(f"{node.directories[0]}/{name}")
    judge_deleted_logs([node], jury)
    assert [each.what for each in jury.violations] == [f"{node.name} still has {name}, and no job deletes it"]
    cluster.stop(2)
    judge_deleted_logs([node], jury)
    assert len(jury.violations) == 1


def test_rt3_the_files_of_deleted_segments_are_gone_once_nobody_waits_to_delete_them() -> None:
    cluster = SimCluster(seed=1)
    cluster.produce()
    cluster.advance(500)
    node, jury = cluster._node(2), Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    assert isinstance(node.core, Broker)
    (replica,) = node.core.replicas().values()
    judge_deleted_segments([node], jury)
    assert node.is_at_leisure and not jury.violations
    name = "00000000000000000000.log.deleted"
    node.disk.file_system(Life("hand")).open(f"{replica.log.directory}/{name}", OpenMode.CREATE).close()
    node._timers.set(DELETION_TIMER, 1_000_000)
    judge_deleted_segments([node], jury)
    assert not jury.violations
    cluster.advance(2_000)
    assert DELETION_TIMER not in node.pending_timers and node.is_at_leisure
    judge_deleted_segments([node], jury)
    what = f"{node.name}: {replica.name} still has {name}, and nothing will delete it"
    assert [each.what for each in jury.violations] == [what]
    cluster.stop(2)
    judge_deleted_segments([node], jury)
    assert len(jury.violations) == 1
