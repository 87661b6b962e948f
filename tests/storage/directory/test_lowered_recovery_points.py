"""The recovery points of truncated logs: one write of the checkpoint for many, before bytes follow a cut (RT16)."""

from __future__ import annotations

import errno

import pytest

from sim.disk import SimDisk
from storage.directory.manager import LogManager
from storage.errors import OutOfHandles
from storage.log import PartitionLog
from tests.storage.directory.directories import content, started
from tests.storage.logs import NOW_MS, append_each, new_disk
from tests.storage.producers.producer_logs import send

CHECKPOINT = "recovery-point-offset-checkpoint"


def with_flushed_logs(disk: SimDisk, count: int) -> LogManager:
    """Logs of 10 records each, all below the recovery point of the checkpoint."""
    logs = started(disk)
    for partition in range(count):
        log = logs.create("a", partition)
        append_each(log, 10)
        log.flushes.flush()
    logs.checkpoint_recovery_points()
    return logs


def writes_of_the_checkpoint(disk: SimDisk) -> int:
    assert disk.call_log is not None
    return sum(call.startswith("rename") and call.endswith(CHECKPOINT) for call in disk.call_log)


def a_log(logs: LogManager, partition: int) -> PartitionLog:
    log = logs.get("a", partition)
    assert log is not None
    return log


def test_rt16_many_truncations_and_the_appends_after_them_write_the_checkpoint_once() -> None:
    """One write after each takes longer the more partitions there are."""
    disk = new_disk()
    logs = with_flushed_logs(disk, 12)
    disk.call_log = []
    for partition in range(10):
        a_log(logs, partition).truncate_to(4, now_ms=NOW_MS)
    assert writes_of_the_checkpoint(disk) == 0
    for partition in range(12):
        append_each(a_log(logs, partition), 2)
    assert writes_of_the_checkpoint(disk) == 1
    assert content(disk, CHECKPOINT).count(b" 4\n") == 10
    assert content(disk, CHECKPOINT).count(b" 10\n") == 2


def test_rt16_a_checkpoint_by_the_clock_spares_the_append_its_write() -> None:
    disk = new_disk()
    logs = with_flushed_logs(disk, 2)
    a_log(logs, 1).truncate_to(4, now_ms=NOW_MS)
    logs.checkpoint_recovery_points()
    disk.call_log = []
    append_each(a_log(logs, 1), 2)
    assert writes_of_the_checkpoint(disk) == 0


def test_rt16_an_append_whose_checkpoint_finds_no_descriptor_leaves_it_to_the_next_append() -> None:
    disk = new_disk()
    logs = with_flushed_logs(disk, 1)
    log = a_log(logs, 0)
    log.truncate_to(4, now_ms=NOW_MS)
    disk.fail(1, errno.EMFILE, path_suffix=f"{CHECKPOINT}.tmp")
    with pytest.raises(OutOfHandles):
        append_each(log, 1)
    assert (log.online.reason, log.log_end_offset) == (None, 4)
    assert content(disk, CHECKPOINT).endswith(b" 10\n")
    append_each(log, 1)
    assert content(disk, CHECKPOINT).endswith(b" 4\n")


def test_rt16_after_a_crash_no_record_that_was_not_synced_is_below_the_recovery_point() -> None:
    disk = new_disk()
    logs = with_flushed_logs(disk, 2)
    for partition in range(2):
        a_log(logs, partition).truncate_to(4, now_ms=NOW_MS)
    append_each(a_log(logs, 0), 3)
    logs.close_handles()
    again = started(disk)
    assert [a_log(again, partition).log_end_offset for partition in range(2)] == [7, 4]
    assert [a_log(again, partition).local.recovery_point for partition in range(2)] == [4, 4]


def test_t12_the_checkpoint_does_not_pass_a_snapshot_that_is_not_on_the_disk_yet() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    log.flushes.most_in_a_roll = 1
    for producer_id in (1, 2):
        send(log, pid=producer_id)
    log.flushes.roll(now_ms=NOW_MS)
    logs.checkpoint_recovery_points()
    assert log.local.recovery_point == 2
    assert content(disk, CHECKPOINT) == b"0\n1\nt 0 0\n"
    job = log.flushes.begin_snapshot()
    assert job is not None
    job()
    log.flushes.snapshot_done()
    logs.checkpoint_recovery_points()
    assert content(disk, CHECKPOINT) == b"0\n1\nt 0 2\n"
