"""The manager of a log directory: lock, checkpoints, start and stop. Kafka: LogManagerTest; rules LL1 to LL5."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from sim.bugs import Replacement, replaced
from sim.disk import PowerLoss
from sim.disk.handles import SimFile, SimFileSystem
from sim.disk.life import Dead, Life
from storage.config import LogConfig
from storage.directory.manager import LogManager
from storage.disk.filesystem import OpenMode, join
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from storage.errors import DirectoryInUse, InconsistentTopicId, InvalidTopic, StorageError
from storage.recovery.cut import RecoveryCut
from storage.topics import BadDirectoryName
from tests.storage.directory.directories import DIRECTORY, TOPIC_ID, content, manager, started
from tests.storage.logs import NOW_MS, SMALL, append_each, new_disk, read_offsets


@pytest.mark.covers("LogManagerTest.testLock")
def test_ll1_a_directory_in_use_is_refused_and_free_after_stop_and_crash() -> None:
    disk = new_disk()
    logs = started(disk)
    with pytest.raises(DirectoryInUse, match=DIRECTORY):
        manager(disk)
    logs.shutdown()
    logs = started(disk)
    disk.crash_process()
    started(disk)


def test_ll5_an_orderly_stop_leaves_its_mark_and_the_broker_epoch_once() -> None:
    disk = new_disk()
    logs = started(disk)
    assert (logs.was_clean, logs.previous_broker_epoch) == (False, None)
    append_each(logs.create("t", 0), 5)
    assert logs.shutdown(77)
    assert content(disk, ".kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":77}'
    logs = started(disk)
    assert (logs.was_clean, logs.previous_broker_epoch) == (True, 77)
    assert not disk.file_system(Life()).exists(join(DIRECTORY, ".kafka_cleanshutdown"))
    disk.crash_process()
    assert started(disk).was_clean is False


def test_ll2_the_mark_is_durably_deleted_before_a_log_is_loaded() -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 5)
    logs.shutdown()
    manager(disk)
    disk.lose_power("none")
    assert manager(disk).was_clean is False


def test_ll5_the_checkpoints_hold_the_offsets_of_each_log() -> None:
    disk = new_disk()
    logs = started(disk)
    for partition in range(2):
        append_each(logs.create("t", partition), 5 + partition)
    log = logs.get("t", 0)
    assert log is not None
    log.marks.update_high_watermark(4)
    log.marks.maybe_increment_log_start_offset(2)
    logs.shutdown()
    assert content(disk, "recovery-point-offset-checkpoint") == b"0\n2\nt 0 5\nt 1 6\n"
    assert content(disk, "log-start-offset-checkpoint") == b"0\n1\nt 0 2\n"
    assert content(disk, "replication-offset-checkpoint") == b"0\n2\nt 0 4\nt 1 0\n"
    log = started(disk).logs["t-0"]
    assert (log.log_start_offset, log.high_watermark, log.local.recovery_point) == (2, 4, 5)


def test_ll4_a_damaged_checkpoint_counts_as_zero() -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 5)
    logs.shutdown()
    file = disk.file_system(Life()).open(join(DIRECTORY, "recovery-point-offset-checkpoint"), OpenMode.WRITE)
    file.write_at(0, b"x")
    assert started(disk).logs["t-0"].log_end_offset == 5


def test_a_log_survives_a_power_loss_once_flushed_with_all_its_names() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0, topic_id=TOPIC_ID)
    append_each(log, 5)
    log.flushes.flush()
    disk.lose_power("none")
    logs = started(disk)
    assert read_offsets(logs.logs["t-0"]) == [0, 1, 2, 3, 4] and logs.topic_ids == {"t-0": TOPIC_ID}


def test_ll1_a_directory_is_made_with_all_above_it_so_that_no_power_loss_takes_what_was_flushed() -> None:
    disk = new_disk()

    def begun() -> LogManager:
        logs = LogManager(disk.file_system(Life()), "disks/a/logs", SMALL, NOW_MS, Draws(1))
        logs.load(NOW_MS)
        return logs

    log = begun().create("t", 0)
    append_each(log, 5)
    log.flushes.flush()
    disk.lose_power("none")
    assert read_offsets(begun().logs["t-0"]) == [0, 1, 2, 3, 4]


def test_rt16_a_truncation_lowers_the_recovery_point_on_disk_before_the_next_append() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 10)
    log.flushes.flush()
    logs.checkpoint_recovery_points()
    log.truncate_to(4, now_ms=NOW_MS)
    append_each(log, 1)
    assert content(disk, "recovery-point-offset-checkpoint") == b"0\n1\nt 0 4\n"


def test_hwm8_a_high_watermark_of_records_that_are_lost_says_nothing_of_those_that_come_after() -> None:
    """The log starts again, empty, within the checkpoint's interval. Nobody has committed what it holds then."""
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 5)
    log.marks.update_high_watermark(5)
    logs.checkpoint_high_watermarks()
    disk.lose_power("none")
    logs = started(disk)
    log = logs.logs["t-0"]
    assert (log.high_watermark, log.log_end_offset) == (0, 0)
    append_each(log, 3)
    log.flushes.flush()
    disk.lose_power("none")
    log = started(disk).logs["t-0"]
    assert (log.high_watermark, log.log_end_offset) == (0, 3)


