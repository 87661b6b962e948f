"""Batches one byte to either side of a limit, and with the timestamps that hide mistakes (BB2, BB4, BB5)."""

from __future__ import annotations

import pytest

from storage.batch import BatchBuilder, Compression, Record, RecordBatch, TimestampType, build_batch
from storage.batch.legacy.builder import MessageSetBuilder, MessageSetFields, build_message_set
from storage.batch.record import MAX_INT64

FIRST, SECOND = Record(0, 5, b"a", b"1"), Record(1, 6, b"b", b"2")
magics = pytest.mark.parametrize("magic", [0, 1])


@pytest.mark.parametrize("wrong", [b"v", "v", None, 5, Record(1, 6, None, "v"), Record(1, 6, 7, b"v")])  # type: ignore[arg-type]
def test_what_is_no_record_of_bytes_is_named(wrong: object) -> None:
    with pytest.raises(
        TypeError, match=r"records\[1\]: expected a Record with bytes or None as key and value, got "
    ):
        build_batch([FIRST, wrong])  # type: ignore[list-item]


def test_bb2_without_timestamps_there_is_no_greatest() -> None:
    builder = BatchBuilder()
    builder.append(FIRST._replace(timestamp=-1))
    data = builder.build()
    batch = RecordBatch(data, 0, len(data))
    assert (batch.base_timestamp, batch.max_timestamp) == (-1, -1)


def test_bb2_a_timestamp_delta_beyond_64_bits_wraps_as_in_java() -> None:
    records = [Record(place, time, None, b"v") for place, time in enumerate((-1, MAX_INT64, 4))]
    data = build_batch(records)
    batch = RecordBatch(data, 0, len(data))
    assert list(batch.records()) == records
    assert (batch.base_timestamp, batch.max_timestamp) == (-1, MAX_INT64)
    # The difference of 2^63 is written as -2^63, whose varlong has ten bytes.
    assert bytes.fromhex("ffffffffffffffffff01") in data


def test_bb4_a_wrapper_of_log_append_time_carries_that_time() -> None:
    data = build_message_set(
        [FIRST, SECOND],
        magic=1,
        compression=Compression.GZIP,
        timestamp_type=TimestampType.LOG_APPEND,
        log_append_time_ms=77,
    )
    wrapper = RecordBatch(data, 0, len(data))
    assert wrapper.timestamp_type is TimestampType.LOG_APPEND and wrapper.max_timestamp == 77
    assert [record.timestamp for record in wrapper.records()] == [77, 77]


def test_bb5_a_batch_takes_the_first_record_and_then_as_many_as_fit() -> None:
    whole = BatchBuilder()
    whole.append(FIRST)
    whole.append(SECOND)
    for limit_bytes, fits in ((whole.size_estimate, True), (whole.size_estimate - 1, False), (0, False)):
        builder = BatchBuilder(limit_bytes=limit_bytes)
        assert builder.try_append(FIRST)
        before = builder.build()
        assert builder.try_append(SECOND) == fits
        assert builder.build() == (whole.build() if fits else before)


def test_bb5_what_a_record_takes_beside_its_content_counts() -> None:
    """Key and value fit, but not the lengths, the deltas and the headers around them."""
    builder = BatchBuilder()
    builder.append(FIRST)
    limit_bytes = builder.size_estimate + 2
    builder = BatchBuilder(limit_bytes=limit_bytes)
    assert builder.try_append(FIRST) and not builder.try_append(SECOND)
    assert (builder.record_count, builder.last_offset) == (1, 0)


@magics
def test_bb5_a_message_set_takes_the_first_record_and_then_as_many_as_fit(magic: int) -> None:
    fields = MessageSetFields(magic=magic)
    whole = MessageSetBuilder(fields)
    whole.append(FIRST)
    whole.append(SECOND)
    for limit_bytes, fits in ((whole.size_estimate, True), (whole.size_estimate - 1, False), (0, False)):
        builder = MessageSetBuilder(fields, limit_bytes=limit_bytes)
        assert builder.try_append(FIRST)
        assert builder.try_append(SECOND) == fits
        assert builder.record_count == (2 if fits else 1)
