"""`replog log verify` and `replog log stats`: read logs and change nothing; a node may be using the logs."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import lru_cache, partial

import click

from cluster.local.log_workers import default_jobs, for_each_partition
from replog.log_command_options import (
    UNUSABLE,
    VIOLATED,
    directory_argument,
    echo_lines,
    fail,
    jobs_option,
    json_option,
    quiet_logging,
)
from replog.log_places import log_directory_of, path_of
from storage.directory.manager import LOCK_FILE
from storage.disk.filesystem import OpenMode, basename, dirname, join
from storage.disk.machine_limits import handle_limit_of
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import reason_of
from storage.inspection.stats import PartitionStats, TotalStats, partition_stats, total_stats
from storage.inspection.verify.directory import looks_like_log_directory, verify_beside
from storage.inspection.verify.partition import (
    LogStarts,
    PartitionReport,
    Problem,
    is_partition_directory,
    partition_directories,
    verify_partition,
)

# How often a partition with problems is verified again while a node may be changing it.
_LOOKS_AGAIN = 2
_MAX_MAPS = "/proc/sys/vm/max_map_count"


@click.command("verify")
@directory_argument
@click.option("--deep-iteration", "--deep", is_flag=True, help="Also decode every record.")
@jobs_option
@json_option
def verify(directory: str, deep_iteration: bool, jobs: int | None, as_json: bool) -> None:
    """Report every inconsistency: file, byte, what is wrong, and the broken rule. Changes nothing.

    DIRECTORY is one partition's or a log directory; paths of files are relative to it. While a node is using it, files
    that are about to be deleted are left out.
    """
    file_system = _file_system()
    path = path_of(file_system, directory)
    partitions = _partitions(file_system, path)
    count = default_jobs(file_system, partitions) if jobs is None else jobs
    in_use = _is_in_use(file_system, path)
    _log_starts.cache_clear()
    work = partial(_verify_one, deep=deep_iteration, in_use=in_use)
    reports: list[PartitionReport] = []
    for report in for_each_partition(work, partitions, jobs=count, title="verify"):
        reports.append(report)
        if not as_json:
            echo_lines(_report_lines(report, path))
    beside = _beside(file_system, path, reports, in_use)
    problems = [_from(path, each) for report in reports for each in report.problems] + beside
    if as_json:
        summary = {
            "directory": path,
            "sound": not problems and all(report.error is None for report in reports),
            "partitions": [_report_fields(report, path) for report in reports],
            "problems": [asdict(problem) for problem in problems],
        }
        click.echo(json.dumps(summary))
    else:
        echo_lines(map(_problem_line, beside))
        echo_lines(_verdict(reports, len(problems)))
    if any(report.error is not None for report in reports):
        raise SystemExit(UNUSABLE)
    if problems:
        raise SystemExit(VIOLATED)


def _is_in_use(file_system: OsFileSystem, path: str) -> bool:
    return file_system.is_locked(join(log_directory_of(file_system, path), LOCK_FILE))


def _verify_one(path: str, *, deep: bool, in_use: bool) -> PartitionReport:
    quiet_logging()
    try:
        log_start = None if in_use else partial(_log_starts(dirname(path)).of, basename(path))
        report = verify_partition(_file_system(), path, deep=deep, in_use=in_use, log_start=log_start)
        for _ in range(_LOOKS_AGAIN if in_use else 0):
            if not report.problems:
                break
            report = _confirmed(report, verify_partition(_file_system(), path, deep=deep, in_use=in_use))
        return report
    except OSError as error:
        return PartitionReport(directory=path, error=reason_of(error))


@lru_cache(maxsize=1)
def _log_starts(directory: str) -> LogStarts:
    """Returns the log starts of a directory that nobody changes, of which each process reads the checkpoint once."""
    return LogStarts(_file_system(), directory)


def _confirmed(before: PartitionReport, now: PartitionReport) -> PartitionReport:
    """Keep of `now` only the problems that `before` had too: damage stays, but not the effect of a compaction or a roll
    during the first verification.
    """
    assert before.directory == now.directory, (before.directory, now.directory)
    places = {(each.path, each.position, each.rule) for each in before.problems}
    now.problems = [each for each in now.problems if (each.path, each.position, each.rule) in places]
    return now


def _file_system() -> OsFileSystem:
    return OsFileSystem(keeps_access_times=True)


def _beside(
    file_system: OsFileSystem, path: str, reports: Sequence[PartitionReport], in_use: bool
) -> list[Problem]:
    if is_partition_directory(file_system, path):
        return []
    try:
        return [_from(path, problem) for problem in verify_beside(file_system, path, reports, in_use=in_use)]
    except OSError as error:
        fail(reason_of(error))


def _from(path: str, problem: Problem) -> Problem:
    return replace(problem, path=_relative(path, problem.path))


def _relative(directory: str, path: str) -> str:
    return path.removeprefix(f"{directory}/")


def _report_fields(report: PartitionReport, directory: str) -> dict[str, object]:
    fields = asdict(report)
    fields["directory"] = _relative(directory, report.directory)
    fields["problems"] = len(report.problems)
    return fields


def _report_lines(report: PartitionReport, directory: str) -> Iterator[str]:
    for problem in report.problems:
        yield _problem_line(_from(directory, problem))
    name = _relative(directory, report.directory)
    if report.error is not None:
        yield f"{name}: error: {report.error}"
        return
    verdict = f"{len(report.problems)} problems" if report.problems else "sound"
    missing = f", {report.missing_offsets} offsets missing between batches" if report.missing_offsets else ""
    yield (
        f"{name}: {verdict}, {report.segments} segments, {report.batches} batches, "
        f"{report.size_bytes} bytes, offsets {report.first_offset} to {report.log_end_offset} "
        f"(exclusive){missing}"
    )


def _problem_line(problem: Problem) -> str:
    place = problem.path if problem.position is None else f"{problem.path} at byte {problem.position}"
    return f"{place}: {problem.message} [{problem.rule}]"


def _verdict(reports: Sequence[PartitionReport], problem_count: int) -> Iterator[str]:
    errors = sum(report.error is not None for report in reports)
    counts = f"{len(reports)} partitions, {problem_count} problems"
    yield f"{counts}, {errors} could not be read" if errors else counts


@click.command("stats")
@directory_argument
@jobs_option
@json_option
def stats(directory: str, jobs: int | None, as_json: bool) -> None:
    """Count segments, batches, records, bytes, codecs, epochs, and the files and maps that a node needs.

    DIRECTORY is one partition's or a log directory. Files and maps are those of a node that has used every segment;
    they are compared with the limits of this machine (ulimit -n, vm.max_map_count).
    """
    file_system = _file_system()
    path = path_of(file_system, directory)
    partitions = _partitions(file_system, path)
    count = default_jobs(file_system, partitions) if jobs is None else jobs
    found: list[PartitionStats] = []
    work = partial(_stats_of, in_use=_is_in_use(file_system, path))
    for each in for_each_partition(work, partitions, jobs=count, title="stats"):
        each.directory = _relative(path, each.directory)
        found.append(each)
        if not as_json:
            echo_lines(_stats_lines(each))
    assert len(found) == len(partitions), (path, len(found), len(partitions))
    total, limits = total_stats(found), _limits(file_system)
    assert total.partitions == len(found), (path, total.partitions, len(found))
    if as_json:
        summary = {
            "directory": path,
            "partitions": [{"directory": each.directory} | asdict(each) for each in found],
            "total": {"partitions": total.partitions} | asdict(total),
            "limits": limits,
        }
        click.echo(json.dumps(summary))
    else:
        echo_lines(_total_lines(total, limits))
    if any(each.is_unreadable for each in found):
        raise SystemExit(UNUSABLE)
    if any(each.error is not None for each in found):
        raise SystemExit(VIOLATED)


def _stats_of(path: str, *, in_use: bool) -> PartitionStats:
    quiet_logging()
    try:
        return partition_stats(_file_system(), path, in_use=in_use)
    except OSError as error:
        return PartitionStats(directory=path, error=reason_of(error), is_unreadable=True)


def _stats_lines(each: PartitionStats) -> Iterator[str]:
    epochs = ", ".join(f"{epoch} from {offset}" for epoch, offset in each.epochs) or "none"
    yield (
        f"{each.directory}: {each.segments} segments, {each.batches} batches, {each.records} records "
        f"({each.control_records} control), {each.log_bytes} bytes and {each.index_bytes} of indexes, "
        f"offsets {each.first_offset} to {each.log_end_offset} (exclusive), codecs {_counts(each.codecs)}, "
        f"magic {_counts(each.magics)}, epochs {epochs}, {each.producers} producers, "
        f"{each.open_files} files, {each.maps} maps"
    )
    if each.error is not None:
        yield f"{each.directory}: counted up to here only: {each.error}"


def _total_lines(total: TotalStats, limits: dict[str, int | None]) -> Iterator[str]:
    yield (
        f"total: {total.partitions} partitions, {total.segments} segments, {total.batches} batches, "
        f"{total.records} records ({total.control_records} control), {total.log_bytes} bytes and "
        f"{total.index_bytes} of indexes, codecs {_counts(total.codecs)}, magic {_counts(total.magics)}"
    )
    kept = handle_limit_of(limits["ulimit -n"])
    yield _limit_line("open files", total.open_files, kept, "ulimit -n", limits)
    yield _limit_line("maps", total.maps, kept, "vm.max_map_count", limits)


def _limit_line(what: str, needed: int, kept: int, name: str, limits: dict[str, int | None]) -> str:
    """Returns how many of `what` the segments need if all are in use, and whether a node can keep so many open."""
    limit = limits[name]
    shown = (
        f"{what}: {needed} needed by segments in use, at most {kept} kept open, {name} {limit or 'unknown'}"
    )
    if limit is not None and min(needed, kept) > limit:
        return f"{shown}: TOO MANY: raise {name} above {min(needed, kept)}"
    if needed > kept:
        return f"{shown}: TOO MANY to keep, the others are opened again when they are used"
    return f"{shown}: enough"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def _limits(file_system: OsFileSystem) -> dict[str, int | None]:
    """Returns the limits of this machine by name; None for a limit that does not exist or cannot be read."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "ulimit -n": None if soft == resource.RLIM_INFINITY else soft,
        "vm.max_map_count": _read_number(file_system, _MAX_MAPS),
    }


def _read_number(file_system: OsFileSystem, path: str) -> int | None:
    try:
        file = file_system.open(path, OpenMode.READ)
    except OSError:
        return None
    try:
        return int(file.read_at(0, 64))
    except ValueError:
        return None
    finally:
        file.close()


def _partitions(file_system: OsFileSystem, path: str) -> list[str]:
    """Returns the partition directories to read; ends the command if there are none."""
    try:
        if is_partition_directory(file_system, path):
            return [path]
        found = [join(path, name) for name in partition_directories(file_system, path)]
    except OSError as error:
        fail(reason_of(error))
    if not found and not looks_like_log_directory(file_system, path):
        fail(f"{path} holds no partition")
    return found
