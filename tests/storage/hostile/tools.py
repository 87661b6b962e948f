"""A sound log directory, and every tool that reads or repairs one: each ends with a result or with one clear error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from pipeline.directory import segment_ranges
from replog.dump_command import dump
from storage.directory.manager import LogManager
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from storage.errors import StorageError
from storage.inspection.stats import partition_stats
from storage.inspection.verify.partition import verify_partition
from storage.log import PartitionLog
from tests.storage.logs import NOW_MS, SMALL, append_each, batch, marker, produced

CLUSTER = "cluster.id=c\nnode.id=1\nversion=1\n"


def make_sound(path: Path, batches: int = 40) -> None:
    """Make a log directory after an orderly stop; t-0 has three segments, producers and an aborted transaction."""
    logs = LogManager(OsFileSystem(), str(path), SMALL, NOW_MS, Draws(1))
    logs.load(NOW_MS)
    log = logs.create("t", 0, topic_id="A" * 21 + "w")
    for sequence in range(3):
        data = produced(producer_id=7, producer_epoch=0, sequence=sequence)
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    begun = batch(3, producer_id=9, producer_epoch=0, sequence=0, is_transactional=True)
    log.append_as_follower(
        begun + marker(9, is_commit=False, offset=4, epoch=0), leader_epoch=0, now_ms=NOW_MS
    )
    append_each(log, batches)
    logs.shutdown(3)
    (path / "meta.properties").write_text(CLUSTER)


def load(directory: Path) -> None:
    logs = LogManager(OsFileSystem(), str(directory), SMALL, NOW_MS, Draws(1))
    logs.load(NOW_MS)
    logs.shutdown()


def use(directory: Path) -> None:
    """Load the logs, read each from its start, append to it and read by time, as a broker does."""
    logs = LogManager(OsFileSystem(), str(directory), SMALL, NOW_MS, Draws(1))
    logs.load(NOW_MS)
    try:
        for log in list(logs.logs.values()):
            _use_log(log)
    finally:
        logs.shutdown()


def _use_log(log: PartitionLog) -> None:
    offset = log.log_start_offset
    for _ in range(200):
        if offset >= log.log_end_offset:
            break
        log.read(offset, max_size=1 << 20)
        offset += 1
    for timestamp in (0, NOW_MS, (1 << 63) - 1):
        log.reads.offset_for_timestamp(timestamp)
    log.append_as_leader(produced(), leader_epoch=(1 << 31) - 1, now_ms=NOW_MS)


def recover(directory: Path) -> None:
    log = PartitionLog.open(OsFileSystem(), f"{directory}/t-0", SMALL, clean=False, now_ms=NOW_MS)
    log.close()


def invoked(command: Any, *arguments: str) -> None:
    result = CliRunner().invoke(command, arguments)
    # The command's own start prints these in one line.
    if isinstance(result.exception, StorageError | OSError):
        raise result.exception
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output


def dump_all(directory: Path) -> None:
    paths = sorted(map(str, (directory / "t-0").glob("0*")))
    invoked(dump, "--files", ",".join(paths), "--print-data-log")


READERS: Final[dict[str, Callable[[Path], object]]] = {
    "verify": lambda path: verify_partition(OsFileSystem(), f"{path}/t-0", deep=True),
    "stats": lambda path: partition_stats(OsFileSystem(), f"{path}/t-0"),
    "dump": dump_all,
    "spark": lambda path: segment_ranges(OsFileSystem(), str(path), {}),
}
WRITERS: Final[dict[str, Callable[[Path], object]]] = {"load": load, "use": use, "recover": recover}
