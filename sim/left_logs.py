"""Looks for logs at the end of a run that a broker should have deleted or set aside (ROL-5, RT13)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from cluster.core.broker.broker import Broker
from cluster.core.broker.maintenance import DELETION_TIMER
from sim.checkers.base import Jury
from sim.disk.life import Life
from sim.hosts.node import Node
from sim.scenario.disk_steps import DiskStep
from sim.scenario.model import Scenario
from sim.scenario.steps import BreakDisk
from storage.segment.names import DELETED_SUFFIX
from storage.topics import DELETE_SUFFIX, BadDirectoryName, parse_directory_name

NAME = "left-logs"
# For a timer that is late, and a job that takes its time.
_SPARE_US = 3_000_000


def may_leave_logs(scenario: Scenario) -> bool:
    """Whether a disk may have kept a broker from deleting a log."""
    return any(isinstance(step, DiskStep | BreakDisk) for step in scenario.steps)


def owes_deletions(node: Node) -> bool:
    """Whether the broker may still have to delete what it found no descriptor for.

    It tries again with its next checkpoint of high watermarks.
    """
    if not isinstance(node.core, Broker) or not node.was_short:
        return False
    interval_ms = node.core.config.replica_high_watermark_checkpoint_interval_ms
    return node.is_short or node.world.now_us < node.short_ended_us + 1_000 * interval_ms + _SPARE_US


def judge_left_logs(nodes: Collection[Node], jury: Jury) -> None:
    """Report each log on a disk of a broker at rest that is no replica, and has no name of one that is set aside.

    A broker that has started just now, and has no part in what rests, has not read where its logs belong.
    """
    for node in nodes:
        is_sound = not (node.is_damaged or owes_deletions(node))
        if isinstance(node.core, Broker) and is_sound and node.core.lifecycle.is_unfenced:
            placed = {replica.name for replica in node.core.replicas().values()}
            for name in left_logs(_names(node), placed):
                jury.report(NAME, f"{node.name} still has {name}, which the metadata does not place there")


def may_lack_handles(scenario: Scenario) -> bool:
    """Whether a broker may wait for handles before it deletes the files of a log."""
    return "few-handles" in scenario.buggify.points


def judge_deleted_logs(nodes: Collection[Node], jury: Jury) -> None:
    """Report each log that a broker has begun to delete, and whose files are still there although it has no job."""
    for node in nodes:
        is_sound = not (node.is_damaged or owes_deletions(node))
        if isinstance(node.core, Broker) and node.is_at_leisure and is_sound:
            for name in _names(node):
                if name.endswith(DELETE_SUFFIX):
                    jury.report(NAME, f"{node.name} still has {name}, and no job deletes it")


def judge_deleted_segments(nodes: Collection[Node], jury: Jury) -> None:
    """Report the files of deleted segments that nobody will delete: the broker has no job, and waits for no time."""
    for node in nodes:
        core = node.core
        if not isinstance(core, Broker) or not node.is_at_leisure or node.is_damaged:
            continue
        if DELETION_TIMER in node.pending_timers or owes_deletions(node):
            continue
        file_system = node.disk.file_system(Life("eye", sees_through=True))
        for replica in core.replicas().values():
            names = sorted(file_system.list(replica.log.directory))
            if left := [name for name in names if name.endswith(DELETED_SUFFIX)]:
                jury.report(
                    NAME, f"{node.name}: {replica.name} still has {left[0]}, and nothing will delete it"
                )


def _names(node: Node) -> Iterator[str]:
    file_system = node.disk.file_system(Life("eye", sees_through=True))
    for directory in node.directories:
        yield from sorted(file_system.list(directory))


def left_logs(names: Iterator[str], placed: Collection[str]) -> Iterator[str]:
    """Returns the names of logs that are in use, as they have no suffix, and are not among those `placed` there."""
    return (name for name in names if is_log_in_use(name) and name not in placed)


def is_log_in_use(name: str) -> bool:
    """Whether a name in a log directory is that of a log without a suffix, which is neither set aside nor deleted."""
    try:
        return not parse_directory_name(name).suffix
    except BadDirectoryName:
        return False
