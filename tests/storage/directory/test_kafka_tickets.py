"""Bugs of Kafka's history in starts and stops of a log directory. Rules LL1 to LL5."""

from __future__ import annotations

import errno

import pytest

from sim.disk.life import Life
from storage.disk.filesystem import OpenMode, join, read_file
from storage.errors import DirectoryFailed, StorageError
from storage.recovery.cut import RecoveryCut
from tests.storage.directory.directories import DIRECTORY, TOPIC_ID, content, manager, started
from tests.storage.logs import NOW_MS, SMALL, append_each, new_disk, read_offsets


def test_kafka_8564_a_directory_about_to_be_deleted_and_without_segments_is_no_obstacle() -> None:
    disk = new_disk()
    disk.file_system(Life()).make_directory(join(DIRECTORY, "t-0." + "a" * 32 + "-delete"))
    assert started(disk).logs == {}


@pytest.mark.parametrize(
    "name",
    ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"],
)
@pytest.mark.parametrize("content_of_it", [b"x", b"0\n1\nt 0\n", b"0\n1\nt 0 five\n", b"7\n0\n", b"\xff"])
def test_kafka_1758_a_checkpoint_that_does_not_parse_stops_no_start(name: str, content_of_it: bytes) -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 5)
    logs.shutdown()
    file = disk.file_system(Life()).open(join(DIRECTORY, name), OpenMode.WRITE)
    file.set_length(0)
    file.write_at(0, content_of_it)
    file.close()
    log = started(disk).logs["t-0"]
    assert (log.log_start_offset, log.log_end_offset) == (0, 5)


def test_ll4_a_checkpoint_that_the_disk_cannot_read_counts_as_zero() -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 5)
    logs.shutdown()
    logs = manager(disk)
    disk.fail(1, verbs={"read"}, path_suffix="recovery-point-offset-checkpoint")
    logs.load(NOW_MS)
    assert logs.logs["t-0"].log_end_offset == 5


@pytest.mark.covers("LogLoaderTest.testLogRecoveryIsCalledUponBrokerCrash")
def test_kafka_10471_a_crash_while_loading_is_no_clean_stop() -> None:
    """The mark is deleted, and the deletion synced, before the first log is opened."""
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 5)
    logs.shutdown()
    disk.fail(1, verbs={"read"}, path_suffix=".log")
    with pytest.raises(StorageError):
        started(disk)
    disk.disarm()
    logs = manager(disk)
    assert logs.was_clean is False


def test_kafka_673_recovery_runs_when_the_mark_is_absent_and_only_then() -> None:
    for clean in (True, False):
        disk = new_disk()
        logs = started(disk)
        append_each(logs.create("t", 0), 5)
        if clean:
            logs.shutdown()
        else:
            disk.crash_process()
        file = disk.file_system(Life()).open(f"{DIRECTORY}/t-0/{0:020d}.log", OpenMode.WRITE)
        file.write_at(70, b"\x77")
        file.close()
        cuts: list[RecoveryCut] = []
        started(disk, cuts)
        assert bool(cuts) is not clean


@pytest.mark.covers("LogManagerTest.testCleanShutdownFileWhenShutdownCalledBeforeStartupComplete")
def test_kafka_15375_a_stop_before_all_is_loaded_leaves_no_mark() -> None:
    disk = new_disk()
    logs = manager(disk)
    logs.shutdown()
    assert not disk.file_system(Life()).exists(join(DIRECTORY, ".kafka_cleanshutdown"))
    logs = started(disk)
    logs.shutdown()
    # The directory was clean before, and nothing was touched.
    manager(disk).shutdown()
    assert disk.file_system(Life()).exists(join(DIRECTORY, ".kafka_cleanshutdown"))


def test_ll5_a_stop_before_all_is_loaded_leaves_the_checkpoints_as_they_are() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 10)
    log.marks.update_high_watermark(9)
    log.marks.maybe_increment_log_start_offset(7)
    logs.shutdown()
    assert manager(disk).shutdown()
    logs = started(disk)
    log = logs.logs["t-0"]
    assert logs.was_clean
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (7, 9, 10)


