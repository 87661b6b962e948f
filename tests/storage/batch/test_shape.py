"""A remembered batch shape says of the next batch what a walk over its records says."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.batch import HEADER_SIZE, Record, build_batch
from storage.batch.scan import RecordScan, RecordScanner
from tests.storage.lines import lines_of
from tests.storage.validation.produced_sets import NOW


def scanned(content: bytes | bytearray, count: int) -> RecordScan | None:
    """Return what a scanner finds that has seen no other batch."""
    return RecordScanner(HEADER_SIZE).scan(content, count)


def built(
    count: int, key: bytes | None = b"k", value: bytes | None = b"value", deltas: tuple[int, ...] = (0,)
) -> bytes:
    times = [0, *(deltas[index % len(deltas)] for index in range(1, count))]
    return build_batch([Record(index, NOW + delta, key, value) for index, delta in enumerate(times)])


def knowing(content: bytes, count: int) -> RecordScanner:
    """Return a scanner that remembers the shape of `content`, because it has seen it twice."""
    scanner = RecordScanner(HEADER_SIZE)
    for _ in range(2):
        assert scanner.scan(content, count) == scanned(content, count)
    return scanner


SHAPES = [
    (1, None, b"value", (0,)),
    (1, b"", b"value", (0,)),
    (1, b"key", bytes(100), (0,)),
    (1, bytes(70), None, (0,)),
    (2, None, bytes(100), (1,)),
    (8, b"key", bytes(64), (0, 63, -1)),
    (16, None, bytes(1000), (64, 100)),
    (16, b"key", b"", (8192, -9000)),
    (64, b"key", b"value", (0,)),
    (74, bytes(70), bytes(70), (1, 2, 3)),
    (74, None, b"value", (0, 1 << 40)),
]


@pytest.mark.parametrize(("count", "key", "value", "deltas"), SHAPES)
def test_a_known_shape_finds_each_odd_byte(
    count: int, key: bytes | None, value: bytes | None, deltas: tuple[int, ...]
) -> None:
    """Each byte of the first, of a middle and of the last records is tried, contents too."""
    content = built(count, key, value, deltas)
    scanner = knowing(content, count)
    size = (len(content) - HEADER_SIZE) // count
    ends = {0, count // 2, count - 1, min(63, count - 1)}
    places = {HEADER_SIZE + index * size + at for index in ends for at in (*range(min(size, 90)), -1, -2)}
    for place in sorted(places & set(range(HEADER_SIZE, len(content)))):
        for flipped in (1, 2, 0x40, 0x80):
            odd = bytearray(content)
            odd[place] ^= flipped
            assert scanner.scan(odd, count) == scanned(odd, count), (place, flipped)
            assert scanner.scan(content, count) == scanned(content, count)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((0,), (5,)),
        ((1, 2), (-3, 63)),
        ((64,), (8191, -8192)),
        ((1,), (100,)),
        ((100,), (1,)),
        ((1 << 40,), (1 << 41,)),
    ],
)
@pytest.mark.parametrize("count", [2, 8, 16, 100])
def test_lv11_timestamps_may_change_in_a_known_shape(
    count: int, before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    """A timestamp may change its width while its value gets as much shorter: then the shape is another."""
    first, then = built(count, deltas=before), built(count, deltas=after)
    expected = scanned(then, count)
    deltas = [0, *(after[index % len(after)] for index in range(1, count))]
    assert expected == RecordScan(min(deltas), max(deltas), False)
    assert knowing(first, count).scan(then, count) == expected


def test_a_shape_is_of_one_size_and_one_count() -> None:
    content = built(16)
    scanner = knowing(content, 16)
    assert scanner.scan(content, 15) is None and scanner.scan(content, 17) is None
    assert scanner.scan(content, 0) is None and scanner.scan(content, 0) is None
    assert knowing(content, 16).scan(content[:-1], 16) is None
    assert knowing(content, 16).scan(content + b"\x00", 16) is None
    assert RecordScanner(0).scan(b"", 0) == RecordScan(0, 0, False)
    empty = RecordScanner(0)
    assert [empty.scan(b"", 0) for _ in range(3)] == [RecordScan(0, 0, False)] * 3


@pytest.mark.parametrize("count", [2, 64])
def test_a_batch_of_a_known_shape_is_not_walked_over(count: int) -> None:
    content = built(count, deltas=(1, 2))
    scanner = knowing(content, count)
    known, unknown = lines_of(lambda: scanner.scan(content, count)), lines_of(lambda: scanned(content, count))
    assert 2 * known < unknown


def test_records_of_one_shape_are_not_walked_over_after_the_first_run_either() -> None:
    """From record 64 on an offset takes two bytes, so another run begins."""
    few, many = (lines_of(partial(scanned, built(count), count)) for count in (64, 400))
    assert many < 3 * few


def test_null_keys_are_known_of_a_shape() -> None:
    for count in (1, 16):
        with_keys, without = built(count, b"", b"value"), built(count, None, b"value")
        assert len(with_keys) == len(without)
        assert knowing(with_keys, count).scan(without, count) == RecordScan(0, 0, True)
        assert knowing(without, count).scan(with_keys, count) == RecordScan(0, 0, False)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_sequence_of_batches_is_scanned_as_each_alone(data: st.DataObject) -> None:
    scanner = RecordScanner(HEADER_SIZE)
    for _ in range(data.draw(st.integers(2, 12))):
        count, key, value, deltas = data.draw(st.sampled_from(SHAPES[:8]))
        content = bytearray(built(count, key, value, deltas))
        for _ in range(data.draw(st.integers(1, 4))):
            if data.draw(st.booleans()):
                place = data.draw(st.integers(HEADER_SIZE, min(len(content) - 1, HEADER_SIZE + 60)))
                content[place] = data.draw(st.integers(0, 255))
            assert scanner.scan(content, count) == scanned(content, count)


@pytest.mark.parametrize("count", [8, 9, 16, 64, 74])
@pytest.mark.parametrize("header_count", [1, 2, -1], ids=["one", "two", "negative"])
def test_lv22_equal_records_with_a_header_count_and_no_headers_are_broken(
    count: int, header_count: int
) -> None:
    """Eight and more records are compared by columns, which must not take an equal byte for a right one."""
    content = bytearray(build_batch([Record(index, NOW, b"k", b"value") for index in range(count)]))
    position = HEADER_SIZE
    for _ in range(count):
        end = position + 1 + (content[position] >> 1)
        assert content[end - 1] == 0
        content[end - 1] = header_count << 1 if header_count >= 0 else 1
        position = end
    assert position == len(content)
    assert scanned(content, count) is None
    # Nor is such a batch remembered as a shape, or taken for one that is known.
    scanner = RecordScanner(HEADER_SIZE)
    assert [scanner.scan(content, count) for _ in range(3)] == [None] * 3
    sound = build_batch([Record(index, NOW, b"k", b"value") for index in range(count)])
    assert knowing(sound, count).scan(content, count) is None


def test_records_that_only_look_like_a_run_make_no_shape() -> None:
    """The second record reads as one of the first's shape, though its fields are elsewhere.

    Its timestamp takes two bytes, one of which could be its offset delta, and each byte after them could be the
    one that
    the first record has there: the size of its value is where the first has its value.
    """
    first = bytes([18, 0, 0, 0, 2, ord("k"), 4]) + b"ab" + bytes(1)
    second = bytes([18, 0, 0x82, 2, 2, 2, 4, 2]) + b"b" + bytes(1)
    content = bytes(HEADER_SIZE) + first + second
    assert scanned(content, 2) == RecordScan(0, 129, False)
    scanner = knowing(content, 2)
    odd = bytearray(content)
    odd[HEADER_SIZE + len(first) + 7] = 4
    assert scanned(odd, 2) is None and scanner.scan(odd, 2) is None
