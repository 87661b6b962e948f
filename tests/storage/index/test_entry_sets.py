"""Many entries by one write follow the rules of one entry, and none is added when one is refused."""

from __future__ import annotations

import pytest

from storage.errors import InvalidOffset, SegmentOffsetOverflow
from storage.index.offset_index import SEARCHES_A_READ, OffsetIndex
from storage.index.time_index import TimeIndex
from tests.storage.logs import new_file_system

BASE = 100


def offset_index(*entries: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex(new_file_system(), "a.index", BASE, max_index_size=8 * 5)
    for entry in entries:
        index.append(*entry)
    return index


def time_index(*entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex(new_file_system(), "a.timeindex", BASE, max_index_size=12 * 5)
    for entry in entries:
        index.maybe_append(*entry)
    return index


@pytest.mark.parametrize("offsets", [[110, 120], [109, 120], [120, 115], [120, 120]])
def test_ix13_offsets_of_a_set_strictly_increase_from_the_last(offsets: list[int]) -> None:
    index = offset_index((110, 5))
    with pytest.raises(InvalidOffset):
        index.append_all(offsets, [10, 20])
    assert (index.entries, index.last_offset) == (1, 110)
    index.append_all([111, 120], [10, 20])
    assert (index.entries, index.last_offset) == (3, 120)
    with pytest.raises(InvalidOffset):
        index.append(120, 30)


def test_ix13_a_set_has_room_and_fits_the_relative_bits_or_nothing_of_it_is_added() -> None:
    index = offset_index((110, 5))
    with pytest.raises(ValueError, match="no room"):
        index.append_all(list(range(111, 116)), [10] * 5)
    with pytest.raises(SegmentOffsetOverflow):
        index.append_all([111, BASE + 2**31], [10, 20])
    with pytest.raises(SegmentOffsetOverflow):
        offset_index().append_all([BASE + 2**31], [10])
    assert (index.entries, index.last_offset) == (1, 110)


@pytest.mark.parametrize("times", [[10, 20], [9, 20], [20, 15], [20, 20]])
def test_ix20_timestamps_of_a_set_strictly_increase_from_the_last(times: list[int]) -> None:
    index = time_index((10, 110))
    with pytest.raises(ValueError, match="increase"):
        index.append_all(times, [111, 112])
    assert index.last_entry == (10, 110)


@pytest.mark.parametrize("offsets", [[109, 112], [112, 111]])
def test_ix20_offsets_of_a_set_never_fall(offsets: list[int]) -> None:
    index = time_index((10, 110))
    with pytest.raises(InvalidOffset):
        index.append_all([11, 12], offsets)
    assert index.last_entry == (10, 110)
    index.append_all([11, 12], [110, 110])
    assert index.last_entry == (12, 110)


def test_ix20_a_set_above_the_room_is_refused_whole() -> None:
    index = time_index((10, 110))
    with pytest.raises(ValueError, match="no room"):
        index.append_all(list(range(11, 16)), [111] * 5)
    assert index.entries == 1


def test_ix10_what_was_read_of_the_warm_part_finds_the_same() -> None:
    index = offset_index((110, 1), (120, 2), (130, 3), (140, 4))
    for _ in range(SEARCHES_A_READ):
        index.lookup(135)
    found = [index.lookup(offset).position for offset in (100, 109, 110, 111, 120, 129, 139, 140, 999)]
    assert found == [0, 0, 1, 1, 2, 2, 3, 4, 4]
