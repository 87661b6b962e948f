"""`replog log`: recover and truncate logs that no node is using. Of this package only this module reads the clock."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
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
from replog.log_places import Key, key_of, log_directory_of, path_of
from replog.partition_recovery import (
    Recovery,
    check_metadata,
    cut_lines,
    fields_of,
    is_still_wrong,
    open_log,
    plan_lines,
    read_offsets,
    recover_lines,
    recover_one,
    topic_config,
)
from replog.recovery_backup import check_target, make_backup, overlay, scratch_directory
from replog.vouchers import Vouchers
from storage.directory.manager import LOCK_FILE, lock_directory
from storage.disk.checkpoints import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, OffsetCheckpoint
from storage.disk.filesystem import FileSystem, dirname, join
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import CorruptCheckpoint, StorageError, reason_of
from storage.inspection.verify.directory import OFFSET_CHECKPOINTS, looks_like_log_directory
from storage.inspection.verify.partition import is_partition_directory, partition_directories
from storage.segment.lookups import read_next_offset
from storage.topics import DELETE_SUFFIX

# The lines that a result is printed in.
Show = Callable[[Recovery], Iterator[str]]

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

    DIRECTORY is one partition's or a log directory. Each cut is reported: segment, byte, reason, bytes. The exit status
    is 1 if something is still wrong with a partition then, which is named as `verify` does, and with --dry-run if bytes
    would be cut. What lies beside the partitions is for `verify`.

    A backup has the files that are changed or deleted. To undo a recovery, copy them back and delete the files that the
    backup's BACKUP.json lists as created.
    """
    file_system = OsFileSystem()
    path = path_of(file_system, directory)
    topic_config(properties)
    if dry_run and backup is not None:
        raise click.UsageError("--dry-run changes nothing, so --backup has nothing to copy")
    target = None if backup is None else check_target(clean_path(backup), path)
    work = partial(recover_one, properties=properties, now_ms=_now_ms())
    changes: dict[str, str] = {}
    with _offline(file_system, path, locks=not dry_run) as partitions:
        count = default_jobs(file_system, partitions) if jobs is None else jobs
        if dry_run:
            results, changes = _run_dry(path, work, partitions, count, None if as_json else plan_lines)
        else:
            if target is not None:
                changes = _back_up(target, path, work, partitions, count)
                if not as_json:
                    echo_lines(_backup_lines(target, changes))
            show = None if as_json else recover_lines
            results = _recover_all(file_system, path, work, partitions, count, show)
    if as_json:
        summary: dict[str, object] = {
            "directory": path,
            "removed_bytes": sum(result.removed_bytes for result in results),
            "partitions": [fields_of(result) for result in results],
        }
        summary |= {"dry_run": True, "changes": changes} if dry_run else {}
        summary |= {"backup": target if changes else None} if target is not None else {}
        click.echo(json.dumps(summary))
    elif dry_run:
        echo_lines(f"would be {change}: {name}" for name, change in sorted(changes.items()))
        click.echo("dry run: nothing was changed")
    if any(result.error is not None for result in results):
        raise SystemExit(UNUSABLE)
    if any(is_still_wrong(result) or (dry_run and result.cuts) for result in results):
        raise SystemExit(VIOLATED)


def _back_up(
    target: str, path: str, work: Callable[..., Recovery], partitions: list[str], jobs: int
) -> dict[str, str]:
    """Copy what a recovery will change to `target`, which is not made without a change; returns the changes.

    Ends the command if they are not known: the backup would lack what is then cut. Of a log that cannot be healed they
    are known: its recovery stops at the same place.
    """
    try:
        results, changes = _run_dry(path, partial(work, looks_again=False), partitions, jobs, None)
    except OSError as error:
        fail(f"--backup: what would change is not known: {reason_of(error)}; nothing was changed")
    for result in results:
        if result.is_stopped_by_system:
            fail(f"--backup: what would change is not known: {result.error}; nothing was changed")
    if changes:
        make_backup(target, path, changes)
    return changes


