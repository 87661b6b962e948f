"""Rounds of compaction over a log. Kafka: LogCleanerTest; rules CL8, CL9, CL20, CL23 to CL27."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from sim.disk import PowerLoss
from sim.disk.life import Dead
from storage.batch import Record, build_batch
from storage.cleaner.plan import CleanerConfig
from storage.disk.filesystem import join, read_file
from storage.errors import ConfigError, CorruptBatch, StorageError
from tests.storage.cleaner.compacted_logs import COMPACTED, DAY_MS, CleanedLog, run, sorted_unique
from tests.storage.logs import DIRECTORY, NOW_MS, batch
from tests.storage.recovery.stopped_logs import poke

# The map


@pytest.mark.covers("LogCleanerTest.testCleanSegments")
def test_cl24_the_last_record_of_each_key_stays_and_offsets_and_order_do_not_change() -> None:
    log = CleanedLog()
    log.fill(5, (number % 9 for number in range(1000)))
    before = {record.offset: record for record in log.records()}
    last_values = log.last_values()
    end = log.log.local.segments.active.base_offset
    assert log.clean() == end
    kept = log.records()
    assert log.last_values() == last_values
    assert sorted_unique([record.offset for record in kept])
    assert all(before[record.offset] == record for record in kept)
    assert len([record for record in kept if record.offset < end]) == 9
    assert log.log.log_end_offset == len(before)


@pytest.mark.covers("LogCleanerTest.testBuildOffsetMap")
def test_cl8_the_map_holds_the_last_offset_of_each_key_of_the_dirty_part() -> None:
    log = CleanedLog()
    log.fill(5, range(500))
    bases = log.log.local.segments.base_offsets
    for start, end in ((0, bases[1]), (bases[1], bases[3]), (bases[3], bases[4])):
        compaction = log.prepare(start, end=end)
        pieces = iter(compaction)
        next(pieces)()
        offsets = compaction._offsets
        assert (len(offsets), offsets.latest_offset) == (end - start, end - 1)
        assert [offsets.get(str(key).encode()) for key in range(start, end)] == list(range(start, end))
        assert offsets.get(str(start - 1).encode()) == offsets.get(str(end).encode()) == -1
        compaction.abort()


@pytest.mark.covers(
    "LogCleanerTest.testBuildOffsetMapFakeLarge", "LogCleanerTest.testCleaningBeyondMissingOffsets"
)
@pytest.mark.parametrize("gap", [1, 5, 7_206_178])
def test_kafka_8764_offsets_that_are_missing_before_the_end_count_as_read(gap: int) -> None:
    log = CleanedLog()
    log.put_each(1, 2, 1)
    log.roll()
    log.log.append_as_follower(batch(log.log.log_end_offset + gap), leader_epoch=0, now_ms=NOW_MS)
    log.roll()
    log.log.marks.update_high_watermark(log.log.log_end_offset)
    assert log.clean() == log.log.local.segments.active.base_offset == 3 + gap + 1


@pytest.mark.covers("LogCleanerTest.testBuildPartialOffsetMap")
def test_cl8_a_full_map_ends_within_a_batch_and_the_round_with_it() -> None:
    """A segment may have more keys than fit the map (KAFKA-3894). Three slots at 0.9 have room for two keys."""
    log = CleanedLog()
    log.put_each(0, 1, 2, 3, 4)
    log.roll()
    compaction = log.prepare(2, slots=3)
    run(compaction)
    assert compaction.end_offset == 4
    assert [compaction._offsets.get(str(key).encode()) for key in range(5)] == [-1, -1, 2, 3, -1]
    assert compaction.stats.map_records_read == 4
    log.put(5, 6, 7, 8)
    log.roll()
    # The round ends between the second and the third record of the batch.
    assert log.clean(5, slots=3) == 7


@pytest.mark.covers("LogCleanerTest.testPartialSegmentClean")
def test_cl8_the_round_after_a_full_map_continues_where_it_ended() -> None:
    log = CleanedLog()
    log.put_each(0, 1, 0, 1, 0)
    log.roll()
    assert log.clean(2, slots=2) == 3
    assert log.keys() == [1, 0, 1, 0]
    assert log.clean(3, slots=2) == 4
    assert log.keys() == [0, 1, 0]
    assert log.clean(4, slots=2) == 5
    assert log.keys() == [1, 0]


def test_cl8_control_batches_and_aborted_records_are_not_mapped() -> None:
    log = CleanedLog()
    log.put(1)
    log.in_transaction(7, 1, 2)
    log.abort(7)
    log.in_transaction(8, 3)
    log.commit(8)
    log.put(4)
    log.roll()
    compaction = log.prepare()
    run(compaction)
    assert [compaction._offsets.get(str(key).encode()) for key in range(1, 5)] == [0, -1, 4, 6]
    assert log.keys() == [1, 3, 4]


def test_cl8_records_below_the_first_dirty_offset_are_not_mapped() -> None:
    """Such records share a batch with dirty ones, or are in the batch before, where the index entry points."""
    log = CleanedLog()
    log.put(1, 2, 1)
    log.put(2)
    log.roll()
    compaction = log.prepare(2)
    run(compaction)
    assert [compaction._offsets.get(str(key).encode()) for key in (1, 2)] == [2, 3]
    assert compaction._offsets.latest_offset == 3
    assert log.keys() == [1, 2]


def test_cl8_reading_begins_where_the_offset_index_points() -> None:
    log = CleanedLog(replace(COMPACTED, index_interval_bytes=100))
    log.put_each(*range(9))
    log.roll()
    compaction = log.prepare(8)
    run(compaction)
    assert compaction.stats.map_records_read < 4


@pytest.mark.covers("LogCleanerTest.testCleaningWithUncleanableSection")
def test_cl25_segments_from_the_first_uncleanable_offset_on_stay_as_they_are() -> None:
    log = CleanedLog()
    log.fill(7, (number % 5 for number in range(1000)))
    bases = log.log.local.segments.base_offsets
    end = bases[4]
    before = {segment.base_offset: segment.size_bytes for segment in log.log.local.segments.from_offset(end)}
    size_before = sum(segment.size_bytes for segment in log.log.local.segments.values(0, end))
    assert log.clean(end=end) == end
    after = {segment.base_offset: segment.size_bytes for segment in log.log.local.segments.from_offset(end)}
    assert after == before
    assert sum(segment.size_bytes for segment in log.log.local.segments.values(0, end)) < size_before


def test_cl9_the_next_dirty_offset_is_one_above_the_last_that_the_map_reached() -> None:
    log = CleanedLog()
    log.put_each(1, 2, 3)
    log.roll()
    log.put(4)
    assert log.clean() == 3


# Chunks


def rows(log: CleanedLog, base_offset: int = 0) -> list[tuple[int, int]]:
    segment = log.log.local.segments.get(base_offset)
    assert segment is not None
    index = segment.offset_index
    return [(index.entry(slot).offset, index.entry(slot).position) for slot in range(index.entries)]


def test_cl20_a_chunk_is_one_append_of_the_new_segment() -> None:
    log = CleanedLog(replace(COMPACTED, segment_bytes=8000))
    log.put_each(*range(30))
    log.roll()
    size = len(log.batches()[0].tobytes())
    pieces = iter(log.prepare(io_buffer_bytes=10 * size + 5))
    for work in pieces:
        before = log.disk.operations
        work()
        writes = log.disk.operations - before
    assert writes <= 3 + 12, writes
    assert len(log.keys()) == 30


@pytest.mark.covers("LogCleanerTest.testLargeMessage", "LogCleanerTest.testMessageLargerThanMaxMessageSize")
@pytest.mark.parametrize("max_message_bytes", [100_000, 3000, 100])
def test_cl20_the_buffer_grows_for_a_batch_that_does_not_fit(max_message_bytes: int) -> None:
    config = replace(COMPACTED, segment_bytes=100_000, max_message_bytes=100_000)
    log = CleanedLog(config)
    for key in (1, 2, 1, 3):
        log.put((key, "v" * 20_000))
        log.put(key)
    log.log.update_config(replace(config, max_message_bytes=max_message_bytes))
    log.roll()
    compaction = log.prepare(io_buffer_bytes=1024)
    run(compaction)
    assert (compaction.end_offset, log.keys()) == (8, [2, 1, 3])
    assert compaction._reader.capacity_bytes == 1024


@pytest.mark.covers("LogCleanerTest.testMessageLargerThanMaxMessageSizeWithCorruptHeader")
def test_cl20_a_batch_with_a_magic_that_is_none_ends_the_round() -> None:
    log = CleanedLog(replace(COMPACTED, segment_bytes=100_000, max_message_bytes=100_000))
    log.put((1, "v" * 20_000))
    log.roll()
    first = log.log.local.segments.first
    assert first is not None
    poke(log.file_system, first.path, 16, b"\xff")
    with pytest.raises(CorruptBatch, match="at byte 0: magic 255"):
        log.clean(io_buffer_bytes=1024)


@pytest.mark.covers("LogCleanerTest.testCorruptMessageSizeLargerThanBytesAvailable")
def test_cl20_a_batch_that_is_longer_than_its_file_ends_the_round() -> None:
    log = CleanedLog(replace(COMPACTED, segment_bytes=100_000, max_message_bytes=3000))
    log.log.update_config(replace(COMPACTED, segment_bytes=100_000, max_message_bytes=100_000))
    log.put((1, "v" * 20_000))
    log.roll()
    first = log.log.local.segments.first
    assert first is not None
    first.records.truncate_to(1024)
    with pytest.raises(CorruptBatch, match=r"at byte 0: a batch of .* with 1024 bytes left"):
        log.clean(io_buffer_bytes=512)


def test_cl20_a_torn_tail_ends_the_round_and_nothing_of_it_is_taken_over() -> None:
    log = CleanedLog()
    log.put_each(1, 1)
    log.roll()
    first = log.log.local.segments.first
    assert first is not None
    first.records.append(b"torn")
    with pytest.raises(CorruptBatch, match=f"at byte {first.size_bytes - 4}: a batch of unknown bytes"):
        log.clean()
    assert log.keys() == [1, 1]


def test_cl20_a_flipped_bit_is_not_given_a_checksum_that_is_right() -> None:
    """Kafka's cleaner checks no checksum, and the new one that it writes covers the damage."""
    log = CleanedLog()
    log.put((1, "old"), (2, "two"))
    log.put((1, "new"))
    log.roll()
    first = log.log.local.segments.first
    assert first is not None
    content = read_file(log.file_system, first.path)
    poke(log.file_system, first.path, content.index(b"two"), b"tvo")
    with pytest.raises(CorruptBatch, match="at byte 0: the checksum"):
        log.clean()


