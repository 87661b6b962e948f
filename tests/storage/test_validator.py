"""What a leader refuses and what it stamps: rules LV3 to LV14, LV20 to LV28 (reference 2.9, 3.14)."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.batch import HEADER_SIZE, Record, RecordBatch, TimestampType, build_batch
from storage.compression import Compression
from storage.config import LogConfig
from storage.control_records import encode_end_transaction_marker
from storage.crc32c import crc32c
from storage.errors import InvalidRecord, InvalidTimestamp, UnsupportedForMessageFormat
from storage.producer_append import AppendOrigin
from storage.record_scan import RecordScan, scan_records
from storage.validator import ValidationResult, ValidationRules, validate_and_assign

NOW = 1_700_000_000_000
BASE = 1_234_567
CODECS = [Compression.NONE, Compression.GZIP]
CREATE = ValidationRules()
LOG_APPEND = ValidationRules(timestamp_type=TimestampType.LOG_APPEND)
WORDS = (b"hello", b"there", b"beautiful")


def produced(
    codec: Compression = Compression.NONE,
    *,
    timestamps: tuple[int, ...] = (NOW, NOW + 1, NOW - 1),
    key: bytes | None = b"key",
    timestamp_type: TimestampType = TimestampType.CREATE,
    producer_id: int = -1,
    is_control: bool = False,
    offsets: tuple[int, ...] | None = None,
) -> bytes:
    offsets = tuple(range(len(timestamps))) if offsets is None else offsets
    return build_batch(
        [
            Record(offset, timestamp, key, WORDS[index % 3], (("h", None), ("", b"v")) if index == 1 else ())
            for index, (offset, timestamp) in enumerate(zip(offsets, timestamps, strict=True))
        ],
        compression=codec,
        timestamp_type=timestamp_type,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 7,
        base_sequence=-1 if producer_id < 0 else 100,
        is_control=is_control,
        log_append_time_ms=NOW if timestamp_type is TimestampType.LOG_APPEND else -1,
    )


def poked(content: bytes, position: int, layout: str, *values: int) -> bytes:
    """With other header values and a checksum that holds."""
    changed = bytearray(content)
    struct.pack_into(layout, changed, position, *values)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def validated(
    content: bytes | bytearray,
    rules: ValidationRules = CREATE,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> ValidationResult:
    return validate_and_assign(content, rules, base_offset=BASE, leader_epoch=17, now_ms=NOW, origin=origin)


def only_batch(result: ValidationResult) -> RecordBatch:
    batch = RecordBatch(bytes(result.records), 0, len(result.records))
    assert batch.is_valid()
    assert batch.partition_leader_epoch == 17
    assert batch.base_offset == result.first_offset and batch.last_offset == result.last_offset
    return batch


@pytest.mark.parametrize("content", [b"", b"\0" * 11, produced()[:-1]])
def test_lv3_no_whole_batch_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidRecord, match="no whole batch"):
        validated(content)


@pytest.mark.parametrize("codec", CODECS)
def test_lv3_only_one_batch_is_accepted(codec: Compression) -> None:
    with pytest.raises(InvalidRecord, match="more than one"):
        validated(produced(codec) * 2)


def test_lv3_what_is_no_whole_batch_behind_it_is_dropped() -> None:
    content = produced()
    assert len(validated(content + content[:40]).records) == len(content)


@pytest.mark.parametrize("magic", [0, 1])
def test_lv7_old_formats_are_refused(magic: int) -> None:
    content = bytearray(produced())
    content[16] = magic
    with pytest.raises(UnsupportedForMessageFormat):
        validated(content)


@pytest.mark.parametrize(
    ("delta", "count"), [(0, 3), (15, 3), (-3, 3), (4, 6), (1, 1), (2, 0), (2, -1), (-1, 0)]
)
@pytest.mark.parametrize("codec", CODECS)
def test_lv5_count_and_offsets_must_agree(codec: Compression, delta: int, count: int) -> None:
    content = poked(poked(produced(codec), 23, ">i", delta), 57, ">i", count)
    with pytest.raises(InvalidRecord, match="spans"):
        validated(content)


@pytest.mark.parametrize("count", [1, 2, 4, 9])
@pytest.mark.parametrize("codec", CODECS)
def test_lv5_records_must_be_as_many_as_the_header_says(codec: Compression, count: int) -> None:
    content = poked(poked(produced(codec), 23, ">i", count - 1), 57, ">i", count)
    with pytest.raises(InvalidRecord):
        validated(content)


def test_lv6_clients_may_not_write_control_records() -> None:
    with pytest.raises(InvalidRecord, match="control"):
        validated(produced(is_control=True))


@pytest.mark.parametrize("codec", CODECS)
def test_lv6_a_producer_needs_a_sequence(codec: Compression) -> None:
    with pytest.raises(InvalidRecord, match="sequence -5"):
        validated(poked(produced(codec, producer_id=1234), 53, ">i", -5))


@pytest.mark.parametrize("codec", CODECS)
def test_lv8_compacted_topic_needs_keys(codec: Compression) -> None:
    rules = ValidationRules(is_compacted=True)
    with pytest.raises(InvalidRecord, match="3 of 3 records refused") as caught:
        validated(produced(codec, key=None), rules)
    assert not isinstance(caught.value, InvalidTimestamp)
    assert [error.record_index for error in caught.value.record_errors] == [0, 1, 2]
    assert validated(produced(codec, key=b""), rules).last_offset == BASE + 2


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("shift", [-1001, 1001])
def test_lv9_timestamps_out_of_range_are_refused(codec: Compression, shift: int) -> None:
    rules = ValidationRules(before_max_ms=1000, after_max_ms=1000)
    with pytest.raises(InvalidTimestamp, match="1000 ms") as caught:
        validated(produced(codec, timestamps=(NOW, NOW + shift, NOW + shift)), rules)
    assert [error.record_index for error in caught.value.record_errors] == [1, 2]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("shift", [-1000, 1000, 0])
def test_lv9_a_timestamp_at_the_limit_is_fine(codec: Compression, shift: int) -> None:
    rules = ValidationRules(before_max_ms=1000, after_max_ms=1000)
    assert validated(produced(codec, timestamps=(NOW + shift,)), rules).max_timestamp == NOW + shift


@pytest.mark.parametrize("before", [1000, (1 << 63) - 1])
def test_lv9_limits_are_checked_each_for_itself(before: int) -> None:
    rules = ValidationRules(before_max_ms=before, after_max_ms=3_600_000)
    with pytest.raises(InvalidTimestamp, match="3600000 ms after"):
        validated(produced(timestamps=(NOW + 3_900_000,)), rules)


def test_lv9_no_timestamp_at_all_is_in_range() -> None:
    rules = ValidationRules(before_max_ms=1000, after_max_ms=1000)
    result = validated(produced(timestamps=(-1, -1)), rules)
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (-1, -1)


def test_lv9_log_append_topics_do_not_look_at_timestamps() -> None:
    rules = replace(LOG_APPEND, before_max_ms=0, after_max_ms=0)
    assert validated(produced(timestamps=(5, NOW * 2)), rules).max_timestamp == NOW


@pytest.mark.parametrize("codec", CODECS)
def test_lv9_a_batch_that_says_log_append_is_refused_where_the_topic_does_too(codec: Compression) -> None:
    content = produced(codec, timestamp_type=TimestampType.LOG_APPEND)
    with pytest.raises(InvalidTimestamp, match="may not stamp"):
        validated(content, LOG_APPEND)


@pytest.mark.parametrize("codec", CODECS)
def test_lv9_t30_on_a_create_time_topic_the_flag_is_cleared(codec: Compression) -> None:
    content = produced(codec, timestamp_type=TimestampType.LOG_APPEND)
    batch = only_batch(validated(content, ValidationRules(before_max_ms=10, after_max_ms=10)))
    assert batch.timestamp_type is TimestampType.CREATE and batch.max_timestamp == NOW


def test_lv9b_a_bad_timestamp_decides_the_kind_and_three_errors_are_shown() -> None:
    rules = ValidationRules(is_compacted=True, before_max_ms=10)
    content = build_batch(
        [Record(index, 5 if index == 4 else NOW, b"k" if index == 4 else None, b"") for index in range(6)]
    )
    with pytest.raises(InvalidTimestamp, match="6 of 6") as caught:
        validated(content, rules)
    assert len(caught.value.record_errors) == 6
    assert str(caught.value).count(";") == 2 and caught.value.code == 32


@pytest.mark.parametrize("codec", CODECS)
def test_lv10_lv24_offsets_and_epoch_are_stamped_in_place(codec: Compression) -> None:
    content = bytearray(produced(codec, producer_id=5))
    before = bytes(content)
    result = validated(content)
    assert result.records is content
    assert (result.first_offset, result.last_offset, result.next_offset) == (BASE, BASE + 2, BASE + 3)
    assert not result.sizes_may_have_changed and result.log_append_time_ms == -1
    batch = only_batch(result)
    assert [record.offset for record in batch.records()] == [BASE, BASE + 1, BASE + 2]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 7, 100)
    assert bytes(content[16:]) == before[16:]  # the checksum too: neither type nor value changed


@pytest.mark.parametrize("codec", CODECS)
def test_lv10_bytes_of_the_caller_are_left_alone(codec: Compression) -> None:
    content = produced(codec)
    copy = bytes(bytearray(content))
    result = validated(content)
    assert content == copy and result.records is not content


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed", [NOW + 50, -1, 0])
def test_lv11_t31_a_wrong_max_timestamp_is_put_right(codec: Compression, claimed: int) -> None:
    batch = only_batch(validated(poked(produced(codec), 35, ">q", claimed)))
    assert batch.max_timestamp == NOW + 1


@pytest.mark.parametrize("codec", CODECS)
def test_lv11_lv24_log_append_time_is_stamped(codec: Compression) -> None:
    content = produced(codec, timestamps=(1234, 1235))
    result = validated(content, LOG_APPEND)
    batch = only_batch(result)
    assert len(result.records) == len(content)
    assert (batch.timestamp_type, batch.max_timestamp, batch.base_timestamp) == (1, NOW, 1234)
    assert {record.timestamp for record in batch.records()} == {NOW}
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW, BASE + 1)
    assert result.log_append_time_ms == NOW and not result.sizes_may_have_changed


@pytest.mark.parametrize("codec", CODECS)
def test_lv13_the_offset_of_the_max_timestamp_is_the_last_of_the_batch(codec: Compression) -> None:
    result = validated(produced(codec))
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW + 1, BASE + 2)


def test_lv13_without_timestamps_there_is_no_offset_of_the_max() -> None:
    plain = validated(produced(timestamps=(-1,)))
    assert (plain.max_timestamp, plain.offset_of_max_timestamp) == (-1, -1)
    compressed = validated(produced(Compression.GZIP, timestamps=(-1,)))
    assert (compressed.max_timestamp, compressed.offset_of_max_timestamp) == (-1, BASE)


@pytest.mark.parametrize("offsets", [(0, 0, 2), (1, 0, 2), (0, 2, 2)])
def test_clients_offsets_must_be_dense_even_uncompressed(offsets: tuple[int, ...]) -> None:
    payload = bytearray(produced())
    position = HEADER_SIZE
    for delta in offsets:
        length_size = 1 if payload[position] < 0x80 else 2
        after_timestamp = position + length_size + 1
        while payload[after_timestamp] >= 0x80:
            after_timestamp += 1
        length = payload[position] >> 1
        payload[after_timestamp + 1] = delta << 1
        position += length_size + length
    content = poked(bytes(payload), 23, ">i", 2)
    with pytest.raises(InvalidRecord, match="not consecutive"):
        validated(content)


def test_lv21_control_records_are_never_compressed() -> None:
    key, value = encode_end_transaction_marker(is_commit=True, coordinator_epoch=3)
    content = build_batch(
        [Record(0, NOW, key, value)],
        producer_id=5,
        producer_epoch=1,
        is_transactional=True,
        is_control=True,
    )
    rules = ValidationRules(target_codec=Compression.GZIP)
    batch = only_batch(validated(content, rules, AppendOrigin.COORDINATOR))
    assert batch.compression is Compression.NONE and batch.is_control and batch.base_offset == BASE


def test_lv23_gaps_within_a_compressed_batch_are_closed() -> None:
    content = produced(Compression.GZIP, offsets=(0, 1, 5))
    result = validated(content, origin=AppendOrigin.COORDINATOR)
    assert [record.offset for record in only_batch(result).records()] == [BASE, BASE + 1, BASE + 2]
    assert result.sizes_may_have_changed


@pytest.mark.parametrize("rules", [CREATE, LOG_APPEND])
@pytest.mark.parametrize(
    ("source", "target"), [(Compression.NONE, Compression.GZIP), (Compression.GZIP, Compression.NONE)]
)
def test_lv25_lv26_another_codec_rebuilds(
    source: Compression, target: Compression, rules: ValidationRules
) -> None:
    content = produced(source, producer_id=5)
    result = validated(content, replace(rules, target_codec=target))
    batch = only_batch(result)
    assert batch.compression is target and result.sizes_may_have_changed
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 7, 100)
    original = list(RecordBatch(content, 0, len(content)).records())
    assert [(r.key, r.value, r.headers, r.sequence) for r in batch.records()] == [
        (r.key, r.value, r.headers, r.sequence) for r in original
    ]
    is_create = rules.timestamp_type is TimestampType.CREATE
    expected = [record.timestamp if is_create else NOW for record in original]
    assert [record.timestamp for record in batch.records()] == expected
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (max(expected), BASE + 2)
    assert result.log_append_time_ms == (-1 if is_create else NOW)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("target", [None, "same"])
def test_lv27_the_same_codec_keeps_the_payload(codec: Compression, target: str | None) -> None:
    content = produced(codec)
    rules = ValidationRules(target_codec=None if target is None else codec)
    result = validated(content, rules)
    assert bytes(result.records[HEADER_SIZE:]) == content[HEADER_SIZE:]
    assert not result.sizes_may_have_changed


@pytest.mark.parametrize(("position", "layout", "value"), [(51, ">h", -1), (53, ">i", -1)])
def test_lv25_producer_fields_that_cannot_be_rebuilt_are_refused(
    position: int, layout: str, value: int
) -> None:
    content = poked(produced(producer_id=5), position, layout, value)
    rules = ValidationRules(target_codec=Compression.GZIP)
    with pytest.raises(InvalidRecord, match="producer 5 writes with"):
        validated(content, rules, AppendOrigin.COORDINATOR)


def test_lv25_transactional_without_a_producer_cannot_be_rebuilt() -> None:
    with pytest.raises(InvalidRecord, match="without a producer id"):
        validated(poked(produced(), 21, ">h", 0x10), ValidationRules(target_codec=Compression.GZIP))


def test_a_coordinators_batch_that_spans_too_many_offsets_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="spans 10 offsets"):
        validated(poked(produced(), 23, ">i", 9), origin=AppendOrigin.COORDINATOR)


def test_rules_come_from_the_topics_configuration() -> None:
    assert ValidationRules.from_config(LogConfig()) == CREATE
    config = LogConfig(
        compression_type="gzip",
        cleanup_policy="compact,delete",
        message_timestamp_type="LogAppendTime",
        message_timestamp_before_max_ms=5,
        message_timestamp_after_max_ms=6,
    )
    assert ValidationRules.from_config(config) == ValidationRules(
        target_codec=Compression.GZIP,
        is_compacted=True,
        timestamp_type=TimestampType.LOG_APPEND,
        before_max_ms=5,
        after_max_ms=6,
    )
    assert ValidationRules.from_config(LogConfig(compression_type="uncompressed")).target_codec == 0


RECORDS = st.lists(
    st.tuples(
        st.integers(-1, (1 << 62)),
        st.sampled_from([None, b"", b"key", bytes(64), bytes(200)]),
        st.sampled_from([None, b"", b"value", bytes(63), bytes(64), bytes(8191), bytes(8192), bytes(20_000)]),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
    ),
    min_size=1,
    max_size=5,
)


def built(drawn: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]) -> bytes:
    return build_batch(
        [Record(index, ts, key, value, tuple(hs)) for index, (ts, key, value, hs) in enumerate(drawn)]
    )


@settings(max_examples=40, deadline=None)
@given(RECORDS)
def test_scan_agrees_with_the_records(
    drawn: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    content = built(drawn)
    base = drawn[0][0]
    deltas = [timestamp - base for timestamp, _, _, _ in drawn]
    has_null_key = any(key is None for _, key, _, _ in drawn)
    expected = RecordScan(min(deltas), max(deltas), has_null_key)
    assert scan_records(content, HEADER_SIZE, len(drawn)) == expected
    assert scan_records(content[HEADER_SIZE:], 0, len(drawn)) is not None
    assert validated(content).max_timestamp == max(timestamp for timestamp, _, _, _ in drawn)


@settings(max_examples=60, deadline=None)
@given(RECORDS, st.data())
def test_scan_accepts_no_structure_that_decoding_refuses(
    drawn: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], data: st.DataObject
) -> None:
    content = bytearray(built(drawn))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(HEADER_SIZE, min(len(content) - 1, HEADER_SIZE + 40)))
        content[position] = data.draw(st.integers(0, 255))
    scan = scan_records(bytes(content), HEADER_SIZE, len(drawn))
    if scan is None:
        return
    records = list(RecordBatch(bytes(content), 0, len(content)).records())
    assert [record.offset for record in records] == list(range(len(drawn)))
    base = drawn[0][0]
    deltas = [record.timestamp - base for record in records]
    if -(1 << 63) <= base + scan.least_timestamp_delta and base + scan.greatest_timestamp_delta < 1 << 63:
        assert (min(deltas), max(deltas)) == (scan.least_timestamp_delta, scan.greatest_timestamp_delta)
    assert scan.has_null_key == any(record.key is None for record in records)


@pytest.mark.parametrize("count", [64, 65, 200, 9000])
def test_scan_of_many_records(count: int) -> None:
    content = build_batch([Record(index, NOW - index, b"k", b"v") for index in range(count)])
    assert scan_records(content, HEADER_SIZE, count) == RecordScan(1 - count, 0, False)
    assert scan_records(content, HEADER_SIZE, count - 1) is None
    assert scan_records(content, HEADER_SIZE, count + 1) is None
    assert scan_records(content, HEADER_SIZE, -1) is None
