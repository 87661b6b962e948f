"""Recovers a log directory before a node starts on it, in one process per partition: a core uses one processor only.

Afterwards every log that it names is recovered, synced and closed, and its end is the recovery point. The names go to
the node in memory, and no clean-shutdown file is written: the last stop was not in order, and where the start dies, the
next one must recover again. The simulator does not use it: its nodes start on what a crash left.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from cluster.local.log_workers import SMALL_BYTES, for_each_partition
from storage.config import LogConfig
from storage.directory.manager import lock_directory
from storage.disk.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CleanShutdownFile,
    OffsetCheckpoint,
)
from storage.disk.filesystem import FileSystem, basename, join
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import CorruptCheckpoint, StorageError
from storage.inspection.verify.partition import partition_directories
from storage.log import PartitionLog
from storage.recovery.cut import RecoveryCut, ReportCut
from storage.topics import METADATA_TOPIC, parse_directory_name

logger = logging.getLogger(__name__)

_Offsets = dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """The recovery of one partition, as another process is given it."""

    directory: str
    config: LogConfig
    log_start_offset: int
    recovery_point: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """The result of one recovery; `log_end_offset` is None where it failed, and the node will report the reason."""

    directory: str
    log_end_offset: int | None
    cuts: tuple[RecoveryCut, ...]


def recover_before_start(
    directory: str, config: LogConfig, now_ms: int, report: ReportCut, *, jobs: int | None = None
) -> frozenset[str]:
    """Recovers the logs of `directory`; returns the directories of those that need no recovery any more.

    `report` is called with every cut. Does nothing after an orderly stop, or where a second process would save no
    time: fewer than two logs with records above their recovery points, or little data. Raises DirectoryInUse.
    """
    file_system = OsFileSystem()
    if not file_system.exists(directory) or CleanShutdownFile(file_system, directory).exists():
        return frozenset()
    jobs = (os.cpu_count() or 1) if jobs is None else jobs
    lock = lock_directory(file_system, directory)
    try:
        tasks = _tasks(file_system, directory, config, now_ms)
        if jobs < 2 or not _pays(file_system, tasks):
            return frozenset()
        logger.info(
            "recovery before the start: directory=%s logs=%d processes=%d", directory, len(tasks), jobs
        )
        paths = {task.directory: task for task in tasks}
        work = partial(_recover, paths)
        results = list(for_each_partition(work, list(paths), jobs=jobs, title="recover"))
        for result in results:
            for cut in result.cuts:
                report(cut)
        return _settle(file_system, directory, results)
    finally:
        lock.release()


def _tasks(file_system: FileSystem, directory: str, config: LogConfig, now_ms: int) -> list[_Task]:
    starts = _read(file_system, join(directory, LOG_START_OFFSET_CHECKPOINT))
    points = _read(file_system, join(directory, RECOVERY_POINT_CHECKPOINT))
    tasks = []
    for name in partition_directories(file_system, directory):
        parsed = parse_directory_name(name)
        # The metadata log belongs to the controller, which recovers it itself and cuts nothing.
        if parsed.topic != METADATA_TOPIC:
            key = (parsed.topic, parsed.partition)
            tasks.append(
                _Task(
                    directory=join(directory, name),
                    config=config,
                    log_start_offset=starts.get(key, 0),
                    recovery_point=points.get(key, 0),
                    now_ms=now_ms,
                )
            )
    return tasks


def _read(file_system: FileSystem, path: str) -> _Offsets:
    """Reads a checkpoint; a corrupt one counts as all zeros, as in LogManager."""
    try:
        return OffsetCheckpoint(file_system, path).read()
    except CorruptCheckpoint:
        return {}


def _pays(file_system: FileSystem, tasks: Sequence[_Task]) -> bool:
    sizes = [_unflushed_bytes(file_system, task) for task in tasks]
    return sum(sizes) >= SMALL_BYTES and sum(sizes) - max(sizes) >= SMALL_BYTES // 2


def _unflushed_bytes(file_system: FileSystem, task: _Task) -> int:
    """Returns the size of the segments that recovery will read: the one with the recovery point and those after it."""
    sizes = {
        int(name[:-4]): file_system.stat(join(task.directory, name)).size_bytes
        for name in file_system.list(task.directory)
        if name.endswith(".log") and name[:-4].isascii() and name[:-4].isdigit()
    }
    first = max((base for base in sizes if base <= task.recovery_point), default=0)
    return sum(size for base, size in sizes.items() if base >= first)


def _recover(tasks: dict[str, _Task], directory: str) -> _Done:
    """Recovers one log in a worker process: opens it as after a crash, and closes it in order."""
    task, cuts = tasks[directory], list[RecoveryCut]()
    end: int | None = None
    try:
        log = PartitionLog.open(
            OsFileSystem(),
            directory,
            task.config,
            log_start_offset=task.log_start_offset,
            recovery_point=task.recovery_point,
            clean=False,
            now_ms=task.now_ms,
            report=cuts.append,
        )
        log.close()
        end = log.log_end_offset
    except (StorageError, OSError) as error:
        logger.warning("directory not recovered before the start: directory=%s reason=%s", directory, error)
    return _Done(directory=directory, log_end_offset=end, cuts=tuple(cuts))


def _settle(file_system: FileSystem, directory: str, results: Sequence[_Done]) -> frozenset[str]:
    """Writes the recovery points; returns the directories of the recovered logs."""
    assert results, directory
    path = join(directory, RECOVERY_POINT_CHECKPOINT)
    points = _read(file_system, path)
    for result in results:
        parsed = parse_directory_name(basename(result.directory))
        assert parsed.topic != METADATA_TOPIC, result.directory
        if result.log_end_offset is not None:
            points[parsed.topic, parsed.partition] = result.log_end_offset
    OffsetCheckpoint(file_system, path).write(points)
    return frozenset(result.directory for result in results if result.log_end_offset is not None)
