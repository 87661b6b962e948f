"""Rows of `bench/scale.py`: what a node does in its steps with many partitions in one directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Final

from bench.growth import INDEPENDENT, LINEAR, Once, Row, Sample, at_end, cpu, sliced, steps
from bench.scale_logs import CONFIG, FIRST_TIMESTAMP, SIZES, one_record, write_segments
from storage.directory.directories import LogDirectories
from storage.directory.manager import LogManager
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from storage.log import Isolation, PartitionLog

# Of this many partitions one after the other.
STEPS: Final = 50
# A node's clients come back to the same partitions, which its processor then knows.
PASSES: Final = 4
# As in the findings that the limits come from.
TRUNCATIONS: Final = 200
# What a step of a node does at most, in every revision.
LOGS_A_STEP: Final = 1_000


def write_partitions(directory: Path, size: int, *, records: int = 1) -> None:
    """Write the directories of `size` partitions, with one segment of `records` batches each, and a clean stop."""
    directory.mkdir()
    content = b"".join(map(one_record, range(records)))
    for partition in range(size):
        write_segments(directory / f"t-{partition}", 1)
        if records > 1:
            (directory / f"t-{partition}" / f"{0:020d}.log").write_bytes(content)
    (directory / ".kafka_cleanshutdown").touch()


def open_directory(directory: Path) -> LogManager:
    """Open all logs of `directory`, with all records committed."""
    logs = LogManager(OsFileSystem(), str(directory), CONFIG, FIRST_TIMESTAMP, Draws(1))
    logs.load(FIRST_TIMESTAMP)
    for log in logs.logs.values():
        log.marks.update_high_watermark(log.log_end_offset)
    return logs


def _with_partitions(size: int, root: Path) -> LogManager:
    write_partitions(root / "data", size)
    logs = open_directory(root / "data")
    at_end(logs.close_handles)
    return logs


def load(size: int, root: Path) -> Once:
    """Open a directory of `size` partitions after a clean stop."""
    write_partitions(root / "data", size)

    def once() -> Sample:
        opened: list[LogManager] = []
        sample = cpu(lambda: opened.append(open_directory(root / "data")))
        opened[0].close_handles()
        (root / "data" / ".kafka_cleanshutdown").touch()
        return sample

    return once


def _some(logs: LogManager, number: int) -> Iterator[PartitionLog]:
    for partition in range(number):
        log = logs.get("t", partition)
        assert log is not None
        yield log


def _on_some(step: Callable[[PartitionLog], None], logs: LogManager) -> Sample:
    """Measure `step` on some partitions, several times each."""
    return steps(partial(step, log) for _ in range(PASSES) for log in _some(logs, STEPS))


def _append(log: PartitionLog) -> None:
    log.append_as_leader(one_record(0), leader_epoch=0, now_ms=FIRST_TIMESTAMP)


def append(size: int, root: Path) -> Once:
    logs = _with_partitions(size, root)
    return lambda: _on_some(_append, logs)


def fetch(size: int, root: Path) -> Once:
    """Fetch from some of `size` partitions."""
    logs = _with_partitions(size, root)

    def read(log: PartitionLog) -> None:
        assert log.read(0, max_size=1000, isolation=Isolation.HIGH_WATERMARK).records

    return lambda: _on_some(read, logs)


def create(size: int, root: Path) -> Once:
    logs, names = _with_partitions(size, root), count()
    return lambda: steps(partial(logs.create, "new", next(names)) for _ in range(STEPS))


def delete(size: int, root: Path) -> Once:
    """Delete partitions, whose files are deleted later. Each round creates its own first."""
    logs, names = _with_partitions(size, root), count()

    def once() -> Sample:
        partitions = [next(names) for _ in range(STEPS)]
        for partition in partitions:
            logs.create("new", partition)
        sample = steps(
            partial(logs.delete_later, "new", partition, FIRST_TIMESTAMP) for partition in partitions
        )
        logs.delete_due(FIRST_TIMESTAMP + (1 << 40))
        return sample

    return once


def _truncations(size: int, root: Path) -> tuple[LogManager, Callable[[], None]]:
    """Open partitions; the function that is returned makes each end with a record below its recovery point."""
    logs = _with_partitions(size, root)

    def prepare() -> None:
        for log in _some(logs, min(size, TRUNCATIONS)):
            _append(log)
            log.flushes.flush()
        logs.checkpoint_recovery_points()

    return logs, prepare


def _truncate(log: PartitionLog) -> None:
    log.truncate_to(log.log_end_offset - 1, now_ms=FIRST_TIMESTAMP)


def truncate(size: int, root: Path) -> Once:
    """Truncate partitions below their recovery points, without an append after it."""
    logs, prepare = _truncations(size, root)

    def once() -> Sample:
        prepare()
        return steps(partial(_truncate, log) for log in _some(logs, min(size, TRUNCATIONS)))

    return once


def append_after_truncations(size: int, root: Path) -> Once:
    """Append to a truncated partition: the first append writes the checkpoint for all of them."""
    logs, prepare = _truncations(size, root)

    def once() -> Sample:
        prepare()
        for log in _some(logs, min(size, TRUNCATIONS)):
            _truncate(log)
        return steps([partial(_append, log) for log in _some(logs, 1)])

    return once


def retention(size: int, root: Path) -> Once:
    """Pass over all partitions, none of which has anything to delete, in slices as a node does."""
    logs = _with_partitions(size, root)

    def once() -> Sample:
        every = iter(logs.logs.values())

        def step() -> bool:
            visited = [log.retention.delete_old(FIRST_TIMESTAMP) for log in islice(every, LOGS_A_STEP)]
            return len(visited) == LOGS_A_STEP

        return sliced(step)

    return once


def fail_directory(size: int, root: Path) -> Once:
    """Take one of two directories offline, with `size` partitions; a job closes their files."""
    write_partitions(root / "data", size)
    numbers = count()

    def once() -> Sample:
        directories = [str(root / "data"), str(root / f"other-{next(numbers)}")]
        logs = LogDirectories(OsFileSystem(), directories, CONFIG, FIRST_TIMESTAMP, Draws(1))
        logs.load(FIRST_TIMESTAMP)
        failed = list[LogManager]()
        logs.on_offline = lambda manager, _: failed.append(manager)
        sample = steps([lambda: logs.fail(directories[0], OSError("the disk failed"))])
        failed[0].close_handles()
        logs.close_handles()
        (root / "data" / ".kafka_cleanshutdown").touch()
        return sample

    return once


def checkpoint(size: int, root: Path) -> Once:
    logs = _with_partitions(size, root)
    return lambda: steps([logs.checkpoint_recovery_points])


def prepare_checkpoint(size: int, root: Path) -> Once:
    logs = _with_partitions(size, root)
    return lambda: steps([logs.prepare_checkpoint])


ROWS: Final = [
    Row(
        name="load", what="a clean start with n partitions", sizes=SIZES, most=LINEAR, prepare=load, rounds=3
    ),
    Row(
        name="partitions-append",
        what="an append to one of n partitions",
        sizes=SIZES,
        most=INDEPENDENT,
        prepare=append,
    ),
    Row(
        name="partitions-fetch",
        what="a fetch from one of n partitions",
        sizes=SIZES,
        most=INDEPENDENT,
        prepare=fetch,
    ),
    Row(
        name="creations", what="a creation among n partitions", sizes=SIZES, most=INDEPENDENT, prepare=create
    ),
    Row(
        name="deletions", what="a deletion among n partitions", sizes=SIZES, most=INDEPENDENT, prepare=delete
    ),
    Row(
        name="truncations",
        what="a truncation among n partitions, of up to 200",
        sizes=SIZES,
        most=INDEPENDENT,
        prepare=truncate,
    ),
    Row(
        name="truncations-append",
        what="the first append after up to 200 truncations among n partitions",
        sizes=SIZES,
        most=LINEAR,
        prepare=append_after_truncations,
    ),
    Row(
        name="partitions-retention",
        what="retention that deletes nothing of n partitions",
        sizes=SIZES,
        most=LINEAR,
        prepare=retention,
    ),
    Row(
        name="fail-directory",
        what="a directory with n partitions fails",
        sizes=SIZES,
        most=LINEAR,
        prepare=fail_directory,
        rounds=3,
    ),
    Row(
        name="checkpoint",
        what="the recovery points of n partitions",
        sizes=SIZES,
        most=LINEAR,
        prepare=checkpoint,
    ),
    Row(
        name="prepare-checkpoint",
        what="the high watermarks of n partitions, for a job",
        sizes=SIZES,
        most=LINEAR,
        prepare=prepare_checkpoint,
    ),
]
