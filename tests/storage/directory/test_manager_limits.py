"""A log directory, one step to either side of each rule: LL1 to LL5, LL26."""

from __future__ import annotations

import errno

import pytest

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.disk.checkpoints import CleanShutdownFile
from storage.disk.filesystem import OpenMode, join, read_file
from storage.errors import DirectoryFailed, InconsistentTopicId
from tests.storage.directory.directories import DIRECTORY, TOPIC_ID, manager, started
from tests.storage.logs import NOW_MS, SMALL, append_each, new_disk, produced

CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")
OTHER_ID = "B" * 21 + "w"
MARK = join(DIRECTORY, ".kafka_cleanshutdown")


def write(disk: SimDisk, name: str, data: bytes) -> None:
    file = disk.file_system(Life()).open(join(DIRECTORY, name), OpenMode.CREATE)
    file.set_length(0)
    file.write_at(0, data)
    file.close()


def test_ll1_a_directory_that_was_missing_is_there_after_a_power_loss() -> None:
    disk = new_disk()
    manager(disk)
    disk.lose_power("none")
    assert disk.file_system(Life()).exists(DIRECTORY)


def test_ll1_a_start_that_fails_leaves_no_lock() -> None:
    disk = new_disk()
    started(disk).shutdown()
    disk.file_system(Life()).unlink(join(DIRECTORY, CHECKPOINTS[0]))
    disk.fail(1, errno.ENOSPC, path_suffix=CHECKPOINTS[0])
    with pytest.raises(DirectoryFailed, match=r"open failed: .*No space"):
        manager(disk)
    disk.disarm()
    manager(disk)


def test_ll2_the_broker_epoch_is_read_before_the_mark_is_deleted() -> None:
    disk = new_disk()
    started(disk).shutdown(41)
    logs = manager(disk)
    assert (logs.was_clean, logs.previous_broker_epoch) == (True, 41)
    assert not disk.file_system(Life()).exists(MARK)


def test_ll2_a_mark_that_was_deleted_does_not_come_back() -> None:
    disk = new_disk()
    started(disk).shutdown()
    disk.sync_all()
    assert CleanShutdownFile(disk.file_system(Life()), DIRECTORY).delete()
    disk.lose_power("none")
    assert not CleanShutdownFile(disk.file_system(Life()), DIRECTORY).exists()


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("data", [b"x", b"7\n0\n", b"0\n1\n", b"0\n1\nt 0\n", b"0\n1\nt 0 y\n"])
def test_ll2_a_checkpoint_that_says_nothing_counts_as_zero(name: str, data: bytes) -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 5)
    disk.crash_process()
    write(disk, name, data)
    log = started(disk).logs["t-0"]
    assert (log.log_start_offset, log.local.recovery_point, log.log_end_offset) == (0, 0, 5)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_ll2_a_checkpoint_that_cannot_be_read_counts_as_zero(name: str) -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 5)
    logs.close_handles()
    logs = manager(disk)
    disk.fail(1, verbs={"read"}, path_suffix=name)
    logs.load(NOW_MS)
    disk.disarm()
    assert logs.logs["t-0"].log_end_offset == 5


def test_ll4_a_log_without_a_checkpoint_entry_starts_at_zero() -> None:
    disk = new_disk()
    logs = started(disk)
    for partition in range(2):
        append_each(logs.create("t", partition), 6)
    disk.crash_process()
    write(disk, CHECKPOINTS[0], b"0\n1\nt 1 5\n")
    write(disk, CHECKPOINTS[1], b"0\n1\nt 1 2\n")
    write(disk, "replication-offset-checkpoint", b"0\n1\nt 1 4\n")
    logs = started(disk)
    marks = [
        (log.log_start_offset, log.local.recovery_point, log.high_watermark)
        for log in (logs.logs["t-0"], logs.logs["t-1"])
    ]
    assert marks == [(0, 0, 0), (2, 5, 4)]


@pytest.mark.parametrize("high_watermark", [-1, -5, -(1 << 63)])
def test_ll4_a_negative_high_watermark_in_the_checkpoint_counts_as_the_log_start(high_watermark: int) -> None:
    disk = new_disk()
    append_each(started(disk).create("t", 0), 6)
    disk.crash_process()
    write(disk, "replication-offset-checkpoint", b"0\n1\nt 0 %d\n" % high_watermark)
    log = started(disk).logs["t-0"]
    assert (log.high_watermark, log.log_end_offset) == (0, 6)


def test_ll5_a_stop_before_the_logs_are_loaded_leaves_a_mark_only_where_there_was_one() -> None:
    for was_clean in (False, True):
        disk = new_disk()
        logs = started(disk)
        append_each(logs.create("t", 0), 5)
        if was_clean:
            logs.shutdown()
        else:
            disk.crash_process()
        logs = manager(disk)
        logs.shutdown()
        assert disk.file_system(Life()).exists(MARK) == was_clean


def test_ll5_a_stop_saves_the_producers_of_each_log() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    log.append_as_leader(produced(producer_id=3, producer_epoch=1, sequence=0), leader_epoch=0, now_ms=NOW_MS)
    logs.shutdown()
    assert f"{1:020d}.snapshot" in disk.file_system(Life()).list(join(DIRECTORY, "t-0"))
    assert started(disk).logs["t-0"].producers.last_entry(3) is not None


def test_ll26_a_topic_id_is_written_read_again_and_compared_with_the_requested_one() -> None:
    disk = new_disk()
    logs = started(disk)
    logs.create("t", 0, SMALL, TOPIC_ID)
    assert (
        read_file(disk.file_system(Life()), f"{DIRECTORY}/t-0/partition.metadata")
        == f"version: 0\ntopic_id: {TOPIC_ID}".encode()
    )
    logs.shutdown()
    logs = started(disk)
    assert logs.topic_ids == {"t-0": TOPIC_ID}
    logs.create("t", 0, SMALL, TOPIC_ID)
    with pytest.raises(InconsistentTopicId, match=OTHER_ID):
        logs.create("t", 0, SMALL, OTHER_ID)
