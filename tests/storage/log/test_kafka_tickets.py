"""Bugs of Kafka's history by ticket: indexes, cuts, deletions and reads of one log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sim.disk.life import Life
from storage.batch import Compression, Record, build_batch, iterate_batches
from storage.batch.legacy.builder import build_message, build_message_set
from storage.cleaner.offset_map import SLOT_BYTES, OffsetMap
from storage.codec.buffer import Buffer
from storage.codec.compression import compress
from storage.codec.lz4_frame import compress_lz4, unpack_lz4
from storage.config import LogConfig
from storage.disk.filesystem import join
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import InvalidRecord, OffsetOutOfRange
from storage.log import Isolation, PartitionLog
from storage.log.reads import MAX_TIMESTAMP
from storage.segment import LogSegment
from storage.segment.place import LogOffsetMetadata
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    SMALL,
    append_each,
    batch,
    new_disk,
    new_file_system,
    offsets_in,
    open_log,
    read_offsets,
)

SIZE = len(batch())
DENSE = LogConfig(segment_bytes=1 << 20, segment_index_bytes=1200, index_interval_bytes=0)
PER_SEGMENT = 3
ROLLING = replace(SMALL, segment_bytes=PER_SEGMENT * SIZE)


def decompress_lz4(data: Buffer, limit_bytes: int, *, magic: int) -> bytes:
    return b"".join(unpack_lz4(data, limit_bytes, magic=magic))


def keyed(count: int, first: int = 0, timestamp: int = NOW_MS) -> list[Record]:
    return [Record(first + number, timestamp + number, b"key", b"value") for number in range(count)]


# Indexes


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("recovered", [False, True])
def test_kafka_804_every_message_of_a_compressed_set_is_found_by_its_offset(
    magic: int, recovered: bool
) -> None:
    file_system = new_file_system()
    log = open_log(file_system, DENSE)
    for first in range(0, 50, 5):
        data = build_message_set(
            keyed(5, first), magic=magic, base_offset=first if magic else 0, compression=Compression.GZIP
        )
        log.append_as_follower(data, leader_epoch=0, now_ms=NOW_MS)
    if recovered:
        log.close_handles()
        log = open_log(file_system, DENSE)
    assert log.local.segments.active.offset_index.entries >= 8
    for offset in range(50):
        assert offset in offsets_in(log.read(offset, max_size=1).records), offset


def test_kafka_6492_a_segment_that_a_truncation_empties_takes_records_again() -> None:
    log = open_log(new_file_system(), ROLLING)
    # The roll trims the first segment's indexes.
    append_each(log, PER_SEGMENT + 1)
    log.truncate_to(0, now_ms=NOW_MS)
    assert (
        not log.local.segments.active.offset_index.is_full
        and not log.local.segments.active.time_index.is_full
    )
    append_each(log, PER_SEGMENT)
    assert log.local.segments.base_offsets == [0] and read_offsets(log) == list(range(PER_SEGMENT))


def test_kafka_12875_whoever_looks_after_a_truncation_of_everything_finds_one_active_segment() -> None:
    log = open_log(new_file_system(), ROLLING)
    append_each(log, 3 * PER_SEGMENT)
    # The first start is within the old log, the second is beyond its end.
    for start in (2, 7 * PER_SEGMENT):
        log.truncation.truncate_fully_and_start_at(start, now_ms=NOW_MS)
        assert log.local.segments.base_offsets == [start] and log.local.segments.active.base_offset == start
        assert log.read(start, max_size=100).records == b""
        append_each(log, PER_SEGMENT + 1)
        assert read_offsets(log) == list(range(start, start + PER_SEGMENT + 1))


# Timestamps


def late_in_the_middle(first: int) -> list[Record]:
    """Return five records of which the third is the first one with the latest time."""
    times = (NOW_MS, NOW_MS + 1, NOW_MS + 9, NOW_MS + 2, NOW_MS + 9)
    return [Record(first + place, time, b"key", b"value") for place, time in enumerate(times)]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_kafka_16310_the_record_with_the_greatest_timestamp_is_looked_for_in_its_batch(
    codec: Compression,
) -> None:
    """In memory and in the time index, the log keeps only the last offset of that batch."""
    file_system = new_file_system()
    log = open_log(file_system, DENSE)
    for epoch in range(2):
        data = build_batch(late_in_the_middle(5 * epoch), base_offset=5 * epoch, compression=codec,
                           partition_leader_epoch=epoch)  # fmt: skip
        info = log.append_as_follower(data, leader_epoch=epoch, now_ms=NOW_MS)
        assert (info.max_timestamp, info.offset_of_max_timestamp) == (NOW_MS + 9, 5 * epoch + 4)
    for _ in range(2):
        found = log.reads.offset_for_timestamp(MAX_TIMESTAMP)
        assert found is not None and (found.offset, found.timestamp, found.leader_epoch) == (2, NOW_MS + 9, 0)
        log.close_handles()
        log = open_log(file_system, DENSE)


@pytest.mark.parametrize("append_time", [False, True])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_kafka_16341_and_16342_a_leader_reports_the_last_offset_of_the_batch_with_the_greatest_timestamp(
    codec: Compression, append_time: bool
) -> None:
    kind = "LogAppendTime" if append_time else "CreateTime"
    log = open_log(new_file_system(), replace(DENSE, message_timestamp_type=kind))
    append_each(log, 3)
    data = build_batch(late_in_the_middle(0), compression=codec)
    info = log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS + 20)
    assert info.max_timestamp == (NOW_MS + 20 if append_time else NOW_MS + 9)
    assert (info.first_offset, info.offset_of_max_timestamp) == (3, 7)
    found = log.reads.offset_for_timestamp(MAX_TIMESTAMP)
    assert found is not None and found.offset == (3 if append_time else 5)


# Message formats


def test_kafka_7601_epochs_of_before_old_messages_do_not_say_where_to_truncate() -> None:
    log = open_log(new_file_system(), DENSE)
    log.append_as_follower(batch(0, 3, epoch=4), leader_epoch=4, now_ms=NOW_MS)
    old = build_message(3, magic=1, timestamp=NOW_MS, key=b"key", value=b"value")
    log.append_as_follower(old, leader_epoch=9, now_ms=NOW_MS)
    assert log.epochs.latest_epoch is None and log.reads.end_offset_for_epoch(4) == (-1, -1)


@pytest.mark.covers("UnifiedLogTest.testLeaderEpochCacheCreatedAfterMessageFormatUpgrade")
def test_kafka_7601_epochs_are_kept_again_from_the_first_new_batch_on() -> None:
    log = open_log(new_file_system(), DENSE)
    old = build_message(0, magic=1, timestamp=NOW_MS, key=b"key", value=b"value")
    log.append_as_follower(old, leader_epoch=5, now_ms=NOW_MS)
    assert log.epochs.latest_epoch is None
    append_each(log, 1, epoch=5)
    assert log.epochs.latest_epoch == 5 and log.epochs.entries == [(5, 1)]


GAPS = [0, 2, 5]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("inner", [GAPS, [0, 0, 0]])
def test_kafka_9080_and_9669_old_sets_with_gaps_in_offsets_are_accepted_and_renumbered(
    magic: int, inner: list[int]
) -> None:
    messages = b"".join(
        build_message(offset, magic=magic, timestamp=NOW_MS, key=b"key", value=b"%d" % place)
        for place, offset in enumerate(inner)
    )
    data = wrapped(messages, magic=magic, last_offset=max(inner))
    log = open_log(new_file_system(), DENSE)
    append_each(log, 4)
    info = log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    assert (info.first_offset, info.last_offset) == (4, 6)
    assert read_offsets(log, 4) == [4, 5, 6]
    records = [
        record for each in iterate_batches(log.read(4, max_size=1 << 20).records) for record in each.records()
    ]
    assert [record.value for record in records] == [b"0", b"1", b"2"]


def wrapped(messages: bytes, *, magic: int, last_offset: int) -> bytes:
    value = compress(Compression.GZIP, messages, magic=magic)
    return build_message(
        last_offset, magic=magic, timestamp=NOW_MS, key=None, value=value, attributes=Compression.GZIP
    )


@pytest.mark.parametrize("codec", ["producer", "gzip"])
def test_kafka_9080_a_new_batch_whose_count_does_not_fit_its_offsets_is_refused(codec: str) -> None:
    records = [Record(offset, NOW_MS, b"key", b"value") for offset in GAPS]
    log = open_log(new_file_system(), replace(DENSE, compression_type=codec))
    with pytest.raises(InvalidRecord):
        log.append_as_leader(build_batch(records), leader_epoch=0, now_ms=NOW_MS)
    assert log.log_end_offset == 0


@pytest.mark.parametrize("before", [0, 1, 7, 64])
def test_kafka_9203_an_lz4_frame_within_a_larger_buffer_has_its_own_checksum(before: int) -> None:
    plain = bytes(range(256)) * 300
    frame = compress_lz4(plain, magic=2)
    buffer = memoryview(b"\xaa" * before + frame + b"\xbb" * 9)
    assert decompress_lz4(buffer[before:], 1 << 20, magic=2) == plain
    damaged = bytearray(buffer)
    # This byte is the checksum of the frame's descriptor.
    damaged[before + 6] ^= 1
    with pytest.raises(InvalidRecord, match="checksum"):
        decompress_lz4(memoryview(damaged)[before:], 1 << 20, magic=2)


# Reads


@pytest.mark.parametrize("isolation", list(Isolation))
def test_kafka_9838_a_read_at_the_end_that_a_truncation_has_lowered_is_empty_or_out_of_range(
    isolation: Isolation,
) -> None:
    log = open_log(new_file_system(), ROLLING)
    append_each(log, 8)
    log.marks.update_high_watermark(8)
    assert log.read(8, max_size=100, isolation=isolation).records == b""
    log.truncate_to(5, now_ms=NOW_MS)
    data = log.read(5, max_size=100, isolation=isolation)
    assert (data.records, data.offset_metadata.offset) == (b"", 5)
    with pytest.raises(OffsetOutOfRange):
        log.read(8, max_size=100, isolation=isolation)


def test_kafka_9838_a_bound_of_before_a_truncation_lets_nothing_be_read_that_is_not_there() -> None:
    log = open_log(new_file_system(), ROLLING)
    append_each(log, 8)
    before = log.local.log_end
    log.truncate_to(4, now_ms=NOW_MS)
    for stale in (before, LogOffsetMetadata(before.offset)):
        data = log.local.read(4, 100, stale, min_one_message=True)
        assert data.records == b"" and data.offset_metadata.offset == 4


# Deletions


def remove_files(log: PartitionLog, matches: Callable[[str], bool]) -> int:
    file_system = log.local.file_system
    doomed = [name for name in file_system.list(log.directory) if matches(name)]
    for name in doomed:
        file_system.unlink(join(log.directory, name))
    return len(doomed)


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex"])
def test_kafka_6194_old_segments_some_of_whose_files_are_missing_are_deleted(suffix: str) -> None:
    log = open_log(new_file_system(), replace(ROLLING, retention_bytes=0))
    append_each(log, 3 * PER_SEGMENT)
    log.marks.update_high_watermark(log.log_end_offset)
    doomed: list[LogSegment] = []
    log.retention.delete_files_with(doomed.append)
    assert log.retention.delete_old(NOW_MS) == len(doomed) == 3
    assert remove_files(log, lambda name: name.endswith(f".{suffix}.deleted")) >= 2
    for segment in doomed:
        segment.delete()
    assert not [name for name in log.local.file_system.list(log.directory) if name.endswith(".deleted")]


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_kafka_6322_a_log_some_of_whose_files_are_missing_is_deleted(suffix: str) -> None:
    log = open_log(new_file_system(), ROLLING)
    append_each(log, 2 * PER_SEGMENT)
    assert remove_files(log, lambda name: name.endswith(suffix)) == 2
    log.delete()
    assert not log.local.file_system.exists(log.directory)


def test_kafka_6075_no_file_is_mapped_while_it_is_cut_or_deleted(tmp_path: Path) -> None:
    """A map holds its file on Windows, where these calls would fail. After them no map of the log is left."""
    directory = str(tmp_path / "topic-0")
    file_system = OsFileSystem()
    file_system.make_directory(directory)
    log = PartitionLog.open(file_system, directory, ROLLING, clean=False, now_ms=NOW_MS)
    append_each(log, 3 * PER_SEGMENT)
    assert read_offsets(log) == list(range(3 * PER_SEGMENT))
    log.close_handles()
    log = PartitionLog.open(file_system, directory, ROLLING, clean=False, now_ms=NOW_MS)
    assert not [path for path in mapped_files() if directory in path and path.endswith(".log")]
    log.truncate_to(PER_SEGMENT + 1, now_ms=NOW_MS)
    log.delete()
    assert not [path for path in mapped_files() if directory in path]


def mapped_files() -> list[str]:
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return [line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6]


def test_kafka_15391_a_flush_beside_the_renaming_of_its_directory_loses_nothing_and_fails_not() -> None:
    disk = new_disk()
    file_system = new_file_system(disk)
    for directory in ("", "logs"):
        file_system.sync_directory(directory)
    log = open_log(file_system, ROLLING)
    append_each(log, PER_SEGMENT + 2)
    prepared = log.flushes.prepare()
    log.rename_directory("topic-0.gone-delete")
    prepared()
    log.flushes.done(prepared.offset)
    assert log.local.recovery_point == PER_SEGMENT + 2 and log.online.reason is None
    disk.lose_power("none")
    names = disk.file_system(Life()).list("logs/topic-0.gone-delete")
    assert f"{PER_SEGMENT:020d}.log" in names and not disk.file_system(Life()).exists(DIRECTORY)


# The map of keys


@pytest.mark.parametrize("slots", [1, 2, 3, 7])
def test_kafka_3682_a_full_map_is_searched_once_round_and_no_further(slots: int) -> None:
    offsets = OffsetMap(slots * SLOT_BYTES)
    for number in range(slots):
        offsets.put(b"key %d" % number, number)
    assert [offsets.get(b"key %d" % number) for number in range(slots)] == list(range(slots))
    for number in range(200):
        assert offsets.get(b"other %d" % number) == -1
