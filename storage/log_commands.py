"""`replog log`: recover, truncate and verify logs that no node is using. The only place here that asks a clock."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import NoReturn

import click

from storage.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    OffsetCheckpoint,
)
from storage.config import LogConfig
from storage.errors import CorruptCheckpoint, StorageError
from storage.filesystem import dirname, join
from storage.log import PartitionLog
from storage.log_manager import LOCK_FILE, lock_directory
from storage.os_filesystem import OsFileSystem
from storage.recovery_cut import RecoveryCut
from storage.topics import parse_directory_name
from storage.verify import (
    PartitionReport,
    Problem,
    is_partition_directory,
    partition_directories,
    verify_partition,
)
from storage.verify_directory import verify_log_directory

VIOLATED = 1
UNUSABLE = 2

_directory_argument = click.argument("directory", type=click.Path(exists=True, file_okay=False))
_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object.")
_config_option = click.option(
    "--config",
    "properties",
    multiple=True,
    metavar="K=V",
    help="A property of the topic, e.g. segment.index.bytes.",
)


@click.group("log", short_help="Recover, truncate or verify a log directory offline.")
def log() -> None:
    """Work on the files of partitions. Exit status: 0 done or sound, 1 damage found, 2 unusable."""
    logging.getLogger("storage").addHandler(logging.NullHandler())  # what they log is printed as results here


@log.command("recover")
@_directory_argument
@_json_option
@_config_option
def recover(directory: str, as_json: bool, properties: tuple[str, ...]) -> None:
    """Check every batch of every segment; cut what is damaged, build the indexes anew.

    DIRECTORY is a partition's, or a log directory with many. Each cut is told: segment, byte, reason, bytes.
    """
    file_system, path = OsFileSystem(), _clean_path(directory)
    config = _config(properties)
    with _offline(file_system, path) as partitions:
        results = [_recover_one(file_system, each, config) for each in partitions]
    summary = {
        "directory": path,
        "removed_bytes": sum(result.removed_bytes for result in results),
        "partitions": [asdict(result) for result in results],
    }
    _print(summary, as_json, lambda: _recover_lines(results))
    if any(result.error is not None for result in results):
        raise SystemExit(UNUSABLE)


@dataclass(slots=True, kw_only=True)
class Cut:
    segment: str
    position: int
    reason: str
    removed_bytes: int


@dataclass(slots=True, kw_only=True)
class Recovery:
    """What became of one partition; `error` where it could be neither cut nor rebuilt."""

    directory: str
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    cuts: list[Cut] = field(default_factory=list)
    removed_bytes: int = 0
    error: str | None = None

    def note(self, cut: RecoveryCut) -> None:
        self.removed_bytes += cut.removed_bytes
        self.cuts.append(
            Cut(segment=cut.path, position=cut.position, reason=cut.reason, removed_bytes=cut.removed_bytes)
        )


def _recover_one(file_system: OsFileSystem, path: str, config: LogConfig) -> Recovery:
    result = Recovery(directory=path)
    try:
        log = _open_log(file_system, path, config, report=result.note)
        _finish(file_system, log)
        result.log_start_offset, result.log_end_offset = log.log_start_offset, log.log_end_offset
    except StorageError as error:
        result.error = str(error)
    return result


def _recover_lines(results: list[Recovery]) -> Iterator[str]:
    for result in results:
        for cut in result.cuts:
            yield f"{cut.segment} at byte {cut.position}: {cut.removed_bytes} bytes cut: {cut.reason}"
        if result.error is not None:
            yield f"{result.directory}: {result.error}"
        else:
            span = f"offsets {result.log_start_offset} to {result.log_end_offset} (exclusive)"
            yield f"{result.directory}: {span}, {result.removed_bytes} bytes removed"


@log.command("truncate")
@_directory_argument
@click.option(
    "--to-offset", type=click.IntRange(min=0), required=True, help="The log ends there (exclusive)."
)
@_json_option
@_config_option
def truncate(directory: str, to_offset: int, as_json: bool, properties: tuple[str, ...]) -> None:
    """Remove the batch that holds the offset, whole, and all behind it. DIRECTORY is one partition's."""
    file_system, path = OsFileSystem(), _clean_path(directory)
    if not is_partition_directory(file_system, path):
        _fail(f"{path} is no partition directory")
    config = _config(properties)
    recovery = Recovery(directory=path)
    with _offline(file_system, path):
        try:
            log = _open_log(file_system, path, config, report=recovery.note)
            before, size_before = log.log_end_offset, log.size_bytes
            changed = log.truncate_to(to_offset)
            end = (
                log.active_segment.read_next_offset()
            )  # in the middle of a batch: where the next start finds it
            _finish(file_system, log)
        except StorageError as error:
            _fail(str(error))
    removed_bytes = size_before - log.size_bytes
    summary = {
        "directory": path,
        "changed": changed,
        "log_start_offset": log.log_start_offset,
        "log_end_offset": end,
        "log_end_offset_before": before,
        "removed_bytes": removed_bytes,
        "cuts": [asdict(cut) for cut in recovery.cuts],
    }

    def lines() -> Iterator[str]:
        if changed:
            yield f"{path}: truncated from {before} to {end}, {removed_bytes} bytes removed"
        else:
            yield f"{path}: nothing changed, the log ends at {end}"

    _print(summary, as_json, lines)