def test_hwm8_a_high_watermark_above_the_records_that_are_left_is_lowered_in_the_checkpoint() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 3)
    log.flushes.flush()
    append_each(log, 2)
    log.marks.update_high_watermark(5)
    logs.checkpoint_high_watermarks()
    disk.lose_power("none")
    log = started(disk).logs["t-0"]
    assert (log.high_watermark, log.log_end_offset) == (3, 3)
    append_each(log, 3)
    log.flushes.flush()
    disk.lose_power("none")
    log = started(disk).logs["t-0"]
    assert (log.high_watermark, log.log_end_offset) == (3, 6)


def test_hwm8_a_start_that_finds_the_log_as_high_as_its_checkpoint_writes_nothing() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 5)
    log.flushes.flush()
    log.marks.update_high_watermark(5)
    logs.checkpoint_high_watermarks()
    disk.crash_process()
    path = join(DIRECTORY, "replication-offset-checkpoint")
    disk.file_system(Life()).set_modified(path, 7)
    assert started(disk).logs["t-0"].high_watermark == 5
    assert disk.file_system(Life()).stat(path).modified_ms == 7


def test_a_start_that_ends_below_the_checkpoint_rewrites_it() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 10)
    log.flushes.flush()
    logs.checkpoint_recovery_points()
    disk.crash_process()
    file = disk.file_system(Life()).open(log.local.segments.active.path, OpenMode.WRITE)
    file.truncate(300)
    disk.crash_process()
    cuts: list[RecoveryCut] = []
    logs = started(disk, cuts)
    end = logs.logs["t-0"].log_end_offset
    assert end < 10 and cuts and cuts[0].path == "data/t-0/00000000000000000000.log"
    assert content(disk, "recovery-point-offset-checkpoint") == b"0\n1\nt 0 %d\n" % end


@pytest.mark.covers(
    "PartitionMetadataFileTest.testSetRecordWithDifferentTopicId",
    "PartitionMetadataFileTest.testSetRecordWithSameTopicId",
)
@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a b", "ä", "x" * 250, "a\n"])
def test_a_bad_topic_name_is_refused_and_nothing_is_made(name: str) -> None:
    disk = new_disk()
    logs = started(disk)
    before = disk.file_system(Life()).list(DIRECTORY)
    with pytest.raises(InvalidTopic):
        logs.create(name, 0)
    assert disk.file_system(Life()).list(DIRECTORY) == before


def test_create_returns_the_existing_log_and_refuses_another_topic_id() -> None:
    logs = started(new_disk())
    log = logs.create("t", 0, topic_id=TOPIC_ID)
    assert logs.create("t", 0) is log and logs.create("t", 0, topic_id=TOPIC_ID) is log
    with pytest.raises(InconsistentTopicId):
        logs.create("t", 0, topic_id="B" * 21 + "w")


