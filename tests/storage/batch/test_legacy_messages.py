"""Reading messages of magic 0 and 1, plain and wrapped, and changing them in place."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.batch import (
    Compression,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
    iterate_batches,
    set_last_offset,
    set_max_timestamp,
    set_producer_state,
    stamp,
)
from storage.batch.legacy.builder import build_message, build_message_set
from storage.codec.compression import compress
from storage.errors import CorruptBatch, InvalidRecord, UnsupportedCompression
from tests.places import GOLDEN
from tests.storage.batch.strategies import mutated, quick

LEGACY_LOGS = sorted((GOLDEN / "kafka-2.8" / "clean").glob("*/*.log"))
CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
WRAPPING = CODECS[1:]
KEYED = [
    Record(0, 1, b"a", b"1"),
    Record(1, 2, b"b", b"2"),
    Record(2, 3, b"c", b"3"),
]

magics = pytest.mark.parametrize("magic", [0, 1])
wrapping = pytest.mark.parametrize("codec", WRAPPING)


def only(data: bytes | bytearray) -> RecordBatch:
    (batch,) = iterate_batches(data)
    return batch


def wrapper(
    content: bytes,
    *,
    offset: int = 2,
    magic: int = 1,
    codec: Compression = Compression.GZIP,
    timestamp: int = 9,
    is_log_append: bool = False,
) -> RecordBatch:
    value = compress(codec, content, magic=magic)
    attributes = codec | (8 if is_log_append else 0)
    return only(
        build_message(offset, magic=magic, timestamp=timestamp, key=None, value=value, attributes=attributes)
    )


def plain(
    offset: int, *, magic: int = 1, timestamp: int = 5, value: bytes = b"v", attributes: int = 0
) -> bytes:
    return build_message(
        offset, magic=magic, timestamp=timestamp, key=b"k", value=value, attributes=attributes
    )


def offsets(batch: RecordBatch) -> list[int]:
    return [record.offset for record in batch.records()]


class TestGolden:
    @pytest.mark.parametrize("path", LEGACY_LOGS, ids=lambda path: path.parent.name)
    def test_messages_are_those_that_kafkas_dump_prints(self, path: Path) -> None:
        dump = GOLDEN / "expected" / "kafka-2.8" / "clean" / path.parent.name / (path.name + ".txt")
        pattern = (
            r"^\| offset: (\d+) \w+: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) isValid: true crc: (\d+)}"
        )
        expected = [tuple(map(int, found)) for found in re.findall(pattern, dump.read_text(), re.MULTILINE)]

        def size_of(data: bytes | None) -> int:
            return -1 if data is None else len(data)

        messages = [message for batch in iterate_batches(path.read_bytes()) for message in batch.messages()]
        assert all(message.is_valid for message in messages)
        assert [
            (message.offset, message.timestamp, *map(size_of, message.key_and_value()), message.crc)
            for message in messages
        ] == expected

    @pytest.mark.parametrize("path", LEGACY_LOGS, ids=lambda path: path.parent.name)
    def test_bb4_set_rebuilt_from_its_records_has_kafkas_bytes(self, path: Path) -> None:
        for batch in iterate_batches(path.read_bytes()):
            rebuilt = build_message_set(
                batch.records(),
                magic=batch.magic,
                base_offset=batch.first_offset(),
                compression=batch.compression,
                timestamp_type=batch.timestamp_type,
                log_append_time_ms=batch.max_timestamp,
            )
            assert list(only(rebuilt).records()) == list(batch.records())
            assert rebuilt == batch.tobytes()

    def test_worked_example_of_a_message_of_magic_0(self) -> None:
        data = build_message(291178, magic=0, timestamp=-1, key=b"11", value=b"Message_11")
        assert len(data) == 38
        assert struct.unpack(">qiI", data[:16]) == (291178, 26, 576249152)
        assert list(only(data).records()) == [Record(291178, -1, b"11", b"Message_11")]

    @pytest.mark.covers("MemoryRecordsTest.testChecksum")
    @pytest.mark.parametrize(
        ("magic", "codec", "crc"),
        [
            (0, Compression.NONE, 1978725405),
            (0, Compression.LZ4, 66944826),
            (1, Compression.NONE, 109425508),
            (1, Compression.LZ4, 1407303399),
            (2, Compression.NONE, 3851219455),
            (2, Compression.LZ4, 2745969314),
        ],
    )
    def test_checksums_of_kafkas_own_test(self, magic: int, codec: Compression, crc: int) -> None:
        records = [Record(0, 283843, b"key1", b"value1"), Record(1, 1234, b"key2", b"value2")]
        if magic == 2:
            data = build_batch(records, compression=codec)
        else:
            data = build_message_set(records, magic=magic, compression=codec)
        assert next(iterate_batches(data)).crc == crc


class TestPlain:
    @pytest.mark.covers("LegacyRecordTest.testFields", "LegacyRecordTest.testEquality")
    @magics
    @pytest.mark.parametrize("timestamp", [-1, 0, 1])
    @pytest.mark.parametrize("codec", CODECS)
    def test_fields_of_a_message(self, magic: int, timestamp: int, codec: Compression) -> None:
        contents = (None, b"", b"key", bytes(1000))
        for key in contents:
            for value in contents:
                data = build_message_set(
                    [Record(7, timestamp, key, value)], magic=magic, base_offset=7, compression=codec
                )
                batch = only(data)
                batch.check_valid()
                told = timestamp if magic else -1
                assert list(batch.records()) == [Record(7, told, key, value)]
                assert (batch.magic, batch.compression, batch.last_offset) == (magic, codec, 7)
                assert batch.max_timestamp == told
                assert batch.timestamp_type is (TimestampType.CREATE if magic else TimestampType.NO)

    @pytest.mark.covers("LegacyRecordTest.testChecksum")
    @magics
    def test_fr11_any_byte_after_the_checksum_counts(self, magic: int) -> None:
        data = bytearray(plain(3, magic=magic, value=b"some value"))
        assert only(data).is_valid()
        for at in range(17, len(data)):
            changed = bytearray(data)
            changed[at] = 69 if data[at] != 69 else 70
            assert not RecordBatch(changed, 0, len(changed)).is_valid()

    @pytest.mark.covers(
        "SimpleLegacyRecordTest.testIsValidWithTooSmallBuffer",
        "SimpleLegacyRecordTest.testIsValidWithChecksumMismatch",
    )
    def test_fr11_message_below_14_bytes_or_with_a_wrong_checksum_is_not_valid(self) -> None:
        for size in (2, 4, 13):
            content = bytes(size)
            data = struct.pack(">qi", 0, size) + content
            batch = RecordBatch(data, 0, len(data))
            assert not batch.is_valid()
            with pytest.raises(CorruptBatch):
                batch.check_valid()
            with pytest.raises(InvalidRecord, match="smaller than 26"):
                list(batch.records())
        data = struct.pack(">qiIbbii", 0, 14, 2, 0, 0, -1, -1)
        with pytest.raises(CorruptBatch, match="stored 2"):
            only(data).check_valid()

    def test_message_has_no_producer_and_no_leader_epoch(self) -> None:
        batch = only(plain(3, attributes=0x30))
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (
            -1,
            -1,
            -1,
            -1,
        )
        assert batch.partition_leader_epoch == -1 and batch.delete_horizon_ms is None
        assert not batch.is_transactional and not batch.is_control and not batch.has_producer_id

    def test_any_negative_length_is_null(self) -> None:
        content = struct.pack(">bBqii", 1, 0, 5, -7, -2)
        data = struct.pack(">qiI", 4, len(content) + 4, zlib.crc32(content)) + content
        assert list(only(data).records()) == [Record(4, 5, None, None)]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (struct.pack(">bBii", 0, 0, 1, -1), "length of its value"),
            (struct.pack(">bBii", 0, 0, 5, -1), "a key states 5 bytes with only 4 bytes left"),
            (struct.pack(">bBii", 0, 0, -1, 1), "a value states 1 bytes with only 0 bytes left"),
            (struct.pack(">bBq", 1, 0, 5), "length of its key"),
            (struct.pack(">bBqi", 1, 0, 5, -1), "length of its value"),
            (struct.pack(">bBqi", -3, 0, 5, -1), "length of its value"),
            (struct.pack(">bBq", 0, 9, 5)[:10], "bytes left"),
        ],
    )
    def test_message_that_breaks_the_format_is_invalid(self, content: bytes, message: str) -> None:
        data = struct.pack(">qiI", 4, len(content) + 4, zlib.crc32(content)) + content
        with pytest.raises(InvalidRecord, match=message):
            list(RecordBatch(data, 0, len(data)).records())

    def test_view_works_in_the_middle_of_any_buffer(self) -> None:
        data = plain(8)
        for buffer in (b"xx" + data, bytearray(b"xx" + data), memoryview(b"xx" + data + b"zz")):
            batch = RecordBatch(buffer, 2, len(data), 900)
            assert batch.is_valid() and offsets(batch) == [8]


class TestWrapped:
    @wrapping
    def test_magic_1_counts_inner_offsets_from_the_first(self, codec: Compression) -> None:
        # Compaction left a gap.
        content = b"".join(plain(inner) for inner in (0, 1, 4))
        assert offsets(wrapper(content, offset=104, codec=codec)) == [100, 101, 104]

    @wrapping
    def test_magic_0_has_absolute_inner_offsets(self, codec: Compression) -> None:
        content = b"".join(plain(inner, magic=0) for inner in (100, 101, 104))
        batch = wrapper(content, offset=104, magic=0, codec=codec)
        assert offsets(batch) == [100, 101, 104] and batch.last_offset == 104

    @pytest.mark.covers("AbstractLegacyRecordBatchTest.testIterateCompressedRecordWithWrapperOffsetZero")
    @magics
    def test_kafka_5365_wrapper_offset_zero_counts_from_zero(self, magic: int) -> None:
        content = b"".join(plain(inner, magic=magic) for inner in (0, 1, 2))
        assert offsets(wrapper(content, offset=0, magic=magic)) == [0, 1, 2]

    @pytest.mark.covers("AbstractLegacyRecordBatchTest.testInvalidWrapperOffsetV1")
    def test_wrapper_offset_below_the_last_inner_one_is_invalid_in_magic_1(self) -> None:
        content = b"".join(plain(inner) for inner in (0, 1, 2))
        with pytest.raises(InvalidRecord, match="at offset 1 end with the inner offset 2"):
            wrapper(content, offset=1).records()
        assert offsets(wrapper(content, offset=2)) == [0, 1, 2]
        absolute = b"".join(plain(inner, magic=0) for inner in (5, 6))
        assert offsets(wrapper(absolute, offset=1, magic=0)) == [5, 6]

    def test_fr9_t27_first_offset_needs_the_content_and_the_last_does_not(self) -> None:
        batch = wrapper(b"".join(plain(inner) for inner in (0, 1, 2)), offset=12)
        assert (batch.last_offset, batch.first_offset(), batch.record_count) == (12, 10, -1)
        assert only(plain(8)).first_offset() == 8
        assert only(build_batch([Record(3, 0, None, None)], base_offset=1)).first_offset() == 1

    @pytest.mark.covers("AbstractLegacyRecordBatchTest.testSetLogAppendTimeV1")
    def test_log_append_time_of_the_wrapper_is_every_messages_timestamp(self) -> None:
        content = plain(0, timestamp=1) + plain(1, timestamp=2)
        batch = wrapper(content, timestamp=77, is_log_append=True)
        assert batch.timestamp_type is TimestampType.LOG_APPEND and batch.max_timestamp == 77
        assert [record.timestamp for record in batch.records()] == [77, 77]
        batch = wrapper(content, timestamp=77)
        assert [record.timestamp for record in batch.records()] == [1, 2]

    def test_log_append_bit_of_an_inner_message_is_ignored(self) -> None:
        batch = wrapper(plain(0, timestamp=1, attributes=8), timestamp=77)
        assert [record.timestamp for record in batch.records()] == [1]

    def test_messages_of_the_other_old_magic_may_be_inside(self) -> None:
        batch = wrapper(plain(0, magic=0) + plain(1, timestamp=4), timestamp=77, is_log_append=True)
        assert [record.timestamp for record in batch.records()] == [-1, 77]
        assert [message.magic for message in batch.messages()] == [0, 1]

    def test_inner_messages_must_not_be_compressed(self) -> None:
        nested = build_message_set(KEYED, magic=1, compression=Compression.GZIP)
        messages = wrapper(plain(0) + nested).records()
        assert next(messages).key == b"k"
        with pytest.raises(InvalidRecord, match="compressed itself"):
            next(messages)

    @pytest.mark.covers("SimpleLegacyRecordTest.testCompressedIterationWithNullValue")
    @magics
    def test_wrapper_without_a_value_is_invalid(self, magic: int) -> None:
        batch = only(build_message(3, magic=magic, timestamp=1, key=None, value=None, attributes=1))
        with pytest.raises(InvalidRecord, match="have no value"):
            batch.records()

    @pytest.mark.covers("SimpleLegacyRecordTest.testCompressedIterationWithEmptyRecords")
    @magics
    def test_wrapper_around_nothing_is_invalid(self, magic: int) -> None:
        for content in (b"", plain(0)[:-1], bytes(11)):
            with pytest.raises(InvalidRecord, match="contains no message"):
                wrapper(content, magic=magic).records()

    def test_cut_last_message_inside_is_dropped(self) -> None:
        whole = plain(0) + plain(1)
        for cut in range(1, len(plain(2))):
            assert offsets(wrapper(whole + plain(2)[:-cut], offset=11)) == [10, 11]

    def test_size_field_below_14_inside_is_damage_of_the_batch(self) -> None:
        broken = plain(0) + struct.pack(">qi", 1, 13) + bytes(30)
        data = wrapper(broken).tobytes()
        with pytest.raises(CorruptBatch, match="size field of 13") as caught:
            RecordBatch(data, 0, len(data), 600).records()
        assert caught.value.position == 600

    def test_inner_message_of_another_magic_has_the_layout_of_1(self) -> None:
        odd = bytearray(plain(0, timestamp=8))
        odd[16] = 3
        (message,) = wrapper(bytes(odd), timestamp=77, is_log_append=True).messages()
        assert not message.is_valid
        assert (message.magic, message.record()) == (3, Record(2, 8, b"k", b"v"))

    def test_inner_message_cut_within_its_fields_is_invalid(self) -> None:
        content = struct.pack(">bB", 1, 0) + bytes(8)
        short = struct.pack(">qiI", 0, len(content) + 4, zlib.crc32(content)) + content
        assert len(short) == 26
        with pytest.raises(InvalidRecord, match="length of its key"):
            list(wrapper(short).records())

    def test_wrapper_of_a_negative_magic_is_invalid(self) -> None:
        data = bytearray(build_message_set(KEYED, magic=1, compression=Compression.GZIP))
        data[16] = 0x80
        with pytest.raises(InvalidRecord, match="have the unknown magic -128"):
            RecordBatch(data, 0, len(data)).records()

    @pytest.mark.covers("AbstractLegacyRecordBatchTest.testZStdCompressionTypeWithV0OrV1")
    @magics
    def test_t20_zstd_is_refused_in_a_wrapper(self, magic: int) -> None:
        value = compress(Compression.ZSTD, plain(0))
        batch = only(build_message(0, magic=magic, timestamp=1, key=None, value=value, attributes=4))
        with pytest.raises(InvalidRecord, match=f"zstd does not exist in magic {magic}"):
            batch.records()
        with pytest.raises(UnsupportedCompression):
            build_message_set(KEYED, magic=magic, compression=Compression.ZSTD)

    def test_unknown_codec_is_refused(self) -> None:
        with pytest.raises(UnsupportedCompression, match="codec 6"):
            only(plain(0, attributes=6)).records()

    def test_t19_lz4_header_checksum_follows_the_wrappers_magic(self) -> None:
        broken = compress(Compression.LZ4, plain(0), magic=0)
        for magic in (0, 1):
            batch = only(build_message(0, magic=magic, timestamp=1, key=None, value=broken, attributes=3))
            if magic == 0:
                assert offsets(batch) == [0]
            else:
                with pytest.raises(InvalidRecord, match="header checksum"):
                    batch.records()

    @wrapping
    def test_bomb_stops_at_the_limit(self, codec: Compression) -> None:
        batch = wrapper(plain(0, value=bytes(1_000_000)), codec=codec)
        assert batch.size_bytes < 60_000
        with pytest.raises(InvalidRecord, match="more than 100000 bytes"):
            batch.records(100_000)


class TestInPlace:
    @pytest.mark.covers("AbstractLegacyRecordBatchTest.testSetLastOffsetCompressed")
    @wrapping
    def test_last_offset_of_a_wrapper_moves_all_and_leaves_the_checksum(self, codec: Compression) -> None:
        data = bytearray(build_message_set(KEYED, magic=1, compression=codec))
        set_last_offset(data, 0, 500)
        batch = only(data)
        assert batch.is_valid() and batch.last_offset == 500 and batch.first_offset() == 498
        assert offsets(batch) == [498, 499, 500]

    @pytest.mark.covers("DefaultRecordBatchTest.testSetLastOffset")
    def test_last_offset_of_a_batch_of_magic_2_leaves_the_checksum(self) -> None:
        data = bytearray(build_batch(KEYED))
        set_last_offset(data, 0, 500)
        batch = only(data)
        assert batch.is_valid() and (batch.base_offset, batch.last_offset) == (498, 500)
        assert offsets(batch) == [498, 499, 500]

    def test_lv12_t8_log_append_time_rewrites_the_messages_own_timestamp_and_its_checksum(self) -> None:
        data = bytearray(b"xx" + plain(3, timestamp=5))
        crc = RecordBatch(data, 2, len(data) - 2).crc
        assert set_max_timestamp(data, 2, timestamp_type=TimestampType.LOG_APPEND, max_timestamp=15)
        batch = RecordBatch(data, 2, len(data) - 2)
        assert batch.is_valid() and batch.crc != crc
        assert batch.timestamp_type is TimestampType.LOG_APPEND and batch.max_timestamp == 15
        assert [record.timestamp for record in batch.records()] == [15]
        assert not set_max_timestamp(data, 2, timestamp_type=TimestampType.LOG_APPEND, max_timestamp=15)
        assert set_max_timestamp(data, 2, timestamp_type=TimestampType.CREATE, max_timestamp=5)
        assert data[2:] == plain(3, timestamp=5)

    @pytest.mark.covers("AbstractLegacyRecordBatchTest.testSetCreateTimeV1")
    @wrapping
    def test_create_time_of_a_wrapper_leaves_the_messages_theirs(self, codec: Compression) -> None:
        data = bytearray(build_message_set(KEYED, magic=1, compression=codec))
        assert set_max_timestamp(data, 0, timestamp_type=TimestampType.CREATE, max_timestamp=15)
        batch = only(data)
        assert batch.is_valid() and batch.max_timestamp == 15
        assert [record.timestamp for record in batch.records()] == [1, 2, 3]
        assert set_max_timestamp(data, 0, timestamp_type=TimestampType.LOG_APPEND, max_timestamp=15)
        assert [record.timestamp for record in only(data).records()] == [15, 15, 15]

    @pytest.mark.covers(
        "AbstractLegacyRecordBatchTest.testSetNoTimestampTypeNotAllowed",
        "AbstractLegacyRecordBatchTest.testSetLogAppendTimeNotAllowedV0",
        "AbstractLegacyRecordBatchTest.testSetCreateTimeNotAllowedV0",
        "DefaultRecordBatchTest.testSetNoTimestampTypeNotAllowed",
    )
    def test_timestamp_cannot_be_set_without_a_type_or_in_magic_0(self) -> None:
        for data in (plain(0), build_batch(KEYED)):
            with pytest.raises(ValueError, match="needs a timestamp type"):
                set_max_timestamp(bytearray(data), 0, timestamp_type=TimestampType.NO, max_timestamp=15)
        for timestamp_type in TimestampType:
            with pytest.raises(ValueError, match="magic 0 has no timestamp"):
                set_max_timestamp(
                    bytearray(plain(0, magic=0)), 0, timestamp_type=timestamp_type, max_timestamp=15
                )

    @pytest.mark.covers(
        "AbstractLegacyRecordBatchTest.testSetPartitionLeaderEpochNotAllowedV0",
        "AbstractLegacyRecordBatchTest.testSetPartitionLeaderEpochNotAllowedV1",
    )
    @magics
    def test_old_magic_has_no_place_for_leader_epoch_or_producer(self, magic: int) -> None:
        data = bytearray(plain(0, magic=magic, value=bytes(90)))
        with pytest.raises(AssertionError):
            stamp(data, 0, partition_leader_epoch=15)
        with pytest.raises(AssertionError):
            set_producer_state(data, 0, producer_id=1, producer_epoch=1, base_sequence=1)
        assert data == plain(0, magic=magic, value=bytes(90))


@quick
@given(st.sampled_from(CODECS), st.integers(0, 1), st.data())
def test_mutated_sets_raise_documented_errors_only(
    codec: Compression, magic: int, data: st.DataObject
) -> None:
    changed = data.draw(mutated(build_message_set(KEYED, magic=magic, compression=codec)))
    try:
        records = [each for batch in iterate_batches(changed) for each in batch.records(10_000)]
    except (CorruptBatch, InvalidRecord, UnsupportedCompression):
        return
    assert all(-(2**63) <= each.offset < 2**63 for each in records)


@quick
@given(st.integers(0, 1), st.data())
def test_damage_inside_a_wrapper_raises_documented_errors_only(magic: int, data: st.DataObject) -> None:
    content = data.draw(mutated(b"".join(plain(inner, magic=magic) for inner in range(3))))
    batch = wrapper(content, magic=magic, offset=data.draw(st.integers(-(2**63), 2**63 - 1)))
    try:
        for message in batch.messages(10_000):
            message.record()
            assert isinstance(message.is_valid, bool)
            assert -(2**63) <= message.offset < 2**63
    except (CorruptBatch, InvalidRecord):
        pass
