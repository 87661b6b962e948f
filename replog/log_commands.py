"""`replog log`: recover and truncate logs that no node is using. Of this package only this module reads the clock."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial

import click

from cluster.local.log_workers import default_jobs, for_each_partition
from replog.log_command_options import (
    UNUSABLE,
    VIOLATED,
    clean_path,
    directory_argument,
    echo_lines,
    fail,
    jobs_option,
    json_option,
    quiet_logging,
)
from replog.log_inspect_commands import stats, verify
from replog.recovery_backup import check_target, make_backup, overlay
from replog.vouchers import Vouchers
from storage.config import LogConfig
from storage.directory.manager import LOCK_FILE, lock_directory
from storage.disk.checkpoints import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, OffsetCheckpoint
from storage.disk.filesystem import FileSystem, dirname, join
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import CorruptCheckpoint, StorageError, reason_of
from storage.inspection.verify.directory import OFFSET_CHECKPOINTS, looks_like_log_directory
from storage.inspection.verify.partition import is_partition_directory, partition_directories
from storage.log import PartitionLog
from storage.recovery.cut import RecoveryCut
from storage.segment.lookups import read_next_offset
from storage.topics import parse_directory_name

# The lines that a result is printed in.
Show = Callable[["Recovery"], Iterator[str]]

_config_option = click.option(
    "--config",
    "properties",
    multiple=True,
    metavar="K=V",
    help="A property of the topic, e.g. segment.index.bytes.",
)


@click.group("log", short_help="Verify, recover or truncate a log directory offline, or print its stats.")
def log() -> None:
    """Work on the files of partitions. Exit status: 0 done or sound, 1 damage found, 2 unusable input."""
    quiet_logging()


log.add_command(verify)
log.add_command(stats)


@log.command("recover")
@directory_argument
@json_option
@jobs_option
@_config_option
@click.option("--dry-run", is_flag=True, help="Only say what would be done; change nothing.")
@click.option(
    "--backup",
    metavar="DIR",
    help="First copy what will be changed into DIR, which must not exist.",
)
def recover(
    directory: str,
    as_json: bool,
    jobs: int | None,
    properties: tuple[str, ...],
    dry_run: bool,
    backup: str | None,
) -> None:
    """Check every batch of every segment, cut each log at its first damage, build the indexes again.

    DIRECTORY is one partition's or a log directory. Each cut is reported: segment, byte, reason, bytes. With --dry-run
    the exit status is 1 if bytes would be cut.

    A backup has the files that are changed or deleted. To undo a recovery, copy them back and delete the files that the
    backup's BACKUP.json lists as created.
    """
    file_system, path = OsFileSystem(), clean_path(directory)
    _config(properties)
    if dry_run and backup is not None:
        raise click.UsageError("--dry-run changes nothing, so --backup has nothing to copy")
    target = None if backup is None else check_target(clean_path(backup), path)
    work = partial(_recover_one, properties=properties, now_ms=_now_ms())
    changes: dict[str, str] = {}
    with _offline(file_system, path, locks=not dry_run) as partitions:
        count = default_jobs(file_system, partitions) if jobs is None else jobs
        if dry_run or target is not None:
            show = None if as_json or not dry_run else _plan_lines
            results = _run_dry(path, partial(work, dry_run=True), partitions, count, show, changes)
        if target is not None and changes:
            make_backup(target, path, changes)
        if target is not None and not as_json:
            copied = (
                f"the {len(changes)} files that change, in {target}"
                if changes
                else "none, nothing will change"
            )
            click.echo(f"backup: {copied}")
        if not dry_run:
            show = None if as_json else _recover_lines
            results = _recover_all(file_system, path, partial(work, dry_run=False), partitions, count, show)
    if as_json:
        summary: dict[str, object] = {
            "directory": path,
            "removed_bytes": sum(result.removed_bytes for result in results),
            "partitions": [_fields(result) for result in results],
        }
        summary |= {"dry_run": True, "changes": changes} if dry_run else {}
        summary |= {"backup": target if changes else None} if target is not None else {}
        click.echo(json.dumps(summary))
    elif dry_run:
        echo_lines(f"would be {change}: {name}" for name, change in sorted(changes.items()))
        click.echo("dry run: nothing was changed")
    if any(result.error is not None for result in results):
        raise SystemExit(UNUSABLE)
    if dry_run and any(result.cuts for result in results):
        raise SystemExit(VIOLATED)


def _recover_all(
    file_system: OsFileSystem,
    path: str,
    work: Callable[[str], Recovery],
    partitions: list[str],
    jobs: int,
    show: Show | None,
) -> list[Recovery]:
    """Recover every partition, then lower the checkpoints; returns the results. Meanwhile nothing vouches for them."""
    results: list[Recovery] = []
    vouchers = _vouchers(file_system, path, partitions)
    vouchers.withdraw()
    try:
        for result in for_each_partition(work, partitions, jobs=jobs, title="recover"):
            results.append(result)
            if show is not None:
                echo_lines(show(result))
    # An interruption leaves some partitions recovered: their checkpoints must be lowered too.
    finally:
        _lower_checkpoints(file_system, path, results)
        vouchers.give_back(_ends(results))
    return results


def _run_dry(
    path: str,
    work: Callable[[str], Recovery],
    partitions: list[str],
    jobs: int,
    show: Show | None,
    changes: dict[str, str],
) -> list[Recovery]:
    """Find what a recovery would do, also to the checkpoints, and put it into `changes`; returns the results."""
    results: list[Recovery] = []
    for result in for_each_partition(work, partitions, jobs=jobs, title="dry run"):
        results.append(result)
        changes |= result.changes
        if show is not None:
            echo_lines(show(result))
    with overlay() as unchanged:
        vouchers = _vouchers(unchanged, path, partitions)
        _lower_checkpoints(unchanged, path, results)
        vouchers.give_back(_ends(results))
        changes |= {name: change.value for name, change in unchanged.changes().items()}
    return results


@dataclass(slots=True, kw_only=True)
class Cut:
    """A cut that recovery made: `removed_bytes` from byte `position` of the file `segment` on."""

    segment: str
    position: int
    reason: str
    removed_bytes: int


@dataclass(slots=True, kw_only=True)
class Recovery:
    """The result of one partition's recovery; `error` if it failed. The end offset is exclusive."""

    directory: str
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    cuts: list[Cut] = field(default_factory=list)
    removed_bytes: int = 0
    error: str | None = None
    # In a dry run, what would happen to which files, by path.
    changes: dict[str, str] = field(default_factory=dict)

    def note(self, cut: RecoveryCut) -> None:
        """Add a cut."""
        assert cut.removed_bytes >= 0, (cut.path, cut.position, cut.removed_bytes)
        assert self.error is None, (cut.path, self.error)
        self.removed_bytes += cut.removed_bytes
        self.cuts.append(
            Cut(segment=cut.path, position=cut.position, reason=cut.reason, removed_bytes=cut.removed_bytes)
        )