def test_a_deleted_partition_leaves_no_offsets_to_a_new_one_of_its_name() -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 10)
    logs.logs["t-0"].flushes.flush()
    logs.checkpoint_recovery_points()
    assert logs.delete("t", 0) and not logs.delete("t", 0)
    assert logs.get("t", 0) is None
    assert not [name for name in disk.file_system(Life()).list(DIRECTORY) if name.startswith("t-0")]
    append_each(logs.create("t", 0), 2)
    disk.crash_process()
    assert started(disk).logs["t-0"].log_end_offset == 2


def test_a_deletion_cut_short_at_any_call_is_finished_by_the_next_start() -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 10)
    append_each(logs.create("u", 0), 3)
    logs.shutdown()
    for call in range(1, 60):
        twin = disk.snapshot()
        logs = started(twin)
        twin.arm_crash(call)
        try:
            logs.delete("t", 0)
        except Dead:
            pass
        else:
            break
        logs = started(twin)
        assert read_offsets(logs.logs["u-0"]) == [0, 1, 2]
        if "t-0" in logs.logs:
            assert read_offsets(logs.logs["t-0"]) == list(range(10)), call
        names = twin.file_system(Life()).list(DIRECTORY)
        assert not [name for name in names if name.endswith("-delete")]
    assert call > 8


MODES: list[PowerLoss] = ["none", "prefix", "subset", "torn", "all"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_power_loss_at_any_call_of_a_stop_loses_nothing_that_was_flushed(mode: PowerLoss) -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 20)
    log.flushes.flush()
    for call in range(1, 100):
        twin = disk.snapshot(Draws(call))
        logs = started(twin)
        append_each(logs.logs["t-0"], 10)
        twin.arm_crash(call)
        try:
            logs.shutdown()
        except Dead:
            pass
        else:
            break
        twin.lose_power(mode)
        logs = started(twin)
        offsets = read_offsets(logs.logs["t-0"])
        assert offsets[:20] == list(range(20)) and offsets == list(range(len(offsets))), call
        if logs.was_clean:
            assert len(offsets) == 30
    assert call > 10


def test_ll5_a_log_that_does_not_close_keeps_the_stop_from_being_clean() -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 3)
    disk.fail(1, verbs={"sync"}, path_suffix=".log")
    assert logs.shutdown() is False
    again = started(disk)
    assert again.was_clean is False and again.logs["t-0"].log_end_offset == 3


@pytest.mark.covers("LogManagerTest.testLoadLogsSkipRemoteIndexCache")
def test_ll3_a_directory_that_is_no_partition_is_refused_and_the_lock_is_free_again() -> None:
    disk = new_disk()
    logs = manager(disk)
    disk.file_system(Life()).make_directory("data/photos")
    with pytest.raises(BadDirectoryName, match="photos"):
        logs.load(NOW_MS)
    with pytest.raises(StorageError):
        started(disk)


def test_ll3_the_metadata_log_and_strays_are_left_alone() -> None:
    disk = new_disk()
    file_system = disk.file_system(Life())
    stray = "t-0." + "a" * 32 + "-stray"
    for name in ("__cluster_metadata-0", stray, "remote-log-index-cache"):
        file_system.make_directory(join(DIRECTORY, name))
    logs = started(disk)
    assert logs.logs == {} and file_system.exists(join(DIRECTORY, stray))


def test_ll3_a_topic_whose_name_begins_like_that_of_the_metadata_log_is_loaded() -> None:
    """Else its log would be opened as a new one is: without recovery, and with nothing committed."""
    disk = new_disk()
    log = started(disk).create("__cluster_metadata-copy", 0, topic_id=TOPIC_ID)
    append_each(log, 5)
    file = disk.file_system(Life()).open(log.local.segments.active.path, OpenMode.WRITE)
    file.truncate(file.size() - 1)
    disk.crash_process()
    logs = started(disk)
    assert logs.topic_ids == {"__cluster_metadata-copy-0": TOPIC_ID}
    assert read_offsets(logs.logs["__cluster_metadata-copy-0"]) == [0, 1, 2, 3]


def test_topics_have_their_own_configuration() -> None:
    disk = new_disk()
    logs = started(disk)
    logs.create("t", 0)
    logs.create("u", 0)
    logs.shutdown()
    logs = manager(disk)
    logs.load(NOW_MS, config_of=lambda topic: LogConfig(retention_ms=5 if topic == "u" else 7))
    assert [logs.logs[name].config.retention_ms for name in ("t-0", "u-0")] == [7, 5]