@log.command("verify")
@_directory_argument
@click.option("--deep-iteration", is_flag=True, help="Decode every record too.")
@_json_option
def verify(directory: str, deep_iteration: bool, as_json: bool) -> None:
    """Name every inconsistency: file, byte, rule. Changes nothing, and may run beside a node."""
    file_system, path = OsFileSystem(), _clean_path(directory)
    beside: list[Problem] = []
    try:
        if is_partition_directory(file_system, path):
            reports = [verify_partition(file_system, path, deep=deep_iteration)]
        else:
            reports, beside = verify_log_directory(file_system, path, deep=deep_iteration)
    except OSError as error:
        _fail(f"{path}: {error}")
    if not reports and not beside and not _looks_like_log_directory(file_system, path):
        _fail(f"{path} holds no partition")
    problems = [problem for report in reports for problem in report.problems] + beside
    summary = {
        "directory": path,
        "sound": not problems,
        "partitions": [_report_fields(report) for report in reports],
        "problems": [asdict(problem) for problem in problems],
    }
    _print(summary, as_json, lambda: _verify_lines(reports, problems))
    if problems:
        raise SystemExit(VIOLATED)


def _report_fields(report: PartitionReport) -> dict[str, object]:
    fields = asdict(report)
    fields["problems"] = len(report.problems)
    return fields


def _verify_lines(reports: list[PartitionReport], problems: list[Problem]) -> Iterator[str]:
    for problem in problems:
        place = problem.path if problem.position is None else f"{problem.path} at byte {problem.position}"
        yield f"{place}: {problem.message} [{problem.rule}]"
    for report in reports:
        verdict = f"{len(report.problems)} problems" if report.problems else "sound"
        yield (
            f"{report.directory}: {verdict}, {report.segments} segments, {report.batches} batches, "
            f"{report.size_bytes} bytes, offsets {report.first_offset} to {report.log_end_offset} (exclusive)"
        )


# Helpers


def _clean_path(directory: str) -> str:
    return os.path.abspath(directory)


def _fail(message: str) -> NoReturn:
    click.echo(f"error: {message}", err=True)
    raise SystemExit(UNUSABLE)


def _print(summary: Mapping[str, object], as_json: bool, lines: Callable[[], Iterator[str]]) -> None:
    if as_json:
        click.echo(json.dumps(summary))
        return
    for line in lines():
        click.echo(line)


def _config(properties: tuple[str, ...]) -> LogConfig:
    pairs = [each.partition("=") for each in properties]
    try:
        return LogConfig.from_properties({name: value for name, _, value in pairs})
    except StorageError as error:
        _fail(f"--config {error}")


def _looks_like_log_directory(file_system: OsFileSystem, path: str) -> bool:
    return any(file_system.exists(join(path, name)) for name in (LOCK_FILE, RECOVERY_POINT_CHECKPOINT))


@contextmanager
def _offline(file_system: OsFileSystem, path: str) -> Iterator[list[str]]:
    """The partition directories to work on, while no node can have the log directory (DirectoryInUse).

    Without a `.lock` beside it a single partition directory is nobody's: none is made there.
    """
    if is_partition_directory(file_system, path):
        log_directory, partitions = dirname(path), [path]
    else:
        log_directory = path
        partitions = [join(path, name) for name in partition_directories(file_system, path)]
        if not partitions and not _looks_like_log_directory(file_system, path):
            _fail(f"{path} holds no partition")
    if log_directory != path and not file_system.exists(join(log_directory, LOCK_FILE)):
        yield partitions
        return
    try:
        lock = lock_directory(file_system, log_directory)
    except StorageError as error:
        _fail(str(error))
    try:
        yield partitions
    finally:
        lock.release()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _open_log(
    file_system: OsFileSystem,
    path: str,
    config: LogConfig,
    *,
    report: Callable[[RecoveryCut], None],
) -> PartitionLog:
    key = _key(path)
    starts = _read_checkpoint(file_system, join(dirname(path), LOG_START_OFFSET_CHECKPOINT))
    return PartitionLog.open(
        file_system,
        path,
        config,
        log_start_offset=starts.get(key, 0),
        clean=False,
        now_ms=_now_ms(),
        report=report,
    )


def _key(path: str) -> tuple[str, int]:
    parsed = parse_directory_name(os.path.basename(path))
    return parsed.topic, parsed.partition


def _read_checkpoint(file_system: OsFileSystem, path: str) -> dict[tuple[str, int], int]:
    if not file_system.exists(path):
        return {}
    try:
        return OffsetCheckpoint(file_system, path).read()
    except CorruptCheckpoint as error:
        _fail(str(error))


def _finish(file_system: OsFileSystem, log: PartitionLog) -> None:
    """All of it on disk, closed in order; a checkpoint that stands beyond the end comes down."""
    log.close(_now_ms())
    path = join(dirname(log.directory), RECOVERY_POINT_CHECKPOINT)
    offsets = _read_checkpoint(file_system, path)
    key = (log.topic, log.partition)
    if offsets.get(key, 0) > log.log_end_offset:
        offsets[key] = log.log_end_offset
        OffsetCheckpoint(file_system, path).write(offsets)
