"""Batches of magic 2: bytes, round trips, damage and stamps in place."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.batch import (
    HEADER,
    HEADER_SIZE,
    BatchBuilder,
    BatchFields,
    Compression,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
    is_one_batch,
    iterate_batches,
    set_max_timestamp,
    set_producer_state,
    stamp,
)
from storage.batch.format import CRC_AT, CRC_COVERS_FROM
from storage.batch.scan import RecordScan, RecordScanner
from storage.cleaner.rebuild import empty_batch
from storage.codec.compression import decompress
from storage.codec.crc32c import crc32c
from storage.errors import (
    CorruptBatch,
    InvalidRecord,
    UnsupportedCompression,
)
from tests.storage.batch.strategies import batch_fields, mutated, quick, record_lists

CLEAN = Path(__file__).parents[2] / "golden" / "kafka-4.1" / "clean"
SEGMENTS = [
    path
    for topic in ("shapes-none", "shapes-gzip", "index-full-rolls", "transactions")
    for path in sorted((CLEAN / f"{topic}-0").glob("*.log"))
]


def only(data: bytes) -> RecordBatch:
    (batch,) = iterate_batches(data)
    return batch


def records(count: int = 3, base_offset: int = 0) -> list[Record]:
    return [Record(base_offset + index, 1000 + index, b"k%d" % index, b"value") for index in range(count)]


def resealed(data: bytes, position: int, byte: int) -> bytes:
    """Return `data` with one byte changed and the CRC corrected."""
    changed = bytearray(data)
    changed[position] = byte
    changed[CRC_AT:CRC_COVERS_FROM] = crc32c(bytes(changed[CRC_COVERS_FROM:])).to_bytes(4, "big")
    return bytes(changed)


@pytest.mark.parametrize("path", SEGMENTS, ids=lambda path: f"{path.parent.name}/{path.stem[-3:]}")
def test_batch_rebuilt_from_its_records_has_kafkas_bytes(path: Path) -> None:
    data = path.read_bytes()
    rebuilt = b"".join(
        build_batch(
            batch.records(),
            base_offset=batch.base_offset,
            compression=batch.compression,
            timestamp_type=batch.timestamp_type,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            partition_leader_epoch=batch.partition_leader_epoch,
            is_transactional=batch.is_transactional,
            is_control=batch.is_control,
        )
        for batch in iterate_batches(data)
    )
    assert rebuilt == data


@quick
@given(st.data())
def test_batch_comes_back(data: st.DataObject) -> None:
    fields = data.draw(batch_fields())
    given_records = data.draw(record_lists(base_offset=fields.base_offset))
    builder = BatchBuilder(fields)
    for record in given_records:
        builder.append(record)
    batch = only(builder.build())
    batch.check_valid()
    log_append = fields.timestamp_type is TimestampType.LOG_APPEND
    for record, read in zip(given_records, batch.records(), strict=True):
        timestamp = fields.log_append_time_ms if log_append else record.timestamp
        delta = record.offset - fields.base_offset
        sequence = -1 if fields.base_sequence < 0 else (fields.base_sequence + delta) % 2**31
        assert read == record._replace(timestamp=timestamp, sequence=sequence)
    assert batch.last_offset == builder.last_offset == given_records[-1].offset
    assert batch.record_count == len(given_records)
    assert batch.timestamp_type is fields.timestamp_type
    assert batch.compression is fields.compression
    assert batch.last_sequence == read.sequence
    assert batch.is_transactional == fields.is_transactional
    if not log_append:
        assert batch.max_timestamp == max(record.timestamp for record in given_records)


@quick
@given(st.data())
def test_mutated_batches_raise_documented_errors_only(data: st.DataObject) -> None:
    compression = data.draw(st.sampled_from(Compression))
    sound = build_batch(records(4), compression=compression) + build_batch(records(2, 4), base_offset=4)
    changed = data.draw(mutated(sound))
    try:
        for batch in iterate_batches(changed):
            batch.check_valid("mutated")
            for _ in batch.records(100_000):
                pass
    except (CorruptBatch, InvalidRecord, UnsupportedCompression):
        pass


@quick
@given(st.data())
def test_damaged_records_below_a_sound_checksum_raise_documented_errors_only(data: st.DataObject) -> None:
    sound = build_batch(records(4), compression=data.draw(st.sampled_from(Compression)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(CRC_COVERS_FROM, len(sound) - 1))
        sound = resealed(sound, at, data.draw(st.integers(0, 255)))
    batch = only(sound)
    assert batch.is_valid()
    try:
        list(batch.records(100_000))
    except (InvalidRecord, UnsupportedCompression):
        pass


@pytest.mark.covers("DefaultRecordBatchTest.testInvalidCrc")
@quick
@given(st.data())
def test_one_flipped_bit_after_the_magic_breaks_the_checksum(data: st.DataObject) -> None:
    sound = build_batch(records(3))
    at = data.draw(st.integers(CRC_AT, len(sound) - 1))
    changed = bytearray(sound)
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    assert only(sound).is_valid() and not only(bytes(changed)).is_valid()


@pytest.mark.covers("DefaultRecordBatchTest.buildDefaultRecordBatch")
def test_header_fields_of_a_batch_without_producer() -> None:
    batch = only(build_batch(records(3, 7), base_offset=7, partition_leader_epoch=4))
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (7, 9, 10)
    assert (batch.partition_leader_epoch, batch.magic, batch.record_count) == (4, 2, 3)
    assert (batch.base_timestamp, batch.max_timestamp) == (1000, 1002)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert (batch.last_sequence, batch.has_producer_id, batch.delete_horizon_ms) == (-1, False, None)
    assert not batch.is_transactional and not batch.is_control
    assert batch.tobytes() == build_batch(records(3, 7), base_offset=7, partition_leader_epoch=4)


@pytest.mark.covers("DefaultRecordBatchTest.buildDefaultRecordBatchWithSequenceWrapAround")
def test_last_sequence_wraps_to_zero() -> None:
    data = build_batch(records(3), producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert only(data).last_sequence == 0
    assert [record.sequence for record in only(data).records()] == [2**31 - 2, 2**31 - 1, 0]


@pytest.mark.parametrize(
    ("producer_id", "has_one"), [(-(2**63), False), (-2, False), (-1, False), (0, True), (1, True)]
)
def test_a_negative_producer_id_is_none(producer_id: int, has_one: bool) -> None:
    data = bytearray(build_batch(records(3)))
    struct.pack_into(">q", data, 43, producer_id)
    assert only(bytes(data)).has_producer_id == has_one


@pytest.mark.parametrize("base_sequence", [-2, -9, -(2**31)])
def test_a_negative_sequence_of_a_damaged_batch_counts_on_as_in_java(base_sequence: int) -> None:
    """Only -1 stands for none."""
    data = bytearray(build_batch(records(3)))
    struct.pack_into(">i", data, 53, base_sequence)
    assert only(bytes(data)).last_sequence == base_sequence + 2


@pytest.mark.covers("DefaultRecordBatchTest.testSetLogAppendTime")
def test_log_append_time_is_every_records_timestamp() -> None:
    data = build_batch(records(2), timestamp_type=TimestampType.LOG_APPEND, log_append_time_ms=5000)
    assert only(data).max_timestamp == 5000
    assert [record.timestamp for record in only(data).records()] == [5000, 5000]


def test_delete_horizon_is_stored_in_the_base_timestamp() -> None:
    data = build_batch(records(2))
    batch = only(resealed(data, CRC_COVERS_FROM + 1, 0x40))
    assert batch.is_valid() and batch.delete_horizon_ms == batch.base_timestamp == 1000


def test_t22_batch_that_counts_no_records_is_never_decompressed() -> None:
    header = bytearray(HEADER.pack(5, 49, 0, 2, 0, 1, 2, -1, -1, 7, 0, 3, 0))
    batch = only(resealed(bytes(header), CRC_COVERS_FROM + 1, 1))
    assert batch.is_valid() and batch.compression is Compression.GZIP
    assert list(batch.records()) == [] and batch.last_offset == 7


def test_decompression_stops_at_the_limit() -> None:
    data = build_batch([Record(0, 0, None, bytes(200_000))], compression=Compression.GZIP)
    with pytest.raises(InvalidRecord, match="more than 100000 bytes"):
        list(only(data).records(100_000))


@pytest.mark.covers("ByteBufferLogInputStreamTest.iteratorIgnoresIncompleteEntries")
def test_fr10_iteration_in_memory_ends_at_an_incomplete_batch() -> None:
    one = build_batch(records(2))
    for size_bytes in range(len(one), 2 * len(one)):
        assert len(list(iterate_batches((one + one)[:size_bytes]))) == 1


@pytest.mark.covers("ByteBufferLogInputStreamTest.iteratorRaisesOnTooSmallRecords")
@pytest.mark.parametrize("size", [13, 0, -1, -(2**31)])
def test_fr10_iteration_in_memory_refuses_a_size_below_14(size: int) -> None:
    one = build_batch(records(1))
    bad = one + one[:8] + size.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch, match="below the least of 14") as caught:
        list(iterate_batches(bad, "here"))
    assert (caught.value.path, caught.value.position) == ("here", len(one))


@pytest.mark.covers("ByteBufferLogInputStreamTest.iteratorRaisesOnInvalidMagic")
@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_fr10_iteration_in_memory_refuses_an_unknown_magic(magic: int) -> None:
    changed = bytearray(build_batch(records(1)))
    changed[16] = magic
    with pytest.raises(CorruptBatch, match=f"magic {magic}"):
        list(iterate_batches(changed))


@pytest.mark.covers("DefaultRecordBatchTest.testInvalidRecordSize")
def test_fr11_batch_smaller_than_its_header_is_not_valid() -> None:
    data = bytearray(build_batch(records(2)))
    data[8:12] = (20).to_bytes(4, "big")
    batch = only(bytes(data[:32]))
    assert not batch.is_valid()
    with pytest.raises(CorruptBatch, match="32 bytes is smaller than its header of 61"):
        batch.check_valid()
    with pytest.raises(InvalidRecord, match="shorter than a header"):
        batch.records()


def test_fr11_error_names_file_and_position() -> None:
    data = resealed(build_batch(records(2)), 60, 2)
    broken = data[:-1] + b"!"
    batch = RecordBatch(broken, 0, len(broken), 4096)
    with pytest.raises(CorruptBatch, match=r"a\.log at byte 4096: the checksum of the batch at offset 0"):
        batch.check_valid("a.log")
    with pytest.raises(CorruptBatch, match=r"a\.log at byte 7"):
        batch.check_valid("a.log", 7)


def test_view_works_in_the_middle_of_any_buffer() -> None:
    data = build_batch(records(2))
    for buffer in (b"xx" + data, bytearray(b"xx" + data), memoryview(b"xx" + data)):
        batch = RecordBatch(buffer, 2, len(data), 900)
        assert batch.is_valid() and batch.position == 900 and batch.tobytes() == data
        assert [record.offset for record in batch.records()] == [0, 1]


@pytest.mark.covers("DefaultRecordBatchTest.testSetPartitionLeaderEpoch")
def test_stamp_changes_offset_and_epoch_and_no_checksum() -> None:
    data = bytearray(b"xx" + build_batch(records(2)))
    stamp(data, 2, base_offset=40, partition_leader_epoch=6)
    batch = RecordBatch(data, 2, len(data) - 2)
    assert batch.is_valid()
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (40, 41, 6)
    stamp(data, 2, partition_leader_epoch=7)
    assert RecordBatch(data, 2, len(data) - 2).base_offset == 40


def test_lv11_max_timestamp_is_rewritten_only_when_it_changes() -> None:
    data = bytearray(build_batch(records(2)))
    assert not set_max_timestamp(data, 0, timestamp_type=TimestampType.CREATE, max_timestamp=1001)
    assert set_max_timestamp(data, 0, timestamp_type=TimestampType.LOG_APPEND, max_timestamp=9000)
    batch = only(bytes(data))
    assert batch.is_valid() and batch.timestamp_type is TimestampType.LOG_APPEND
    assert batch.max_timestamp == 9000
    assert set_max_timestamp(data, 0, timestamp_type=TimestampType.CREATE, max_timestamp=1001)
    assert bytes(data) == build_batch(records(2))


def test_t7_max_timestamp_clears_the_unused_attributes() -> None:
    data = bytearray(resealed(build_batch(records(1)), CRC_COVERS_FROM, 0x7F))
    assert set_max_timestamp(data, 0, timestamp_type=TimestampType.CREATE, max_timestamp=5)
    assert only(bytes(data)).attributes == 0 and only(bytes(data)).is_valid()


def test_producer_state_can_be_set_after_the_batch_was_built() -> None:
    data = bytearray(build_batch(records(2)))
    set_producer_state(data, 0, producer_id=9, producer_epoch=2, base_sequence=30)
    assert bytes(data) == build_batch(records(2), producer_id=9, producer_epoch=2, base_sequence=30)


def test_magic_0_and_1_have_a_header_view_and_a_checksum() -> None:
    for folder, magic, count in (("v1-gzip-0", 1, -1), ("v0-none-0", 0, 1)):
        golden = CLEAN.parents[1] / "kafka-2.8" / "clean" / folder / "00000000000000000000.log"
        batches = list(iterate_batches(golden.read_bytes()))
        assert all(batch.is_valid() and batch.magic == magic for batch in batches)
        assert {batch.record_count for batch in batches} <= {count, 1}
        assert (batches[0].timestamp_type is TimestampType.NO) == (magic == 0)


def test_magic_flipped_to_an_old_one_fails_its_checksum() -> None:
    for magic in (0, 1):
        data = bytearray(build_batch(records(2)))
        data[16] = magic
        assert not only(bytes(data)).is_valid()


def test_bb1_offsets_must_rise_and_fit_31_bits() -> None:
    with pytest.raises(InvalidRecord, match="offset 4 cannot follow 4"):
        build_batch([Record(4, 0, None, None), Record(4, 0, None, None)])
    with pytest.raises(InvalidRecord, match="offset 1 cannot follow"):
        build_batch([Record(1, 0, None, None)], base_offset=2)
    assert only(build_batch([Record(2**31 - 1, 0, None, None)])).last_offset == 2**31 - 1
    with pytest.raises(InvalidRecord):
        build_batch([Record(2**31, 0, None, None)])


def test_bb1_timestamp_below_minus_one_is_refused() -> None:
    assert only(build_batch([Record(0, -1, None, None)])).max_timestamp == -1
    with pytest.raises(InvalidRecord, match="-2 is negative"):
        build_batch([Record(0, -2, None, None)])


def test_bb1_producer_fields_that_cannot_be_together_are_a_bug() -> None:
    for fields in (
        {"is_transactional": True},
        {"producer_id": 1},
        {"producer_id": 1, "producer_epoch": 0},
    ):
        with pytest.raises(AssertionError):
            replace(BatchFields(), **fields)


def test_bb3_no_records_no_bytes() -> None:
    assert build_batch([]) == b"" and BatchBuilder().build() == b""


def test_builder_refuses_records_above_its_limit_but_takes_any_first_record() -> None:
    builder = BatchBuilder(limit_bytes=200)
    assert builder.try_append(Record(0, 0, None, bytes(500)))
    assert not builder.try_append(Record(1, 0, None, b""))
    assert builder.record_count == 1 and builder.size_estimate == len(builder.build())

    builder = BatchBuilder(limit_bytes=200)
    count = 0
    while builder.try_append(Record(count, 0, None, bytes(10))):
        count += 1
    assert builder.record_count == count == (200 - HEADER_SIZE) // 17
    assert len(builder.build()) == builder.size_estimate <= 200


@pytest.mark.covers("DefaultRecordBatchTest.buildDefaultRecordBatchWithProducerId")
def test_header_fields_of_a_batch_with_a_producer() -> None:
    batch = only(build_batch(records(3), producer_id=23423, producer_epoch=145, base_sequence=983))
    batch.check_valid()
    assert (batch.producer_id, batch.producer_epoch) == (23423, 145)
    assert (batch.base_sequence, batch.last_sequence) == (983, 985)
    assert [record.sequence for record in batch.records()] == [983, 984, 985]


@pytest.mark.covers(
    "DefaultRecordBatchTest.testInvalidRecordCountTooManyNonCompressedV2",
    "DefaultRecordBatchTest.testInvalidRecordCountTooLittleNonCompressedV2",
    "DefaultRecordBatchTest.testInvalidRecordCountTooManyCompressedV2",
    "DefaultRecordBatchTest.testInvalidRecordCountTooLittleCompressedV2",
)
@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("count", [5, 2, -1])
def test_count_that_is_not_true_is_invalid(codec: Compression, count: int) -> None:
    data = bytearray(build_batch(records(3), compression=codec))
    data[57:61] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(InvalidRecord, match=r"records|early"):
        list(RecordBatch(data, 0, len(data)).records())


@pytest.mark.covers("DefaultRecordBatchTest.testWriteEmptyHeader")
@pytest.mark.parametrize("timestamp_type", [TimestampType.CREATE, TimestampType.LOG_APPEND])
@pytest.mark.parametrize("is_transactional", [True, False])
@pytest.mark.parametrize("is_control", [True, False])
def test_t22_retained_empty_batch_is_its_header_of_61_bytes(
    timestamp_type: TimestampType, is_transactional: bool, is_control: bool
) -> None:
    full = build_batch(
        [Record(15, 7, b"k", b"v"), Record(37, 8, b"k", b"v")],
        base_offset=15,
        compression=Compression.GZIP,
        timestamp_type=timestamp_type,
        producer_id=23423,
        producer_epoch=145,
        base_sequence=983,
        partition_leader_epoch=15,
        is_transactional=is_transactional,
        is_control=is_control,
        log_append_time_ms=9,
        delete_horizon_ms=5,
    )
    batch = only(empty_batch(only(full)))
    batch.check_valid()
    assert batch.size_bytes == HEADER_SIZE and list(batch.records()) == []
    assert (batch.producer_id, batch.producer_epoch, batch.partition_leader_epoch) == (23423, 145, 15)
    assert (batch.base_offset, batch.last_offset) == (15, 37)
    assert (batch.base_sequence, batch.last_sequence, batch.record_count) == (983, 983 + 22, 0)
    assert (batch.base_timestamp, batch.delete_horizon_ms) == (-1, None)
    assert batch.max_timestamp == (9 if timestamp_type is TimestampType.LOG_APPEND else 8)
    assert (batch.is_transactional, batch.is_control) == (is_transactional, is_control)
    assert batch.timestamp_type is timestamp_type and batch.compression is Compression.NONE


@pytest.mark.covers(
    "DefaultRecordBatchTest.testStreamingIteratorConsistency",
    "DefaultRecordBatchTest.testSkipKeyValueIteratorCorrectness",
)
@pytest.mark.parametrize("codec", Compression)
def test_walk_that_skips_keys_and_values_sees_what_decoding_sees(codec: Compression) -> None:
    given_records = [
        Record(0, 1, b"a", b"1"),
        Record(1, 2, b"b", None),
        Record(2, 3, None, b"3"),
        Record(3, 4, None, None),
        Record(4, 1000, b"abc", bytes(200 * 1024)),
        Record(5, 9999, b"abc", b"0", (("h1", b"hv1"), ("h2", b"hv2"), ("h3", None))),
    ]
    batch = only(build_batch(given_records, compression=codec))
    assert list(batch.records()) == given_records
    payload = decompress(codec, batch.tobytes()[HEADER_SIZE:])
    assert RecordScanner(0).scan(payload, 6) == RecordScan(0, 9998, True)
    assert RecordScanner(0).scan(payload, 5) is None and RecordScanner(0).scan(payload, 7) is None


def test_t8_offset_and_epoch_of_magic_2_are_outside_its_checksum_and_the_attributes_are_not() -> None:
    data = bytearray(build_batch(records(2)))
    for at in (0, 7, 12, 15):
        changed = bytearray(data)
        changed[at] ^= 1
        assert RecordBatch(changed, 0, len(changed)).is_valid()
    for at in (21, 22, 60, len(data) - 1):
        changed = bytearray(data)
        changed[at] ^= 1
        assert not RecordBatch(changed, 0, len(changed)).is_valid()


def test_t7_attributes_are_written_in_the_low_byte_and_the_horizon_in_the_base_timestamp() -> None:
    data = build_batch(
        records(1),
        compression=Compression.ZSTD,
        timestamp_type=TimestampType.LOG_APPEND,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
        is_control=True,
        log_append_time_ms=5,
        delete_horizon_ms=900,
    )
    assert data[21:23] == bytes((0, 0x7C)) and data[27:35] == (900).to_bytes(8, "big")


def test_a_set_is_one_batch_where_its_size_field_says_so() -> None:
    one = build_batch([Record(0, 5, None, b"value")])
    assert is_one_batch(one) and is_one_batch(memoryview(one)) and is_one_batch(bytearray(one))
    for other in (b"", one[:-1], one + b"x", one + one, one[:16] + b"\x01" + one[17:], one[:60]):
        assert not is_one_batch(other)
