"""The cleaner's map of keys. Kafka: OffsetMapTest; rule CL7."""

from __future__ import annotations

import hashlib
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.cleaner.offset_map import HELD_BYTES, HELD_KEY_BYTES, SLOT_BYTES, OffsetMap, _slot


def filled(count: int, slots: int | None = None) -> OffsetMap:
    offsets = OffsetMap((slots or 2 * count) * SLOT_BYTES)
    for number in range(count):
        offsets.put(str(number).encode(), number)
    return offsets


@pytest.mark.covers("OffsetMapTest.testBasicValidation")
@pytest.mark.parametrize("count", [10, 100, 1000])
def test_cl7_keys_that_were_put_are_found(count: int) -> None:
    offsets = filled(count)
    assert [offsets.get(str(number).encode()) for number in range(count)] == list(range(count))
    assert offsets.get(b"unknown") == -1
    assert len(offsets) == count


@pytest.mark.covers("OffsetMapTest.testClear")
def test_cl7_a_cleared_map_knows_nothing() -> None:
    offsets = filled(10)
    offsets.clear()
    assert [offsets.get(str(number).encode()) for number in range(10)] == [-1] * 10
    assert (len(offsets), offsets.latest_offset) == (0, -1)


@pytest.mark.covers("OffsetMapTest.testGetWhenFull")
def test_cl7_a_full_map_can_be_searched_but_refuses_puts() -> None:
    """A search for a missing key visits each slot of the table once and ends (KAFKA-3682)."""
    offsets = filled(20, slots=20)
    assert offsets.get(b"missing") == -1
    assert [offsets.get(str(number).encode()) for number in range(20)] == list(range(20))
    for key in (b"new", b"0"):
        with pytest.raises(ValueError, match="all of its 20 slots taken"):
            offsets.put(key, 99)
    assert offsets.get(b"0") == 0


@pytest.mark.covers("OffsetMapTest.testUpdateLatestOffset", "OffsetMapTest.testLatestOffset")
def test_cl7_the_latest_offset_is_that_of_the_last_put_or_what_was_set() -> None:
    offsets = filled(3)
    assert offsets.latest_offset == 2
    assert offsets.put(b"1", 7) == 1
    assert offsets.put(b"1", 7) == 7
    assert (offsets.latest_offset, len(offsets), offsets.get(b"1")) == (7, 3, 7)
    offsets.latest_offset = 12
    assert offsets.latest_offset == 12


@pytest.mark.covers("OffsetMapTest.testUtilization")
def test_cl7_slots_are_what_the_memory_holds_and_utilization_is_their_share() -> None:
    offsets = OffsetMap(5 * SLOT_BYTES + 23)
    assert offsets.slots == 5
    assert offsets.utilization == 0.0
    offsets.put(b"a", 1)
    offsets.put(b"a", 2)
    assert offsets.utilization == 0.2


def test_cl7_the_table_is_kafkas() -> None:
    """An entry is MD5 and offset, in the first free one of the slots that the hash's windows name."""
    offsets = OffsetMap(7 * SLOT_BYTES)
    places = {}
    for number in range(5):
        digest = hashlib.md5(str(number).encode()).digest()
        attempt = next(each for each in range(99) if _slot(digest, each, 7) not in places)
        places[_slot(digest, attempt, 7)] = digest + struct.pack(">q", number)
        offsets.put(str(number).encode(), number)
    expected = b"".join(places.get(slot, bytes(SLOT_BYTES)) for slot in range(7))
    assert bytes(offsets._table) == expected


def test_cl7_probes_are_windows_of_the_hash_and_then_slot_by_slot() -> None:
    digest = bytes.fromhex("00000003fffffff9000000000000000a")
    assert _slot(digest, 0, 100) == 3
    # The window reads as -7.
    assert _slot(digest, 4, 100) == 7
    assert [_slot(digest, 12 + step, 100) for step in range(3)] == [10, 11, 12]


def test_cl7_the_lowest_int_counts_as_zero_and_the_highest_wraps_around() -> None:
    lowest = bytes.fromhex("80000000") + bytes(12)
    assert _slot(lowest, 0, 100) == 0
    highest = bytes(12) + bytes.fromhex("7fffffff")
    assert _slot(highest, 12, 1000) == (2**31 - 1) % 1000
    assert _slot(highest, 13, 1000) == 0
    assert _slot(highest, 14, 1000) == (2**31 - 1) % 1000


def test_cl7_a_table_for_fewer_keys_is_smaller_and_says_the_same() -> None:
    offsets = OffsetMap(1_000_000 * SLOT_BYTES, expected_keys=5000)
    assert (offsets.slots, len(offsets._table)) == (1_000_000, 20_000 * SLOT_BYTES)
    for number in range(5000):
        offsets.put(b"%d" % number, number)
    assert [offsets.get(b"%d" % number) for number in range(5000)] == list(range(5000))
    assert len(OffsetMap(10 * SLOT_BYTES, expected_keys=5000)._table) == 10 * SLOT_BYTES


class Chosen:
    """A hash in the place of MD5: a key of 16 bytes is its own hash."""

    def __init__(self, key: bytes, **_: object) -> None:
        self._key = key

    def digest(self) -> bytes:
        return self._key


