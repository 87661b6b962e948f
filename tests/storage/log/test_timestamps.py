"""Offsets by timestamp. Rules RD8 to RD10, T28."""

from __future__ import annotations

import pytest

from storage.batch import Compression, Record, build_batch
from storage.config import LogConfig
from storage.errors import ReadTakesLong
from storage.log import PartitionLog
from storage.log.reads import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from storage.segment.file_records import TimestampAndOffset
from tests.storage.logs import NOW_MS, SIZE, append_each, new_file_system, open_log, produced


def log_of(*timestamps: int, segment_batches: int = 2) -> PartitionLog:
    """Return a log of one record a batch, at NOW_MS plus each of `timestamps`."""
    config = LogConfig(segment_bytes=segment_batches * SIZE, segment_index_bytes=1200)
    log = open_log(new_file_system(), config)
    for timestamp in timestamps:
        log.append_as_leader(produced(timestamp=NOW_MS + timestamp), leader_epoch=0, now_ms=NOW_MS)
    log.marks.update_high_watermark(len(timestamps))
    return log


def found(log: PartitionLog, timestamp: int) -> tuple[int, int] | None:
    result = log.reads.offset_for_timestamp(NOW_MS + timestamp)
    return None if result is None else (result.timestamp - NOW_MS, result.offset)


@pytest.mark.covers("UnifiedLogTest.testFetchOffsetByTimestampIncludesLeaderEpoch")
def test_rd8_the_answer_carries_the_epoch_of_its_batch() -> None:
    log = open_log(new_file_system())
    assert log.reads.offset_for_timestamp(0) is None
    for epoch in (0, 1):
        data = produced(timestamp=NOW_MS + epoch)
        log.append_as_leader(data, leader_epoch=epoch, now_ms=NOW_MS)
    for epoch in (0, 1):
        assert log.reads.offset_for_timestamp(NOW_MS + epoch) == TimestampAndOffset(
            timestamp=NOW_MS + epoch, offset=epoch, leader_epoch=epoch
        )
    assert log.reads.offset_for_timestamp(EARLIEST_TIMESTAMP) == TimestampAndOffset(
        timestamp=-1, offset=0, leader_epoch=0
    )
    assert log.reads.offset_for_timestamp(LATEST_TIMESTAMP) == TimestampAndOffset(
        timestamp=-1, offset=2, leader_epoch=1
    )
    log.appends.assign_epoch(2, 2)
    assert log.reads.offset_for_timestamp(LATEST_TIMESTAMP) == TimestampAndOffset(
        timestamp=-1, offset=2, leader_epoch=2
    )


@pytest.mark.parametrize("timestamp", [NOW_MS, MAX_TIMESTAMP])
def test_rd8_a_batch_of_just_the_most_bytes_is_decoded_and_one_byte_less_takes_long(timestamp: int) -> None:
    log = log_of(0)
    expected = log.reads.offset_for_timestamp(timestamp)
    assert expected is not None
    assert log.reads.offset_for_timestamp(timestamp, SIZE) == expected
    with pytest.raises(ReadTakesLong, match=f"{SIZE} bytes"):
        log.reads.offset_for_timestamp(timestamp, SIZE - 1)


@pytest.mark.parametrize("timestamp", [NOW_MS, MAX_TIMESTAMP])
def test_rd8_a_batch_that_unpacks_to_more_than_the_most_bytes_takes_long(timestamp: int) -> None:
    log = open_log(new_file_system())
    records = [Record(offset, NOW_MS, None, bytes(1000)) for offset in range(10)]
    log.append_as_leader(build_batch(records, compression=Compression.GZIP), leader_epoch=0, now_ms=NOW_MS)
    size_bytes = log.local.segments.size_bytes
    assert size_bytes < 5000
    with pytest.raises(ReadTakesLong, match="unpacks to more than 5000 bytes"):
        log.reads.offset_for_timestamp(timestamp, 5000)
    assert log.reads.offset_for_timestamp(timestamp, 20_000) is not None


