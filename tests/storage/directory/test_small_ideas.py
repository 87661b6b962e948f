"""Small ideas of Kafka's tests of files, start-up and log directories that no other file here covers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.disk import SimFileSystem
from sim.disk.life import Life
from storage.batch import Compression, Record, build_batch
from storage.batch.control_batches import (
    Voter,
    encode_kraft_version,
    encode_kraft_voters,
    encode_leader_change,
    encode_snapshot_footer,
    encode_snapshot_header,
)
from storage.batch.legacy.builder import build_message, build_message_set
from storage.directory.directories import LogDirectories
from storage.directory.manager import LogManager
from storage.disk.filesystem import OpenMode, join, read_file
from storage.draws import Draws
from storage.errors import StorageError
from storage.index.transaction_index import TransactionIndex
from storage.inspection.messages.decode import MessageReader, read_message
from storage.inspection.messages.layouts import CONTROL
from storage.inspection.messages.schema import schemas_of
from storage.log import PartitionLog
from storage.segment.lookups import has_overflow
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    SMALL,
    append_each,
    batch,
    new_disk,
    new_file_system,
    open_log,
    open_segment,
    produced,
    read_offsets,
)

FAR = 2**31 - 1


# Files


@pytest.mark.covers("LogSegmentTest.testDeleteIfExistsWithGetParentIsNull")
def test_ix26_a_transaction_index_without_a_directory_in_its_path_is_deleted_too() -> None:
    index = TransactionIndex(new_disk().file_system(Life()), f"{0:020d}.txnindex", 0)
    assert not index.delete_if_exists()


@pytest.mark.covers("OffsetCheckpointFileWithFailureHandlerTest.testLazyOffsetCheckpoint")
def test_ll2_a_checkpoint_is_read_once_for_all_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = new_disk()
    logs = LogManager(disk.file_system(Life()), "data", SMALL, NOW_MS, Draws(1))
    logs.load(NOW_MS)
    for partition in range(5):
        append_each(logs.create("foo", partition), 3)
        logs.logs[f"foo-{partition}"].marks.update_high_watermark(partition % 4)
    logs.shutdown()
    file_system = disk.file_system(Life())
    reads: list[str] = []
    opened = file_system.open

    def noted(path: str, mode: OpenMode, *, can_rest: bool = False) -> object:
        if mode is OpenMode.READ:
            reads.append(path)
        return opened(path, mode, can_rest=can_rest)

    monkeypatch.setattr(file_system, "open", noted)
    logs = LogManager(file_system, "data", SMALL, NOW_MS, Draws(1))
    assert not [path for path in reads if path.endswith("-checkpoint")]
    logs.load(NOW_MS)
    assert [logs.logs[f"foo-{partition}"].high_watermark for partition in range(5)] == [0, 1, 2, 3, 0]
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        assert reads.count(f"data/{name}") == 1


# Control records


LAYOUTS = schemas_of(CONTROL)


@pytest.mark.covers("ControlRecordUtilsTest.testCurrentVersions")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LeaderChangeMessage", encode_leader_change(1, [1], [1])),
        ("SnapshotHeaderRecord", encode_snapshot_header(7)),
        ("SnapshotFooterRecord", encode_snapshot_footer()),
        ("KRaftVersionRecord", encode_kraft_version(1)),
        ("VotersRecord", encode_kraft_voters([])),
    ],
)
def test_control_records_are_written_in_the_only_version_that_is_read(name: str, value: bytes) -> None:
    assert list(LAYOUTS[name]) == [0] and value[:2] == bytes(2)
    reader = MessageReader(value)
    assert read_message(reader, LAYOUTS[name][0])["version"] == 0 and reader.remaining == 0


@pytest.mark.covers("ControlRecordUtilsTest.testDeserializeByteData")
def test_voters_are_read_as_they_were_written() -> None:
    value = encode_kraft_voters([Voter(voter_id=0, directory_id=bytes(16), endpoints=())])
    voters = read_message(MessageReader(value), LAYOUTS["VotersRecord"][0])["voters"]
    assert isinstance(voters, list) and len(voters) == 1 and isinstance(voters[0], dict)
    assert (voters[0]["voterId"], voters[0]["endpoints"]) == (0, [])


# Closing


@pytest.mark.covers("LocalLogTest.testLogCloseHandlersIdempotent")
def test_rt14_handles_are_closed_twice_without_harm() -> None:
    file_system = new_file_system()
    log = open_log(file_system)
    append_each(log, 2)
    log.close_handles()
    log.close_handles()
    assert read_offsets(open_log(file_system)) == [0, 1]


@pytest.mark.covers("LocalLogTest.testLogCloseFailureWhenInMemoryBufferClosed")
def test_rt14_an_orderly_stop_after_the_handles_are_closed_is_refused() -> None:
    log = open_log(new_file_system())
    append_each(log, 2)
    log.close_handles()
    with pytest.raises(StorageError):
        log.close()


# Offsets far apart


def reopened(file_system: SimFileSystem, log: PartitionLog, *, clean: bool = False) -> PartitionLog:
    if clean:
        log.close()
    else:
        log.close_handles()
    return open_log(file_system, log.config, clean=clean)


def pair(first: int, magic: int) -> bytes:
    records = [Record(first, NOW_MS, b"k1", b"v1"), Record(first + 1, NOW_MS, b"k2", b"v2")]
    if magic == 2:
        return build_batch(records, base_offset=first, compression=Compression.GZIP, partition_leader_epoch=0)
    return build_message_set(records, magic=magic, base_offset=first, compression=Compression.GZIP)


DENSE = replace(SMALL, index_interval_bytes=1)


def assert_indexed(file_system: SimFileSystem, log: PartitionLog, bases: list[int]) -> None:
    """Check that each segment's index ends in it and that a start that looks at everything finds all again."""
    assert log.local.segments.base_offsets == bases
    for segment in log.local.segments:
        assert segment.base_offset <= segment.offset_index.last_offset < segment.base_offset + 2**31
    for base in bases[1:]:
        assert file_system.exists(join(DIRECTORY, f"{base:020d}.snapshot"))
    offsets = read_offsets(log)
    log = reopened(file_system, log)
    assert (read_offsets(log), log.local.segments.base_offsets) == (offsets, bases)


