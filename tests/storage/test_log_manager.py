"""LogManager: lock, checkpoints, start and stop of a log directory. Kafka: LogManagerTest; rules LL1 to LL5."""

from __future__ import annotations

import errno

import pytest

from sim.crash import Dead, Life
from sim.disk import PowerLoss, SimDisk
from storage.config import LogConfig
from storage.draws import Draws
from storage.errors import DirectoryInUse, InconsistentTopicId, InvalidTopic, StorageError
from storage.filesystem import OpenMode, join, read_file
from storage.log_manager import LogManager
from storage.recovery_cut import RecoveryCut
from storage.topics import BadDirectoryName
from tests.storage.log_helpers import NOW_MS, SMALL, append_each, new_disk, read_offsets

DIRECTORY = "data"
TOPIC_ID = "A" * 21 + "w"


def manager(disk: SimDisk, cuts: list[RecoveryCut] | None = None) -> LogManager:
    return LogManager(
        disk.file_system(Life()),
        DIRECTORY,
        SMALL,
        NOW_MS,
        Draws(1),
        report=(cuts if cuts is not None else []).append,
    )


def started(disk: SimDisk, cuts: list[RecoveryCut] | None = None) -> LogManager:
    logs = manager(disk, cuts)
    logs.load(NOW_MS)
    return logs


def content(disk: SimDisk, name: str) -> bytes:
    return read_file(disk.file_system(Life()), join(DIRECTORY, name))


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


def test_ll2_the_mark_is_gone_for_good_before_a_log_is_loaded() -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 5)
    logs.shutdown()
    manager(disk)
    disk.lose_power("none")
    assert manager(disk).was_clean is False


def test_ll5_the_checkpoints_say_where_each_log_stands() -> None:
    disk = new_disk()
    logs = started(disk)
    for partition in range(2):
        append_each(logs.create("t", partition), 5 + partition)
    log = logs.get("t", 0)
    assert log is not None
    log.update_high_watermark(4)
    log.maybe_increment_log_start_offset(2)
    logs.shutdown()
    assert content(disk, "recovery-point-offset-checkpoint") == b"0\n2\nt 0 5\nt 1 6\n"
    assert content(disk, "log-start-offset-checkpoint") == b"0\n1\nt 0 2\n"
    assert content(disk, "replication-offset-checkpoint") == b"0\n2\nt 0 4\nt 1 0\n"
    log = started(disk).logs["t-0"]
    assert (log.log_start_offset, log.high_watermark, log.recovery_point) == (2, 4, 5)


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
    log.flush()
    disk.lose_power("none")
    logs = started(disk)
    assert read_offsets(logs.logs["t-0"]) == [0, 1, 2, 3, 4] and logs.topic_ids == {"t-0": TOPIC_ID}


def test_rt16_a_truncation_lowers_the_recovery_point_on_disk_before_the_next_append() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 10)
    log.flush()
    logs.checkpoint_recovery_points()
    log.truncate_to(4)
    assert content(disk, "recovery-point-offset-checkpoint") == b"0\n1\nt 0 4\n"


def test_a_start_that_ends_below_the_checkpoint_writes_it_anew() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 10)
    log.flush()
    logs.checkpoint_recovery_points()
    disk.crash_process()
    file = disk.file_system(Life()).open(log.active_segment.path, OpenMode.WRITE)
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


def test_create_gives_the_log_that_is_there_and_refuses_another_topic_id() -> None:
    logs = started(new_disk())
    log = logs.create("t", 0, topic_id=TOPIC_ID)
    assert logs.create("t", 0) is log and logs.create("t", 0, topic_id=TOPIC_ID) is log
    with pytest.raises(InconsistentTopicId):
        logs.create("t", 0, topic_id="B" * 21 + "w")


def test_a_deleted_partition_is_gone_and_its_offsets_do_not_haunt_a_new_one() -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 10)
    logs.logs["t-0"].flush()
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
    log.flush()
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
    log.update_high_watermark(3)
    write = logs.prepare_checkpoint()
    log.update_high_watermark(5)
    write()
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
    assert log.active_segment.path == join(log.directory, f"{0:020d}.log")
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
    """The mark goes before the first log is opened, for good."""
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
    manager(disk).shutdown()  # it was clean before: nothing was touched
    assert disk.file_system(Life()).exists(join(DIRECTORY, ".kafka_cleanshutdown"))


def test_kafka_13773_a_full_disk_while_recovering_leaves_no_mark() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 5)
    disk.crash_process()
    logs = manager(disk)
    disk.fail(1, errno.ENOSPC, verbs={"write_at", "append", "set_length"})
    with pytest.raises((StorageError, OSError), match="No space left"):
        logs.load(NOW_MS)
    disk.disarm()
    assert manager(disk).was_clean is False


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
    log.update_high_watermark(5)
    log.maybe_increment_log_start_offset(5)
    logs.shutdown()
    file_system = disk.file_system(Life())
    for name in file_system.list(f"{DIRECTORY}/t-0"):
        file_system.unlink(f"{DIRECTORY}/t-0/{name}")
    log = started(disk).logs["t-0"]
    assert (log.log_start_offset, log.log_end_offset, log.segments.base_offsets) == (5, 5, [5])


@pytest.mark.covers("LogManagerTest.testCheckpointLogStartOffsetForNormalTopic")
def test_1_2_a_log_start_at_the_first_segment_is_left_out_of_its_checkpoint() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 40, value_bytes=100)
    log.update_high_watermark(40)
    second = log.segments.base_offsets[1]
    log.maybe_increment_log_start_offset(second)
    logs.checkpoint_log_start_offsets()
    assert content(disk, "log-start-offset-checkpoint") == b"0\n1\nt 0 %d\n" % second
    log.delete_old_segments(NOW_MS)
    assert log.segments.base_offsets[0] == second
    logs.checkpoint_log_start_offsets()
    assert content(disk, "log-start-offset-checkpoint") == b"0\n0\n"


def test_ll5_the_mark_is_written_after_everything_it_promises() -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 3)
    disk.fail(1, verbs={"rename"}, path_suffix="replication-offset-checkpoint.tmp")
    with pytest.raises(OSError):
        logs.shutdown()
    assert not disk.file_system(Life()).exists(join(DIRECTORY, ".kafka_cleanshutdown"))
    assert started(disk).was_clean is False


def test_kafka_16814_a_lost_partition_metadata_stops_no_start() -> None:
    """Kafka takes the log for a stray. Here the id is on disk before the log is used: the data is kept."""
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
