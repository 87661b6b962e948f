"""Several log directories, one of which may fail. Kafka: LogManagerTest; rules LL1, LL4, LL5, AP16."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.directory.directories import LogDirectories
from storage.directory.manager import LogManager
from storage.disk.checkpoints import MetaProperties, MetaPropertiesFile
from storage.disk.filesystem import OpenMode, join, read_file
from storage.draws import Draws
from storage.errors import (
    ConfigError,
    CorruptBatch,
    CorruptCheckpoint,
    DirectoryFailed,
    DirectoryInUse,
    InvalidTopic,
    LogHalfMade,
    StorageError,
)
from tests.storage.logs import NOW_MS, SMALL, append_each, new_disk, read_offsets

THREE = ("one", "two", "three")


def opened(disk: SimDisk, directories: Sequence[str] = THREE) -> LogDirectories:
    return LogDirectories(disk.file_system(Life()), directories, SMALL, NOW_MS, Draws(1))


def started(disk: SimDisk, directories: Sequence[str] = THREE) -> LogDirectories:
    logs = opened(disk, directories)
    logs.load(NOW_MS)
    return logs


def exists(disk: SimDisk, path: str) -> bool:
    return disk.file_system(Life()).exists(path)


def counts(logs: LogDirectories) -> list[int]:
    return [len(manager.logs) for manager in logs.online]


@pytest.mark.covers("LogManagerTest.testLeastLoadedAssignment", "LogManagerTest.testCreateLog")
def test_new_logs_are_spread_over_the_directories() -> None:
    disk = new_disk()
    logs = started(disk)
    for partition in range(20):
        logs.create("t", partition)
        assert max(counts(logs)) - min(counts(logs)) <= 1
    logs.shutdown()
    logs = started(disk)
    assert sum(counts(logs)) == 20 and logs.get("t", 19) is not None
    assert logs.create("t", 7) is logs.get("t", 7)


@pytest.mark.covers("LogManagerTest.testCreateLogOnTargetedLogDirectory")
def test_a_log_is_made_in_the_directory_asked_for() -> None:
    logs = started(new_disk())
    assert logs.create("t", 0, directory="three").directory == "three/t-0"
    with pytest.raises(StorageError, match="no log directory four"):
        logs.create("t", 1, directory="four")


@pytest.mark.covers("LogManagerTest.testGetNonExistentLog")
def test_no_log_exists_before_it_is_created() -> None:
    disk = new_disk()
    logs = started(disk)
    assert logs.get("t", 0) is None and not logs.delete("t", 0)
    assert not any(exists(disk, join(directory, "t-0")) for directory in THREE)


@pytest.mark.covers(
    "LogManagerTest.testCreateLogWithLogDirFallback", "LogManagerTest.testCreateLogWithInvalidLogDir"
)
def test_a_directory_that_cannot_take_a_log_goes_offline_and_the_next_is_tried() -> None:
    disk = new_disk()
    logs = started(disk)
    disk.fail(1, verbs={"make_directory"}, path_suffix="one/t-0")
    disk.fail(1, verbs={"make_directory"}, path_suffix="two/t-0")
    assert logs.create("t", 0).directory == "three/t-0"
    assert [each.directory for each in logs.offline] == ["one", "two"]
    # The name is at fault, not the disk.
    with pytest.raises(InvalidTopic):
        logs.create("no topic", 0)
    assert len(logs.online) == 1


@pytest.mark.parametrize("verb", ["sync_directory", "rename", "sync"])
def test_ll4_a_log_that_may_be_half_made_in_a_failed_directory_is_made_in_no_other(verb: str) -> None:
    disk = new_disk()
    logs = started(disk)
    disk.fail(1, verbs={verb})
    with pytest.raises(LogHalfMade, match="one: create failed"):
        logs.create("t", 0, topic_id="B" * 21 + "A")
    assert [each.directory for each in logs.offline] == ["one"] and logs.get("t", 0) is None
    disk.crash_process()
    # The directory works again: what is in it is the only log.
    log = started(disk).create("t", 0, topic_id="B" * 21 + "A")
    assert log.directory == "one/t-0" and log.local.log_end_offset == 0


def test_ll4_a_log_that_went_offline_with_its_directory_is_made_in_no_other_but_one_of_the_next_topic_is() -> (
    None
):
    disk = new_disk()
    logs = started(disk)
    logs.create("t", 0, topic_id="B" * 21 + "A")
    logs.create("u", 0)
    logs.fail("one", OSError(5, "Input/output error"))
    with pytest.raises(LogHalfMade, match="t-0 is in a log directory that is offline"):
        logs.create("t", 0, topic_id="B" * 21 + "A")
    assert logs.create("t", 0, topic_id="C" * 21 + "A").directory == "three/t-0"
    assert logs.create("u", 0).directory == "two/u-0"


def test_ll4_a_log_without_a_topic_id_that_went_offline_is_made_in_no_other_whatever_the_topic() -> None:
    """It may be a log of that topic, from before topics had ids."""
    logs = started(new_disk())
    assert logs.create("t", 0).directory == "one/t-0"
    logs.fail("one", OSError(5, "Input/output error"))
    for topic_id in (None, "B" * 21 + "A"):
        with pytest.raises(LogHalfMade, match="t-0 is in a log directory that is offline"):
            logs.create("t", 0, topic_id=topic_id)
    assert logs.get("t", 0) is None


def test_ll4_a_log_that_was_made_once_is_no_half_made_one_when_its_successor_fails_before_it_is_begun() -> (
    None
):
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    assert log.directory == "one/t-0" and not logs.online[0].has_half_made("t", 0)
    logs.delete("t", 0)
    logs.checkpoint()
    disk.fail(1, verbs={"make_directory"})
    assert logs.create("t", 0).directory == "two/t-0"
    assert [each.directory for each in logs.offline] == ["one"]


@pytest.mark.covers("LogManagerTest.testInvalidLogDirNotFailLogManager")
def test_ll1_a_directory_that_cannot_be_used_at_start_is_offline_and_the_others_go_on() -> None:
    disk = new_disk()
    disk.fail(1, verbs={"make_directory"}, path_suffix="two")
    logs = started(disk)
    assert [manager.directory for manager in logs.online] == ["one", "three"]
    assert logs.offline[0].directory == "two" and "two" in logs.offline[0].reason
    logs.create("t", 0)


def test_ll1_without_a_directory_that_works_there_is_no_start() -> None:
    disk = new_disk()
    for directory in THREE:
        disk.fail(1, verbs={"make_directory"}, path_suffix=directory)
    with pytest.raises(StorageError, match=r"no log directory can be used: one: .*; two: .*; three: "):
        opened(disk)


@pytest.mark.parametrize("directories", [("one", "one"), ("one", "one/"), ("one", "./one"), ("",), ()])
def test_ll1_a_directory_given_twice_or_not_at_all_is_refused(directories: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"log\.dirs"):
        opened(new_disk(), directories)


@pytest.mark.covers("LogManagerTest.testTwoLogManagersUsingSameDirFails")
def test_ll1_a_directory_in_use_keeps_all_from_starting_and_leaves_no_lock() -> None:
    disk = new_disk()
    other = LogManager(disk.file_system(Life()), "two", SMALL, NOW_MS, Draws(1))
    with pytest.raises(DirectoryInUse, match="two"):
        opened(disk)
    other.close_handles()
    started(disk)


def test_a_disk_that_fails_while_loading_takes_its_logs_offline_only() -> None:
    disk = new_disk()
    logs = started(disk)
    for partition, directory in enumerate(THREE):
        append_each(logs.create("t", partition, directory=directory), 4)
    disk.crash_process()
    disk.fail(1, verbs={"read"}, path_suffix=f"two/t-1/{0:020d}.log")
    logs = started(disk)
    assert [each.directory for each in logs.offline] == ["two"]
    assert logs.get("t", 1) is None
    for partition in (0, 2):
        log = logs.get("t", partition)
        assert log is not None and read_offsets(log) == [0, 1, 2, 3]


def test_damage_is_not_the_disks_fault_and_stops_the_start() -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0, directory="two"), 4)
    logs.shutdown()
    file = disk.file_system(Life()).open(f"two/t-0/{0:020d}.log", OpenMode.WRITE)
    file.append(b"\x00" * 40)
    file.close()
    with pytest.raises(CorruptBatch):
        started(disk)
    # No lock is left.
    assert opened(disk).online


def test_ll4_a_partition_in_two_directories_is_refused() -> None:
    disk = new_disk()
    for directory in ("one", "two"):
        logs = started(disk, [directory])
        append_each(logs.create("t", 0), 1)
        logs.shutdown()
    with pytest.raises(StorageError, match="t-0 is in two log directories: one/t-0 and two/t-0"):
        started(disk)


def test_ll4_logs_of_two_topics_with_one_name_may_be_in_two_directories() -> None:
    """One directory was offline when the first topic was deleted."""
    first, second = "B" * 21 + "A", "C" * 21 + "A"

    def in_two(*topic_ids: str | None) -> SimDisk:
        disk = new_disk()
        for directory, topic_id in zip(("one", "two"), topic_ids, strict=True):
            logs = started(disk, [directory])
            append_each(logs.create("t", 0, topic_id=topic_id), 1)
            logs.shutdown()
        return disk

    logs = started(in_two(first, second))
    assert [manager.topic_ids for manager in logs.online if manager.logs] == [
        {"t-0": first},
        {"t-0": second},
    ]
    for topic_ids in ((first, first), (first, None), (None, first)):
        with pytest.raises(StorageError, match="t-0 is in two log directories"):
            started(in_two(*topic_ids))


def with_half_made(directory: str, *whole: str) -> SimDisk:
    """Return a disk where a crash has cut short the creation of a log; `whole` have one with a batch in it."""
    disk = new_disk()
    for name in whole:
        logs = started(disk, [name])
        append_each(logs.create("t", 0, topic_id="B" * 21 + "A"), 1)
        logs.shutdown()
    logs = started(disk, [directory])
    disk.fail(1, verbs={"sync"}, path_suffix="partition.metadata.tmp")
    with pytest.raises(DirectoryFailed):
        logs.create("t", 0, topic_id="C" * 21 + "A")
    disk.crash_process()
    return disk


@pytest.mark.parametrize(("half_made", "whole"), [("one", "two"), ("two", "one")])
def test_ll4_a_log_that_a_crash_left_half_made_is_deleted_where_another_directory_has_one(
    half_made: str, whole: str
) -> None:
    """Kafka sets aside a log without a topic id (`LogManager.isStrayKraftReplica`): nothing was appended to it."""
    disk = with_half_made(half_made, whole)
    logs = started(disk)
    assert {manager.directory: list(manager.logs) for manager in logs.online if manager.logs} == {
        whole: ["t-0"]
    }
    assert not exists(disk, join(half_made, "t-0"))
    log = logs.get("t", 0)
    assert log is not None and read_offsets(log) == [0]


def test_ll4_a_log_that_a_crash_left_half_made_is_gone_on_with_where_it_is_the_only_one() -> None:
    disk = with_half_made("two")
    logs = started(disk)
    assert logs.create("t", 0, topic_id="C" * 21 + "A").directory == "two/t-0"
    logs.shutdown()
    assert [manager.topic_ids for manager in started(disk).online] == [{}, {"t-0": "C" * 21 + "A"}, {}]


def test_ll4_of_two_logs_that_are_half_made_one_is_left() -> None:
    disk = with_half_made("one")
    logs = started(disk, ["two"])
    logs.create("t", 0)
    disk.crash_process()
    assert counts(started(disk)) == [0, 1, 0]


def test_ll4_a_directory_that_cannot_delete_a_half_made_log_is_offline() -> None:
    disk = with_half_made("two", "one")
    logs = opened(disk)
    disk.fail(1, verbs={"rename"}, path_suffix="two/t-0")
    logs.load(NOW_MS)
    assert [each.directory for each in logs.offline] == ["two"]
    assert {manager.directory: list(manager.logs) for manager in logs.online} == {"one": ["t-0"], "three": []}


@pytest.mark.covers("LogManagerTest.testHandlingExceptionsDuringShutdown")
def test_ll5_a_directory_that_does_not_stop_in_order_keeps_the_others_not_from_it() -> None:
    disk = new_disk()
    logs = started(disk)
    for partition, directory in enumerate(THREE):
        append_each(logs.create("t", partition, directory=directory), 4)
    disk.fail(1, verbs={"sync"}, path_suffix=f"one/t-0/{0:020d}.log")
    assert logs.shutdown(5) is False
    assert [exists(disk, join(name, ".kafka_cleanshutdown")) for name in THREE] == [False, True, True]
    logs = started(disk)
    assert logs.was_clean is False and logs.previous_broker_epoch is None


@pytest.mark.covers("LogManagerTest.testCleanShutdownFileWithBrokerEpoch")
def test_ll5_the_broker_epoch_is_known_where_all_directories_agree() -> None:
    disk = new_disk()
    assert started(disk).shutdown(3)
    logs = opened(disk)
    assert logs.was_clean and logs.previous_broker_epoch == 3


def test_ll5_the_broker_epoch_is_unknown_while_a_directory_is_offline() -> None:
    """What the missing directory says is not known, so nobody may rely on the epoch of the others."""
    disk = new_disk()
    assert started(disk).shutdown(3)
    disk.break_directory("two")
    logs = opened(disk)
    assert [each.directory for each in logs.offline] == ["two"]
    assert [each.previous_broker_epoch for each in logs.online] == [3, 3]
    assert logs.previous_broker_epoch is None


def test_ap16_a_directory_that_fails_in_a_checkpoint_keeps_the_next_one_not_from_it() -> None:
    disk = new_disk()
    logs = started(disk)
    for partition, directory in enumerate(THREE):
        log = logs.create("t", partition, directory=directory)
        append_each(log, 4)
        log.flushes.flush()
        log.marks.update_high_watermark(4)
    disk.fail(1, path_suffix="one/recovery-point-offset-checkpoint.tmp")
    logs.checkpoint()
    assert [each.directory for each in logs.offline] == ["one"]
    file_system = disk.file_system(Life())
    for partition, directory in enumerate(THREE[1:], 1):
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            assert read_file(file_system, join(directory, name)) == b"0\n1\nt %d 4\n" % partition


def test_ap16_a_directory_that_fails_later_is_not_marked_and_its_logs_are_dropped() -> None:
    disk = new_disk()
    logs = started(disk)
    for partition, directory in enumerate(THREE):
        append_each(logs.create("t", partition, directory=directory), 4)
    gone = logs.get("t", 1)
    assert logs.fail("two", OSError("the disk is gone")) == ["t-1"] and logs.fail("two", OSError()) == []
    assert logs.get("t", 1) is None and logs.get("t", 2) is not None
    assert gone is not None
    with pytest.raises(StorageError, match="two/t-1 is offline: log directory failed: the disk is gone"):
        append_each(gone, 1)
    assert logs.shutdown()
    assert [exists(disk, join(name, ".kafka_cleanshutdown")) for name in THREE] == [True, False, True]


def test_ap16_the_last_directory_does_not_fail_alone() -> None:
    logs = started(new_disk(), ("one", "two"))
    logs.fail("one", OSError("the disk is gone"))
    with pytest.raises(OSError, match="this one too"):
        logs.fail("two", OSError("this one too"))
    assert [manager.directory for manager in logs.online] == ["two"]


def test_ap16_the_job_that_uses_the_files_closes_them() -> None:
    """If another thread closed a descriptor under a write, the write could go to another file."""
    logs = started(new_disk())
    log = logs.create("t", 0, directory="two")
    append_each(log, 4)
    told: list[tuple[str, str]] = []
    logs.on_offline = lambda manager, reason: told.append((manager.directory, reason))
    logs.fail("two", OSError("the disk is gone"))
    assert told == [("two", "the disk is gone")]
    assert log.local.segments.active.records.size_bytes > 0
    assert sum(batch.record_count for batch in log.local.segments.active.records.batches()) == 4


def test_the_directory_of_a_path_is_found_among_those_that_work() -> None:
    logs = started(new_disk())
    assert logs.directory_of("two/t-0/x.log") == "two" and logs.directory_of("two") == "two"
    assert logs.directory_of("twos/t-0") is None and logs.directory_of(None) is None
    logs.fail("two", OSError("the disk is gone"))
    assert logs.directory_of("two/t-0/x.log") is None


def test_ll1_the_error_of_the_only_directory_is_raised_unchanged() -> None:
    disk = new_disk()
    disk.fail(1, verbs={"make_directory"}, path_suffix="one")
    with pytest.raises(DirectoryFailed, match=r"^one: open failed: one: "):
        opened(disk, ["one"])
    logs = started(disk, ["one"])
    append_each(logs.create("t", 0), 4)
    disk.crash_process()
    disk.fail(1, verbs={"read"}, path_suffix=f"one/t-0/{0:020d}.log")
    with pytest.raises(StorageError, match="t-0 cannot be loaded"):
        started(disk, ["one"])


@pytest.mark.covers(
    "LogManagerTest.testCheckpointRecoveryPoints", "LogManagerTest.testCheckpointForOnlyAffectedLogs"
)
def test_each_directory_has_the_checkpoints_of_its_own_logs() -> None:
    disk = new_disk()
    logs = started(disk, ["one/", "./two"])
    for partition, directory in enumerate(("one", "two")):
        log = logs.create("t", partition, directory=directory)
        append_each(log, 50 + partition)
        log.flushes.flush()
        log.marks.update_high_watermark(40 + partition)
        log.marks.maybe_increment_log_start_offset(20 + partition)
    logs.checkpoint()
    file_system = disk.file_system(Life())
    for name, first_offset in (
        ("recovery-point-offset-checkpoint", 50),
        ("replication-offset-checkpoint", 40),
        ("log-start-offset-checkpoint", 20),
    ):
        assert read_file(file_system, join("one", name)) == b"0\n1\nt 0 %d\n" % first_offset
        assert read_file(file_system, join("two", name)) == b"0\n1\nt 1 %d\n" % (first_offset + 1)


def test_a_directory_that_cannot_write_its_checkpoints_goes_offline() -> None:
    disk = new_disk()
    logs = started(disk)
    disk.fail(1, verbs={"rename"}, path_suffix="three/replication-offset-checkpoint.tmp")
    logs.checkpoint()
    assert [each.directory for each in logs.offline] == ["three"]


@pytest.mark.covers("LogManagerTest.testLoadDirectoryIds")
def test_owners_are_read_and_must_be_one() -> None:
    disk = new_disk()
    logs = started(disk)
    file_system = disk.file_system(Life())
    assert logs.read_owners() == {}
    for directory in ("one", "two"):
        owner = MetaProperties(node_id=1, cluster_id="c", directory_id=f"id-of-{directory}")
        MetaPropertiesFile(file_system, directory).write(owner)
    assert [owner.directory_id for owner in logs.read_owners().values()] == ["id-of-one", "id-of-two"]
    MetaPropertiesFile(file_system, "three").write(
        MetaProperties(node_id=1, cluster_id="c", directory_id="id-of-one")
    )
    with pytest.raises(CorruptCheckpoint, match=r"directory\.id"):
        logs.read_owners()
    MetaPropertiesFile(file_system, "three").write(MetaProperties(node_id=2, cluster_id="c"))
    with pytest.raises(ConfigError, match="different nodes or clusters"):
        logs.read_owners()