def _fields(result: Recovery) -> dict[str, object]:
    fields = asdict(result)
    del fields["changes"]
    return fields


def _recover_one(path: str, *, properties: tuple[str, ...], now_ms: int, dry_run: bool) -> Recovery:
    """Recover one partition. It may run in its own process, so it creates everything that it needs."""
    quiet_logging()
    result = Recovery(directory=path)
    try:
        if dry_run:
            with overlay() as unchanged:
                try:
                    _recover_in(unchanged, result, properties, now_ms)
                finally:
                    found = unchanged.changes()
                    result.changes = {name: change.value for name, change in found.items()}
        else:
            _recover_in(OsFileSystem(), result, properties, now_ms)
    except StorageError as error:
        result.error = " ".join(str(error).split())
    except OSError as error:
        result.error = reason_of(error)
    assert dry_run or not result.changes, (path, result.changes)
    assert result.error is not None or result.log_end_offset is not None, path
    return result


def _recover_in(file_system: FileSystem, result: Recovery, properties: tuple[str, ...], now_ms: int) -> None:
    config = _config(properties)
    log = _open_log(file_system, result.directory, config, report=result.note, now_ms=now_ms)
    try:
        log.close()
    except BaseException:
        log.close_handles()
        raise
    result.log_start_offset, result.log_end_offset = log.log_start_offset, log.log_end_offset


