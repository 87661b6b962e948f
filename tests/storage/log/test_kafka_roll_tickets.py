"""Rolling, empty segments, wide gaps: rules RO1, RO2, T36, T37, and the bugs that Kafka had there (reference 5.3)."""

from __future__ import annotations

import pytest

from storage.config import LogConfig
from storage.disk.filesystem import OpenMode
from storage.draws import Draws
from storage.errors import ConfigError, OutOfOrderSequence
from storage.log import PartitionLog
from storage.segment.lookups import read_next_offset
from tests.storage.log.appends import end_transaction, lead, sequenced
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    SIZE,
    append_batch,
    append_each,
    bases,
    batch,
    new_file_system,
    open_log,
    open_segment,
    produced,
    read_offsets,
)

WIDE = 1 << 31


def append_at(log: PartitionLog, timestamp: int, now_ms: int = NOW_MS) -> None:
    log.append_as_leader(produced(timestamp=timestamp), leader_epoch=0, now_ms=now_ms)


# By time


@pytest.mark.covers("UnifiedLogTest.testTimeBasedLogRollJitter")
def test_ls6_a_segment_rolls_earlier_by_its_jitter() -> None:
    config = LogConfig(segment_ms=3600, segment_jitter_ms=1200, segment_index_bytes=1200)
    log = PartitionLog.open(new_file_system(), DIRECTORY, config, clean=False, now_ms=NOW_MS, draws=Draws(3))
    jitter_ms = log.local.segments.active.roll_jitter_ms
    assert 0 < jitter_ms < 1200
    append_at(log, NOW_MS)
    append_at(log, NOW_MS + 3600 - 1200)
    append_at(log, NOW_MS + 3600 - jitter_ms)
    assert bases(log) == [0]
    append_at(log, NOW_MS + 3600 - jitter_ms + 1)
    assert bases(log) == [0, 3]


def test_kafka_4099_t36_old_records_do_not_roll_at_each_append() -> None:
    log = open_log(new_file_system(), LogConfig(segment_ms=1000, segment_index_bytes=1200))
    for timestamp in range(10):
        append_at(log, timestamp, now_ms=NOW_MS + 100_000 * timestamp)
    assert bases(log) == [0]


