"""Records of magic 2: bytes, round trips and damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.batch.record import (
    MAX_INT32,
    Record,
    add_to_sequence,
    decode_records,
    encode_record,
    subtract_from_sequence,
)
from storage.batch.scan import RecordScanner
from storage.codec.varint import encode_varint
from storage.errors import InvalidRecord
from tests.storage.batch.strategies import headers, int32s, int64s, mutated, quick, small_bytes


def decode_one(encoded: bytes, base_sequence: int = -1) -> Record:
    (record,) = decode_records(encoded, 1, base_offset=0, base_timestamp=0, base_sequence=base_sequence)
    return record


def framed(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


def test_record_has_the_bytes_of_default_record() -> None:
    assert encode_record(5, -1, b"k", b"vv", (("h", None),)).hex() == "1800010a026b04767602026801"
    assert encode_record(0, 0, None, None).hex() == "0c000000010100"
    assert encode_record(0, 0, b"", b"").hex() == "0c000000000000"


def test_a_count_of_no_headers_may_take_two_bytes() -> None:
    body = b"\x00\x00\x00" + encode_varint(1) + b"k" + encode_varint(1) + b"v"
    assert (
        decode_one(framed(body + b"\x80\x00"))
        == Record(0, 0, b"k", b"v")
        == decode_one(framed(body + b"\x00"))
    )


@pytest.mark.parametrize("size", [63, 64, 8191, 8192, 8193])
def test_a_key_a_value_or_a_record_whose_length_takes_one_byte_more_comes_back(size: int) -> None:
    """Up to 63 a length takes one byte, up to 8191 two."""
    # What a record of that length has beside its key or its value: attributes, deltas, both sizes and a header count.
    beside = len(encode_record(0, 0, None, bytes(size))) - size - len(encode_varint(size))
    for less in range(beside - 2, beside + 3):
        for key, value in (
            (bytes(size), None),
            (None, bytes(size)),
            (bytes(size - less), None),
            (None, bytes(size - less)),
        ):
            assert decode_one(encode_record(0, 0, key, value)) == Record(0, 0, key, value)


@pytest.mark.covers("DefaultRecordTest.testBasicSerde")
@quick
@given(st.integers(0, MAX_INT32), st.integers(-(2**62), 2**62), small_bytes, small_bytes, headers)
def test_record_comes_back(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    record_headers: tuple[tuple[str, bytes | None], ...],
) -> None:
    encoded = encode_record(offset_delta, timestamp_delta, key, value, record_headers)
    assert decode_one(encoded) == Record(offset_delta, timestamp_delta, key, value, record_headers)


@quick
@given(int32s, int64s, int64s)
def test_timestamp_overflows_as_a_java_long(offset_delta: int, delta: int, base_timestamp: int) -> None:
    encoded = encode_record(offset_delta, delta, None, None)
    (record,) = decode_records(encoded, 1, base_offset=0, base_timestamp=base_timestamp)
    assert (record.timestamp - base_timestamp - delta) % 2**64 == 0
    assert -(2**63) <= record.timestamp < 2**63


@quick
@given(st.data())
def test_decoder_of_mutated_records_raises_nothing_but_invalid_record(data: st.DataObject) -> None:
    encoded = encode_record(3, 5, b"key", b"v" * 70, (("a", b"1"), ("b", None))) * 3
    changed = data.draw(mutated(encoded))
    try:
        records = list(decode_records(changed, 3, base_offset=0, base_timestamp=0))
    except InvalidRecord:
        return
    assert len(records) == 3


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="no attributes"),
        pytest.param(bytes.fromhex("00000001"), id="ends in the fields"),
        pytest.param(bytes.fromhex("000000010101"), id="negative header count"),
        pytest.param(bytes.fromhex("00000001017e"), id="more headers than bytes"),
        pytest.param(bytes.fromhex("00000001010201"), id="null header key"),
        pytest.param(bytes.fromhex("0000000101027f41"), id="header key beyond the end"),
        pytest.param(bytes.fromhex("000000010100ff"), id="a byte left over"),
        pytest.param(bytes.fromhex("0000007e610100"), id="key beyond the end"),
        pytest.param(bytes.fromhex("00ffffffffffffffffffff01"), id="timestamp of eleven bytes"),
    ],
)
def test_record_that_breaks_the_format_is_invalid(body: bytes) -> None:
    with pytest.raises(InvalidRecord):
        decode_one(framed(body))


def test_any_negative_length_is_null() -> None:
    record = decode_one(framed(bytes.fromhex("000000030900")))
    assert (record.key, record.value) == (None, None)


@pytest.mark.covers(
    "DefaultRecordBatchTest.testInvalidRecordCountTooManyNonCompressedV2",
    "DefaultRecordBatchTest.testInvalidRecordCountTooLittleNonCompressedV2",
)
def test_count_must_use_up_the_payload() -> None:
    two = encode_record(0, 0, None, b"a") + encode_record(1, 0, None, b"b")
    with pytest.raises(InvalidRecord, match="remain after 1 records"):
        list(decode_records(two, 1, base_offset=0, base_timestamp=0))
    with pytest.raises(InvalidRecord, match="end early"):
        list(decode_records(two, 3, base_offset=0, base_timestamp=0))
    with pytest.raises(InvalidRecord, match="states -1"):
        list(decode_records(two, -1, base_offset=0, base_timestamp=0))


def test_records_before_the_damage_are_returned() -> None:
    records = decode_records(encode_record(0, 0, None, b"a") + b"\x02", 2, base_offset=7, base_timestamp=0)
    assert next(records).offset == 7
    with pytest.raises(InvalidRecord):
        next(records)


@pytest.mark.covers(
    "DefaultRecordBatchTest.testIncrementSequence", "DefaultRecordBatchTest.testDecrementSequence"
)
def test_sequence_wraps_to_zero() -> None:
    assert add_to_sequence(MAX_INT32, 1) == 0
    assert subtract_from_sequence(0, 1) == MAX_INT32
    record = decode_one(encode_record(2, 0, None, None), base_sequence=MAX_INT32 - 1)
    assert record.sequence == 0


MIN_INT32 = -MAX_INT32 - 1
SEQUENCES = [MIN_INT32, MIN_INT32 + 1, -7, -2, -1, 0, 1, 2, 6, MAX_INT32 - 1, MAX_INT32]


def as_java_int(number: int) -> int:
    return int.from_bytes((number & 0xFFFFFFFF).to_bytes(4, "big"), "big", signed=True)


@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize("change", SEQUENCES)
def test_sequences_of_damaged_batches_are_computed_as_in_java(sequence: int, change: int) -> None:
    """In Java a sum wraps at 32 bits; where it would pass 2^31-1 both go on from 0, one lower than they wrap."""
    is_past_the_end = sequence > as_java_int(MAX_INT32 - change)
    expected = as_java_int(sequence + change + (MIN_INT32 if is_past_the_end else 0))
    assert add_to_sequence(sequence, change) == expected
    expected = as_java_int(sequence - change + (MIN_INT32 if sequence < change else 0))
    assert subtract_from_sequence(sequence, change) == expected


def test_header_key_must_be_text() -> None:
    with pytest.raises(InvalidRecord, match="header key"):
        encode_record(0, 0, None, None, (("\ud800", None),))


class TestBrokenRecords:
    """Every broken record is refused by decoding. The walk that skips keys and values leaves it to the decoder."""

    @pytest.mark.covers("DefaultRecordTest.testBasicSerde")
    def test_record_takes_offset_sequence_and_timestamp_from_its_batch(self) -> None:
        headers = (("foo", b"value"), ("bar", None), ('"A\u00ea\u00f1\u00fcC"', b"value"))
        for key in (None, b"hi", b"key"):
            for value in (None, b"there", b""):
                encoded = encode_record(10, 323, key, value, headers)
                (record,) = decode_records(encoded, 1, base_offset=37, base_timestamp=1000, base_sequence=723)
                assert record == Record(47, 1323, key, value, headers, 733)

    @pytest.mark.covers("DefaultRecordTest.testSerdeNoSequence")
    def test_record_has_no_sequence_where_the_batch_has_none(self) -> None:
        assert decode_one(encode_record(10, 0, None, None), base_sequence=-1).sequence == -1

    @pytest.mark.covers(
        "DefaultRecordTest.testBasicSerdeInvalidHeaderCountTooHigh",
        "DefaultRecordTest.testBasicSerdeInvalidHeaderCountTooLow",
    )
    @pytest.mark.parametrize("zigzag", [8, 4])
    def test_header_count_that_is_not_true_is_invalid(self, zigzag: int) -> None:
        headers = (("foo", b"value"), ("bar", None), ("baz", b"value"))
        encoded = bytearray(encode_record(10, 323, b"hi", b"there", headers))
        at = encoded.index(b"there") + 5
        # The count is three, in zig-zag form.
        assert encoded[at] == 6
        encoded[at] = zigzag
        self.check_refused(bytes(encoded))

    @pytest.mark.covers(
        "DefaultRecordTest.testInvalidKeySize",
        "DefaultRecordTest.testInvalidKeySizePartial",
        "DefaultRecordTest.testInvalidValueSize",
        "DefaultRecordTest.testInvalidValueSizePartial",
        "DefaultRecordTest.testInvalidNumHeaders",
        "DefaultRecordTest.testInvalidNumHeadersPartial",
        "DefaultRecordTest.testInvalidHeaderKey",
        "DefaultRecordTest.testInvalidHeaderKeyPartial",
        "DefaultRecordTest.testNullHeaderKey",
        "DefaultRecordTest.testNullHeaderKeyPartial",
        "DefaultRecordTest.testInvalidHeaderValue",
        "DefaultRecordTest.testInvalidHeaderValuePartial",
    )
    @pytest.mark.parametrize(
        "fields",
        [
            pytest.param((105,), id="key of 105 bytes in a body of 100"),
            pytest.param((-1, 105), id="value of 105 bytes"),
            pytest.param((-1, -1, -1), id="-1 headers"),
            pytest.param((-1, -1, 100), id="100 headers in fewer bytes"),
            pytest.param((-1, -1, 1, 105), id="header key of 105 bytes"),
            pytest.param((-1, -1, 1, -1), id="null header key"),
            pytest.param((-1, -1, 1, 1, 105), id="header value of 105 bytes"),
        ],
    )
    def test_length_that_runs_past_the_body_is_invalid(self, fields: tuple[int, ...]) -> None:
        body = bytes(3) + b"".join(map(encode_varint, fields))
        # The header key comes before its value's length.
        if len(fields) == 5:
            body = bytes(3) + b"".join(map(encode_varint, fields[:4])) + b"k" + encode_varint(fields[4])
        self.check_refused(framed(body.ljust(100, b"\x00")))

    @pytest.mark.covers(
        "DefaultRecordTest.testUnderflowReadingTimestamp",
        "DefaultRecordTest.testUnderflowReadingVarlong",
        "DefaultRecordTest.testInvalidVarlong",
        "DefaultRecordTest.testInvalidSizeOfBodyInBytes",
    )
    @pytest.mark.parametrize(
        "encoded",
        [
            pytest.param(encode_varint(1) + b"\x00", id="ends before the timestamp"),
            pytest.param(encode_varint(2) + b"\x00\xff", id="ends within the timestamp"),
            pytest.param(
                encode_varint(1000) + b"\x00" + b"\xff" * 11 + bytes(988), id="timestamp of 11 bytes"
            ),
            pytest.param(encode_varint(10), id="declares ten bytes and has none"),
        ],
    )
    def test_record_that_ends_too_soon_is_invalid(self, encoded: bytes) -> None:
        self.check_refused(encoded)

    @pytest.mark.covers("DefaultRecordTest.testInvalidSizeOfBodyInBytes")
    def test_kafka_13149_length_that_its_fields_do_not_use_up_is_invalid(self) -> None:
        encoded = encode_record(0, 0, b"k", b"v")
        for change in (-1, 1):
            self.check_refused(bytes((encoded[0] + 2 * change,)) + encoded[1:] + b"\x00")

    @staticmethod
    def check_refused(encoded: bytes) -> None:
        with pytest.raises(InvalidRecord):
            decode_one(encoded)
        assert RecordScanner(0).scan(encoded, 1) is None