@pytest.mark.covers("UnifiedLogTest.testFetchOffsetByTimestampWithMaxTimestampIncludesTimestamp")
def test_rd8_the_first_record_with_the_greatest_timestamp_is_found() -> None:
    log = open_log(new_file_system())
    for timestamp in (0, 1, 0):
        log.append_as_leader(produced(timestamp=NOW_MS + timestamp), leader_epoch=0, now_ms=NOW_MS)
    assert log.reads.offset_for_timestamp(MAX_TIMESTAMP) == TimestampAndOffset(
        timestamp=NOW_MS + 1, offset=1, leader_epoch=0
    )
    log.append_as_leader(produced(5, timestamp=NOW_MS + 9), leader_epoch=3, now_ms=NOW_MS)
    assert log.reads.offset_for_timestamp(MAX_TIMESTAMP) == TimestampAndOffset(
        timestamp=NOW_MS + 13, offset=7, leader_epoch=3
    )


def test_rd8_the_greatest_timestamp_may_be_below_the_log_start() -> None:
    log = log_of(9, 1, 2)
    log.marks.maybe_increment_log_start_offset(2)
    latest = log.reads.offset_for_timestamp(MAX_TIMESTAMP)
    assert latest is not None and (latest.timestamp, latest.offset) == (NOW_MS + 9, 0)


def test_rd8_the_segment_is_the_first_that_reaches_the_timestamp() -> None:
    log = log_of(0, 1, 5, 6, 2, 3)
    assert [found(log, at) for at in (-1, 0, 1, 2, 5, 6, 7)] == [
        (0, 0),
        (0, 0),
        (1, 1),
        (5, 2),
        (5, 2),
        (6, 3),
        None,
    ]


def test_t28_records_below_the_log_start_are_skipped() -> None:
    log = log_of(0, 5, 5, 7, segment_batches=4)
    log.marks.maybe_increment_log_start_offset(2)
    assert found(log, 1) == (5, 2)
    log.marks.maybe_increment_log_start_offset(3)
    assert found(log, 1) == (7, 3)


def test_rd8_a_segment_whose_hits_are_below_the_log_start_ends_the_search() -> None:
    """Kafka does the same: the next segment is not asked, though it would have an answer."""
    log = log_of(9, 1, 10, 11)
    log.marks.maybe_increment_log_start_offset(1)
    assert found(log, 5) is None and found(log, 10) == (10, 2)


def test_rd9_records_without_a_time_are_found_by_none() -> None:
    log = open_log(new_file_system())
    log.append_as_leader(produced(timestamp=-1, count=1), leader_epoch=0, now_ms=NOW_MS)
    assert log.reads.offset_for_timestamp(0) is None
    latest = log.reads.offset_for_timestamp(MAX_TIMESTAMP)
    assert latest is not None and (latest.timestamp, latest.offset) == (-1, 0)


# By the files' times


def test_rd10_offsets_before_a_time_are_those_of_the_segments_modified_by_then() -> None:
    log = log_of(0, 1, 2, 3, 4)
    for segment, modified_ms in zip(log.local.segments, (10, 20, 30), strict=True):
        segment.set_modified(modified_ms)
    assert log.reads.offsets_before(25, 10, NOW_MS) == [2, 0]
    assert log.reads.offsets_before(30, 10, NOW_MS) == [4, 2, 0]
    assert log.reads.offsets_before(NOW_MS, 10, NOW_MS) == [5, 4, 2, 0]
    assert log.reads.offsets_before(NOW_MS, 2, NOW_MS) == [5, 4]
    assert log.reads.offsets_before(9, 10, NOW_MS) == [] and log.reads.offsets_before(NOW_MS, 0, NOW_MS) == []
    assert log.reads.offsets_before(EARLIEST_TIMESTAMP, 10, NOW_MS) == [0]
    assert log.reads.offsets_before(LATEST_TIMESTAMP, 1, NOW_MS) == [5]


def test_rd10_no_offset_is_below_the_log_start_and_an_empty_end_is_no_start() -> None:
    log = log_of(0, 1, 2)
    log.marks.maybe_increment_log_start_offset(1)
    log.flushes.roll(now_ms=NOW_MS)
    assert log.reads.offsets_before(LATEST_TIMESTAMP, 10, NOW_MS) == [3, 2, 1]
    append_each(log, 1)
    assert log.reads.offsets_before(LATEST_TIMESTAMP, 1, NOW_MS) == [4]
