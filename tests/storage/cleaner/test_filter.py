"""The records that stay, and their bytes. Kafka: MemoryRecordsTest, LogCleanerTest; rules CL13 to CL20."""

from __future__ import annotations

import gzip
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.batch import (
    HEADER_SIZE,
    Compression,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
    iterate_batches,
)
from storage.batch.legacy.builder import build_message, build_message_set
from storage.cleaner.filter import LastRecord, Retention
from storage.cleaner.keys import LONGEST_KEY_BYTES, RecordKey, read_keys
from storage.cleaner.rebuild import empty_batch, rebuild_batch
from storage.errors import StorageError
from storage.index.transaction_index import AbortedTransaction
from tests.storage.batch.strategies import mutated, quick, record_lists
from tests.storage.cleaner.compacted_logs import COMPACTED, DAY_MS, CleanedLog
from tests.storage.cleaner.filters import filter_of, filtered, output, record
from tests.storage.lines import lines_of
from tests.storage.logs import NOW_MS

CODECS = list(Compression)
LEGACY_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]


def numbered(*records_: Record) -> list[Record]:
    return list(records_)


# What stays


def test_cl15_the_last_record_of_a_key_stays_and_so_do_records_unknown_to_the_map() -> None:
    data = build_batch([record(0, b"old"), record(1, b"new"), record(2, b"unknown")])
    record_filter = filter_of([b"old"], latest=50)
    record_filter._offsets.put(b"new", 1)
    record_filter._offsets.latest_offset = 50
    (batch,) = filtered(record_filter, data)
    assert [each.key for each in batch.records()] == [b"new", b"unknown"]


def test_cl15_records_above_the_maps_latest_offset_stay_as_they_are() -> None:
    records_ = [record(offset, key) for offset, key in enumerate([b"old", b"old", None])]
    data = build_batch(records_, base_offset=0)
    (batch,) = filtered(filter_of([b"old"], latest=0), data)
    # A record at the same offset as the map's is the last one, too.
    assert [each.offset for each in batch.records()] == [0, 1, 2]
    record_filter = filter_of([b"old"], latest=9)
    record_filter._offsets.latest_offset = 1
    (batch,) = filtered(record_filter, data)
    assert [each.offset for each in batch.records()] == [2]


@pytest.mark.covers("LogCleanerTest.testCleaningWithUnkeyedMessages")
def test_t50_a_record_without_a_key_is_dropped_and_counted() -> None:
    data = build_batch([record(0, None), record(1), record(2, None)])
    record_filter = filter_of()
    (batch,) = filtered(record_filter, data)
    assert [each.offset for each in batch.records()] == [1]
    assert record_filter._stats.records_without_key == 2


def test_cl15_an_empty_key_is_a_key() -> None:
    data = build_batch([record(0, b""), record(1, b"k")])
    (batch,) = filtered(filter_of([b""]), data)
    assert [each.key for each in batch.records()] == [b"k"]


@pytest.mark.covers("LogCleanerTest.testCleanTombstone")
def test_t52_a_tombstone_stays_in_the_first_pass_however_old_it_is() -> None:
    log = CleanedLog()
    log.put((1, None))
    log.put(2)
    log.roll()
    log.now_ms += 10 * DAY_MS
    log.clean()
    assert log.offsets() == [0, 1]
    first = log.batches()[0]
    assert first.delete_horizon_ms == first.base_timestamp == log.now_ms + DAY_MS
    assert [each.timestamp for each in first.records()] == [NOW_MS]
    log.clean(now_ms=log.now_ms + DAY_MS - 1)
    assert log.offsets() == [0, 1]
    log.clean(now_ms=log.now_ms + DAY_MS)
    assert log.offsets() == [1]


@pytest.mark.covers("LogCleanerTest.testCleaningWithDeletes")
def test_cl16_deleted_keys_are_removed_by_the_second_pass() -> None:
    log = CleanedLog()
    log.put_each(*range(40))
    log.put_each(*((key, None) for key in range(0, 40, 2)))
    log.roll()
    log.put(99)
    log.roll()
    log.clean()
    log.clean(now_ms=NOW_MS + DAY_MS + 1)
    assert set(log.keys()) == {*range(1, 40, 2), 99}


def test_cl16_a_deleted_key_that_was_written_again_stays() -> None:
    log = CleanedLog()
    log.put_each(1, (1, None), (1, "again"))
    log.roll()
    log.clean()
    assert log.last_values() == {b"1": b"again"}


