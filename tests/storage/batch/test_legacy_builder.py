"""Batches of every magic, built by the rules BB1 to BB5. Rules of magic 2 alone are in `test_view.py`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.batch import (
    HEADER_SIZE,
    BatchBuilder,
    BatchFields,
    Compression,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
    iterate_batches,
)
from storage.batch.control_records import encode_end_transaction_marker
from storage.batch.format import LOG_APPEND_TIME_FLAG
from storage.batch.legacy.builder import (
    MessageSetBuilder,
    MessageSetFields,
    build_message,
    build_message_set,
    message_size,
)
from storage.errors import InvalidRecord, UnsupportedCompression
from tests.storage.batch.strategies import quick, record_lists

CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
THREE = [Record(4, 0, b"a", b"1"), Record(5, 2, b"b", b"2"), Record(7, 1, None, b"3")]
SIX = [
    Record(0, 1, b"a", b"1"),
    Record(1, 2, b"b", b"2"),
    Record(2, 3, b"c", b"3"),
    Record(3, 4, None, b"4"),
    Record(4, 5, b"d", None),
    Record(5, 6, None, None),
]

magics = pytest.mark.parametrize("magic", [0, 1])
codecs = pytest.mark.parametrize("codec", CODECS)


def built(
    records: list[Record],
    magic: int,
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE,
    log_append_time_ms: int = -1,
) -> list[RecordBatch]:
    if magic == 2:
        data = build_batch(
            records,
            base_offset=base_offset,
            compression=compression,
            timestamp_type=timestamp_type,
            log_append_time_ms=log_append_time_ms,
        )
    else:
        data = build_message_set(
            records,
            magic=magic,
            base_offset=base_offset,
            compression=compression,
            timestamp_type=timestamp_type,
            log_append_time_ms=log_append_time_ms,
        )
    batches = list(iterate_batches(data))
    for batch in batches:
        batch.check_valid()
    return batches


class TestRefusals:
    @magics
    def test_bb1_offsets_must_rise_and_fit_31_bits(self, magic: int) -> None:
        for codec in CODECS:
            builder = MessageSetBuilder(MessageSetFields(magic=magic, base_offset=4, compression=codec))
            builder.append(Record(4, 0, None, None))
            for offset in (4, 3, 4 + 2**31):
                with pytest.raises(InvalidRecord, match=f"offset {offset} cannot follow 4"):
                    builder.append(Record(offset, 0, None, None))
            builder.append(Record(4 + 2**31 - 1, 0, None, None))
            assert builder.last_offset == 4 + 2**31 - 1 and builder.record_count == 2

    @pytest.mark.covers("MemoryRecordsBuilderTest.testAppendAtInvalidOffset")
    @pytest.mark.parametrize("magic", [0, 1, 2])
    def test_bb1_repeated_offset_is_refused(self, magic: int) -> None:
        with pytest.raises(InvalidRecord, match="offset 0 cannot follow 0"):
            built([SIX[0], SIX[0]], magic)

    @magics
    def test_bb1_timestamp_below_minus_one_is_refused(self, magic: int) -> None:
        built([Record(0, -1, None, None)], magic)
        with pytest.raises(InvalidRecord, match="timestamp -2 is negative"):
            built([Record(0, -2, None, None)], magic)

    @magics
    def test_bb1_headers_are_refused_before_magic_2(self, magic: int) -> None:
        with pytest.raises(InvalidRecord, match=f"magic {magic} cannot have headers"):
            built([Record(0, 1, None, None, (("h", b"v"),))], magic)

    @pytest.mark.covers(
        "MemoryRecordsTest.testUnsupportedCompress", "MemoryRecordsBuilderTest.testUnsupportedCompress"
    )
    @magics
    def test_bb1_zstd_is_refused_before_magic_2(self, magic: int) -> None:
        with pytest.raises(UnsupportedCompression, match=f"zstd does not exist in magic {magic}"):
            MessageSetFields(magic=magic, compression=Compression.ZSTD)

    def test_bb1_timestamp_type_is_needed_from_magic_1_on(self) -> None:
        MessageSetFields(magic=0, timestamp_type=TimestampType.NO)
        with pytest.raises(AssertionError, match="magic 1 has a timestamp type"):
            MessageSetFields(magic=1, timestamp_type=TimestampType.NO)
        with pytest.raises(AssertionError, match="magic 2 has a timestamp type"):
            BatchFields(timestamp_type=TimestampType.NO)

    @pytest.mark.covers(
        "MemoryRecordsBuilderTest.testWriteTransactionalRecordSet",
        "MemoryRecordsBuilderTest.testWriteTransactionalWithInvalidPID",
        "MemoryRecordsBuilderTest.testWriteIdempotentWithInvalidEpoch",
        "MemoryRecordsBuilderTest.testWriteIdempotentWithInvalidBaseSequence",
    )
    def test_bb1_producer_needs_epoch_and_sequence_and_a_transaction_a_producer(self) -> None:
        (batch,) = iterate_batches(
            build_batch(SIX, producer_id=9809, producer_epoch=15, base_sequence=2342, is_transactional=True)
        )
        assert batch.is_transactional and batch.has_producer_id
        with pytest.raises(AssertionError, match="needs a producer id"):
            BatchFields(is_transactional=True, producer_epoch=15, base_sequence=2342)
        with pytest.raises(AssertionError, match="needs an epoch"):
            BatchFields(producer_id=9809, base_sequence=2342)
        with pytest.raises(AssertionError, match="needs a sequence"):
            BatchFields(producer_id=9809, producer_epoch=15)
        # A marker has no sequence.
        BatchFields(producer_id=9809, producer_epoch=15, is_control=True)

    @pytest.mark.covers("MemoryRecordsBuilderTest.testWriteEndTxnMarkerNonControlBatch")
    def test_bb1_control_records_go_into_control_batches_and_no_others_do(self) -> None:
        key, value = encode_end_transaction_marker(is_commit=True, coordinator_epoch=0)
        with pytest.raises(AssertionError, match="a control record needs a control batch"):
            BatchBuilder().append_control(Record(0, 0, key, value))
        builder = BatchBuilder(BatchFields(is_control=True))
        for append in (builder.append, builder.try_append):
            with pytest.raises(AssertionError, match="takes only control records"):
                append(SIX[0])
        builder.append_control(Record(0, 0, key, value))
        assert builder.record_count == 1

    def test_bb1_old_magic_has_no_producer_transaction_control_or_horizon(self) -> None:
        names = set(MessageSetFields.__dataclass_fields__)
        assert names == {
            *(
                "magic",
                "base_offset",
                "compression",
                "compression_level",
                "timestamp_type",
                "log_append_time_ms",
            )
        }


class TestTimestamps:
    @pytest.mark.covers("MemoryRecordsBuilderTest.buildUsingCreateTime")
    @pytest.mark.parametrize("magic", [0, 1, 2])
    @codecs
    def test_bb2_create_time_keeps_the_records_and_the_greatest(self, magic: int, codec: Compression) -> None:
        batches = built(THREE, magic, base_offset=4, compression=codec)
        told = [record.timestamp if magic else -1 for record in THREE]
        assert [record.timestamp for batch in batches for record in batch.records()] == told
        assert max(batch.max_timestamp for batch in batches) == (2 if magic else -1)

    @pytest.mark.covers("MemoryRecordsBuilderTest.buildUsingLogAppendTime")
    @pytest.mark.parametrize("magic", [0, 1, 2])
    @codecs
    def test_bb2_bb4_log_append_time_replaces_the_records_timestamps(
        self, magic: int, codec: Compression
    ) -> None:
        batches = built(
            THREE,
            magic,
            base_offset=4,
            compression=codec,
            timestamp_type=TimestampType.LOG_APPEND,
            log_append_time_ms=999,
        )
        told = 999 if magic else -1
        assert {record.timestamp for batch in batches for record in batch.records()} == {told}
        assert {batch.max_timestamp for batch in batches} == {told}
        kind = TimestampType.LOG_APPEND if magic else TimestampType.NO
        assert {batch.timestamp_type for batch in batches} == {kind}
        # Magic 0 has no bit for it.
        flag = LOG_APPEND_TIME_FLAG if magic else 0
        assert {batch.attributes & LOG_APPEND_TIME_FLAG for batch in batches} == {flag}

    def test_bb2_base_timestamp_is_the_first_records_and_not_the_least(self) -> None:
        (batch,) = built([Record(0, 50, None, None), Record(1, 20, None, None), Record(2, 70, None, None)], 2)
        assert (batch.base_timestamp, batch.max_timestamp) == (50, 70)
        assert [record.timestamp for record in batch.records()] == [50, 20, 70]

    @pytest.mark.covers("MemoryRecordsBuilderTest.testRecordTimestampsWithDeleteHorizon")
    @pytest.mark.parametrize("codec", Compression)
    def test_bb2_delete_horizon_is_the_base_and_timestamps_below_it_come_back(
        self, codec: Compression
    ) -> None:
        records = [Record(offset, timestamp, b"k", b"v") for offset, timestamp in enumerate((50, 100, 150))]
        (batch,) = iterate_batches(build_batch(records, compression=codec, delete_horizon_ms=100))
        assert batch.is_valid()
        assert (batch.base_timestamp, batch.delete_horizon_ms, batch.max_timestamp) == (100, 100, 150)
        assert list(batch.records()) == records
        (batch,) = iterate_batches(build_batch(records, compression=codec))
        assert batch.delete_horizon_ms is None and batch.base_timestamp == 50

    def test_bb2_a_delete_horizon_of_0_is_one_too(self) -> None:
        records = [Record(0, 50, b"k", b"v"), Record(1, 70, b"k", None)]
        (batch,) = iterate_batches(build_batch(records, delete_horizon_ms=0))
        assert (batch.base_timestamp, batch.delete_horizon_ms, batch.max_timestamp) == (0, 0, 70)
        assert list(batch.records()) == records


class TestShape:
    @pytest.mark.covers("MemoryRecordsBuilderTest.testWriteEmptyRecordSet")
    @magics
    @codecs
    def test_bb3_no_records_no_bytes(self, magic: int, codec: Compression) -> None:
        assert build_message_set([], magic=magic, compression=codec) == b""
        assert build_batch([], compression=codec) == b""

    @magics
    def test_bb4_plain_set_is_a_message_a_record_with_absolute_offset(self, magic: int) -> None:
        batches = built(THREE, magic, base_offset=4)
        assert [(batch.base_offset, batch.last_offset) for batch in batches] == [(4, 4), (5, 5), (7, 7)]

    @magics
    @pytest.mark.parametrize("codec", CODECS[1:])
    def test_bb4_wrapper_has_the_last_offset_and_inner_ones_are_relative_in_magic_1(
        self, magic: int, codec: Compression
    ) -> None:
        (batch,) = built(THREE, magic, base_offset=4, compression=codec)
        assert batch.last_offset == 7 and batch.first_offset() == 4
        assert [record.offset for record in batch.records()] == [4, 5, 7]
        # Read at wrapper offset 0, the inner offsets appear as they are stored.
        data = bytearray(batch.tobytes())
        data[:8] = bytes(8)
        stored = [record.offset for record in RecordBatch(data, 0, len(data)).records()]
        assert stored == ([0, 1, 3] if magic else [4, 5, 7])

    def test_bb4_inner_messages_of_log_append_time_say_so_themselves(self) -> None:
        (batch,) = built(
            THREE[:1],
            1,
            base_offset=4,
            compression=Compression.GZIP,
            timestamp_type=TimestampType.LOG_APPEND,
            log_append_time_ms=999,
        )
        (message,) = batch.messages()
        assert message.attributes == 8 and message.is_valid
        content = build_message(0, magic=1, timestamp=999, key=b"a", value=b"1", attributes=8)
        assert bytes(message.content) == content[12:]

    @pytest.mark.covers("MemoryRecordsTest.testIterator", "MemoryRecordsTest.testWithRecords")
    @pytest.mark.parametrize("magic", [0, 1, 2])
    @pytest.mark.parametrize("first_offset", [0, 57])
    @codecs
    def test_records_come_back_twice(self, magic: int, first_offset: int, codec: Compression) -> None:
        given = [record._replace(offset=record.offset + first_offset) for record in SIX]
        batches = built(given, magic, base_offset=first_offset, compression=codec)
        told = [record if magic else record._replace(timestamp=-1) for record in given]
        for _ in range(2):
            assert [record for batch in batches for record in batch.records()] == told


class TestLimits:
    @pytest.mark.covers(
        "MemoryRecordsBuilderTest.testEstimatedSizeInBytes", "DefaultRecordBatchTest.testSizeInBytes"
    )
    @magics
    def test_bb5_estimate_is_exact_without_a_codec(self, magic: int) -> None:
        builder = MessageSetBuilder(MessageSetFields(magic=magic))
        new = BatchBuilder()
        assert builder.size_estimate == 0 and new.size_estimate == HEADER_SIZE
        for record in SIX:
            builder.append(record)
            new.append(record)
            assert builder.size_estimate == len(builder.build())
            assert new.size_estimate == len(new.build())
        sizes = [message_size(magic, record.key, record.value) for record in SIX]
        assert sum(sizes) == builder.size_estimate

    @magics
    def test_bb5_estimate_of_a_wrapper_counts_it_in(self, magic: int) -> None:
        builder = MessageSetBuilder(MessageSetFields(magic=magic, compression=Compression.GZIP))
        builder.append(Record(0, 0, None, bytes(1000)))
        assert builder.size_estimate == 2 * message_size(magic, None, None) + 1000
        assert len(builder.build()) < 200

    @pytest.mark.covers(
        "MemoryRecordsBuilderTest.testSmallWriteLimit", "MemoryRecordsBuilderTest.writePastLimit"
    )
    @magics
    def test_first_record_may_be_of_any_size_and_the_next_must_fit(self, magic: int) -> None:
        builder = MessageSetBuilder(MessageSetFields(magic=magic), limit_bytes=0)
        assert builder.try_append(SIX[0])
        assert not builder.try_append(SIX[1])
        assert [record.key for batch in iterate_batches(builder.build()) for record in batch.records()] == [
            b"a"
        ]
        exact = message_size(magic, b"a", b"1") + message_size(magic, b"b", b"2")
        for limit, fits in ((exact, True), (exact - 1, False)):
            builder = MessageSetBuilder(MessageSetFields(magic=magic), limit_bytes=limit)
            assert builder.try_append(SIX[0])
            assert builder.try_append(SIX[1]) == fits

    @pytest.mark.covers(
        "MemoryRecordsTest.testHasRoomForMethod", "MemoryRecordsTest.testHasRoomForMethodWithHeaders"
    )
    def test_headers_count_against_the_limit(self) -> None:
        headers = tuple((f"hello{index}", b"world.world") for index in range(10))
        builder = BatchBuilder(limit_bytes=120)
        builder.append(Record(0, 0, b"a", b"1"))
        assert not builder.try_append(Record(1, 0, b"b", b"2", headers))
        assert builder.try_append(Record(1, 0, b"b", b"2"))

    @pytest.mark.covers("MemoryRecordsBuilderTest.testAppendedChecksumConsistency")
    @pytest.mark.parametrize("magic", [0, 1, 2])
    def test_built_messages_have_sound_checksums(self, magic: int) -> None:
        for batch in built(SIX, magic):
            assert batch.is_valid()
            if magic < 2:
                assert all(message.is_valid for message in batch.messages())


@quick
@given(st.data(), st.sampled_from([0, 1]), st.sampled_from(CODECS), st.integers(0, 2**50))
def test_set_comes_back(data: st.DataObject, magic: int, codec: Compression, base_offset: int) -> None:
    drawn = [each._replace(headers=()) for each in data.draw(record_lists(base_offset=base_offset))]
    batches = built(drawn, magic, base_offset=base_offset, compression=codec)
    told = [record if magic else record._replace(timestamp=-1) for record in drawn]
    assert [record for batch in batches for record in batch.records()] == told
    assert batches[0].first_offset() == drawn[0].offset and batches[-1].last_offset == drawn[-1].offset
