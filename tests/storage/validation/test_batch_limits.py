"""Checks and stamps of a leader, one step to either side of each rule: LV1 to LV28, with both kinds of sets."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from storage.batch import TimestampType
from storage.batch.format import CRC_AT, CRC_COVERS_FROM, HEADER_SIZE, LOG_APPEND_TIME_FLAG
from storage.batch.record import MAX_INT64
from storage.codec.compression import Compression, compress
from storage.codec.crc32c import crc32c
from storage.config import LogConfig
from storage.errors import InvalidRecord, InvalidTimestamp, UnsupportedForMessageFormat
from storage.producers.entry import AppendOrigin
from storage.validation.batch import ValidationRules
from tests.storage.validation.produced_sets import (
    BASE,
    COMPRESSED,
    CREATE,
    LOG_APPEND,
    NOW,
    batches_of,
    is_built_again,
    only_batch,
    poked,
    produced,
    records_of,
    sent,
    validated,
)

COORDINATOR = AppendOrigin.COORDINATOR
MAGICS = (0, 1, 2)
LOG_APPEND_V1 = ValidationRules(target_magic=1, timestamp_type=TimestampType.LOG_APPEND)


def rules_for(magic: int) -> ValidationRules:
    return ValidationRules(target_magic=magic)


@pytest.mark.parametrize("source", MAGICS)
@pytest.mark.parametrize("target", MAGICS)
def test_lv1_without_a_codec_a_set_stays_in_place_where_its_format_is_the_topics(
    source: int, target: int
) -> None:
    result = validated(sent(source), rules_for(target))
    assert is_built_again(result) == (source != target)
    assert {batch.magic for batch in batches_of(result)} == {target}
    assert [record.offset for record in records_of(result)] == [BASE, BASE + 1, BASE + 2]


def test_lv3_a_batch_without_records_is_refused_of_a_coordinator_too() -> None:
    empty = poked(poked(produced()[:61], 23, ">i", -1), 57, ">i", 0)
    empty = poked(empty, 8, ">i", len(empty) - 12)
    with pytest.raises(InvalidRecord, match="contains no records"):
        validated(empty, origin=COORDINATOR)


@pytest.mark.parametrize("target", [None, Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("last_offset_delta", [-1, 0, 5])
@pytest.mark.parametrize("payload", [b"", compress(Compression.GZIP, b""), b"garbage"])
def test_lv3_a_compressed_batch_without_records_is_refused_of_a_coordinator_whatever_it_unpacks_to(
    payload: bytes, last_offset_delta: int, target: Compression | None
) -> None:
    """Kafka writes it at offsets that are taken, if it stays as it is, and writes nothing if it is built again."""
    empty = produced(Compression.GZIP)[:61] + payload
    empty = poked(poked(empty, 23, ">i", last_offset_delta), 57, ">i", 0)
    empty = poked(empty, 8, ">i", len(empty) - 12)
    with pytest.raises(InvalidRecord, match="contains no records"):
        validated(empty, ValidationRules(target_codec=target), COORDINATOR)


def test_lv5_the_span_of_offsets_is_checked_for_clients_only() -> None:
    content = poked(produced(), 23, ">i", 5)
    with pytest.raises(InvalidRecord, match="spans"):
        validated(content)
    assert validated(content, origin=COORDINATOR).last_offset == BASE + 2


@pytest.mark.parametrize("magic", [0, 1])
def test_lv5_messages_of_old_formats_have_no_span_to_ask_for(magic: int) -> None:
    # A wrapper gets new offsets.
    content = sent(magic, Compression.GZIP, first_offset=7)
    assert validated(content, rules_for(magic)).last_offset == BASE + 2


def test_lv6_markers_and_missing_sequences_are_a_coordinators_right() -> None:
    content = poked(produced(producer_id=5, is_control=True), 53, ">i", -1)
    assert validated(content, origin=COORDINATOR).last_offset == BASE + 2
    # Without a producer no sequence is needed.
    assert validated(produced()).last_offset == BASE + 2


def test_lv6_a_sequence_of_zero_is_one() -> None:
    content = produced(producer_id=5)
    assert validated(poked(content, 53, ">i", 0)).producer_batches
    with pytest.raises(InvalidRecord, match="sequence -1"):
        validated(poked(content, 53, ">i", -1))


@pytest.mark.parametrize("magic", [0, 1])
def test_lv7_a_transactional_set_without_a_producer_is_refused_for_old_formats(magic: int) -> None:
    with pytest.raises(UnsupportedForMessageFormat, match="transactional"):
        validated(poked(produced(), 21, ">h", 0x10), rules_for(magic), COORDINATOR)


def test_lv8_the_checksum_of_a_message_outside_a_wrapper_is_the_callers() -> None:
    content = bytearray(sent(1, timestamps=(NOW,)))
    content[12] ^= 0xFF
    assert validated(content, rules_for(1)).last_offset == BASE


def test_lv8_an_empty_key_is_a_key() -> None:
    # The first is stamped in place, the second is built again.
    for target in (None, Compression.GZIP):
        rules = replace(CREATE, is_compacted=True, target_codec=target)
        assert validated(produced(key=b""), rules).last_offset == BASE + 2


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_lv8_a_missing_key_is_reported_before_a_bad_timestamp(codec: Compression) -> None:
    rules = replace(CREATE, is_compacted=True, before_max_ms=10)
    with pytest.raises(InvalidRecord) as caught:
        validated(produced(codec, key=None, timestamps=(NOW - 99,) * 3), rules)
    assert type(caught.value) is InvalidRecord
    assert all("no key" in error.message for error in caught.value.record_errors)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("sign", [-1, 1])
def test_lv9_a_timestamp_at_the_limit_is_fine_and_one_beyond_it_is_not(codec: Compression, sign: int) -> None:
    rules = replace(CREATE, before_max_ms=100, after_max_ms=100)
    validated(produced(codec, timestamps=(NOW + 100 * sign, NOW)), rules)
    with pytest.raises(InvalidTimestamp) as caught:
        validated(produced(codec, timestamps=(NOW + 100 * sign, NOW + 101 * sign, NOW)), rules)
    assert [error.record_index for error in caught.value.record_errors] == [1]


@pytest.mark.parametrize("codec", [Compression.NONE, *COMPRESSED])
def test_lv9_a_time_beyond_64_bits_wraps_as_in_java_before_it_is_checked(codec: Compression) -> None:
    content = produced(codec, timestamps=(NOW, NOW + 1))
    rules = replace(CREATE, before_max_ms=1 << 62)
    last = poked(content, 27, ">q", MAX_INT64 - 1)
    assert only_batch(validated(last, rules)).max_timestamp == MAX_INT64
    beyond = poked(content, 27, ">q", MAX_INT64)
    assert only_batch(validated(beyond)).max_timestamp == MAX_INT64
    # The second time has become the least of all.
    with pytest.raises(InvalidTimestamp):
        validated(beyond, rules)


def test_lv9b_without_a_bad_timestamp_the_kind_is_an_invalid_record() -> None:
    with pytest.raises(InvalidRecord) as caught:
        validated(produced(key=None), replace(CREATE, is_compacted=True))
    assert type(caught.value) is InvalidRecord and len(caught.value.record_errors) == 3


def test_lv11_another_type_alone_is_stamped_and_gets_a_checksum() -> None:
    content = produced(timestamps=(NOW, NOW - 1))
    batch = only_batch(validated(content, LOG_APPEND))
    assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.LOG_APPEND, NOW)
    assert batch.is_valid()


def test_lv11_the_checksum_is_left_alone_where_type_and_value_are_right() -> None:
    content = bytearray(produced())
    content[17] ^= 0xFF
    assert bytes(validated(content).records)[17:21] == bytes(content[17:21])


@pytest.mark.parametrize(
    ("magic", "codec"),
    [(0, Compression.NONE), (1, Compression.NONE), (1, Compression.GZIP), (2, Compression.NONE), (2, Compression.ZSTD)],
)  # fmt: skip
def test_lv14_a_set_that_stays_in_place_is_the_same_buffer_of_the_same_size(
    magic: int, codec: Compression
) -> None:
    content = bytearray(sent(magic, codec))
    result = validated(content, rules_for(magic))
    assert result.records is content and not is_built_again(result)


@pytest.mark.parametrize("magic", [0, 1])
def test_lv15_one_builder_makes_a_batch_of_the_counter_and_the_leaders_epoch(magic: int) -> None:
    result = validated(sent(magic, first_offset=40), rules_for(2))
    # The helper checks the batch's epoch and base.
    batch = only_batch(result)
    assert [record.offset for record in batch.records()] == [BASE, BASE + 1, BASE + 2]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)


def test_lv15_producer_fields_of_the_first_batch_are_kept_when_it_is_rebuilt() -> None:
    content = produced(offsets=(0, 2, 5), producer_id=9, is_transactional=True)
    batch = only_batch(validated(content, origin=COORDINATOR))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 7, 100)
    assert batch.is_transactional and not batch.is_control
    assert [record.offset for record in batch.records()] == [BASE, BASE + 1, BASE + 2]


def test_lv17_magic_0_keeps_no_time() -> None:
    result = validated(sent(1), rules_for(0))
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (-1, -1)


def test_lv18_log_append_time_of_loose_messages_is_reported_with_the_first_offset() -> None:
    result = validated(sent(0), LOG_APPEND_V1)
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW, BASE)
    result = validated(sent(0), LOG_APPEND)
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW, BASE + 2)


@pytest.mark.parametrize("target", [1, 2])
def test_lv18_without_any_timestamp_there_is_no_offset_of_the_greatest(target: int) -> None:
    result = validated(sent(0), rules_for(target))
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (-1, -1)


@pytest.mark.parametrize("codec", [Compression.NONE, *COMPRESSED])
def test_lv22_records_fewer_than_their_offsets_are_counted_not_believed(codec: Compression) -> None:
    batch = only_batch(validated(poked(produced(codec), 23, ">i", 5), origin=COORDINATOR))
    assert (batch.record_count, batch.last_offset) == (3, BASE + 2)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("claimed", [0, NOW - 9, NOW + 99])
def test_lv23_the_greatest_timestamp_is_that_of_the_records(codec: Compression, claimed: int) -> None:
    content = poked(produced(codec, timestamps=(NOW - 5, NOW, NOW - 3)), 35, ">q", claimed)
    result = validated(content)
    assert only_batch(result).max_timestamp == result.max_timestamp == NOW
    assert not is_built_again(result)


@pytest.mark.parametrize("codec", [Compression.NONE, *COMPRESSED])
@pytest.mark.parametrize("rules", [CREATE, replace(CREATE, is_compacted=True)])
def test_lv24_a_payload_whose_records_are_checked_one_by_one_is_not_touched_either(
    codec: Compression, rules: ValidationRules
) -> None:
    content = bytearray(produced(codec))
    content[22] |= LOG_APPEND_TIME_FLAG
    struct.pack_into(">I", content, CRC_AT, crc32c(content[CRC_COVERS_FROM:]))
    result = validated(bytes(content), rules)
    assert not is_built_again(result)
    assert bytes(result.records[HEADER_SIZE:]) == content[HEADER_SIZE:]


def test_lv24_a_compressed_batch_without_times_reports_its_last_offset() -> None:
    result = validated(produced(Compression.LZ4, timestamps=(-1, -1)))
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (-1, BASE + 1)


def test_lv28_four_messages_get_four_offsets() -> None:
    result = validated(sent(1, timestamps=(NOW,) * 4), rules_for(1))
    assert [record.offset for record in records_of(result)] == [BASE, BASE + 1, BASE + 2, BASE + 3]
    assert result.last_offset + 1 == BASE + 4


def test_lv16_all_messages_of_a_set_become_records_of_one_batch() -> None:
    content = sent(1, timestamps=(NOW,)) * 3
    assert only_batch(validated(content, rules_for(2))).record_count == 3


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("magic", [1, 2])
def test_lv25_a_rebuilt_set_has_the_level_of_the_topic(codec: Compression, magic: int) -> None:
    if magic == 1 and codec is Compression.ZSTD:
        return
    assert codec.levels is not None
    content = sent(magic, timestamps=tuple(range(NOW, NOW + 300)))
    at_levels = set()
    for level in (1, codec.levels[-1]):
        config = LogConfig.from_properties(
            {"compression.type": codec.label, f"compression.{codec.label}.level": str(level)}
        )
        rules = replace(ValidationRules.from_config(config), target_magic=magic)
        result = validated(content, rules)
        assert len(records_of(result)) == 300
        at_levels.add(bytes(result.records))
    assert len(at_levels) == 2


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_lv27_a_level_of_the_topic_is_no_reason_to_rebuild(codec: Compression) -> None:
    assert codec.levels is not None
    rules = replace(CREATE, target_codec=codec, target_level=codec.levels[-1])
    content = produced(codec)
    result = validated(content, rules)
    assert bytes(result.records)[61:] == content[61:] and not is_built_again(result)