def test_cl16_tombstones_of_old_formats_are_removed_by_the_time_of_their_file() -> None:
    data = build_message(0, magic=1, timestamp=5, key=b"k", value=None)
    record_filter = filter_of()
    assert len(filtered(record_filter, data)) == 1
    record_filter.retains_legacy_deletes = False
    assert filtered(record_filter, data) == []


def test_cl16_the_time_of_the_last_clean_segment_decides_for_old_formats() -> None:
    def keys_left(modified_ms: int) -> list[bytes | None]:
        log = CleanedLog(replace(COMPACTED, segment_bytes=150))
        log.log.append_as_follower(
            build_message(0, magic=1, timestamp=NOW_MS, key=b"gone", value=None),
            leader_epoch=0,
            now_ms=NOW_MS,
        )
        log.roll()
        log.put(2)
        log.roll()
        log.put(3)
        log.roll()
        first, second, _, _ = log.log.local.segments
        first.set_modified(modified_ms)
        second.set_modified(NOW_MS)
        log.log.marks.update_high_watermark(log.log.log_end_offset)
        log.clean(2)
        return [each.key for each in log.records()]

    assert keys_left(NOW_MS - DAY_MS + 1) == [b"gone", b"2", b"3"]
    # The horizon itself is too old.
    assert keys_left(NOW_MS - DAY_MS) == [b"2", b"3"]


# Batches


def test_cl14_an_empty_batch_is_removed_unless_a_producer_or_the_round_needs_it() -> None:
    data = build_batch([record(7)], base_offset=7, producer_id=3, producer_epoch=0, base_sequence=4)
    assert filtered(filter_of([b"k"]), data) == []
    for keeper in (
        filter_of([b"k"], last_records={3: LastRecord(7, 0)}),
        filter_of([b"k"], end=8),
    ):
        (batch,) = filtered(keeper, data)
        assert (batch.record_count, batch.last_sequence, batch.size_bytes) == (0, 4, 61)
    others = {3: LastRecord(6, 0), 4: LastRecord(7, 0)}
    assert filtered(filter_of([b"k"], last_records=others, end=9), data) == []


def test_cl14_a_batch_without_a_producer_is_no_producers_last() -> None:
    data = build_batch([record(7)], base_offset=7)
    assert filtered(filter_of([b"k"], last_records={-1: LastRecord(7, 0)}), data) == []