def test_t36_the_new_set_is_compared_with_the_first_batchs_greatest_timestamp() -> None:
    log = open_log(new_file_system(), LogConfig(segment_ms=1000, segment_index_bytes=1200))
    # The times reach NOW_MS + 4.
    log.append_as_leader(produced(5, timestamp=NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    append_at(log, NOW_MS + 1004)
    assert bases(log) == [0]
    append_at(log, NOW_MS + 1005)
    assert bases(log) == [0, 6]


@pytest.mark.parametrize("is_opened_again", [False, True])
def test_ls5_of_the_first_set_of_batches_the_first_one_counts(is_opened_again: bool) -> None:
    config, file_system = LogConfig(segment_ms=1000, segment_index_bytes=1200), new_file_system()
    log = open_log(file_system, config)
    data = batch(0, timestamp=NOW_MS) + batch(1, timestamp=NOW_MS + 900)
    log.append_as_follower(data, leader_epoch=0, now_ms=NOW_MS)
    if is_opened_again:
        log.close()
        log = open_log(file_system, config, clean=True)
    log.append_as_follower(batch(2, timestamp=NOW_MS + 1000), leader_epoch=0, now_ms=NOW_MS)
    assert bases(log) == [0]
    log.append_as_follower(batch(3, timestamp=NOW_MS + 1001), leader_epoch=0, now_ms=NOW_MS)
    assert bases(log) == [0, 3]


def test_ls5_a_first_set_that_was_refused_or_cut_off_does_not_count() -> None:
    log = open_log(new_file_system(), LogConfig(segment_ms=1000, segment_index_bytes=1200))
    late = produced(timestamp=NOW_MS + 900, producer_id=1, producer_epoch=0, sequence=0)
    log.append_as_leader(late, leader_epoch=0, now_ms=NOW_MS)
    log.flushes.roll(now_ms=NOW_MS)
    gap = produced(timestamp=NOW_MS + 900, producer_id=1, producer_epoch=0, sequence=7)
    with pytest.raises(OutOfOrderSequence):
        log.append_as_leader(gap, leader_epoch=0, now_ms=NOW_MS)
    append_at(log, NOW_MS)
    append_at(log, NOW_MS + 1001)
    assert bases(log) == [0, 1, 2]
    log.truncate_to(1, now_ms=NOW_MS)
    append_at(log, NOW_MS + 500)
    append_at(log, NOW_MS + 1400)
    append_at(log, NOW_MS + 1501)
    assert bases(log) == [0, 1, 3]


def test_kafka_6637_the_least_segment_ms_is_1() -> None:
    with pytest.raises(ConfigError, match=r"segment\.ms"):
        LogConfig(segment_ms=0)
    assert open_segment(new_file_system(), config=LogConfig(segment_ms=1, segment_jitter_ms=5)) is not None


@pytest.mark.covers("LogSegmentTest.testTruncateEmptySegment")
def test_kafka_596_an_emptied_segment_forgets_when_its_first_record_was() -> None:
    file_system = new_file_system()
    config = LogConfig(segment_index_bytes=1000)
    segment = open_segment(file_system, config=config)
    _ = segment.offset_index, segment.time_index
    segment.close()
    segment = open_segment(file_system, config=config, file_already_exists=True)
    assert segment.offset_index.length_bytes == 0
    now_ms = NOW_MS + 500
    segment.truncate_to(57, now_ms)
    assert segment.time_waited_for_roll(now_ms, -1) == 0
    assert not segment.offset_index.is_full and not segment.time_index.is_full

    def should_roll(at_ms: int, max_offset: int) -> bool:
        return segment.should_roll(
            messages_size=1024,
            max_timestamp=-1,
            max_offset=max_offset,
            now_ms=at_ms,
            max_segment_bytes=1 << 20,
            max_segment_ms=300_000,
        )

    assert not should_roll(now_ms, 100)
    assert segment.time_waited_for_roll(now_ms + 300_001, -1) == 300_001
    assert not should_roll(now_ms + 300_001, 100)
    assert should_roll(now_ms, WIDE - 1 + 200)


@pytest.mark.covers("LogSegmentTest.testReloadLargestTimestampAndNextOffsetAfterTruncation")
def test_ls13_the_greatest_timestamp_is_found_again_after_a_truncation() -> None:
    segment = open_segment(
        new_file_system(), 40, LogConfig(index_interval_bytes=2 * SIZE - 1, segment_index_bytes=1000)
    )
    for offset in range(40, 70):
        append_batch(segment, batch(offset, timestamp=offset * 10))
        assert read_next_offset(segment) == offset + 1
    assert segment.time_index.entries == 14
    segment.truncate_to(55, NOW_MS)
    assert segment.max_timestamp == (540, 54) and read_next_offset(segment) == 55
    segment.truncate_to(41, NOW_MS)
    assert segment.time_index.entries == 0 and segment.largest_timestamp_ms == 400
    assert read_next_offset(segment) == 41


# By size and by index


def test_kafka_1670_a_limit_near_the_top_of_32_bits_does_not_wrap() -> None:
    config = LogConfig(segment_bytes=(1 << 31) - 1, segment_index_bytes=1200)
    log = open_log(new_file_system(), config)
    append_each(log, 2)
    assert bases(log) == [0]
    assert log.local.segments.active.should_roll(
        messages_size=(1 << 31) - 1,
        max_timestamp=NOW_MS,
        max_offset=5,
        now_ms=NOW_MS,
        max_segment_bytes=(1 << 31) - 1,
        max_segment_ms=1 << 40,
    )


@pytest.mark.covers("UnifiedLogTest.testLoadEmptyLog")
def test_kafka_6388_an_empty_segment_with_a_full_index_starts_again_in_its_place() -> None:
    file_system = new_file_system()
    log = open_log(file_system)
    log.local.segments.active.offset_index.resize(0)
    log.local.segments.active.time_index.resize(0)
    assert log.local.segments.active.offset_index.is_full
    append_each(log, 3)
    assert bases(log) == [0] and read_offsets(log) == [0, 1, 2]


def test_ro2_an_empty_segment_that_starts_again_has_no_transaction_index() -> None:
    """A new segment has none. A truncation removed its aborted transactions, and Kafka too removes the empty file."""
    file_system = new_file_system()
    log = open_log(file_system)
    append_each(log, 1)
    log.flushes.roll(now_ms=NOW_MS)
    path = log.local.segments.active.transaction_index.path
    for aborts in (1, 2):
        lead(log, sequenced(0, is_transactional=True))
        end_transaction(log, is_commit=False)
        assert [entry.first_offset for entry in log.local.segments.active.transaction_index.entries()] == [1]
        log.truncate_to(1, now_ms=NOW_MS)
        assert file_system.stat(path).size_bytes == 0, aborts
        log.flushes.roll(now_ms=NOW_MS)
        assert bases(log) == [0, 1] and not file_system.exists(path), aborts


@pytest.mark.covers("LocalLogTest.testNewSegmentsAfterRoll")
def test_ro2_a_roll_begins_at_the_greater_of_what_was_asked_and_the_end() -> None:
    log = open_log(new_file_system())
    assert log.flushes.roll(now_ms=NOW_MS).base_offset == 0
    append_each(log, 1)
    assert log.flushes.roll(now_ms=NOW_MS).base_offset == 1
    append_each(log, 1)
    assert log.flushes.roll(1, now_ms=NOW_MS).base_offset == 2
    assert log.flushes.roll(7, now_ms=NOW_MS).base_offset == 7 and bases(log) == [0, 1, 2, 7]


@pytest.mark.covers("LocalLogTest.testCreateAndDeleteSegment")
def test_kafka_654_kafka_12875_a_full_truncation_to_a_base_that_exists_leaves_one_segment() -> None:
    file_system = new_file_system()
    log = open_log(file_system, LogConfig(segment_bytes=2 * SIZE, segment_index_bytes=1200))
    append_each(log, 5)
    for base in (4, 4, 0):
        log.truncation.truncate_fully_and_start_at(base, now_ms=NOW_MS)
        assert bases(log) == [base] and log.log_end_offset == base
        append_each(log, 1)
        assert read_offsets(log) == [base]


# Wide gaps


def test_kafka_4451_a_gap_beyond_31_bits_rolls() -> None:
    log = open_log(new_file_system(), LogConfig(segment_index_bytes=1200))
    log.append_as_follower(batch(0), leader_epoch=0, now_ms=NOW_MS)
    log.append_as_follower(batch(WIDE), leader_epoch=0, now_ms=NOW_MS)
    assert bases(log) == [0, WIDE]
    log.append_as_follower(batch(2 * WIDE - 1), leader_epoch=0, now_ms=NOW_MS)
    assert bases(log) == [0, WIDE] and read_offsets(log) == [0, WIDE, 2 * WIDE - 1]


def test_kafka_6530_the_base_is_the_true_first_offset() -> None:
    log = open_log(new_file_system(), LogConfig(segment_index_bytes=1200))
    log.append_as_follower(batch(0), leader_epoch=0, now_ms=NOW_MS)
    data = batch(offsets=[WIDE - 10, WIDE + 5], base_offset=WIDE - 10)
    log.append_as_follower(data, leader_epoch=0, now_ms=NOW_MS)
    assert bases(log) == [0, WIDE - 10]


def test_kafka_3047_an_index_entry_holds_the_offsets_that_were_given() -> None:
    log = open_log(new_file_system(), LogConfig(segment_index_bytes=1200, index_interval_bytes=0))
    for offset in (3, 50, 80):
        log.append_as_follower(batch(offset), leader_epoch=0, now_ms=NOW_MS)
    index = log.local.segments.active.offset_index
    assert [index.entry(slot).offset for slot in range(index.entries)] == [50, 80]


@pytest.mark.covers("UnifiedLogTest.testBuildTimeIndexWhenNotAssigningOffsets")
def test_ls2_a_followers_single_batches_are_indexed_from_the_second_on() -> None:
    log = open_log(new_file_system(), LogConfig(index_interval_bytes=1, segment_index_bytes=10_000))
    for index in range(100):
        data = batch(100 + index, timestamp=NOW_MS + index)
        log.append_as_follower(data, leader_epoch=0, now_ms=NOW_MS)
    times = log.local.segments.active.time_index
    assert times.entries == 99 and times.last_entry == (NOW_MS + 99, 199)


# Recovery


def test_t37_recovery_walks_the_whole_segment_that_holds_the_recovery_point() -> None:
    """Damage below the recovery point but in its segment is found. Segments below are not checked."""
    for damaged_base, is_found in ((0, False), (5, True)):
        file_system = new_file_system()
        config = LogConfig(segment_bytes=5 * SIZE, segment_index_bytes=1200)
        log = open_log(file_system, config)
        append_each(log, 12)
        log.close()
        path = f"{DIRECTORY}/{damaged_base:020d}.log"
        file = file_system.open(path, OpenMode.WRITE)
        file.write_at(SIZE + 70, b"\xff")
        file.close()
        again = open_log(file_system, config, recovery_point=8)
        assert again.log_end_offset == (6 if is_found else 12)
        assert again.local.recovery_point == (6 if is_found else 8)