@pytest.mark.covers("LogLoaderTest.testOverCompactedLogRecoveryMultiRecord")
def test_ap11_a_batch_beyond_31_bits_begins_a_segment_at_its_first_offset() -> None:
    file_system = new_file_system()
    log = open_log(file_system, DENSE)
    log.append_as_follower(batch(0), leader_epoch=0, now_ms=NOW_MS)
    for first in (FAR + 2, FAR + 4, FAR + 6):
        log.append_as_follower(pair(first, 2), leader_epoch=0, now_ms=NOW_MS)
    assert_indexed(file_system, log, [0, FAR + 2])


@pytest.mark.covers("LogLoaderTest.testOverCompactedLogRecoveryMultiRecordV1")
def test_ap11_for_an_old_set_beyond_31_bits_only_the_last_offset_counts() -> None:
    file_system = new_file_system()
    log = open_log(file_system, DENSE)
    old = build_message(0, magic=1, timestamp=NOW_MS, key=b"k1", value=b"v1")
    log.append_as_follower(old, leader_epoch=0, now_ms=NOW_MS)
    for first in (FAR + 2, FAR + 4, FAR + 6):
        log.append_as_follower(pair(first, 1), leader_epoch=0, now_ms=NOW_MS)
    assert_indexed(file_system, log, [0, 3, FAR + 4])


