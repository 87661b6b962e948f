"""Files that a broker at rest holds open for nobody: deleted ones, those of no log, and a second handle of one."""

from __future__ import annotations

from cluster.core.broker.broker import Broker
from cluster.core.broker.maintenance import DELETION_TIMER
from replog.testing import SimCluster
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.held_files import NAME, HeldFiles
from storage.disk.filesystem import OpenMode


def jury() -> Jury:
    return Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)


def rested() -> SimCluster:
    cluster = SimCluster(seed=1)
    cluster.produce()
    cluster.advance(2_000)
    return cluster


def test_ls22_each_file_that_is_held_for_nobody_is_told_once() -> None:
    cluster = rested()
    node = cluster._node(2)
    assert isinstance(node.core, Broker)
    held = HeldFiles(judge := jury())
    held.look_at_rest([node])
    assert not judge.violations
    system, log = node.file_system, next(iter(node.core.replicas().values())).log.directory
    path = f"{log}/{0:020}.log"
    second = system.open(path, OpenMode.READ)
    mapped = second.map_for_reading()
    system.open(f"{node.directories[0]}/aside", OpenMode.CREATE)
    gone = system.open(f"{log}/gone", OpenMode.CREATE)
    system.unlink(f"{log}/gone")
    for _ in range(2):
        held.look_at_rest([node])
    assert {violation.checker for violation in judge.violations} == {NAME}
    assert [violation.what for violation in judge.violations] == [
        f"{node.name} holds {path} open twice",
        f"{node.name} still holds {node.directories[0]}/aside open, which is of no log that it has",
        f"{node.name} still holds {log}/gone open, which is deleted",
    ]
    system.unlink(path)
    second.close()
    gone.close()
    # A map keeps a file as a descriptor does.
    held.look_at_rest([node])
    assert [violation.what for violation in judge.violations[3:]] == [
        f"{node.name} still holds {path} open, which is deleted",
        f"{node.name} still holds {path} mapped, which is deleted",
    ]
    mapped.close()


def test_ls22_who_waits_to_delete_a_segment_or_has_ended_is_not_judged() -> None:
    cluster = rested()
    node = cluster._node(2)
    node.file_system.open(f"{node.directories[0]}/aside", OpenMode.CREATE)
    held = HeldFiles(judge := jury())
    node._timers.set(DELETION_TIMER, 600_000_000)
    held.look_at_rest([node])
    assert not judge.violations
    cluster.stop(2)
    held.look_at_rest([node])
    assert not judge.violations


def test_ls22_a_new_life_holds_nothing_of_the_one_before() -> None:
    cluster = rested()
    node = cluster._node(2)
    node.file_system.open(f"{node.directories[0]}/aside", OpenMode.CREATE)
    cluster.kill(2)
    cluster.restart(2)
    cluster.advance(2_000)
    held = HeldFiles(judge := jury())
    held.look_at_rest([node])
    assert node.is_at_leisure and not judge.violations