def _plan_lines(result: Recovery) -> Iterator[str]:
    for line in _recover_lines(result):
        yield line.replace(" bytes cut: ", " bytes would be cut: ").replace(
            " bytes removed", " bytes would be removed"
        )


def _cut_lines(result: Recovery) -> Iterator[str]:
    for cut in result.cuts:
        yield f"{cut.segment} at byte {cut.position}: {cut.removed_bytes} bytes cut: {cut.reason}"


def _recover_lines(result: Recovery) -> Iterator[str]:
    yield from _cut_lines(result)
    if result.error is not None:
        yield f"{result.directory}: {result.error}"
    else:
        span = f"offsets {result.log_start_offset} to {result.log_end_offset} (exclusive)"
        yield f"{result.directory}: {span}, {result.removed_bytes} bytes removed"


@log.command("truncate")
@directory_argument
@click.option(
    "--to-offset",
    type=click.IntRange(0, 2**63 - 1),
    required=True,
    help="The new log end offset (exclusive).",
)
@json_option
@_config_option
def truncate(directory: str, to_offset: int, as_json: bool, properties: tuple[str, ...]) -> None:
    """Remove the whole batch that contains the offset, and all batches after it. DIRECTORY is one partition's.

    The log is recovered first, and what that cuts is reported too.
    """
    file_system, path = OsFileSystem(), clean_path(directory)
    if not is_partition_directory(file_system, path):
        fail(f"{path} is not a partition directory (TOPIC-PARTITION)")
    config = _config(properties)
    recovery = Recovery(directory=path)
    with _offline(file_system, path):
        try:
            vouchers = _vouchers(file_system, path, [path])
            vouchers.withdraw()
            log = _open_log(file_system, path, config, report=recovery.note, now_ms=_now_ms())
            before, size_before = log.log_end_offset, log.local.segments.size_bytes
            truncated = log.truncate_to(to_offset, now_ms=_now_ms())
            end = read_next_offset(log.local.segments.active)
            # If the offset is within a batch, the next start finds the log end where that batch began.
            if truncated and end < log.log_end_offset:
                log.truncate_to(end, now_ms=_now_ms())
            log.close()
            recovery.log_end_offset = end
            _lower_checkpoints(file_system, path, [recovery])
            vouchers.give_back(_ends([recovery]))
        except StorageError as error:
            fail(str(error))
        except OSError as error:
            fail(reason_of(error))
    assert end <= before, (path, end, before)
    assert size_before >= log.local.segments.size_bytes, (path, size_before)
    removed_bytes = recovery.removed_bytes + size_before - log.local.segments.size_bytes
    summary = {
        "directory": path,
        "changed": truncated or bool(recovery.cuts),
        "log_start_offset": log.log_start_offset,
        "log_end_offset": end,
        "log_end_offset_before": before,
        "removed_bytes": removed_bytes,
        "cuts": [asdict(cut) for cut in recovery.cuts],
    }

    def lines() -> Iterator[str]:
        yield from _cut_lines(recovery)
        if truncated:
            yield f"{path}: truncated from {before} to {end}, {removed_bytes} bytes removed"
        elif recovery.cuts:
            yield f"{path}: cut by its recovery, it ends at {end}, {removed_bytes} bytes removed"
        else:
            yield f"{path}: nothing changed, the log ends at {end}"

    if as_json:
        click.echo(json.dumps(summary))
    else:
        echo_lines(lines())


def _config(properties: tuple[str, ...]) -> LogConfig:
    pairs = [each.partition("=") for each in properties]
    try:
        return LogConfig.from_properties({name: value for name, _, value in pairs})
    except StorageError as error:
        fail(f"--config {error}")


