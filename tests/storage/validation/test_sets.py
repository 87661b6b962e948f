"""Produced sets of magic 0 and 1, and topics of magic 0 and 1: rules LV1 to LV28 where formats differ."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest

from storage.batch import TimestampType
from storage.batch.legacy.builder import build_message
from storage.codec.compression import Compression, compress
from storage.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    UnsupportedCompression,
    UnsupportedForMessageFormat,
)
from storage.producers.entry import AppendOrigin
from storage.validation.batch import ValidationRules
from storage.validation.checked import CheckedSet
from tests.storage.validation.produced_sets import (
    BASE,
    CREATE,
    LEGACY_CODECS,
    LOG_APPEND,
    NOW,
    WORDS,
    batches_of,
    is_built_again,
    only_batch,
    poked,
    produced,
    records_of,
    sent,
    validated,
)

WRAPPED = [codec for codec in LEGACY_CODECS if codec is not Compression.NONE]
NONE, GZIP = Compression.NONE, Compression.GZIP


def rules_for(magic: int, codec: Compression | None = None, **others: object) -> ValidationRules:
    return replace(ValidationRules(target_magic=magic, target_codec=codec), **others)  # type: ignore[arg-type]


def offsets_of(result: CheckedSet) -> list[int]:
    return [record.offset for record in records_of(result)]


def wrapper(magic: int, messages: bytes, *, codec: Compression = GZIP, offset: int = 2) -> bytes:
    return build_message(
        offset,
        magic=magic,
        timestamp=NOW,
        key=None,
        value=compress(codec, messages, magic=magic),
        attributes=codec,
    )


def inner(offset: int, magic: int, *, timestamp: int = NOW, attributes: int = 0) -> bytes:
    return build_message(
        offset, magic=magic, timestamp=timestamp, key=b"key", value=b"value", attributes=attributes
    )


# The sets that are taken


@pytest.mark.covers("LogValidatorTest.checkAllowMultiBatch")
@pytest.mark.parametrize("target", [NONE, GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_lv3_many_messages_of_old_formats_may_be_in_one_set(magic: int, target: Compression) -> None:
    result = validated(sent(magic) * 2, rules_for(magic, target))
    assert offsets_of(result) == list(range(BASE, BASE + 6))


@pytest.mark.covers("LogValidatorTest.checkOnlyOneBatch")
@pytest.mark.parametrize("target", [None, NONE, GZIP])
@pytest.mark.parametrize(
    ("magic", "codec"), [(0, GZIP), (1, GZIP), (1, Compression.LZ4), (2, NONE), (2, GZIP)]
)
def test_lv3_compressed_sets_and_batches_are_alone_in_a_request(
    magic: int, codec: Compression, target: Compression | None
) -> None:
    with pytest.raises(InvalidRecord, match="more than one"):
        validated(sent(magic, codec) * 2, rules_for(magic, target))


def test_lv3_a_wrapper_beside_plain_messages_is_refused() -> None:
    """A record in a compressed set must not have a codec of its own either (LV9c)."""
    for content in (sent(1) + sent(1, GZIP), sent(1, GZIP) + sent(1)):
        with pytest.raises(InvalidRecord, match="more than one"):
            validated(content)


def test_lv3_a_batch_shorter_than_its_header_is_refused() -> None:
    content = bytearray(produced()[:60])
    struct.pack_into(">i", content, 8, 48)
    with pytest.raises(InvalidRecord, match="at byte 0 has 60 bytes, fewer than its header"):
        validated(bytes(content))


def test_lv4_one_format_in_a_set() -> None:
    with pytest.raises(InvalidRecord, match="magic 1 with batches of magic 0"):
        validated(sent(0) + sent(1))
    with pytest.raises(InvalidRecord, match="magic 2 with batches of magic 1"):
        validated(sent(1) + sent(2))


@pytest.mark.covers(
    "LogValidatorTest.testDownConversionOfTransactionalRecordsNotPermitted",
    "LogValidatorTest.testDownConversionOfIdempotentRecordsNotPermitted",
)
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_lv7_producers_need_the_new_format(magic: int, origin: AppendOrigin) -> None:
    with pytest.raises(UnsupportedForMessageFormat, match=f"idempotent .* magic {magic}"):
        validated(produced(producer_id=5), rules_for(magic), origin)
    with pytest.raises(UnsupportedForMessageFormat, match=f"transactional .* magic {magic}"):
        validated(produced(producer_id=5, is_transactional=True), rules_for(magic), origin)


# Records


@pytest.mark.covers(
    "LogValidatorTest.checkMismatchMagic", "LogValidatorTest.testInvalidRecordExceptionHasBatchIndex"
)
@pytest.mark.parametrize(("outer", "within"), [(0, 1), (1, 0)])
def test_lv8_wrapped_messages_are_of_their_wrappers_format(outer: int, within: int) -> None:
    content = wrapper(outer, b"".join(inner(index, within) for index in range(20)), offset=19)
    with pytest.raises(
        InvalidRecord, match=f"record 0 has magic {within} in a batch of magic {outer}"
    ) as caught:
        validated(content, rules_for(outer))
    assert [error.record_index for error in caught.value.record_errors] == list(range(20))


@pytest.mark.covers("LogValidatorTest.testBatchWithInvalidRecordsAndInvalidTimestamp")
def test_lv9b_a_bad_timestamp_among_bad_records_decides_the_kind() -> None:
    messages = inner(0, 1, timestamp=NOW - 1001) + b"".join(inner(index, 0) for index in range(1, 6))
    with pytest.raises(InvalidTimestamp, match="6 of 6") as caught:
        validated(wrapper(1, messages, offset=5), rules_for(1, before_max_ms=1000))
    assert [error.record_index for error in caught.value.record_errors] == list(range(6))


@pytest.mark.covers("LogValidatorTest.checkInvalidChecksum")
@pytest.mark.parametrize("codec", WRAPPED)
@pytest.mark.parametrize("magic", [0, 1])
def test_lv8_the_checksums_of_wrapped_messages_are_checked(magic: int, codec: Compression) -> None:
    damaged = bytearray(inner(0, magic))
    damaged[-1] ^= 1
    content = wrapper(magic, bytes(damaged) + inner(1, magic), codec=codec, offset=1)
    for target in (magic, 2):
        with pytest.raises(CorruptBatch, match="wrapped message at offset 0"):
            validated(content, rules_for(target))


def test_lv8_another_format_inside_is_reported_before_a_wrong_checksum() -> None:
    damaged = bytearray(inner(0, 0))
    damaged[-1] ^= 1
    with pytest.raises(InvalidRecord, match="has magic 0"):
        validated(wrapper(1, bytes(damaged), offset=0))


@pytest.mark.covers("LogValidatorTest.checkNoKeyCompactedTopic")
@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_lv8_a_compacted_topic_needs_keys_in_every_format(magic: int, codec: Compression) -> None:
    rules = rules_for(magic, is_compacted=True)
    with pytest.raises(InvalidRecord, match="has no key"):
        validated(sent(magic, codec, key=None), rules)
    assert validated(sent(magic, codec), rules).last_offset == BASE + 2


@pytest.mark.covers(
    "LogValidatorTest.testInvalidCreateTimeNonCompressedV1",
    "LogValidatorTest.testInvalidCreateTimeCompressedV1",
)
@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_lv9_timestamps_of_magic_1_are_checked_against_the_limits(codec: Compression) -> None:
    content = sent(1, codec, timestamps=(NOW - 1001,) * 3)
    for target in (1, 2):
        with pytest.raises(InvalidTimestamp, match="1000 ms before"):
            validated(content, rules_for(target, before_max_ms=1000))
    assert validated(content, rules_for(1, before_max_ms=1001)).max_timestamp == NOW - 1001


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_lv9_a_message_that_says_log_append_is_refused_where_the_topic_does_too(codec: Compression) -> None:
    content = sent(1, codec, timestamp_type=TimestampType.LOG_APPEND)
    with pytest.raises(InvalidTimestamp, match="may not stamp"):
        validated(content, replace(LOG_APPEND, target_magic=1))


def test_lv9c_a_message_with_a_codec_within_a_compressed_set_is_refused() -> None:
    nested = inner(0, 1, attributes=GZIP)
    with pytest.raises(InvalidRecord, match="compressed itself"):
        validated(wrapper(1, nested, offset=0))


# In place


@pytest.mark.covers(
    "LogValidatorTest.testAbsoluteOffsetAssignmentNonCompressed",
    "LogValidatorTest.testRelativeOffsetAssignmentNonCompressedV1",
    "LogValidatorTest.checkNonCompressed",
)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_lv10_each_plain_message_gets_the_next_offset(magic: int) -> None:
    content = bytearray(sent(magic, timestamps=(NOW, NOW + 1, NOW + 1)))
    result = validated(content, rules_for(magic))
    assert result.records is content and not is_built_again(result)
    assert offsets_of(result) == [BASE, BASE + 1, BASE + 2] and result.last_offset + 1 == BASE + 3
    assert len(batches_of(result)) == (1 if magic == 2 else 3)
    expected = {0: (-1, -1), 1: (NOW + 1, BASE + 1), 2: (NOW + 1, BASE + 2)}
    assert (result.max_timestamp, result.offset_of_max_timestamp) == expected[magic]


@pytest.mark.covers("LogValidatorTest.checkLogAppendTimeNonCompressed")
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_lv13_log_append_time_of_plain_messages(magic: int) -> None:
    result = validated(sent(magic, timestamps=(1234,) * 3), replace(LOG_APPEND, target_magic=magic))
    expected = {0: (-1, -1), 1: (NOW, BASE), 2: (NOW, BASE + 2)}
    assert (result.max_timestamp, result.offset_of_max_timestamp) == expected[magic]
    assert {record.timestamp for record in records_of(result)} == ({-1} if magic == 0 else {NOW})
    assert not is_built_again(result)


def test_lv12_in_magic_1_the_messages_own_timestamp_is_rewritten() -> None:
    for codec in (NONE, GZIP):
        result = validated(sent(1, codec, timestamps=(5, 6, 7)), replace(LOG_APPEND, target_magic=1))
        for batch in batches_of(result):
            assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.LOG_APPEND, NOW)
    plain = validated(sent(0, timestamps=(-1,)), replace(LOG_APPEND, target_magic=0))
    assert bytes(plain.records)[8:] == sent(0, timestamps=(-1,))[8:], "magic 0 has no place for one"


def test_lv11_a_flag_of_magic_1_that_the_topic_does_not_ask_for_is_cleared() -> None:
    content = sent(1, timestamp_type=TimestampType.LOG_APPEND)
    result = validated(content, rules_for(1))
    assert {batch.timestamp_type for batch in batches_of(result)} == {TimestampType.CREATE}


@pytest.mark.covers(
    "LogValidatorTest.checkCompressed", "LogValidatorTest.testRelativeOffsetAssignmentCompressedV1"
)
@pytest.mark.parametrize("codec", WRAPPED)
def test_lv24_a_wrapper_of_magic_1_gets_the_last_offset_and_keeps_its_content(codec: Compression) -> None:
    content = sent(1, codec)
    result = validated(content, rules_for(1))
    (batch,) = batches_of(result)
    assert batch.last_offset == BASE + 2 and offsets_of(result) == [BASE, BASE + 1, BASE + 2]
    assert bytes(result.records)[8:] == content[8:] and not is_built_again(result)
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW + 1, BASE + 2)


@pytest.mark.covers("LogValidatorTest.checkLogAppendTimeWithoutRecompression")
@pytest.mark.parametrize("magic", [1, 2])
def test_lv24_log_append_time_needs_no_recompression(magic: int) -> None:
    content = sent(magic, GZIP, timestamps=(1234, 1235, 1236))
    result = validated(content, replace(LOG_APPEND, target_magic=magic))
    assert {record.timestamp for record in records_of(result)} == {NOW}
    assert len(result.records) == len(content) and not is_built_again(result)
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW, BASE + 2)
    if magic == 2:
        assert only_batch(result).base_timestamp == 1234


@pytest.mark.covers("LogValidatorTest.testAbsoluteOffsetAssignmentCompressed")
def test_lv21_a_wrapper_of_magic_0_is_always_rebuilt() -> None:
    result = validated(sent(0, GZIP), rules_for(0))
    assert offsets_of(result) == [BASE, BASE + 1, BASE + 2] and is_built_again(result)
    (batch,) = batches_of(result)
    assert batch.last_offset == BASE + 2 and batch.compression is GZIP
    for source, target in ((1, 0), (1, 2), (0, 1)):
        (batch,) = batches_of(validated(sent(source, GZIP), rules_for(target)))
        assert batch.magic == target, "nor does one of another format stay"


@pytest.mark.covers("LogValidatorTest.testValidationOfBatchesWithNonSequentialInnerOffsets")
@pytest.mark.parametrize("magic", [0, 1])
def test_lv23_odd_inner_offsets_of_old_clients_are_replaced(magic: int) -> None:
    """Only magic 2 must be continuous (KAFKA-9080)."""
    content = wrapper(magic, b"".join(inner(0, magic) for _ in range(20)), offset=0)
    for target in (magic, 2):
        result = validated(content, rules_for(target))
        assert offsets_of(result) == list(range(BASE, BASE + 20)) and is_built_again(result)
    with pytest.raises(InvalidRecord, match="20 records spans 1 offsets"):
        validated(poked(poked(produced(GZIP, timestamps=(NOW,) * 20), 23, ">i", 0), 57, ">i", 20))


# Conversion

UP = [(0, 1), (0, 2), (1, 2)]
DOWN = [(1, 0), (2, 1), (2, 0)]


@pytest.mark.covers(
    "LogValidatorTest.testOffsetAssignmentAfterUpConversionV0ToV1NonCompressed",
    "LogValidatorTest.testOffsetAssignmentAfterUpConversionV0ToV2NonCompressed",
    "LogValidatorTest.testOffsetAssignmentAfterUpConversionV1ToV2NonCompressed",
    "LogValidatorTest.testOffsetAssignmentAfterDownConversionV1ToV0NonCompressed",
    "LogValidatorTest.testOffsetAssignmentAfterDownConversionV2ToV1NonCompressed",
    "LogValidatorTest.testOffsetAssignmentAfterDownConversionV2ToV0NonCompressed",
)
@pytest.mark.parametrize(("source", "target"), UP + DOWN)
def test_lv15_plain_sets_become_one_of_the_topics_format(source: int, target: int) -> None:
    result = validated(sent(source), rules_for(target))
    assert {batch.magic for batch in batches_of(result)} == {target}
    assert {batch.compression for batch in batches_of(result)} == {NONE}
    assert offsets_of(result) == [BASE, BASE + 1, BASE + 2] and result.last_offset + 1 == BASE + 3
    assert [(record.key, record.value) for record in records_of(result)] == [(b"key", word) for word in WORDS]
    assert is_built_again(result)


@pytest.mark.covers(
    "LogValidatorTest.testOffsetAssignmentAfterUpConversionV0ToV1Compressed",
    "LogValidatorTest.testOffsetAssignmentAfterUpConversionV0ToV2Compressed",
    "LogValidatorTest.testOffsetAssignmentAfterUpConversionV1ToV2Compressed",
    "LogValidatorTest.testOffsetAssignmentAfterDownConversionV1ToV0Compressed",
    "LogValidatorTest.testOffsetAssignmentAfterDownConversionV2ToV1Compressed",
    "LogValidatorTest.testOffsetAssignmentAfterDownConversionV2ToV0Compressed",
)
@pytest.mark.parametrize("codec", WRAPPED)
@pytest.mark.parametrize(("source", "target"), UP + DOWN)
def test_lv25_compressed_sets_become_one_of_the_topics_format(
    source: int, target: int, codec: Compression
) -> None:
    result = validated(sent(source, codec), rules_for(target))
    (batch,) = batches_of(result)
    assert (batch.magic, batch.compression) == (target, codec)
    assert offsets_of(result) == [BASE, BASE + 1, BASE + 2]
    assert is_built_again(result)


def test_lv16_many_messages_become_one_batch() -> None:
    for magic in (0, 1):
        assert only_batch(validated(sent(magic))).record_count == 3


@pytest.mark.covers("LogValidatorTest.checkCreateTimeUpConversionFromV0")
@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("target", [1, 2])
def test_lv17_messages_without_a_timestamp_get_none(target: int, codec: Compression) -> None:
    result = validated(sent(0, codec), rules_for(target, before_max_ms=1000, after_max_ms=1000))
    assert {record.timestamp for record in records_of(result)} == {-1}
    assert {batch.timestamp_type for batch in batches_of(result)} == {TimestampType.CREATE}
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (-1, -1)
    assert is_built_again(result)


@pytest.mark.covers("LogValidatorTest.checkLogAppendTimeWithRecompression")
@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("target", [1, 2])
def test_lv17_on_a_log_append_topic_they_get_the_append_time(target: int, codec: Compression) -> None:
    result = validated(sent(0, codec), replace(LOG_APPEND, target_magic=target))
    assert {record.timestamp for record in records_of(result)} == {NOW}
    is_loose = target == 1 and codec is NONE
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW, BASE if is_loose else BASE + 2)
    assert result.log_append_time_ms == NOW and is_built_again(result)
    if target == 2:
        assert only_batch(result).base_timestamp == -1


@pytest.mark.covers("LogValidatorTest.testCreateTimeUpConversionV1ToV2")
@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_lv18_the_largest_timestamp_and_its_offset_follow_from_the_build(codec: Compression) -> None:
    result = validated(sent(1, codec))
    batch = only_batch(result)
    assert [record.timestamp for record in batch.records()] == [NOW, NOW + 1, NOW - 1]
    assert (batch.max_timestamp, batch.producer_id, batch.base_sequence) == (NOW + 1, -1, -1)
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW + 1, BASE + 2)
    assert is_built_again(result)
    loose = validated(sent(2), rules_for(1, NONE))
    assert (loose.max_timestamp, loose.offset_of_max_timestamp) == (NOW + 1, BASE + 1)
    wrapped = validated(sent(2), rules_for(1, GZIP))
    assert (wrapped.max_timestamp, wrapped.offset_of_max_timestamp) == (NOW + 1, BASE + 2)


def test_lv19_a_converted_set_may_have_another_size() -> None:
    for source, target in UP + DOWN:
        assert is_built_again(validated(sent(source), rules_for(target)))


def test_lv15_headers_have_no_place_in_old_formats() -> None:
    for magic in (0, 1):
        with pytest.raises(InvalidRecord, match="headers"):
            validated(produced(), rules_for(magic))


def test_lv15_records_are_checked_before_they_are_converted() -> None:
    with pytest.raises(InvalidRecord, match="has no key"):
        validated(sent(1, key=None), rules_for(2, is_compacted=True))


@pytest.mark.covers("LogValidatorTest.checkRecompression")
@pytest.mark.parametrize("magic", [1, 2])
def test_lv26_a_plain_set_for_a_compressed_topic_is_compressed(magic: int) -> None:
    content = sent(1) if magic == 1 else produced(producer_id=1324)
    result = validated(content, rules_for(magic, GZIP))
    (batch,) = batches_of(result)
    assert batch.compression is GZIP and is_built_again(result)
    assert [record.timestamp for record in records_of(result)] == [NOW, NOW + 1, NOW - 1]
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW + 1, BASE + 2)
    if magic == 2:
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1324, 7, 100)


def test_lv20_zstd_is_not_of_old_formats() -> None:
    for magic in (0, 1):
        with pytest.raises(UnsupportedCompression, match="zstd"):
            validated(sent(magic), rules_for(magic, Compression.ZSTD))
    assert only_batch(validated(sent(1), ValidationRules(target_codec=Compression.ZSTD))).record_count == 3


def test_lv28_after_a_set_the_next_offset_follows_its_last() -> None:
    for magic in (0, 1, 2):
        for codec in LEGACY_CODECS:
            result = validated(sent(magic, codec), CREATE)
            assert (result.first_offset, result.last_offset, result.last_offset + 1) == (
                BASE,
                BASE + 2,
                BASE + 3,
            )


def test_a_message_that_is_cut_short_within_is_refused() -> None:
    # A key length, and nothing after it.
    content = struct.pack(">bBi", 0, 0, -1)
    message = (
        struct.pack(">qiI", 0, 4 + len(content) + 6, zlib.crc32(content + bytes(6))) + content + bytes(6)
    )
    assert validated(message).last_offset == BASE
    short = struct.pack(">bBi", 0, 0, 9) + bytes(4)
    message = struct.pack(">qiI", 0, 4 + len(short), zlib.crc32(short)) + short
    with pytest.raises(InvalidRecord):
        validated(message)
