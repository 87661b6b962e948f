"""Verifies a log directory: its partitions, its checkpoints and its other folders; reads only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from storage.disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_CHECKPOINT,
    MetaPropertiesFile,
    OffsetCheckpoint,
)
from storage.disk.filesystem import FileSystem, basename, found_at, join
from storage.errors import CorruptCheckpoint
from storage.inspection.verify.partition import (
    LEADS_TO_NOTHING,
    LogStarts,
    PartitionReport,
    Problem,
    left_over,
    partition_directories,
    verify_partition,
)
from storage.topics import DELETE_SUFFIX, BadDirectoryName, parse_directory_name

CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
REMOTE_INDEX_CACHE = "remote-log-index-cache"
OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_CHECKPOINT,
)
_REPLACED_FILES = (*OFFSET_CHECKPOINTS, CLEAN_SHUTDOWN_FILE)
_OWN_FILES = (*OFFSET_CHECKPOINTS, META_PROPERTIES_FILE, CLEAN_SHUTDOWN_FILE)


def verify_log_directory(
    file_system: FileSystem, directory: str, *, deep: bool = False
) -> tuple[list[PartitionReport], list[Problem]]:
    """Verify each partition and the files beside them. Returns the partitions' reports and the other problems.

    Raises OSError if a directory or file is unreadable.
    """
    starts = LogStarts(file_system, directory)
    reports = [
        verify_partition(file_system, join(directory, name), deep=deep, log_start=partial(starts.of, name))
        for name in partition_directories(file_system, directory)
    ]
    return reports, verify_beside(file_system, directory, reports)


def verify_beside(
    file_system: FileSystem, directory: str, reports: Sequence[PartitionReport], *, in_use: bool = False
) -> list[Problem]:
    """Compare the checkpoints with the logs that `reports` describe, and find folders that are not live partitions.

    While a node uses the directory (`in_use`), folders that it is about to delete are not reported, and checkpoints may
    be ahead of the reports, because they are read after the logs.
    """
    settled = [] if in_use else [report for report in reports if report.error is None]
    ends = {basename(report.directory): report.log_end_offset for report in settled}
    known = {basename(report.directory) for report in reports}
    problems: list[Problem] = []
    for name in OFFSET_CHECKPOINTS:
        problems += _check_checkpoint(file_system, join(directory, name), ends)
    try:
        # A link that leads to nothing is reported with the other names.
        if found_at(file_system, join(directory, META_PROPERTIES_FILE)) is not None:
            MetaPropertiesFile(file_system, directory).read()
    except CorruptCheckpoint as error:
        problems.append(Problem(path=error.path, position=None, rule="1.2", message=_reason(error)))
    problems += _check_folders(file_system, directory, known, in_use)
    return problems


def looks_like_log_directory(file_system: FileSystem, directory: str) -> bool:
    return any(file_system.exists(join(directory, name)) for name in (".lock", *_OWN_FILES))


def is_log_directory(file_system: FileSystem, directory: str) -> bool:
    """Whether a node has worked in `directory`. A `.lock` alone may be that of another program. Raises OSError."""
    if any(file_system.exists(join(directory, name)) for name in _OWN_FILES):
        return True
    return file_system.exists(join(directory, ".lock")) and bool(
        partition_directories(file_system, directory)
    )


def _check_checkpoint(file_system: FileSystem, path: str, ends: dict[str, int]) -> Iterator[Problem]:
    """Compare one checkpoint. A line of a missing partition is correct: the partition was deleted or moved away."""
    if not file_system.exists(path):
        return
    try:
        offsets = OffsetCheckpoint(file_system, path).read()
    except CorruptCheckpoint as error:
        yield Problem(path=path, position=None, rule="1.3", message=_reason(error))
        return
    for (topic, partition), offset in sorted(offsets.items()):
        name = f"{topic}-{partition}"
        if name in ends and offset > ends[name]:
            message = f"{name} at {offset}, beyond its log end offset {ends[name]}"
            yield Problem(path=path, position=None, rule="FL5", message=message)


def _reason(error: CorruptCheckpoint) -> str:
    return error.reason if error.line is None else f"line {error.line}: {error.reason}"


def _check_folders(
    file_system: FileSystem, directory: str, known: set[str], in_use: bool
) -> Iterator[Problem]:
    for name in file_system.list(directory):
        path = join(directory, name)
        if name in known or name == REMOTE_INDEX_CACHE:
            continue
        if in_use and name.endswith((".tmp", DELETE_SUFFIX)):
            continue
        found = found_at(file_system, path)
        if name.endswith(".tmp"):
            yield Problem(path=path, position=None, rule="LL6", message=left_over(name, _REPLACED_FILES))
        elif found is None and name in file_system.list(directory):
            yield Problem(path=path, position=None, rule="LL3", message=LEADS_TO_NOTHING)
        elif found is not None and found.is_directory:
            yield from _check_folder(path, name)
        elif _is_name_of_partition(name):
            message = "the name of a partition, but no directory: its log cannot be made"
            yield Problem(path=path, position=None, rule="LL3", message=message)


def _is_name_of_partition(name: str) -> bool:
    try:
        return not parse_directory_name(name).suffix
    except BadDirectoryName:
        return False


def _check_folder(path: str, name: str) -> Iterator[Problem]:
    try:
        parsed = parse_directory_name(name)
    except BadDirectoryName:
        message = "not the name of a partition: Kafka refuses to start with it"
        yield Problem(path=path, position=None, rule="LL3", message=message)
        return
    if parsed.suffix:
        message = f"not live ({parsed.suffix[1:]}): {parsed.topic}-{parsed.partition} was set aside"
        yield Problem(path=path, position=None, rule="LL4", message=message)
