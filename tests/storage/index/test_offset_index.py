"""The offset index by rule number (IX10 to IX19). Its file is tested in test_memory_mapped.py."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.disk.filesystem import OpenMode, read_file
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import CorruptIndex, InvalidOffset, SegmentOffsetOverflow
from storage.index.memory_mapped import WARM_BYTES
from storage.index.offset_index import SEARCHES_A_READ, OffsetIndex, OffsetPosition
from tests.storage.index.indexes import BASE, all_entries, fill, new_index, simulated


class TestEntries:
    @pytest.mark.covers("OffsetIndexTest.appendTooMany", "OffsetIndexTest.appendOutOfOrder")
    def test_ix13_append_refuses_and_writes_nothing(self) -> None:
        _, fs = simulated()
        index = new_index(fs, slots=3)
        index.append(51, 1)
        before = read_file(fs, "45.index")
        for offset in (51, 50):
            with pytest.raises(InvalidOffset):
                index.append(offset, 2)
        with pytest.raises(SegmentOffsetOverflow):
            index.append(BASE + 2**31, 2)
        assert read_file(fs, "45.index") == before
        fill(index, [(52, 2), (53, 3)])
        assert index.is_full
        with pytest.raises(ValueError, match="full"):
            index.append(54, 4)
        assert index.last_offset == 53

    def test_ix13_below_the_base_offset(self) -> None:
        with pytest.raises(SegmentOffsetOverflow):
            new_index().append(BASE - 1, 0)

    def test_append_all_is_many_appends_by_one_write(self) -> None:
        disk, fs = simulated()
        index, one_by_one = new_index(fs), new_index(fs, path="other.index")
        entries = [(BASE + 2 * i, 100 * i) for i in range(1, 30)]
        fill(one_by_one, entries)
        index.append(*entries[0])
        before = disk.operations
        index.append_all([offset for offset, _ in entries[1:]], [position for _, position in entries[1:]])
        index.append_all([], [])
        assert disk.operations == before + 1
        assert read_file(fs, "45.index") == read_file(fs, "other.index")
        assert (index.last_offset, index.free_entries) == (one_by_one.last_offset, 1)

    def test_append_all_adds_all_or_none(self) -> None:
        index = new_index(slots=3)
        index.append(50, 1)
        with pytest.raises(InvalidOffset):
            index.append_all([50, 51], [2, 3])
        with pytest.raises(InvalidOffset):
            index.append_all([52, 52], [2, 3])
        with pytest.raises(SegmentOffsetOverflow):
            index.append_all([52, BASE + 2**31], [2, 3])
        with pytest.raises(ValueError):
            index.append_all([51, 52, 53], [2, 3, 4])
        assert all_entries(index) == [(50, 1)]
        assert index.last_offset == 50

    @pytest.mark.covers("OffsetIndexTest.lookupExtremeCases")
    def test_ix14_lookup_at_the_extremes(self) -> None:
        index = new_index()
        assert index.lookup(BASE) == index.lookup(92) == (BASE, 0)
        fill(index, [(BASE + i + 1, i) for i in range(30)])
        assert index.lookup(BASE) == (BASE, 0)
        assert index.lookup(BASE + 30) == index.lookup(2**62) == (BASE + 30, 29)

    @pytest.mark.covers("OffsetIndexTest.truncate")
    def test_ix16_truncate_drops_all_at_or_above(self) -> None:
        index = new_index(slots=10)
        fill(index, [(BASE + i, i) for i in range(1, 10)])
        index.truncate_to(BASE + 12)
        # The offset is beyond the end: every entry stays.
        assert (index.entries, index.last_offset) == (9, BASE + 9)
        index.append(BASE + 10, 10)
        index.truncate_to(BASE + 10)
        assert index.last_offset == BASE + 9
        index.truncate_to(BASE + 9)
        assert index.last_offset == BASE + 8
        index.append(BASE + 20, 20)
        index.truncate_to(BASE + 15)
        # The offset is between two entries.
        assert index.last_offset == BASE + 8
        index.truncate_to(BASE + 5)
        assert index.last_offset == BASE + 4
        index.truncate_to(BASE)
        assert (index.entries, index.last_offset) == (0, BASE)

    @pytest.mark.covers("OffsetIndexTest.testSanityLastOffsetEqualToBaseOffset")
    def test_ix17_sanity(self) -> None:
        _, fs = simulated()
        fs.open("0.index", OpenMode.CREATE).append(struct.pack(">ii", 0, 0))
        # The last offset is equal to the base offset.
        OffsetIndex(fs, "0.index", 20).sanity_check()
        fs.open("0.index", OpenMode.CREATE).append(struct.pack(">ii", -1, 0))
        with pytest.raises(CorruptIndex, match="below the base offset"):
            OffsetIndex(fs, "0.index", 20).sanity_check()
        fs.open("1.index", OpenMode.CREATE).set_length(23)
        with pytest.raises(CorruptIndex, match="23 bytes"):
            OffsetIndex(fs, "1.index", 0).sanity_check()

    @pytest.mark.covers("OffsetIndexTest.testEntry", "OffsetIndexTest.testEntryOverflow")
    def test_ix18_entry(self) -> None:
        index = new_index()
        with pytest.raises(ValueError):
            index.entry(0)
        fill(index, [(46, 10), (47, 23)])
        assert (index.entry(0), index.entry(1)) == ((46, 10), (47, 23))
        for slot in (-1, 2):
            with pytest.raises(ValueError):
                index.entry(slot)

    @pytest.mark.covers("OffsetIndexTest.testFetchUpperBoundOffset")
    def test_ix19_upper_bound_by_position(self) -> None:
        index = new_index()
        first, second, last = OffsetPosition(45, 0), OffsetPosition(46, 10), OffsetPosition(48, 37)
        assert index.fetch_upper_bound_offset(first, 5) is None
        fill(index, [(45, 0), (46, 10), (47, 23), (48, 37)])
        expected = {(first, 5): 46, (first, 10): 46, (first, 22): 47, (first, 23): 47, (second, 24): 48}
        for (start, size), offset in expected.items():
            found = index.fetch_upper_bound_offset(start, size)
            assert found is not None and found.offset == offset
        for start, size in ((last, 1), (first, 200), (second, 200)):
            assert index.fetch_upper_bound_offset(start, size) is None


SORTED_OFFSETS = st.lists(st.integers(0, 5000), unique=True, max_size=60).map(sorted)


class TestAgainstAList:
    @settings(max_examples=60)
    @given(SORTED_OFFSETS, st.integers(0, 40), st.lists(st.integers(-3, 5100), min_size=1, max_size=30))
    @pytest.mark.covers("OffsetIndexTest.randomLookupTest")
    def test_ix10_lookups_with_and_without_a_warm_part(
        self, offsets: list[int], repeat: int, targets: list[int]
    ) -> None:
        # Up to 2,460 entries, so that many look-ups leave the 1,024 warm ones.
        relative = [round_number * 5001 + offset for round_number in range(repeat + 1) for offset in offsets]
        index = new_index(slots=max(1, len(relative)))
        index.append_all([BASE + offset for offset in relative], list(range(0, 7 * len(relative), 7)))
        for target in [round_number * 5001 + target for target in targets for round_number in (0, repeat)]:
            slot = bisect_right(relative, target) - 1
            expected = (BASE + relative[slot], 7 * slot) if slot >= 0 else (BASE, 0)
            assert index.lookup(BASE + target) == expected
            upper = bisect_left(range(0, 7 * len(relative), 7), target)
            found = index.fetch_upper_bound_offset(OffsetPosition(0, 0), target)
            assert found == ((BASE + relative[upper], 7 * upper) if upper < len(relative) else None)

    @settings(max_examples=60)
    @given(SORTED_OFFSETS, st.integers(-3, 5100))
    def test_ix16_truncation_keeps_the_entries_below(self, offsets: list[int], target: int) -> None:
        index = new_index(slots=max(1, len(offsets)))
        index.append_all([BASE + offset for offset in offsets], offsets)
        index.truncate_to(BASE + target)
        kept = [(BASE + offset, offset) for offset in offsets if offset < target]
        assert all_entries(index) == kept
        assert index.last_offset == (kept[-1][0] if kept else BASE)


PAGE_BYTES = 4096
COLUMN = struct.Struct(">i").unpack_from


def pages_of_lookup(index: OffsetIndex, target: int) -> set[int]:
    """Return the 4 KiB pages of the file that a look-up of the relative offset `target` reads. It must find it."""
    touched: list[int] = []

    def noting(view: bytes | bytearray | memoryview, position: int) -> tuple[int, ...]:
        touched.append(position)
        return COLUMN(view, position)

    slot, _ = index._search(target, noting, 0)
    assert index.entry(slot).offset == BASE + target
    return {position // PAGE_BYTES for position in [*touched, slot * 8]}


def pages_of_plain_bisection(entries: int, target: int) -> set[int]:
    low, high, touched = 0, entries - 1, set()
    while low < high:
        middle = (low + high + 1) // 2
        touched.add(middle * 8 // PAGE_BYTES)
        low, high = (middle, high) if middle <= target else (low, middle - 1)
    return touched


@pytest.mark.parametrize("pages", [13, 14])
def test_ix10_a_warm_lookup_stays_within_the_last_three_pages(pages: int) -> None:
    """The middle of the index moves at the step from 13 to 14 pages, to a page that nothing else keeps in memory."""
    entries = pages * PAGE_BYTES // 8
    index = new_index(slots=entries)
    index.append_all(range(BASE, BASE + entries), range(entries))
    last = {pages - 3, pages - 2, pages - 1}
    for target in range(entries - 1024, entries):
        assert pages_of_lookup(index, target) <= last, target
    assert not pages_of_plain_bisection(entries, entries - 1) <= last
    # This entry is outside the warm part: the look-up reads the first entry, then halves the rest.
    assert 0 in pages_of_lookup(index, entries - 1026)


def test_ix10_1024_entries_are_warm() -> None:
    entries = 20_000
    index = new_index(slots=entries)
    index.append_all(range(BASE, BASE + entries), range(entries))
    first_warm = (entries - 1 - 1024) * 8
    cold = [target for target in range(entries - 1100, entries) if 0 in pages_of_lookup(index, target)]
    assert cold == list(range(entries - 1100, first_warm // 8 + 1))
    assert WARM_BYTES // 8 == 1024


def test_ix10_below_the_first_entry_there_is_none_and_an_empty_index_has_none() -> None:
    index = new_index()
    assert index._search(5, COLUMN, 0) == (-1, -1)
    fill(index, [(BASE + 10, 1), (BASE + 20, 2)])
    assert index._search(9, COLUMN, 0) == (-1, 0)
    assert index._search(10, COLUMN, 0) == (0, 0)


def test_ix11_the_upper_bound_is_the_exact_entry_or_the_next_and_none_after_the_last() -> None:
    index = new_index(slots=3000)
    index.append_all(range(BASE, BASE + 6000, 2), range(3000))
    # The entry 1975 is the first warm one.
    for slot in (0, 1, 1500, 1974, 1975, 1976, 2998, 2999):
        assert index._search(2 * slot, COLUMN, 0) == (slot, slot)
        expected = (slot, slot + 1 if slot < 2999 else -1)
        assert index._search(2 * slot + 1, COLUMN, 0) == expected


def test_ix3_an_offset_index_is_full_when_every_slot_is_taken() -> None:
    index = new_index(slots=3)
    fill(index, [(46, 0), (47, 1)])
    assert not index.is_full and index.free_entries == 1
    index.append(48, 2)
    assert index.is_full


def test_ix13_the_first_entry_may_be_any_offset_from_the_base_on() -> None:
    for offset in (BASE, BASE + 1, BASE + 2**31 - 1):
        index = new_index()
        index.append(offset, 0)
        assert index.last_offset == offset


def test_ix15_the_last_offset_is_the_last_entrys_or_the_base() -> None:
    _, fs = simulated()
    index = new_index(fs)
    assert index.last_offset == BASE
    fill(index, [(50, 0), (60, 1)])
    assert index.last_offset == 60
    index.truncate_to(60)
    assert index.last_offset == 50
    index.close()
    assert OffsetIndex(fs, "45.index", BASE).last_offset == 50
    index = OffsetIndex(fs, "45.index", BASE)
    index.truncate()
    assert index.last_offset == BASE


def test_reads_and_writes_go_through_the_real_map_too(tmp_path: object) -> None:
    index = OffsetIndex(OsFileSystem(), f"{tmp_path}/45.index", BASE, max_index_size=10 << 20)
    index.append_all(range(BASE, BASE + 5000), range(0, 50_000, 10))
    assert index.lookup(BASE + 17) == (BASE + 17, 170)
    index.truncate_to(BASE + 4000)
    index.append(BASE + 9000, 1)
    assert index.lookup(BASE + 8999) == (BASE + 3999, 39_990)
    assert index.lookup(BASE + 9000) == (BASE + 9000, 1)
    index.close()


def searched_often(index: OffsetIndex, target: int) -> None:
    for _ in range(SEARCHES_A_READ):
        index.lookup(target)


class TestWarmPartReadWhole:
    """After some searches in the warm part, its offsets are held in memory. The results must stay the same."""

    @settings(max_examples=60)
    @given(
        st.lists(st.integers(1, 5), min_size=1, max_size=40),
        st.integers(0, 60),
        st.sampled_from(["append", "truncate", "resize", "reset"]),
    )
    def test_ix14_a_lookup_finds_the_same_after_any_change(
        self, steps: list[int], repeat: int, change: str
    ) -> None:
        offsets = list(accumulate(steps * (repeat + 1)))
        index = new_index(slots=len(offsets) + 10)
        index.append_all([BASE + offset for offset in offsets], range(len(offsets)))
        searched_often(index, BASE + offsets[-1])
        if change == "append":
            offsets.append(offsets[-1] + 2)
            index.append(BASE + offsets[-1], len(offsets) - 1)
        elif change == "truncate":
            del offsets[len(offsets) // 2 :]
            index.truncate_to(BASE + offsets[-1] + 1 if offsets else BASE)
            offsets.append((offsets[-1] if offsets else 0) + 1)
            index.append(BASE + offsets[-1], len(offsets) - 1)
        elif change == "resize":
            index.trim_to_valid_size()
        else:
            index.reset()
            offsets = [7]
            index.append(BASE + 7, 0)
        for target in range(offsets[0] - 2, offsets[-1] + 4):
            slot = bisect_right(offsets, target) - 1
            assert index.lookup(BASE + target) == ((BASE + offsets[slot], slot) if slot >= 0 else (BASE, 0))

    def test_ix10_the_warm_section_is_in_the_last_three_pages(self) -> None:
        entries = 14 * PAGE_BYTES // 8
        index = new_index(slots=entries)
        index.append_all(range(BASE, BASE + entries), range(entries))
        searched_often(index, BASE + 5)
        assert not index._warm.offsets
        searched_often(index, BASE + entries - 1)
        assert (index._warm.first, len(index._warm.offsets)) == (entries - 1025, 1025)
        assert index._warm.first * 8 // PAGE_BYTES == 11

    def test_ix14_entries_that_do_not_rise_are_searched_as_ever(self) -> None:
        """The order of the comparisons decides which entry is found, so it must stay the same as in Kafka."""
        relative = [5, 9, 3, 7, 20, 11, 12, 30]
        data = b"".join(struct.pack(">ii", offset, slot) for slot, offset in enumerate(relative))
        _, fs = simulated()
        file = fs.open("45.index", OpenMode.CREATE)
        file.write_at(0, data)
        file.close()
        index = OffsetIndex(fs, "45.index", BASE)
        before = [index.lookup(BASE + target) for target in range(35)]
        searched_often(index, BASE + 31)
        assert [index.lookup(BASE + target) for target in range(35)] == before