def test_cl14_an_aborted_batch_is_dropped_without_a_look_at_its_records() -> None:
    record_filter = filter_of()
    record_filter._transactions.add_aborted([AbortedTransaction(1, 0, 9, 10)])
    data = build_batch([record(0)], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert filtered(record_filter, data) == []
    assert record_filter._stats.records_read == 0
    assert record_filter.judge(RecordBatch(data, 0, len(data))).retention is Retention.DELETE


@pytest.mark.covers("MemoryRecordsTest.testFilterToBatchDiscard")
def test_cl14_whole_batches_are_removed_and_the_others_stay_as_they_are() -> None:
    groups = [[0], [1, 2], [3, 4, 5], [6]]
    batches = [build_batch([record(o, b"%d" % o) for o in group], base_offset=group[0]) for group in groups]
    record_filter = filter_of([b"1", b"2", b"6"])
    result = record_filter.filter_chunk(b"".join(batches), 1 << 20, "x.log", 0)
    assert output(result) == batches[0] + batches[2]
    assert (result.last_offset, result.bytes_read) == (5, sum(map(len, batches)))


# Copies and rebuilt batches


@pytest.mark.covers("MemoryRecordsTest.testFilterTo")
@pytest.mark.parametrize("codec", CODECS)
def test_cl18_a_batch_that_loses_records_keeps_its_range_and_gets_a_new_maximum(codec: Compression) -> None:
    kept = [
        record(0, b"k"),
        record(1, None, b"drop", 20),
        record(2, b"other", b"v", 10),
        record(5, b"a" * 70),
    ]
    data = build_batch(kept, base_offset=0, compression=codec, partition_leader_epoch=67)
    (batch,) = filtered(filter_of(), data)
    assert batch.is_valid()
    assert list(batch.records()) == [each for each in kept if each.key is not None]
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (0, 5, 3)
    assert (batch.max_timestamp, batch.base_timestamp, batch.compression) == (10, 5, codec)
    assert batch.partition_leader_epoch == 67


@pytest.mark.parametrize("codec", CODECS)
def test_t48_a_batch_of_which_all_stays_is_copied_byte_for_byte(codec: Compression) -> None:
    data = bytearray(build_batch([record(0), record(1, b"l")], compression=codec))
    assert output(filter_of().filter_chunk(bytes(data), 1 << 20, "x.log", 0)) == bytes(data)


@pytest.mark.covers("MemoryRecordsTest.testFilterToPreservesPartitionLeaderEpoch")
def test_cl18_the_leader_epoch_stays() -> None:
    data = build_batch([record(0), record(1, None)], partition_leader_epoch=67)
    (batch,) = filtered(filter_of(), data)
    assert batch.partition_leader_epoch == 67


@pytest.mark.covers("MemoryRecordsTest.testFilterToPreservesProducerInfo")
@pytest.mark.parametrize("is_transactional", [False, True])
def test_cl18_sequences_of_records_stay_though_others_are_removed(is_transactional: bool) -> None:
    data = build_batch(
        [record(8, None), record(9), record(11, b"l"), record(12, None)],
        base_offset=8,
        producer_id=99384,
        producer_epoch=234,
        base_sequence=15,
        is_transactional=is_transactional,
    )
    (batch,) = filtered(filter_of(), data)
    assert (batch.producer_id, batch.producer_epoch, batch.is_transactional) == (99384, 234, is_transactional)
    assert (batch.base_offset, batch.last_offset) == (8, 12)
    assert (batch.base_sequence, batch.last_sequence) == (15, 19)
    assert [each.sequence for each in batch.records()] == [16, 18]


@pytest.mark.covers("MemoryRecordsTest.testFilterToAlreadyCompactedLog")
def test_cl18_a_batch_with_gaps_keeps_its_ends() -> None:
    data = build_batch([record(5, None), record(8, b"k"), record(10, None)], base_offset=0)
    (batch,) = filtered(filter_of(), data)
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (0, 10, 1)
    assert [each.offset for each in batch.records()] == [8]


@pytest.mark.covers("MemoryRecordsTest.testFilterToPreservesLogAppendTime")
def test_cl18_log_append_time_stays() -> None:
    data = build_batch(
        [record(0, None), record(1)], timestamp_type=TimestampType.LOG_APPEND, log_append_time_ms=NOW_MS
    )
    (batch,) = filtered(filter_of(), data)
    assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.LOG_APPEND, NOW_MS)
    assert [each.timestamp for each in batch.records()] == [NOW_MS]


@pytest.mark.covers("MemoryRecordsTest.testBaseTimestampToDeleteHorizonConversion")
def test_cl17_a_kept_tombstone_sets_a_horizon_in_its_batch_and_keeps_timestamps() -> None:
    data = build_batch([record(0, b"a", b"1", 5), record(1, b"b", None, 10), record(2, b"c", b"3", 15)])
    (batch,) = filtered(filter_of(now_ms=NOW_MS, retention_ms=7), data)
    assert batch.delete_horizon_ms == batch.base_timestamp == NOW_MS + 7
    assert [each.timestamp for each in batch.records()] == [5, 10, 15]
    assert batch.max_timestamp == 15
    (again,) = filtered(filter_of([b"a"], now_ms=NOW_MS + 6), batch.tobytes())
    assert again.delete_horizon_ms == NOW_MS + 7
    assert [each.timestamp for each in again.records()] == [10, 15]
    (after,) = filtered(filter_of(now_ms=NOW_MS + 7), again.tobytes())
    assert [each.offset for each in after.records()] == [2]
    assert after.delete_horizon_ms == NOW_MS + 7


def test_cl17_a_batch_whose_tombstones_are_removed_gets_no_horizon() -> None:
    data = build_batch([record(0, b"a", None), record(1, b"b")])
    (batch,) = filtered(filter_of([b"a"]), data)
    assert batch.delete_horizon_ms is None