@pytest.mark.covers("LogManagerTest.testLoadLogRenameLogThatShouldBeStray")
def test_prepared_checkpoints_are_those_of_their_moment() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 5)
    log.marks.update_high_watermark(3)
    write = logs.prepare_checkpoint()
    log.marks.update_high_watermark(5)
    write()
    assert content(disk, "replication-offset-checkpoint") == b""
    assert write.adopt()
    assert content(disk, "replication-offset-checkpoint") == b"0\n1\nt 0 3\n"


def test_ll4_a_stray_log_is_set_aside_whole_and_not_loaded_again() -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 3)
    path = logs.set_aside("t", 0)
    assert path is not None and path.endswith("-stray") and logs.logs == {}
    assert logs.set_aside("t", 0) is None
    disk.lose_power("none")
    assert started(disk).logs == {}
    file_system = disk.file_system(Life())
    assert file_system.stat(join(path, f"{0:020d}.log")).size_bytes > 0


@pytest.mark.covers(
    "LogManagerTest.testFileReferencesAfterAsyncDelete", "LogManagerTest.testCreateAndDeleteOverlyLongTopic"
)
@pytest.mark.parametrize("topic", ["t", "x" * 249])
def test_rt15_a_log_that_is_deleted_later_is_readable_in_its_new_directory_until_then(topic: str) -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create(topic, 0)
    append_each(log, 4)
    assert logs.delete_later(topic, 0, NOW_MS) and not logs.delete_later(topic, 0, NOW_MS)
    assert logs.get(topic, 0) is None and logs.next_deletion_ms == NOW_MS + SMALL.file_delete_delay_ms
    name = log.directory.rsplit("/", 1)[-1]
    assert name.endswith("-delete") and len(name) <= 255
    assert log.local.segments.active.path == join(log.directory, f"{0:020d}.log")
    assert read_offsets(log) == [0, 1, 2, 3]
    again = logs.create(topic, 0)
    assert logs.delete_due(NOW_MS + SMALL.file_delete_delay_ms - 1) == []
    assert logs.delete_due(NOW_MS + SMALL.file_delete_delay_ms) == [log.directory]
    file_system = disk.file_system(Life())
    assert not file_system.exists(log.directory) and file_system.exists(again.directory)
    assert logs.next_deletion_ms is None


@pytest.mark.covers("LogManagerTest.testShutdownWithZeroFileDeleteDelayMs")
def test_ll4_a_deletion_that_waits_is_finished_by_the_next_start() -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 4)
    logs.delete_later("t", 0, NOW_MS)
    assert logs.shutdown()
    logs = started(disk)
    assert logs.logs == {}
    assert not [name for name in disk.file_system(Life()).list(DIRECTORY) if name.endswith("-delete")]


def test_a_checkpoint_taken_before_a_deletion_is_not_written_after_it() -> None:
    """A drawn run found it: the next topic of the name exposed uncommitted records after a crash (C1)."""
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 5)
    log.marks.update_high_watermark(5)
    write = logs.prepare_checkpoint()
    logs.delete("t", 0)
    append_each(logs.create("t", 0), 5)
    write()
    assert not write.adopt()
    disk.crash_process()
    log = started(disk).logs["t-0"]
    assert (log.high_watermark, log.log_end_offset) == (0, 5)


@pytest.mark.parametrize("is_later", [False, True], ids=["delete", "delete_later"])
def test_ll4_a_topic_made_again_is_not_emptied_by_the_log_start_of_the_deleted_one(is_later: bool) -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 10)
    log.marks.update_high_watermark(10)
    log.marks.maybe_increment_log_start_offset(6)
    log.flushes.flush()
    logs.checkpoint_recovery_points()
    logs.checkpoint_log_start_offsets()
    logs.checkpoint_high_watermarks()
    assert logs.delete_later("t", 0, NOW_MS) if is_later else logs.delete("t", 0)
    append_each(logs.create("t", 0), 2)
    disk.crash_process()
    log = started(disk).logs["t-0"]
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 0, 2)
    assert read_offsets(log) == [0, 1]