@pytest.mark.covers("UnifiedLogTest.testDegenerateSegmentSplitWithOutOfRangeBatchLastOffset")
def test_ll27_one_batch_whose_last_offset_alone_does_not_fit_moves_to_a_segment_of_its_own() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system, 0)
    segment.records.append(batch(FAR - 1, 3))
    segment.close()
    log = open_log(file_system, DENSE)
    assert log.local.segments.base_offsets == [FAR - 1] and not has_overflow(log.local.segments.active)
    assert read_offsets(log, FAR - 1) == [FAR - 1, FAR, FAR + 1]


# Start-up


@pytest.mark.covers("LogLoaderTest.testRebuildTimeIndexForOldMessages")
def test_ls12_messages_without_timestamps_leave_a_time_index_empty_when_it_is_rebuilt() -> None:
    file_system = new_file_system()
    log = open_log(file_system, replace(DENSE, segment_bytes=200))
    for offset in range(30):
        old = build_message(offset, magic=0, timestamp=-1, key=b"key", value=bytes(10))
        log.append_as_follower(old, leader_epoch=0, now_ms=NOW_MS)
    paths = [segment.time_index_path for segment in log.local.segments]
    log.close()
    for path in paths:
        file_system.unlink(path)
    log = open_log(file_system, log.config)
    assert len(log.local.segments) > 5
    for segment in list(log.local.segments)[:-1]:
        assert segment.time_index.entries == 0
        assert file_system.stat(segment.time_index_path).size_bytes == 0
    assert read_offsets(log) == list(range(30))


@pytest.mark.covers("LogLoaderTest.testSkipTruncateAndReloadIfNewMessageFormatAndCleanShutdown")
def test_t45_after_an_orderly_stop_no_snapshot_means_no_producers_and_no_look_at_the_log() -> None:
    file_system = new_file_system()
    log = open_log(file_system, DENSE)
    data = produced(2, producer_id=7, producer_epoch=0, sequence=0)
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    log.close()
    file_system.unlink(join(DIRECTORY, f"{2:020d}.snapshot"))
    log = open_log(file_system, DENSE, clean=True, recovery_point=2)
    assert log.producers.producers == {} and log.producers.map_end_offset == 2
    log = reopened(file_system, log)
    assert file_system.exists(join(DIRECTORY, f"{2:020d}.snapshot"))


# Log directories


@pytest.mark.covers(
    "LogManagerTest.testRecoveryDirectoryMappingWithTrailingSlash",
    "LogManagerTest.testRecoveryDirectoryMappingWithRelativeDirectory",
)
@pytest.mark.parametrize("path", ["data", "data/", "data//", "./data", "deep/./data/"])
def test_ll1_a_directory_is_the_same_however_its_path_is_written(path: str) -> None:
    disk = new_disk()
    disk.file_system(Life()).make_directory("deep")
    logs = LogDirectories(disk.file_system(Life()), [path], SMALL, NOW_MS, Draws(1))
    logs.load(NOW_MS)
    log = logs.create("test-a", 1)
    append_each(log, 50)
    log.flushes.flush()
    logs.checkpoint()
    plain = "deep/data" if path.startswith("deep") else "data"
    written = read_file(disk.file_system(Life()), f"{plain}/recovery-point-offset-checkpoint")
    assert written == b"0\n1\ntest-a 1 50\n"
    disk.crash_process()
    logs = LogDirectories(disk.file_system(Life()), [plain], SMALL, NOW_MS, Draws(1))
    logs.load(NOW_MS)
    found = logs.get("test-a", 1)
    assert found is not None and found.local.recovery_point == 50


@pytest.mark.covers("LogManagerTest.testCreateLogWithTargetedLogDirectorySetAsUnassigned")
def test_a_log_for_which_no_directory_is_named_is_made_in_one_that_works() -> None:
    disk = new_disk()
    logs = LogDirectories(disk.file_system(Life()), ["one", "two"], SMALL, NOW_MS, Draws(1))
    logs.load(NOW_MS)
    logs.fail("one", OSError("gone"))
    log = logs.create("t", 0, directory=None)
    append_each(log, 1)
    assert log.directory == "two/t-0" and read_offsets(log) == [0]
