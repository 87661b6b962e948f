"""The topic id of a partition: written before its first record, read again, moved with its directory (rule LL26)."""

from __future__ import annotations

import pytest

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.directory.manager import LogManager
from storage.disk.checkpoints import PartitionMetadataFile
from storage.draws import Draws
from storage.errors import InconsistentTopicId
from tests.storage.logs import NOW_MS, SMALL, append_each, new_disk

DIRECTORY = "data"
TOPIC_ID, OTHER_ID = "A" * 21 + "w", "B" * 21 + "w"


def started(disk: SimDisk) -> LogManager:
    logs = LogManager(disk.file_system(Life()), DIRECTORY, SMALL, NOW_MS, Draws(1))
    logs.load(NOW_MS)
    return logs


def written_id(disk: SimDisk, directory: str) -> str | None:
    return PartitionMetadataFile(disk.file_system(Life()), directory).read()


@pytest.mark.covers("UnifiedLogTest.testLogFlushesPartitionMetadataOnAppend")
def test_ll26_the_topic_id_is_on_the_disk_before_the_first_record() -> None:
    disk = new_disk()
    log = started(disk).create("t", 0, topic_id=TOPIC_ID)
    append_each(log, 1)
    log.flushes.flush()
    disk.lose_power("none")
    assert written_id(disk, log.directory) == TOPIC_ID


def test_ll26_a_log_without_a_topic_id_takes_the_one_that_comes_later() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 1)
    assert logs.create("t", 0, topic_id=TOPIC_ID) is log
    assert (logs.topic_ids, written_id(disk, log.directory)) == ({"t-0": TOPIC_ID}, TOPIC_ID)
    with pytest.raises(InconsistentTopicId):
        logs.create("t", 0, topic_id=OTHER_ID)


@pytest.mark.covers(
    "UnifiedLogTest.testLogFlushesPartitionMetadataOnClose", "UnifiedLogTest.testLogRecoversTopicId"
)
def test_ll26_a_log_that_took_no_record_has_its_topic_id_after_a_stop() -> None:
    disk = new_disk()
    logs = started(disk)
    logs.create("t", 0, topic_id=TOPIC_ID)
    logs.shutdown()
    disk.lose_power("none")
    assert started(disk).topic_ids == {"t-0": TOPIC_ID}


@pytest.mark.covers("UnifiedLogTest.testNoOpWhenKeepPartitionMetadataFileIsFalse")
def test_ll26_without_a_topic_id_there_is_no_file() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    logs.shutdown()
    assert not PartitionMetadataFile(disk.file_system(Life()), log.directory).exists()
    logs = started(disk)
    logs.create("t", 0)
    assert logs.topic_ids == {} and written_id(disk, log.directory) is None


@pytest.mark.covers("UnifiedLogTest.testLogFailsWhenInconsistentTopicIdSet")
def test_ll26_a_log_of_another_topic_id_is_refused_after_a_stop_too() -> None:
    disk = new_disk()
    logs = started(disk)
    directory = logs.create("t", 0, topic_id=TOPIC_ID).directory
    logs.shutdown()
    logs = started(disk)
    with pytest.raises(InconsistentTopicId, match=f"t-0 has topic id {TOPIC_ID}, not {OTHER_ID}"):
        logs.create("t", 0, topic_id=OTHER_ID)
    assert written_id(disk, directory) == TOPIC_ID


@pytest.mark.covers(
    "UnifiedLogTest.testTopicIdTransfersAfterDirectoryRename",
    "UnifiedLogTest.testTopicIdFlushesBeforeDirectoryRename",
)
@pytest.mark.parametrize("records", [0, 1])
def test_rt15_the_topic_id_follows_a_rename(records: int) -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0, topic_id=TOPIC_ID)
    append_each(log, records, epoch=5)
    old = log.directory
    logs.delete_later("t", 0, NOW_MS)
    append_each(log, 1, epoch=10)
    assert log.epochs.latest_epoch == 10 and log.directory != old
    disk.lose_power("none")
    assert written_id(disk, log.directory) == TOPIC_ID
    assert not disk.file_system(Life()).exists(old)