@pytest.mark.covers(
    "MemoryRecordsTest.testFilterToEmptyBatchRetention",
    "MemoryRecordsTest.testEmptyBatchRetention",
    "MemoryRecordsTest.testEmptyBatchDeletion",
)
@pytest.mark.parametrize("is_transactional", [False, True])
def test_cl19_an_empty_batch_is_a_header_with_its_ends_and_flags(is_transactional: bool) -> None:
    data = build_batch(
        [record(3, b"k", b"v", 10), record(4, b"k", b"v", 12)],
        base_offset=3,
        compression=Compression.GZIP,
        producer_id=23,
        producer_epoch=5,
        base_sequence=10,
        partition_leader_epoch=293,
        is_transactional=is_transactional,
    )
    record_filter = filter_of([b"k"], end=5)
    result = record_filter.filter_chunk(data, 1 << 20, "x.log", 0)
    (batch,) = iterate_batches(output(result))
    assert (result.last_offset, result.size_bytes) == (4, 61)
    assert batch.is_valid() and list(batch.records()) == []
    assert (batch.base_offset, batch.last_offset, batch.last_sequence) == (3, 4, 11)
    assert (batch.compression, batch.base_timestamp, batch.max_timestamp) == (Compression.NONE, -1, 12)
    assert (batch.producer_id, batch.producer_epoch, batch.partition_leader_epoch) == (23, 5, 293)
    assert (batch.is_transactional, batch.delete_horizon_ms) == (is_transactional, None)
    assert filtered(filter_of(end=5), batch.tobytes())[0].tobytes() == batch.tobytes()
    assert filtered(filter_of(), batch.tobytes()) == []


def test_t51_old_formats_cannot_say_an_empty_batch() -> None:
    """A round that must leave a batch without records refuses an old format (CL19)."""
    data = build_message(4, magic=1, timestamp=5, key=b"k", value=b"v")
    with pytest.raises(StorageError, match=r"of magic 1 at offset \d+ must be kept without records"):
        filtered(filter_of([b"k"], end=5), data)
    assert filtered(filter_of([b"k"]), data) == []


@quick
@given(record_lists(base_offset=5), st.data())
def test_cl18_kept_records_are_read_as_before(drawn: list[Record], data: st.DataObject) -> None:
    batch_bytes = build_batch(drawn, base_offset=3)
    batch = RecordBatch(batch_bytes, 0, len(batch_bytes))
    offsets = [each.offset for each in drawn]
    wanted = data.draw(st.lists(st.sampled_from(offsets), min_size=1, unique=True))
    horizon_ms = data.draw(st.none() | st.integers(0, 2**42))
    rebuilt_bytes = rebuild_batch(batch, wanted, horizon_ms)
    rebuilt = RecordBatch(rebuilt_bytes, 0, len(rebuilt_bytes))
    assert rebuilt.is_valid()
    assert list(rebuilt.records()) == [each for each in drawn if each.offset in wanted]
    assert (rebuilt.base_offset, rebuilt.last_offset) == (batch.base_offset, batch.last_offset)
    assert RecordBatch(empty_batch(batch), 0, 61).last_offset == batch.last_offset


# Old formats


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_cl18_messages_of_old_formats_keep_offsets_and_times(magic: int, codec: Compression) -> None:
    messages = [
        record(offset, key, b"v%d" % offset, 10 + offset)
        for offset, key in enumerate([None, b"a", b"b", None])
    ]
    data = build_message_set(messages, magic=magic, compression=codec)
    batches = filtered(filter_of(), data)
    left = [each for batch in batches for each in batch.records()]
    assert [(each.offset, each.key, each.value) for each in left] == [(1, b"a", b"v1"), (2, b"b", b"v2")]
    assert all(batch.is_valid() and batch.magic == magic for batch in batches)
    assert batches[-1].last_offset == 2
    if magic == 1:
        assert [each.timestamp for each in left] == [11, 12]
        assert batches[-1].max_timestamp == 12
    assert len(batches) == (2 if codec is Compression.NONE else 1)


@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_cl18_messages_of_old_formats_that_all_stay_are_copied(codec: Compression) -> None:
    data = build_message_set([record(3, b"a"), record(7, b"b")], magic=1, base_offset=3, compression=codec)
    assert output(filter_of().filter_chunk(data, 1 << 20, "x.log", 0)) == data


@pytest.mark.covers(
    "LogCleanerTest.testCleanCorruptMessageSet", "LogCleanerTest.testClientHandlingOfCorruptMessageSet"
)
def test_kafka_4298_a_wrapper_with_messages_of_another_magic_is_made_right() -> None:
    """The inner messages are of magic 0 with absolute offsets; nothing else is wrong, and all of them stay."""
    inner = [record(offset, b"%d" % offset, b"%d" % offset) for offset in range(2, 6)]
    content = build_message_set(inner, magic=0)
    wrapper = build_message(
        5,
        magic=1,
        timestamp=9,
        key=None,
        value=gzip.compress(content),
        attributes=Compression.GZIP,
    )
    before = RecordBatch(wrapper, 0, len(wrapper))
    assert [each.offset for each in before.records()] == [2, 3, 4, 5]
    (batch,) = filtered(filter_of(), wrapper)
    assert [(each.offset, each.value) for each in batch.records()] == [(n, b"%d" % n) for n in range(2, 6)]
    assert {message.magic for message in batch.messages()} == {1}
    assert batch.last_offset == 5


