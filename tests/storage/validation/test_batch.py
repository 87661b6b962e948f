"""Refusals and stamps of a leader on a batch of today's format: rules LV3 to LV14, LV20 to LV28.

Sets of other formats are in `test_sets.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.batch import HEADER_SIZE, Record, RecordBatch, TimestampType, build_batch
from storage.codec.compression import Compression, compress, decompress
from storage.config import LogConfig
from storage.errors import InvalidRecord, InvalidTimestamp, UnsupportedCompression
from storage.producers.entry import AppendOrigin
from storage.validation.batch import ValidationRules
from tests.storage.logs import marker
from tests.storage.validation.produced_sets import (
    BASE,
    CODECS,
    COMPRESSED,
    CREATE,
    LOG_APPEND,
    NOW,
    is_built_again,
    only_batch,
    poked,
    produced,
    validated,
)


@pytest.mark.parametrize("content", [b"", b"\0" * 11, produced()[:-1]])
def test_lv3_no_whole_batch_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidRecord, match="no whole batch"):
        validated(content)


@pytest.mark.covers("LogValidatorTest.checkOnlyOneBatch")
@pytest.mark.parametrize("codec", CODECS)
def test_lv3_only_one_batch_is_accepted(codec: Compression) -> None:
    with pytest.raises(InvalidRecord, match="more than one"):
        validated(produced(codec) * 2)


def test_lv3_an_incomplete_batch_at_the_end_is_dropped() -> None:
    content = produced()
    assert len(validated(content + content[:40]).records) == len(content)


@pytest.mark.covers(
    "LogValidatorTest.testInconsistentCountAndOffset",
    "LogValidatorTest.testBatchWithoutRecordsNotAllowed",
    "LogValidatorTest.testNonIncreasingOffsetRecordBatchHasMetricsLogged",
)
@pytest.mark.parametrize(
    ("delta", "count"), [(0, 3), (15, 3), (-3, 3), (4, 6), (1, 1), (2, 0), (2, -1), (-1, 0)]
)
@pytest.mark.parametrize("codec", CODECS)
def test_lv5_count_and_offsets_must_agree(codec: Compression, delta: int, count: int) -> None:
    content = poked(poked(produced(codec), 23, ">i", delta), 57, ">i", count)
    with pytest.raises(InvalidRecord, match="spans"):
        validated(content)


@pytest.mark.covers("LogValidatorTest.testUnmatchedNumberOfRecords")
@pytest.mark.parametrize("count", [1, 2, 4, 9])
@pytest.mark.parametrize("codec", CODECS)
def test_lv5_records_must_be_as_many_as_the_header_says(codec: Compression, count: int) -> None:
    content = poked(poked(produced(codec), 23, ">i", count - 1), 57, ">i", count)
    with pytest.raises(InvalidRecord):
        validated(content)


@pytest.mark.covers("LogValidatorTest.testControlRecordsNotAllowedFromClients")
def test_lv6_clients_may_not_write_control_records() -> None:
    with pytest.raises(InvalidRecord, match="control"):
        validated(produced(is_control=True))


@pytest.mark.covers("LogValidatorTest.checkInvalidSequence")
@pytest.mark.parametrize("codec", CODECS)
def test_lv6_a_producer_needs_a_sequence(codec: Compression) -> None:
    with pytest.raises(InvalidRecord, match="sequence -5"):
        validated(poked(produced(codec, producer_id=1234), 53, ">i", -5))


@pytest.mark.covers("LogValidatorTest.checkNoKeyCompactedTopic")
@pytest.mark.parametrize("codec", CODECS)
def test_lv8_compacted_topic_needs_keys(codec: Compression) -> None:
    rules = ValidationRules(is_compacted=True)
    with pytest.raises(InvalidRecord, match="3 of 3 records refused") as caught:
        validated(produced(codec, key=None), rules)
    assert not isinstance(caught.value, InvalidTimestamp)
    assert [error.record_index for error in caught.value.record_errors] == [0, 1, 2]
    assert validated(produced(codec, key=b""), rules).last_offset == BASE + 2


@pytest.mark.covers(
    "LogValidatorTest.testInvalidCreateTimeNonCompressedV2",
    "LogValidatorTest.testInvalidCreateTimeCompressedV2",
    "LogValidatorTest.testRecordWithPastTimestampIsRejected",
    "LogValidatorTest.testInvalidTimestampExceptionHasBatchIndex",
)
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


@pytest.mark.covers("LogValidatorTest.testRecordWithFutureTimestampIsRejected")
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
def test_lv9_on_a_create_time_topic_the_flag_is_cleared(codec: Compression) -> None:
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


@pytest.mark.covers(
    "LogValidatorTest.testRecordBatchWithCountOverrides",
    "LogValidatorTest.testRelativeOffsetAssignmentNonCompressedV2",
    "LogValidatorTest.testRelativeOffsetAssignmentCompressedV2",
)
@pytest.mark.parametrize("codec", CODECS)
def test_lv10_offsets_and_epoch_are_stamped_in_place(codec: Compression) -> None:
    content = bytearray(produced(codec, producer_id=5))
    before = bytes(content)
    result = validated(content)
    assert result.records is content
    assert (result.first_offset, result.last_offset, result.last_offset + 1) == (BASE, BASE + 2, BASE + 3)
    assert not is_built_again(result) and result.log_append_time_ms == -1
    batch = only_batch(result)
    assert [record.offset for record in batch.records()] == [BASE, BASE + 1, BASE + 2]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 7, 100)
    # The checksum stays, too: neither type nor value changed.
    assert bytes(content[16:]) == before[16:]


@pytest.mark.parametrize("codec", CODECS)
def test_lv10_bytes_of_the_caller_are_left_alone(codec: Compression) -> None:
    content = produced(codec)
    copy = bytes(bytearray(content))
    result = validated(content)
    assert content == copy and result.records is not content


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed", [NOW + 50, -1, 0])
def test_lv11_a_wrong_max_timestamp_is_put_right(codec: Compression, claimed: int) -> None:
    batch = only_batch(validated(poked(produced(codec), 35, ">q", claimed)))
    assert batch.max_timestamp == NOW + 1


@pytest.mark.parametrize("codec", CODECS)
def test_lv11_log_append_time_is_stamped(codec: Compression) -> None:
    content = produced(codec, timestamps=(1234, 1235))
    result = validated(content, LOG_APPEND)
    batch = only_batch(result)
    assert len(result.records) == len(content)
    assert (batch.timestamp_type, batch.max_timestamp, batch.base_timestamp) == (1, NOW, 1234)
    assert {record.timestamp for record in batch.records()} == {NOW}
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW, BASE + 1)
    assert result.log_append_time_ms == NOW and not is_built_again(result)


@pytest.mark.parametrize("codec", CODECS)
def test_lv13_the_offset_of_the_max_timestamp_is_the_last_of_the_batch(codec: Compression) -> None:
    result = validated(produced(codec))
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW + 1, BASE + 2)


def test_lv13_without_timestamps_there_is_no_offset_of_the_max() -> None:
    plain = validated(produced(timestamps=(-1,)))
    assert (plain.max_timestamp, plain.offset_of_max_timestamp) == (-1, -1)
    compressed = validated(produced(Compression.GZIP, timestamps=(-1,)))
    assert (compressed.max_timestamp, compressed.offset_of_max_timestamp) == (-1, BASE)


def with_deltas(content: bytes, *deltas: int) -> bytes:
    """Change the offset delta of each record of an uncompressed batch."""
    changed = bytearray(content)
    position = HEADER_SIZE
    for delta in deltas:
        length_size = 1 if changed[position] < 0x80 else 2
        after_timestamp = position + length_size + 1
        while changed[after_timestamp] >= 0x80:
            after_timestamp += 1
        length = changed[position] >> 1
        changed[after_timestamp + 1] = delta << 1
        position += length_size + length
    return poked(bytes(changed), 23, ">i", len(deltas) - 1)


@pytest.mark.parametrize("deltas", [(0, 0, 2), (1, 0, 2), (0, 2, 2), (0, 0, 0)])
def test_lv28_offsets_come_out_without_a_gap_even_uncompressed(deltas: tuple[int, ...]) -> None:
    """Kafka would store them as they are, some twice."""
    content = with_deltas(produced(producer_id=5), *deltas)
    result = validated(content)
    records = list(only_batch(result).records())
    assert [record.offset for record in records] == [BASE, BASE + 1, BASE + 2]
    assert [record.sequence for record in records] == [100, 101, 102]
    assert is_built_again(result) and result.last_offset + 1 == BASE + 3


def test_lv28_a_coordinators_batch_that_spans_too_many_offsets_is_rebuilt() -> None:
    """Kafka would put its base below the log end."""
    result = validated(poked(produced(), 23, ">i", 9), origin=AppendOrigin.COORDINATOR)
    assert [record.offset for record in only_batch(result).records()] == [BASE, BASE + 1, BASE + 2]


@pytest.mark.covers("LogValidatorTest.testControlRecordsNotCompressed")
def test_lv21_control_records_are_never_compressed() -> None:
    content = marker(5, is_commit=True, producer_epoch=1, coordinator_epoch=3, timestamp=NOW)
    rules = ValidationRules(target_codec=Compression.GZIP)
    batch = only_batch(validated(content, rules, AppendOrigin.COORDINATOR))
    assert batch.compression is Compression.NONE and batch.is_control and batch.base_offset == BASE


def test_lv26_control_records_that_came_compressed_are_built_again_in_the_topics_codec() -> None:
    """The exception is for uncompressed ones only. No coordinator compresses them."""
    rules = ValidationRules(target_codec=Compression.LZ4)
    result = validated(produced(Compression.GZIP, is_control=True), rules, AppendOrigin.COORDINATOR)
    batch = only_batch(result)
    assert is_built_again(result) and batch.is_control and batch.compression is Compression.LZ4


def test_lv23_gaps_within_a_compressed_batch_are_closed() -> None:
    content = produced(Compression.GZIP, offsets=(0, 1, 5))
    result = validated(content, origin=AppendOrigin.COORDINATOR)
    assert [record.offset for record in only_batch(result).records()] == [BASE, BASE + 1, BASE + 2]
    assert is_built_again(result)


@pytest.mark.covers("LogValidatorTest.testDifferentCodecCausesRecompression")
@pytest.mark.parametrize("rules", [CREATE, LOG_APPEND])
@pytest.mark.parametrize(
    ("source", "target"), [(Compression.NONE, Compression.GZIP), (Compression.GZIP, Compression.NONE)]
)
def test_lv26_another_codec_rebuilds(
    source: Compression, target: Compression, rules: ValidationRules
) -> None:
    content = produced(source, producer_id=5)
    result = validated(content, replace(rules, target_codec=target))
    batch = only_batch(result)
    assert batch.compression is target and is_built_again(result)
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
    assert not is_built_again(result)


@pytest.mark.parametrize(("position", "layout", "value"), [(51, ">h", -1), (53, ">i", -1)])
def test_lv25_producer_fields_that_cannot_be_rebuilt_are_refused(
    position: int, layout: str, value: int
) -> None:
    content = poked(produced(producer_id=5), position, layout, value)
    rules = ValidationRules(target_codec=Compression.GZIP)
    with pytest.raises(InvalidRecord, match="producer 5 writes with"):
        validated(content, rules, AppendOrigin.COORDINATOR)


def test_lv25_transactional_without_a_producer_cannot_be_rebuilt() -> None:
    with pytest.raises(InvalidRecord, match="must have a producer id"):
        validated(poked(produced(), 21, ">h", 0x10), ValidationRules(target_codec=Compression.GZIP))


def test_rules_come_from_the_topics_configuration() -> None:
    assert ValidationRules.from_config(LogConfig()) == replace(CREATE, after_max_ms=3_600_000)
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


def test_a_record_is_at_most_an_hour_ahead_of_its_leader_unless_the_topic_allows_more() -> None:
    rules = ValidationRules.from_config(LogConfig())
    batch = build_batch([Record(offset=0, timestamp=NOW + 3_600_001, key=None, value=b"")])
    with pytest.raises(InvalidTimestamp, match="is more than 3600000 ms after"):
        validated(batch, rules)
    batch = build_batch([Record(offset=0, timestamp=NOW + 3_600_000, key=None, value=b"")])
    assert validated(batch, rules).last_offset == BASE


@pytest.mark.covers("LogValidatorTest.testZStdCompressedWithUnavailableIBPVersion")
@pytest.mark.parametrize("source", [Compression.NONE, Compression.ZSTD])
def test_lv20_zstd_is_refused_where_not_all_readers_know_it(source: Compression) -> None:
    rules = ValidationRules(target_codec=Compression.ZSTD, allows_zstd=False)
    with pytest.raises(UnsupportedCompression, match="zstd"):
        validated(produced(source), rules)
    assert validated(produced(source), replace(rules, allows_zstd=True)).last_offset == BASE + 2


@pytest.mark.covers("LogValidatorTest.testDifferentLevelDoesNotCauseRecompression")
def test_lv27_another_level_of_the_same_codec_keeps_the_payload() -> None:
    content = produced(Compression.GZIP, timestamps=tuple(range(NOW, NOW + 200)))
    plain = decompress(Compression.GZIP, content[HEADER_SIZE:])
    strong = sized(content, compress(Compression.GZIP, plain, level=9))
    result = validated(strong, ValidationRules(target_codec=Compression.GZIP))
    assert bytes(result.records[HEADER_SIZE:]) == strong[HEADER_SIZE:]
    assert not is_built_again(result)


def test_lv22_a_compressed_batch_that_stays_is_still_read_through() -> None:
    """Keys and values are skipped, but structure and count are checked."""
    content = produced(Compression.GZIP)
    payload = bytearray(decompress(Compression.GZIP, content[HEADER_SIZE:]))
    # The first record claims a byte more.
    payload[0] += 2
    broken = poked_payload(content, bytes(payload))
    with pytest.raises(InvalidRecord):
        validated(broken)
    with pytest.raises(InvalidRecord):
        validated(poked_payload(content, bytes(payload[:-1])))
    assert validated(content).last_offset == BASE + 2


def poked_payload(content: bytes, payload: bytes) -> bytes:
    return sized(content, compress(Compression.GZIP, payload))


def sized(content: bytes, compressed: bytes) -> bytes:
    """Return the header of `content` before other bytes."""
    changed = content[:HEADER_SIZE] + compressed
    return poked(changed, 8, ">i", len(changed) - 12)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_lv24_a_compressed_payload_is_not_touched(codec: Compression) -> None:
    content = produced(codec)
    for rules, timestamp in ((CREATE, NOW + 1), (LOG_APPEND, NOW)):
        result = validated(content, rules)
        batch = only_batch(result)
        assert bytes(result.records[HEADER_SIZE:]) == content[HEADER_SIZE:]
        assert (batch.base_offset, batch.max_timestamp) == (BASE, timestamp)
        assert (result.max_timestamp, result.offset_of_max_timestamp) == (timestamp, BASE + 2)
        assert not is_built_again(result)


@pytest.mark.parametrize(
    ("source", "target"), [(Compression.GZIP, Compression.LZ4), (Compression.NONE, Compression.ZSTD)]
)
def test_lv25_a_rebuilt_set_equals_a_newly_built_batch(source: Compression, target: Compression) -> None:
    result = validated(produced(source), ValidationRules(target_codec=target))
    fresh = produced(target)
    batch = RecordBatch(fresh, 0, len(fresh))
    rebuilt = only_batch(result)
    assert [record.value for record in rebuilt.records()] == [record.value for record in batch.records()]
    assert (rebuilt.attributes, rebuilt.size_bytes) == (batch.attributes, batch.size_bytes)
    assert bytes(result.records[21:]) == fresh[21:]


def test_lv14_uncompressed_in_place_the_size_stays_and_the_buffer_is_the_callers() -> None:
    content = bytearray(produced())
    result = validated(content, LOG_APPEND)
    assert result.records is content and not is_built_again(result)


def test_lv1_the_same_format_without_a_codec_stays_in_place() -> None:
    content = produced()
    assert bytes(validated(content).records[HEADER_SIZE:]) == content[HEADER_SIZE:]


@pytest.mark.parametrize("target", COMPRESSED)
def test_lv2_a_codec_on_either_side_takes_the_compressed_path(target: Compression) -> None:
    assert only_batch(validated(produced(), ValidationRules(target_codec=target))).compression is target
    plain = validated(produced(target), ValidationRules(target_codec=Compression.NONE))
    assert only_batch(plain).compression is Compression.NONE


def test_t29_what_the_caller_keeps_is_not_shared_unless_it_may_be_changed() -> None:
    content = produced()
    assert validated(content).records is not content
    mutable = bytearray(content)
    assert validated(mutable).records is mutable and mutable != content


def test_t30_a_log_append_flag_in_range_is_cleared_and_out_of_range_refused() -> None:
    content = produced(timestamp_type=TimestampType.LOG_APPEND)
    batch = only_batch(validated(content, ValidationRules(before_max_ms=10)))
    assert batch.timestamp_type is TimestampType.CREATE
    late = poked(content, 35, ">q", NOW - 11)
    with pytest.raises(InvalidTimestamp):
        validated(late, ValidationRules(before_max_ms=10))


@pytest.mark.parametrize("claimed", [NOW + 50, -1, 0])
def test_t31_the_largest_timestamp_is_that_of_the_records(claimed: int) -> None:
    result = validated(poked(produced(), 35, ">q", claimed))
    assert (only_batch(result).max_timestamp, result.max_timestamp) == (NOW + 1, NOW + 1)


@pytest.mark.parametrize("deltas", [(0, 0, 2), (1, 0, 2), (0, 2, 2)])
def test_lv23_odd_offsets_in_a_compressed_batch_are_replaced(deltas: tuple[int, ...]) -> None:
    """The batch has as many offsets as its header says, but they are not 0, 1, 2.

    Kafka means to rebuild the batch and fails on the keys it has skipped.
    """
    plain = with_deltas(produced(), *deltas)
    content = poked(poked_payload(produced(Compression.GZIP), plain[HEADER_SIZE:]), 23, ">i", 2)
    result = validated(content)
    assert [record.offset for record in only_batch(result).records()] == [BASE, BASE + 1, BASE + 2]
    assert only_batch(result).compression is Compression.GZIP and is_built_again(result)