@contextmanager
def _offline(file_system: OsFileSystem, path: str, *, locks: bool = True) -> Iterator[list[str]]:
    """Lock the log directory, so that no node can use it; yields the partition directories to work on.

    Without `locks`, for readers, it is only checked that no node uses it.

    Ends the command if a node has the lock. A single partition directory without a `.lock` beside it is in no log
    directory: then no lock is taken, and no file for one is created.
    """
    if is_partition_directory(file_system, path):
        log_directory, partitions = dirname(path), [path]
    else:
        log_directory = path
        partitions = [join(path, name) for name in partition_directories(file_system, path)]
        if not partitions and not looks_like_log_directory(file_system, path):
            fail(f"{path} holds no partition")
    if log_directory != path and not file_system.exists(join(log_directory, LOCK_FILE)):
        _warn_of_damaged_checkpoints(file_system, log_directory)
        yield partitions
        return
    if not locks:
        if file_system.is_locked(join(log_directory, LOCK_FILE)):
            fail(f"{log_directory} is in use: {LOCK_FILE} is held by another process")
        _warn_of_damaged_checkpoints(file_system, log_directory)
        yield partitions
        return
    try:
        lock = lock_directory(file_system, log_directory)
    except StorageError as error:
        fail(str(error))
    try:
        _warn_of_damaged_checkpoints(file_system, log_directory)
        yield partitions
    finally:
        lock.release()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _open_log(
    file_system: FileSystem,
    path: str,
    config: LogConfig,
    *,
    report: Callable[[RecoveryCut], None],
    now_ms: int,
) -> PartitionLog:
    key = _key(path)
    starts = _read_checkpoint(file_system, join(dirname(path), LOG_START_OFFSET_CHECKPOINT))
    return PartitionLog.open(
        file_system,
        path,
        config,
        log_start_offset=starts.get(key, 0),
        clean=False,
        now_ms=now_ms,
        report=report,
    )


def _key(path: str) -> tuple[str, int]:
    parsed = parse_directory_name(os.path.basename(path))
    return parsed.topic, parsed.partition


def _warn_of_damaged_checkpoints(file_system: OsFileSystem, log_directory: str) -> None:
    """Warn of each damaged checkpoint. As in a node, every offset in it counts as 0, so that no record is lost."""
    for name in (LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        path = join(log_directory, name)
        try:
            if file_system.exists(path):
                OffsetCheckpoint(file_system, path).read()
        except CorruptCheckpoint as error:
            click.echo(f"warning: {error}; every offset in it counts as 0", err=True)
        except OSError as error:
            fail(reason_of(error))


def _read_checkpoint(file_system: FileSystem, path: str) -> dict[tuple[str, int], int]:
    try:
        return OffsetCheckpoint(file_system, path).read() if file_system.exists(path) else {}
    # `_warn_of_damaged_checkpoints` has reported it already.
    except CorruptCheckpoint:
        return {}


def _log_directory(file_system: FileSystem, path: str) -> str:
    return dirname(path) if is_partition_directory(file_system, path) else path


def _vouchers(file_system: FileSystem, path: str, partitions: list[str]) -> Vouchers:
    keys = [_key(each) for each in partitions]
    return Vouchers(file_system, _log_directory(file_system, path), keys, _read_checkpoint)


def _ends(results: list[Recovery]) -> dict[tuple[str, int], int]:
    """Returns the ends (exclusive) of the logs whose recovery has not failed."""
    return {
        _key(each.directory): each.log_end_offset
        for each in results
        if each.error is None and each.log_end_offset is not None
    }


def _lower_checkpoints(file_system: FileSystem, path: str, results: list[Recovery]) -> None:
    """Lower each checkpointed offset that is beyond the end of its log (FL5, and for the cleaner's offsets Kafka's
    LogManager.truncateTo).
    """
    log_directory = _log_directory(file_system, path)
    ends = {_key(each.directory): each.log_end_offset for each in results}
    for name in OFFSET_CHECKPOINTS:
        checkpoint = join(log_directory, name)
        offsets = _read_checkpoint(file_system, checkpoint)
        lowered = {key: _lower(offset, ends.get(key)) for key, offset in offsets.items()}
        if lowered != offsets:
            assert lowered.keys() == offsets.keys(), (checkpoint, len(lowered), len(offsets))
            OffsetCheckpoint(file_system, checkpoint).write(lowered)


def _lower(offset: int, end: int | None) -> int:
    return offset if end is None else min(offset, end)