# Chunks


@pytest.mark.covers("MemoryRecordsTest.testFilterToWithUndersizedBuffer")
def test_kafka_5316_the_chunk_ends_after_the_batch_that_outgrew_it() -> None:
    """A horizon makes each record longer: more may be written than was read."""
    batches = [
        build_batch([record(o, b"%d" % o, None) for o in range(at, at + 9)], base_offset=at)
        for at in (0, 10, 20)
    ]
    limit_bytes = sum(map(len, batches[:2]))
    record_filter = filter_of()
    first = record_filter.filter_chunk(b"".join(batches), limit_bytes, "x.log", 0)
    assert (first.bytes_read, first.last_offset) == (limit_bytes, 18)
    assert first.size_bytes > limit_bytes
    rest = record_filter.filter_chunk(b"".join(batches)[first.bytes_read :], limit_bytes, "x.log", 0)
    assert rest.last_offset == 28


def test_kafka_7385_a_chunk_of_empty_batches_ends_at_the_last_of_them() -> None:
    batches = [
        build_batch([record(at)], base_offset=at, producer_id=at, producer_epoch=0, base_sequence=0)
        for at in (3, 4)
    ]
    record_filter = filter_of([b"k"], last_records={3: LastRecord(3, 0), 4: LastRecord(4, 0)})
    result = record_filter.filter_chunk(b"".join(batches), 1 << 20, "x.log", 0)
    assert (result.last_offset, result.size_bytes) == (4, 122)


# Keys


def held(record: Record) -> RecordKey:
    """Returns what is held of a record; of a long key that is a digest."""
    key = record.key
    if key is not None and len(key) > LONGEST_KEY_BYTES:
        key = sha256(key).digest()
    return RecordKey(record.offset, key, record.value is not None)


@quick
@given(record_lists(base_offset=5), st.sampled_from(CODECS))
def test_read_keys_agrees_with_the_decoded_records(drawn: list[Record], codec: Compression) -> None:
    data = b"x" * 7 + build_batch(drawn, base_offset=3, compression=codec)
    keys = read_keys(RecordBatch(data, 7, len(data) - 7))
    assert keys == [held(each) for each in drawn]


@quick
@given(record_lists(), st.data())
def test_read_keys_leaves_broken_records_to_the_reader_of_records(
    drawn: list[Record], data: st.DataObject
) -> None:
    sound = build_batch(drawn)
    broken = sound[:61] + data.draw(mutated(sound[61:]))
    batch = RecordBatch(broken, 0, len(broken))
    try:
        expected = [held(each) for each in batch.records()]
    except StorageError as error:
        with pytest.raises(type(error)):
            read_keys(batch)
    else:
        assert read_keys(batch) == expected


@pytest.mark.parametrize("key_bytes", [3, 63, 64, 9000])
@pytest.mark.parametrize("value_bytes", [3, 63, 64, 9000])
@pytest.mark.parametrize("headers", [(), (("name", b"value"), ("", None))], ids=["bare", "with headers"])
def test_keys_beside_contents_of_any_size_are_read_without_decoding_the_records(
    key_bytes: int, value_bytes: int, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    """Compaction reads each byte of a dirty log in this way."""
    data = build_batch(
        [
            Record(index, NOW_MS + index * 90, bytes(key_bytes), bytes(value_bytes), headers)
            for index in range(70)
        ]
    )
    batch = RecordBatch(data, 0, len(data))
    assert lines_of(lambda: read_keys(batch)) < lines_of(lambda: list(batch.records()))


def test_cl7_the_value_of_an_old_message_is_not_taken_for_the_records_of_a_batch() -> None:
    """What a batch of magic 2 has behind its header is in the midst of the value of a message."""
    record = build_batch([Record(0, 5, b"wrong", b"v")])[HEADER_SIZE:]
    # Offset, size, CRC, magic, attributes, timestamp and the lengths of the key "k" and of the value come before.
    value = bytes(HEADER_SIZE - (8 + 4 + 4 + 1 + 1 + 8 + 4 + 1 + 4)) + record
    data = build_message_set([Record(7, 5, b"k", value)], magic=1, compression=Compression.NONE)
    assert data[HEADER_SIZE:] == record
    assert read_keys(RecordBatch(bytes(data), 0, len(data))) == [RecordKey(7, b"k", True)]