def test_ll1_the_lock_is_held_until_all_of_a_stop_is_done() -> None:
    """A second process that starts while the first one stops would append between a flush and its mark."""
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 5)
    append_each(logs.create("u", 0), 5)
    logs.delete_later("u", 0, NOW_MS)
    calls: list[str] = []

    def start_another(verb: str, path: str) -> None:
        disk.observer = None
        with pytest.raises(DirectoryInUse):
            manager(disk)
        calls.append(f"{verb} {path}")
        disk.observer = start_another

    disk.observer = start_another
    assert logs.shutdown()
    disk.observer = None
    # The last one makes the mark of the clean stop durable.
    assert len(calls) > 10 and calls[-1] == f"sync_directory {DIRECTORY}", calls
    assert started(disk).was_clean


def test_ll5_a_stop_leaves_no_file_open_of_logs_that_wait_for_their_deletion(tmp_path: Path) -> None:
    def open_files() -> list[str]:
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        paths = [os.readlink(link) for link in links if os.path.lexists(link)]
        return sorted(path for path in paths if path.startswith(str(tmp_path)))

    logs = LogManager(OsFileSystem(), f"{tmp_path}/data", SMALL, NOW_MS, Draws(1))
    logs.load(NOW_MS)
    for topic in ("t", "u", "v"):
        append_each(logs.create(topic, 0), 30)
    logs.delete_later("u", 0, NOW_MS)
    logs.delete_later("v", 0, NOW_MS)
    assert any("u-0" in path or "-delete" in path for path in open_files())
    assert logs.shutdown()
    assert open_files() == []


@pytest.mark.parametrize("number", range(8))
def test_a_deletion_while_the_job_is_inside_its_write_wins(number: int) -> None:
    """The job is stopped before its call of that number; meanwhile the topic is deleted, and made again."""
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 5)
    log.marks.update_high_watermark(5)
    write = logs.prepare_checkpoint()

    def recreate() -> None:
        logs.delete("t", 0)
        append_each(logs.create("t", 0), 5)

    with interrupted(number, recreate):
        write()
    write.adopt()
    assert content(disk, "replication-offset-checkpoint") == b"0\n0\n"
    disk.crash_process()
    log = started(disk).logs["t-0"]
    assert (log.high_watermark, log.log_end_offset) == (0, 5)


@contextmanager
def interrupted(number: int, work: Callable[[], None]) -> Iterator[None]:
    """Do `work` before the call of that number, from 0, that changes the disk in the block."""
    count = 0

    def counting(original: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            nonlocal count
            count += 1
            if count == number + 1:
                work()
            return original(*arguments, **named)

        return call

    owners = (
        (SimFileSystem, ("open", "rename", "sync_directory")),
        (SimFile, ("set_length", "write_at", "sync")),
    )
    with ExitStack() as stack:
        for owner, names in owners:
            for name in names:
                target = f"sim.disk.handles:{owner.__name__}.{name}"
                stack.enter_context(replaced(Replacement(target=target, make=counting)))
        yield
        assert count > number, count


def test_ll4_the_offsets_of_a_stray_log_are_not_those_of_the_next_log_of_its_name() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 5)
    log.flushes.flush()
    log.marks.update_high_watermark(5)
    logs.checkpoint_recovery_points()
    logs.checkpoint_high_watermarks()
    logs.set_aside("t", 0)
    append_each(logs.create("t", 0), 5)
    disk.crash_process()
    log = started(disk).logs["t-0"]
    assert (log.high_watermark, log.log_end_offset) == (0, 5)


def test_a_log_start_at_the_first_segment_is_in_no_checkpoint() -> None:
    disk = new_disk()
    logs = started(disk)
    logs.create("t", 0).truncation.truncate_fully_and_start_at(5, now_ms=NOW_MS)
    above = logs.create("t", 1)
    append_each(above, 3)
    above.marks.update_high_watermark(3)
    above.marks.maybe_increment_log_start_offset(2)
    write = logs.prepare_checkpoint()
    write()
    assert write.adopt()
    assert content(disk, "log-start-offset-checkpoint") == b"0\n1\nt 1 2\n"
