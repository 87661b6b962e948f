"""A disk that refuses what a log directory needs beside its logs.

All verbs raise one kind of error. Rules LL1 to LL5.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.directory.manager import LogManager
from storage.disk.filesystem import OpenMode, join
from storage.errors import DirectoryFailed, StorageError
from tests.storage.directory.directories import DIRECTORY, TOPIC_ID, manager, started
from tests.storage.logs import NOW_MS, append_each, new_disk

VERBS: dict[str, Callable[[LogManager], object]] = {
    "create": lambda logs: logs.create("new", 0, topic_id=TOPIC_ID),
    "delete": lambda logs: logs.delete("t", 0),
    "delete_later": lambda logs: logs.delete_later("t", 0, NOW_MS),
    "set_aside": lambda logs: logs.set_aside("t", 0),
    "checkpoint_recovery_points": lambda logs: logs.checkpoint_recovery_points(),
    "checkpoint_log_start_offsets": lambda logs: logs.checkpoint_log_start_offsets(),
    "checkpoint_high_watermarks": lambda logs: logs.checkpoint_high_watermarks(),
    "prepare_checkpoint": lambda logs: logs.prepare_checkpoint()(),
    "shutdown": lambda logs: logs.shutdown(),
}


def with_a_log(disk: SimDisk) -> LogManager:
    logs = started(disk)
    append_each(logs.create("t", 0), 5)
    return logs


def operations_of(verb: str) -> int:
    disk = new_disk()
    logs = with_a_log(disk)
    before = disk.operations
    VERBS[verb](logs)
    return disk.operations - before


@pytest.mark.parametrize("verb", VERBS)
def test_whatever_the_disk_refuses_is_a_storage_error_in_one_line(verb: str) -> None:
    """The verb's first step fails, then its second, and so on. The machine's reason is named once and is the cause."""
    told: list[StorageError] = []
    for number in range(1, operations_of(verb) + 1):
        disk = new_disk()
        logs = with_a_log(disk)
        disk.fail(number, errno.ENOSPC)
        try:
            VERBS[verb](logs)
        except StorageError as error:
            told.append(error)
    assert told
    assert all(isinstance(each.__cause__, OSError) for each in told)
    lines = [str(each) for each in told]
    assert all(line.count("No space left") == 1 and "\n" not in line for line in lines)
    assert all(line.startswith(DIRECTORY) for line in lines)


def test_ll1_a_disk_error_at_the_start_of_the_only_directory_is_raised() -> None:
    disk = new_disk()
    started(disk)
    for number in range(1, disk.operations + 1):
        disk = new_disk()
        disk.fail(number, errno.EIO)
        with pytest.raises(DirectoryFailed, match="Input/output error") as told:
            manager(disk).load(NOW_MS)
        assert isinstance(told.value.__cause__, OSError), number


@pytest.mark.parametrize("checkpoint", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"])
def test_ll1_nothing_stays_open_after_a_load_whose_last_checkpoint_fails(checkpoint: str) -> None:
    disk = new_disk()
    log = with_a_log(disk).logs["t-0"]
    log.marks.update_high_watermark(5)
    disk.lose_power("none")
    logs = manager(disk)
    # The log ends below its high watermark, which is to be written then.
    file = disk.file_system(Life()).open(join(DIRECTORY, "replication-offset-checkpoint"), OpenMode.CREATE)
    file.append(b"0\n1\nt 0 9\n")
    file.close()
    disk.fail(1, errno.ENOSPC, path_suffix=f"{checkpoint}.tmp")
    with pytest.raises(DirectoryFailed, match="No space left"):
        logs.load(NOW_MS)
    # The lock is free, and the log opens as ever.
    logs = started(disk)
    assert list(logs.logs) == ["t-0"]
    assert logs.shutdown()


def test_rt16_a_checkpoint_that_fails_after_a_truncation_refuses_the_append_and_takes_the_log_offline() -> (
    None
):
    disk = new_disk()
    log = with_a_log(disk).logs["t-0"]
    log.flushes.flush()
    disk.fail(1, errno.ENOSPC, path_suffix="recovery-point-offset-checkpoint.tmp")
    log.truncate_to(2, now_ms=NOW_MS)
    size_bytes = log.local.segments.active.size_bytes
    with pytest.raises(StorageError, match=r"append failed: .*No space left"):
        append_each(log, 1)
    assert (log.log_end_offset, log.local.segments.active.size_bytes) == (2, size_bytes)
    assert log.online.reason is not None


def test_ll1_the_name_of_a_directory_is_synced_by_the_next_start_if_the_first_sync_failed() -> None:
    disk = new_disk()
    # The first call makes the directory, the second makes its name durable.
    disk.fail(2, errno.EIO)
    with pytest.raises(DirectoryFailed):
        manager(disk).load(NOW_MS)
    append_each(started(disk).create("t", 0), 5)
    disk.lose_power("none")
    assert disk.file_system(Life()).exists(f"{DIRECTORY}/t-0")