def test_cl20_a_flipped_bit_in_a_cleaned_segment_is_found_too() -> None:
    """The map reads only the dirty part, so the damage is met while the rest is copied."""
    log = CleanedLog()
    log.put(1)
    log.put((2, "two"))
    log.roll()
    log.put(3)
    log.roll()
    first = log.log.local.segments.first
    assert first is not None
    content = read_file(log.file_system, first.path)
    poke(log.file_system, first.path, content.index(b"two"), b"tvo")
    damaged = log.batches()[1]
    with pytest.raises(CorruptBatch, match=f"at byte {damaged.position}: the checksum"):
        log.clean(2)


def assert_nothing_left(log: CleanedLog) -> None:
    assert not [name for name in log.file_system.list(DIRECTORY) if "cleaned" in name]


@pytest.mark.covers("LogCleanerTest.testDeletedBatchesWithNoMessagesRead")
def test_kafka_6854_a_chunk_of_which_nothing_stays_is_no_reason_to_grow() -> None:
    log = CleanedLog(replace(COMPACTED, max_message_bytes=100, segment_bytes=1000))
    log.in_transaction(1, 1)
    log.in_transaction(1, 2)
    log.abort(1)
    log.in_transaction(1, 4)
    log.commit(1)
    log.put(9)
    log.roll()
    log.clean(io_buffer_bytes=100)
    assert log.offsets() == [2, 3, 4, 5]
    assert log.keys() == [4, 9]


