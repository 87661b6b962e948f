"""A leader's walk over encoded records: it agrees with decoding them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.batch import HEADER_SIZE, Record, RecordBatch, build_batch
from storage.batch.record import encode_record
from storage.batch.scan import RecordScan, RecordScanner
from storage.codec.varint import read_varint
from storage.errors import InvalidRecord
from tests.storage.validation.produced_sets import NOW, validated

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
    assert RecordScanner(HEADER_SIZE).scan(content, len(drawn)) == expected
    assert RecordScanner(0).scan(content[HEADER_SIZE:], len(drawn)) is not None
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
    scan = RecordScanner(HEADER_SIZE).scan(bytes(content), len(drawn))
    if scan is None:
        return
    records = list(RecordBatch(bytes(content), 0, len(content)).records())
    assert [record.offset for record in records] == list(range(len(drawn)))
    base = drawn[0][0]
    deltas = [record.timestamp - base for record in records]
    if -(1 << 63) <= base + scan.least_timestamp_delta and base + scan.greatest_timestamp_delta < 1 << 63:
        assert (min(deltas), max(deltas)) == (scan.least_timestamp_delta, scan.greatest_timestamp_delta)
    assert scan.has_null_key == any(record.key is None for record in records)


@pytest.mark.parametrize("count", [10_000, 10_001])
def test_a_batch_with_more_than_10000_headers_is_left_to_the_caller(count: int) -> None:
    """Each header costs as much as a record. The last record has the one that is too many."""
    full, rest = divmod(count, 63)
    records = [
        Record(index, NOW, None, b"v", (("", None),) * headers)
        for index, headers in enumerate([63] * full + [rest])
    ]
    content = build_batch(records)
    expected = RecordScan(0, 0, True) if count == 10_000 else None
    assert RecordScanner(HEADER_SIZE).scan(content, len(records)) == expected


@pytest.mark.parametrize("count", [64, 65, 200, 9000])
def test_scan_of_many_records(count: int) -> None:
    content = build_batch([Record(index, NOW - index, b"k", b"v") for index in range(count)])
    assert RecordScanner(HEADER_SIZE).scan(content, count) == RecordScan(1 - count, 0, False)
    assert RecordScanner(HEADER_SIZE).scan(content, count - 1) is None
    assert RecordScanner(HEADER_SIZE).scan(content, count + 1) is None
    assert RecordScanner(HEADER_SIZE).scan(content, -1) is None


def test_scan_refuses_a_negative_length() -> None:
    content = bytearray(build_batch([Record(0, NOW, b"k", b"v" * 30)]))
    assert content[HEADER_SIZE] == 37 << 1
    assert RecordScanner(HEADER_SIZE).scan(bytes(content), 1) is not None
    # In zig-zag form this is -38.
    content[HEADER_SIZE] |= 1
    assert RecordScanner(HEADER_SIZE).scan(bytes(content), 1) is None


RUNS = st.tuples(
    # An offset delta takes two bytes from 64 on.
    st.sampled_from([8, 9, 63, 64, 65, 72, 130]),
    st.sampled_from([None, b"", b"key", bytes(70)]),
    st.sampled_from([None, b"", b"value", bytes(55), bytes(64), bytes(9000)]),
    st.lists(st.sampled_from([0, 1, -1, 63, 64, -64, 8191, 8192, 1 << 40]), min_size=1, max_size=3),
)
Run = tuple[int, bytes | None, bytes | None, list[int]]


def run_of(drawn: Run) -> tuple[bytes, list[int]]:
    """Return a batch of records of one shape, and their timestamp deltas."""
    count, key, value, steps = drawn
    deltas = [0, *(steps[index % len(steps)] for index in range(1, count))]
    return build_batch([Record(index, NOW + delta, key, value) for index, delta in enumerate(deltas)]), deltas


@settings(max_examples=60, deadline=None)
@given(RUNS)
def test_scan_of_records_of_one_shape(drawn: Run) -> None:
    content, deltas = run_of(drawn)
    expected = RecordScan(min(deltas), max(deltas), drawn[1] is None)
    assert RecordScanner(HEADER_SIZE).scan(content, drawn[0]) == expected
    assert RecordScanner(HEADER_SIZE).scan(content, drawn[0] - 1) is None
    assert RecordScanner(HEADER_SIZE).scan(content, drawn[0] + 1) is None
    assert RecordScanner(HEADER_SIZE).scan(content + b"\x00", drawn[0]) is None
    assert RecordScanner(HEADER_SIZE).scan(content[:-1], drawn[0]) is None


@pytest.mark.parametrize("without", [0, 63, 64, 129])
def test_lv20_one_record_without_a_key_counts_wherever_it_is(without: int) -> None:
    """Records are scanned in runs of one shape, of which the first ends at record 63, and the rest one by one."""
    for shared in (False, True):
        keys = [None if index == without or (shared and index < 64) else b"key" for index in range(130)]
        content = build_batch([Record(index, NOW, key, b"value") for index, key in enumerate(keys)])
        assert RecordScanner(HEADER_SIZE).scan(content, 130) == RecordScan(0, 0, True)


@pytest.mark.parametrize(
    "drawn",
    [
        (9, b"key", b"value", [0]),
        (9, None, None, [-1, 5]),
        (10, b"key", bytes(64), [63, 64]),
        (10, bytes(70), bytes(70), [64, 8191]),
        (74, b"k", b"v", [0]),
        (74, None, bytes(300), [8192, 1 << 40]),
    ],
)
def test_scan_finds_each_odd_byte_in_records_of_one_shape(drawn: Run) -> None:
    """The odd byte is in the framing of a record: in the middle, at the end of a run, or before that end."""
    sound, _ = run_of(drawn)
    ends = [0, *ends_of(sound, drawn[0])]
    for index in {1, 4, drawn[0] - 1, min(63, drawn[0] - 2)}:
        start, end = HEADER_SIZE + ends[index], HEADER_SIZE + ends[index + 1]
        framing = {*range(start, min(start + 20, end)), end - 1, *range(start + 74, min(start + 80, end))}
        for place in sorted(framing):
            for flipped in (1, 2, 0x80):
                content = bytearray(sound)
                content[place] ^= flipped
                check_scan_agrees(bytes(content), drawn[0])


def ends_of(content: bytes, count: int) -> list[int]:
    position, ends = HEADER_SIZE, []
    for _ in range(count):
        length, position = read_varint(content, position)
        position += length
        ends.append(position - HEADER_SIZE)
    return ends


def check_scan_agrees(content: bytes, count: int) -> None:
    scan = RecordScanner(HEADER_SIZE).scan(content, count)
    batch = RecordBatch(content, 0, len(content))
    try:
        records = list(batch.records())
    except InvalidRecord:
        assert scan is None
        return
    if [record.offset for record in records] != list(range(count)):
        assert scan is None
        return
    assert scan is not None, "no record is at fault"
    deltas = [record.timestamp - batch.base_timestamp for record in records]
    assert (min(deltas), max(deltas)) == (scan.least_timestamp_delta, scan.greatest_timestamp_delta)
    assert scan.has_null_key == any(record.key is None for record in records)


@pytest.mark.parametrize("cleared", range(1, 10))
def test_scan_finds_a_timestamp_that_is_shorter_than_those_beside_it(cleared: int) -> None:
    """The second byte of the timestamp is then read as the offset delta, while the record keeps its length."""
    encoded = [encode_record(index, 100 + index, b"k", b"v") for index in range(10)]
    assert RecordScanner(0).scan(b"".join(encoded), 10) == RecordScan(100, 109, False)
    odd = bytearray(encoded[cleared])
    assert odd[2] & 0x80
    odd[2] &= 0x7F
    encoded[cleared] = bytes(odd)
    assert RecordScanner(0).scan(b"".join(encoded), 10) is None
