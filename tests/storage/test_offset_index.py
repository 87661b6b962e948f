"""The offset index by rule number (IX10 to IX19); its file is tested in test_memory_mapped_index."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import CorruptIndex, InvalidOffset, SegmentOffsetOverflow
from storage.filesystem import OpenMode, read_file
from storage.offset_index import OffsetIndex, OffsetPosition
from storage.os_filesystem import OsFileSystem
from tests.storage.index_helpers import BASE, all_entries, fill, new_index, simulated


class TestEntries:
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

    def test_ix14_lookup_at_the_extremes(self) -> None:
        index = new_index()
        assert index.lookup(BASE) == index.lookup(92) == (BASE, 0)
        fill(index, [(BASE + i + 1, i) for i in range(30)])
        assert index.lookup(BASE) == (BASE, 0)
        assert index.lookup(BASE + 30) == index.lookup(2**62) == (BASE + 30, 29)

    def test_ix16_truncate_drops_all_at_or_above(self) -> None:
        index = new_index(slots=10)
        fill(index, [(BASE + i, i) for i in range(1, 10)])
        index.truncate_to(BASE + 12)
        assert (index.entries, index.last_offset) == (9, BASE + 9)  # beyond the end: every entry stays
        index.append(BASE + 10, 10)
        index.truncate_to(BASE + 10)
        assert index.last_offset == BASE + 9
        index.truncate_to(BASE + 9)
        assert index.last_offset == BASE + 8
        index.append(BASE + 20, 20)
        index.truncate_to(BASE + 15)
        assert index.last_offset == BASE + 8  # between entries
        index.truncate_to(BASE + 5)
        assert index.last_offset == BASE + 4
        index.truncate_to(BASE)
        assert (index.entries, index.last_offset) == (0, BASE)

    def test_ix17_sanity(self) -> None:
        _, fs = simulated()
        fs.open("0.index", OpenMode.CREATE).append(struct.pack(">ii", 0, 0))
        OffsetIndex(fs, "0.index", 20).sanity_check()  # last offset equal to the base offset
        fs.open("0.index", OpenMode.CREATE).append(struct.pack(">ii", -1, 0))
        with pytest.raises(CorruptIndex, match="below the base offset"):
            OffsetIndex(fs, "0.index", 20).sanity_check()
        fs.open("1.index", OpenMode.CREATE).set_length(23)
        with pytest.raises(CorruptIndex, match="23 bytes"):
            OffsetIndex(fs, "1.index", 0).sanity_check()

    def test_ix18_entry(self) -> None:
        index = new_index()
        with pytest.raises(ValueError):
            index.entry(0)
        fill(index, [(46, 10), (47, 23)])
        assert (index.entry(0), index.entry(1)) == ((46, 10), (47, 23))
        for slot in (-1, 2):
            with pytest.raises(ValueError):
                index.entry(slot)

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
    def test_ix10_lookups_with_and_without_a_warm_part(
        self, offsets: list[int], repeat: int, targets: list[int]
    ) -> None:
        # Up to 2,460 entries, so that many lookups leave the 1,024 warm ones.
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
    def test_ix16_truncation_keeps_what_is_below(self, offsets: list[int], target: int) -> None:
        index = new_index(slots=max(1, len(offsets)))
        index.append_all([BASE + offset for offset in offsets], offsets)
        index.truncate_to(BASE + target)
        kept = [(BASE + offset, offset) for offset in offsets if offset < target]
        assert all_entries(index) == kept
        assert index.last_offset == (kept[-1][0] if kept else BASE)

    def test_ix10_a_warm_lookup_touches_only_the_last_pages(self) -> None:
        entries = 20_000
        index = new_index(slots=entries)
        index.append_all(range(BASE, BASE + entries), range(entries))
        touched: list[int] = []
        unpack = struct.Struct(">i").unpack_from

        def noting(view: bytes | bytearray | memoryview, position: int) -> tuple[int, ...]:
            touched.append(position)
            return unpack(view, position)

        for target in (entries - 1, entries - 500, entries - 1024):
            assert index._search(target, noting, 0) == (target, target)
        assert min(touched) >= entries * 8 - 8192 - 8
        assert len(touched) <= 3 * 12
        touched.clear()
        index._search(entries - 1026, noting, 0)
        assert min(touched) == 0  # outside the warm part: the first entry, then the rest by halves


def test_reads_and_writes_go_through_the_real_map_too(tmp_path: object) -> None:
    index = OffsetIndex(OsFileSystem(), f"{tmp_path}/45.index", BASE, max_index_size=10 << 20)
    index.append_all(range(BASE, BASE + 5000), range(0, 50_000, 10))
    assert index.lookup(BASE + 17) == (BASE + 17, 170)
    index.truncate_to(BASE + 4000)
    index.append(BASE + 9000, 1)
    assert index.lookup(BASE + 8999) == (BASE + 3999, 39_990)
    assert index.lookup(BASE + 9000) == (BASE + 9000, 1)
    index.close()