# Ends


@pytest.mark.covers("LogCleanerTest.testCleanSegmentsWithAbort")
def test_cl23_an_aborted_round_leaves_the_log_as_it_was() -> None:
    log = CleanedLog()
    log.put_each(1, 2, 1)
    log.roll()
    before = {name: log.file_system.stat(join(DIRECTORY, name)) for name in log.file_system.list(DIRECTORY)}
    compaction = log.prepare()
    pieces = iter(compaction)
    next(pieces)()
    next(pieces)
    assert [name for name in log.file_system.list(DIRECTORY) if name.endswith(".cleaned")]
    compaction.abort()
    after = {name: log.file_system.stat(join(DIRECTORY, name)) for name in log.file_system.list(DIRECTORY)}
    assert after == before
    assert compaction.end_offset is None


@pytest.mark.covers("LogCleanerTest.testSegmentWithOffsetOverflow")
def test_cl23_a_source_whose_offsets_do_not_fit_is_split_and_the_round_ends() -> None:
    log = CleanedLog(replace(COMPACTED, segment_bytes=100_000))
    log.put_each(1, 2, 3)
    beyond = build_batch([Record(2**31 + 5, NOW_MS, b"1", b"far")], base_offset=2**31 + 5)
    # A broker before 1.1 wrote such batches.
    log.log.local.segments.active.records.append(beyond)
    log.log.local.update_log_end(2**31 + 6)
    log.log.marks.update_high_watermark(2**31 + 6)
    log.roll()
    keys = log.keys()
    compaction = log.prepare(end=log.log.local.segments.base_offsets[1])
    run(compaction)
    assert compaction.end_offset is None
    assert log.log.local.segments.base_offsets[:2] == [0, 2**31 + 5]
    assert log.keys() == keys
    assert_nothing_left(log)
    assert log.clean() == log.log.local.segments.active.base_offset
    assert log.keys() == [2, 3, 1]


