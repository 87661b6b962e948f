"""The walk over encoded records that a leader does: it agrees with decoding them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.batch import HEADER_SIZE, Record, RecordBatch, build_batch
from storage.record_scan import RecordScan, scan_records
from tests.storage.produced_sets import NOW, validated

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


def test_scan_refuses_a_negative_length() -> None:
    content = bytearray(build_batch([Record(0, NOW, b"k", b"v" * 30)]))
    assert content[HEADER_SIZE] == 37 << 1
    assert scan_records(bytes(content), HEADER_SIZE, 1) is not None
    content[HEADER_SIZE] |= 1  # zig-zag: -38
    assert scan_records(bytes(content), HEADER_SIZE, 1) is None