def test_kafka_13773_a_full_disk_while_recovering_leaves_no_mark() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 5)
    disk.crash_process()
    logs = manager(disk)
    disk.fail(1, errno.ENOSPC, verbs={"write_at", "append", "set_length"})
    with pytest.raises(StorageError, match="No space left"):
        logs.load(NOW_MS)
    disk.disarm()
    assert manager(disk).was_clean is False


@pytest.mark.covers("LogManagerTest.testWaitForAllToComplete")
def test_kafka_10723_one_log_that_does_not_close_leaves_no_other_half_closed() -> None:
    disk = new_disk()
    logs = started(disk)
    for topic in ("a", "b", "c"):
        append_each(logs.create(topic, 0), 3)
    disk.fail(1, verbs={"sync"}, path_suffix="b-0/" + f"{0:020d}.log")
    assert logs.shutdown() is False
    file_system = disk.file_system(Life())
    for topic in ("a", "c"):
        assert (
            file_system.stat(f"{DIRECTORY}/{topic}-0/{0:020d}.index").size_bytes < SMALL.segment_index_bytes
        )
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        path = join(DIRECTORY, name)
        assert not file_system.exists(path) or b"a 0" not in read_file(file_system, path)


def test_kafka_8306_an_empty_log_starts_where_its_checkpoint_says() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 5)
    log.marks.update_high_watermark(5)
    log.marks.maybe_increment_log_start_offset(5)
    logs.shutdown()
    file_system = disk.file_system(Life())
    for name in file_system.list(f"{DIRECTORY}/t-0"):
        file_system.unlink(f"{DIRECTORY}/t-0/{name}")
    log = started(disk).logs["t-0"]
    assert (log.log_start_offset, log.log_end_offset, log.local.segments.base_offsets) == (5, 5, [5])


@pytest.mark.covers("LogManagerTest.testCheckpointLogStartOffsetForNormalTopic")
def test_a_log_start_at_the_first_segment_is_left_out_of_its_checkpoint() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 40, value_bytes=100)
    log.marks.update_high_watermark(40)
    second = log.local.segments.base_offsets[1]
    log.marks.maybe_increment_log_start_offset(second)
    logs.checkpoint_log_start_offsets()
    assert content(disk, "log-start-offset-checkpoint") == b"0\n1\nt 0 %d\n" % second
    log.retention.delete_old(NOW_MS)
    assert log.local.segments.base_offsets[0] == second
    logs.checkpoint_log_start_offsets()
    assert content(disk, "log-start-offset-checkpoint") == b"0\n0\n"


def test_ll5_the_mark_is_written_after_everything_it_promises() -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 3)
    disk.fail(1, verbs={"rename"}, path_suffix="replication-offset-checkpoint.tmp")
    with pytest.raises(DirectoryFailed):
        logs.shutdown()
    assert not disk.file_system(Life()).exists(join(DIRECTORY, ".kafka_cleanshutdown"))
    assert started(disk).was_clean is False


def test_kafka_16814_a_lost_partition_metadata_stops_no_start() -> None:
    """Kafka takes the log for a stray. Here the id is on disk before the log is used, so the data is kept."""
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0, topic_id=TOPIC_ID), 3)
    logs.shutdown()
    disk.file_system(Life()).unlink(f"{DIRECTORY}/t-0/partition.metadata")
    logs = started(disk)
    assert read_offsets(logs.logs["t-0"]) == [0, 1, 2] and logs.topic_ids == {}


def test_kafka_5232_a_deleted_topic_with_a_period_is_deleted_not_another() -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("a.b", 0), 3)
    append_each(logs.create("a", 0), 2)
    logs.delete_later("a.b", 0, NOW_MS)
    logs.shutdown()
    logs = started(disk)
    assert list(logs.logs) == ["a-0"] and read_offsets(logs.logs["a-0"]) == [0, 1]