def test_cl6_a_batch_that_damage_put_out_of_range_fails_the_round_and_the_log_stays_online() -> None:
    log = CleanedLog(replace(COMPACTED, segment_bytes=100_000))
    # The base offset is not below the checksum: another write that lands on it goes unnoticed.
    out_of_range = build_batch([Record(2**40, NOW_MS, b"1", b"x")], base_offset=2**40)
    log.log.local.segments.active.records.append(out_of_range)
    log.put_each(2)
    log.roll()
    log.put_each(2)
    log.roll()
    base_offsets = log.log.local.segments.base_offsets
    compaction = log.prepare()
    with pytest.raises(StorageError, match="is not split: its last offset fits"):
        run(compaction)
    compaction.abort()
    assert log.log.online.reason is None
    assert log.log.local.segments.base_offsets == base_offsets
    assert_nothing_left(log)


def test_cl24_a_reader_from_below_the_head_sees_the_last_value_of_every_key() -> None:
    draw = random.Random(5)
    log = CleanedLog()
    first_dirty = 0
    for _ in range(6):
        for _ in range(draw.randrange(20, 60)):
            value = None if draw.random() < 0.1 else f"v{draw.randrange(1000)}"
            log.put((draw.randrange(12), value))
        last_values = log.last_values()
        first_dirty = log.clean(first_dirty, slots=draw.choice([5, 1000]))
        log.now_ms += DAY_MS // 3
        seen = log.last_values()
        assert {key: value for key, value in last_values.items() if value is not None} == {
            key: value for key, value in seen.items() if value is not None
        }
        assert all(last_values[key] is None for key in last_values.keys() - seen.keys())
        clean = [record.key for record in log.records() if record.offset < first_dirty]
        assert len(clean) == len(set(clean))


@pytest.mark.covers("LogCleanerTest.testLogCleanerStats")
def test_cl9_the_counts_of_a_round() -> None:
    log = CleanedLog()
    log.put_each(0, 1, 2, 0, 1)
    log.roll()
    before = sum(segment.size_bytes for segment in log.log.local.segments)
    compaction = log.prepare(2, slots=4)
    run(compaction)
    stats = compaction.stats
    assert compaction.end_offset == 5
    assert (stats.records_read, stats.records_written, stats.records_without_key) == (5, 3, 0)
    assert (stats.bytes_read, stats.bytes_written) == (
        before,
        sum(s.size_bytes for s in log.log.local.segments),
    )


def test_a_map_without_room_for_a_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="too small for a single key"):
        CleanerConfig(dedupe_buffer_bytes=24)
    with pytest.raises(ConfigError, match=r"dedupe_buffer_load_factor=1\.5"):
        CleanerConfig(dedupe_buffer_load_factor=1.5)
    with pytest.raises(ConfigError, match="io_buffer_bytes=0"):
        CleanerConfig(io_buffer_bytes=0)


def test_cl23_a_swap_that_fails_takes_the_log_offline() -> None:
    log = CleanedLog()
    log.put_each(1, 1)
    log.roll()
    pieces = iter(log.prepare())
    next(pieces)()
    next(pieces)()
    log.disk.fail(1, verbs=["rename"])
    with pytest.raises(StorageError, match="swap failed"):
        next(pieces)
    assert log.log.online.reason is not None


# Crashes


def ready_to_crash() -> CleanedLog:
    log = CleanedLog(replace(COMPACTED, segment_bytes=300))
    log.put_each(*(number % 4 for number in range(14)))
    log.put((2, None))
    log.roll()
    log.disk.sync_all()
    return log


@pytest.mark.slow
@pytest.mark.covers("LogCleanerTest.testRecoveryAfterCrash")
@pytest.mark.parametrize("mode", ["all", "none"])
def test_cl24_whatever_call_of_a_round_is_the_last_every_key_keeps_its_value(mode: PowerLoss) -> None:
    log = ready_to_crash()
    last_values, log_end_offset = log.last_values(), log.log.log_end_offset
    before = log.disk.operations
    log.clean()
    calls = log.disk.operations - before
    assert calls > 20
    for call in range(1, calls + 1):
        log = ready_to_crash()
        log.disk.arm_crash(call)
        with pytest.raises(Dead):
            log.clean()
        log.restart_after_power_loss(mode)
        assert log.last_values() == last_values, call
        assert log.log.log_end_offset == log_end_offset, call
        assert sorted_unique(log.last_offsets()), call


@pytest.mark.slow
def test_cl23_whatever_call_fails_the_log_is_as_before_or_offline() -> None:
    log = ready_to_crash()
    last_values = log.last_values()
    before = log.disk.operations
    log.clean()
    for call in range(1, log.disk.operations - before + 1):
        log = ready_to_crash()
        compaction = log.prepare()
        log.disk.fail(call)
        with pytest.raises((StorageError, OSError)):
            run(compaction)
        log.disk.disarm()
        compaction.abort()
        if log.log.online.reason is None:
            assert_nothing_left(log)
        log.restart_after_power_loss("all")
        assert log.last_values() == last_values, call