def _backup_lines(target: str, changes: Mapping[str, str]) -> Iterator[str]:
    copied = f"the {len(changes)} files that change, in {target}" if changes else "none, nothing will change"
    yield f"backup: {copied}"


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
        # Closed first: no process works on a log any more when its checkpoints are lowered.
        with closing(for_each_partition(work, partitions, jobs=jobs, title="recover")) as recoveries:
            for result in recoveries:
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
    work: Callable[..., Recovery],
    partitions: list[str],
    jobs: int,
    show: Show | None,
) -> tuple[list[Recovery], dict[str, str]]:
    """Find what a recovery would do, also to the checkpoints; returns the results, and the changes by path."""
    results: list[Recovery] = []
    changes: dict[str, str] = {}
    with scratch_directory() as scratch:
        # Closed before the directory is deleted: until then other processes write to it.
        with closing(
            for_each_partition(partial(work, scratch=scratch), partitions, jobs=jobs, title="dry run")
        ) as recoveries:
            for result in recoveries:
                results.append(result)
                changes |= result.changes
                if show is not None:
                    echo_lines(show(result))
        with overlay(scratch) as unchanged:
            vouchers = _vouchers(unchanged, path, partitions)
            _lower_checkpoints(unchanged, path, results)
            vouchers.give_back(_ends(results))
            changes |= {name: change.value for name, change in unchanged.changes().items()}
    return results, changes


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
    file_system = OsFileSystem()
    path = path_of(file_system, directory)
    if not is_partition_directory(file_system, path):
        fail(f"{path} is not a partition directory (TOPIC-PARTITION)")
    config = topic_config(properties)
    recovery = Recovery(directory=path)
    with _offline(file_system, path):
        try:
            check_metadata(file_system, path)
            vouchers = _vouchers(file_system, path, [path])
            vouchers.withdraw()
            log = open_log(file_system, path, config, report=recovery.note, now_ms=_now_ms())
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
        yield from cut_lines(recovery)
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


@contextmanager
def _offline(file_system: OsFileSystem, path: str, *, locks: bool = True) -> Iterator[list[str]]:
    """Lock the log directory, so that no node can use it; yields the partition directories to work on.

    Without `locks`, for readers, it is only checked that no node uses it.

    Ends the command if a node has the lock. A single partition directory without a `.lock` beside it is in no log
    directory: then no lock is taken, and no file for one is created.
    """
    if is_partition_directory(file_system, path):
        log_directory, partitions = dirname(path), [path]
        if path.endswith(DELETE_SUFFIX):
            fail(f"{path} is set aside to be deleted ({DELETE_SUFFIX}): it is no log any more")
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


def _vouchers(file_system: FileSystem, path: str, partitions: list[str]) -> Vouchers:
    keys = [key for key in map(key_of, partitions) if key is not None]
    return Vouchers(file_system, log_directory_of(file_system, path), keys, read_offsets)


def _ends(results: list[Recovery]) -> dict[Key, int]:
    """Returns the ends (exclusive) of the logs whose recovery has not failed, of those that checkpoints have."""
    return {
        key: each.log_end_offset
        for each in results
        if each.error is None and each.log_end_offset is not None
        if (key := key_of(each.directory)) is not None
    }


def _lower_checkpoints(file_system: FileSystem, path: str, results: list[Recovery]) -> None:
    """Lower each checkpointed offset that is beyond the end of its log (FL5, and for the cleaner's offsets Kafka's
    LogManager.truncateTo).
    """
    log_directory = log_directory_of(file_system, path)
    ends = {key_of(each.directory): each.log_end_offset for each in results}
    for name in OFFSET_CHECKPOINTS:
        checkpoint = join(log_directory, name)
        offsets = read_offsets(file_system, checkpoint)
        lowered = {key: _lower(offset, ends.get(key)) for key, offset in offsets.items()}
        if lowered != offsets:
            assert lowered.keys() == offsets.keys(), (checkpoint, len(lowered), len(offsets))
            OffsetCheckpoint(file_system, checkpoint).write(lowered)


def _lower(offset: int, end: int | None) -> int:
    return offset if end is None else min(offset, end)