def test_cl7_a_slot_is_free_when_all_of_its_24_bytes_are_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash of zeros is a key like any other, except at offset 0, where its slot reads as free (Kafka's too)."""
    monkeypatch.setattr("storage.cleaner.offset_map._md5", Chosen)
    # Both begin at slot 0 of 10.
    zeros, neighbour = bytes(16), (10).to_bytes(4, "big") + bytes([1] * 12)
    offsets = OffsetMap(10 * SLOT_BYTES)
    assert offsets.put(zeros, 5) == -1
    assert (offsets.put(zeros, 6), len(offsets)) == (5, 1)
    assert (offsets.put(neighbour, 7), len(offsets)) == (-1, 2)
    assert (offsets.get(zeros), offsets.get(neighbour)) == (6, 7)
    at_zero = OffsetMap(10 * SLOT_BYTES)
    at_zero.put(zeros, 0)
    assert at_zero.put(zeros, 1) == -1


def test_cl7_a_known_key_counts_once_though_another_key_has_its_first_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("storage.cleaner.offset_map._md5", Chosen)
    # Both begin at slot 3 of 10; the second one goes on at slot 4.
    first, second = ((3).to_bytes(4, "big") + bytes([fill] * 12) for fill in (1, 2))
    offsets = OffsetMap(10 * SLOT_BYTES)
    assert [offsets.put(key, number) for number, key in enumerate((first, second))] == [-1, -1]
    assert (offsets.put(second, 7), len(offsets), offsets.get(second)) == (1, 2, 7)


def test_cl7_the_lowest_int_is_put_at_slot_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.cleaner.offset_map._md5", Chosen)
    lowest = bytes.fromhex("80000000") + bytes([7] * 12)
    offsets = OffsetMap(100 * SLOT_BYTES)
    offsets.put(lowest, 3)
    assert bytes(offsets._table[:SLOT_BYTES]) == lowest + struct.pack(">q", 3)
    assert offsets.get(lowest) == 3


def test_cl7_the_latest_offset_is_that_of_the_last_put_though_it_is_lower() -> None:
    offsets = OffsetMap(10 * SLOT_BYTES)
    offsets.put(b"a", 7)
    offsets.put(b"b", 3)
    assert offsets.latest_offset == 3


def test_t49_keys_of_one_hash_are_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    class Short:
        def __init__(self, key: bytes, **_: object) -> None:
            self._key = key

        def digest(self) -> bytes:
            return (self._key[:1] * 16)[:16]

    monkeypatch.setattr("storage.cleaner.offset_map._md5", Short)
    offsets = OffsetMap(10 * SLOT_BYTES)
    offsets.put(b"ab", 1)
    offsets.put(b"ac", 2)
    assert (len(offsets), offsets.get(b"ad"), offsets.get(b"b")) == (1, 2, -1)


keys = st.one_of(st.binary(max_size=3), st.binary(min_size=HELD_KEY_BYTES - 1, max_size=HELD_KEY_BYTES + 2))


@given(st.lists(st.tuples(keys, st.integers(0, 2**62)), max_size=40), st.sampled_from([0, 1, 5, 100]))
def test_cl7_the_map_behaves_like_a_dictionary(puts: list[tuple[bytes, int]], held: int) -> None:
    offsets = OffsetMap(60 * SLOT_BYTES, dictionary_bytes=held * HELD_BYTES)
    model: dict[bytes, int] = {}
    for key, offset in puts:
        assert offsets.put(key, offset) == model.get(key, -1)
        model[key] = offset
        assert (len(offsets), offsets.latest_offset) == (len(model), offset)
    assert {key: offsets.get(key) for key in model} == model
    assert offsets.get(b"unknown") == offsets.get(b"unknown" * 9) == -1


def test_cl7_keys_move_from_the_dictionary_to_the_table_when_it_has_its_share_of_the_memory() -> None:
    offsets = OffsetMap(100 * SLOT_BYTES, dictionary_bytes=10 * HELD_BYTES)
    for number in range(10):
        offsets.put(b"%d" % number, number)
    offsets.put(b"3", 12)
    assert (len(offsets), len(offsets._table), offsets.utilization) == (10, 0, 0.1)
    offsets.put(b"one more", 13)
    assert (len(offsets), len(offsets._table), offsets._held) == (11, 100 * SLOT_BYTES, None)
    table = OffsetMap(100 * SLOT_BYTES)
    for key, offset in [(b"%d" % number, number) for number in range(10)] + [(b"3", 12), (b"one more", 13)]:
        table.put(key, offset)
    assert offsets._table == table._table
    offsets.clear()
    assert (len(offsets), offsets.get(b"3"), offsets.latest_offset) == (0, -1, -1)


def test_cl7_a_full_map_that_began_as_a_dictionary_is_not_added_to() -> None:
    offsets = OffsetMap(20 * SLOT_BYTES, dictionary_bytes=1000 * HELD_BYTES)
    for number in range(20):
        offsets.put(b"%d" % number, number)
    for key in (b"new", b"0"):
        with pytest.raises(ValueError, match="all of its 20 slots taken"):
            offsets.put(key, 99)


def test_cl7_a_key_takes_no_more_in_the_dictionary_than_what_is_counted() -> None:
    tracemalloc.start()
    try:
        offsets = OffsetMap(10_000_000, dictionary_bytes=10_000_000)
        # The count is a little above one at which the dictionary grows.
        before, count = (
            tracemalloc.get_traced_memory()[0],
            22_000,
        )
        for number in range(count):
            offsets.put(b"%064d" % number if number % 2 else b"%032d" % number, 2**40 + number)
        assert tracemalloc.get_traced_memory()[0] - before <= count * HELD_BYTES
    finally:
        tracemalloc.stop()
