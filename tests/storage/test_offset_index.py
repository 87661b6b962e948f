"""The offset index and what it shares with the time index, by rule number (IX)."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.crash import Life
from sim.disk import SimDisk
from storage.draws import Draws
from storage.errors import CorruptIndex, InvalidOffset, SegmentOffsetOverflow
from storage.filesystem import FileSystem, OpenMode, read_file
from storage.lazy_index import lazy_offset_index, lazy_time_index
from storage.offset_index import OffsetIndex, OffsetPosition
from storage.os_filesystem import OsFileSystem
from tests.storage.file_system_fixture import both_file_systems

__all__ = ["both_file_systems"]

BASE = 45


def simulated() -> tuple[SimDisk, FileSystem]:
    disk = SimDisk(Draws(1), lambda: 1000)
    return disk, disk.file_system(Life())


def new_index(fs: FileSystem | None = None, slots: int = 30, path: str = "45.index") -> OffsetIndex:
    return OffsetIndex(fs or simulated()[1], path, BASE, max_index_size=slots * 8)


def fill(index: OffsetIndex, entries: list[tuple[int, int]]) -> None:
    for offset, position in entries:
        index.append(offset, position)


def all_entries(index: OffsetIndex) -> list[tuple[int, int]]:
    return [(entry.offset, entry.position) for entry in map(index.entry, range(index.entries))]


class TestFile:
    def test_ix1_a_new_file_has_whole_entries_of_zeros(
        self, both_file_systems: tuple[FileSystem, str]
    ) -> None:
        fs, directory = both_file_systems
        index = OffsetIndex(fs, f"{directory}/0.index", 0, max_index_size=8 * 5 + 7)
        assert read_file(fs, index.path) == bytes(40)
        assert (index.entries, index.max_entries, index.length_bytes, index.size_bytes) == (0, 5, 40, 0)
        index.close()

    def test_ix1_a_maximum_below_one_entry_is_refused(self) -> None:
        _, fs = simulated()
        with pytest.raises(ValueError):
            OffsetIndex(fs, "0.index", 0, max_index_size=7)
        assert fs.list("") == []

    def test_ix1_ten_mebibytes_hold_1310720_entries(self) -> None:
        _, fs = simulated()
        index = OffsetIndex(fs, "0.index", 0, max_index_size=10 << 20)
        assert (index.max_entries, index.length_bytes) == (1_310_720, 10_485_760)

    def test_layout_is_relative_offset_and_position_big_endian(self) -> None:
        _, fs = simulated()
        index = new_index(fs, slots=3)
        fill(index, [(46, 7), (BASE + 2**31 - 1, 2**31 - 1)])
        assert read_file(fs, index.path)[:16] == struct.pack(">iiii", 1, 7, 2**31 - 1, 2**31 - 1)

    def test_ix2_an_existing_file_is_full_and_zeros_count(
        self, both_file_systems: tuple[FileSystem, str]
    ) -> None:
        fs, directory = both_file_systems
        index = OffsetIndex(fs, f"{directory}/45.index", BASE, max_index_size=240)
        fill(index, [(51, 0), (52, 1)])
        index.close_handler()  # as a crash leaves it: untrimmed
        again = OffsetIndex(fs, f"{directory}/45.index", BASE)
        assert (again.entries, again.is_full, again.last_offset) == (30, True, BASE)
        again.sanity_check()  # IX17: a zero tail passes
        again.close_handler()

    def test_ix2_reopened_after_close(self, both_file_systems: tuple[FileSystem, str]) -> None:
        fs, directory = both_file_systems
        index = OffsetIndex(fs, f"{directory}/45.index", BASE, max_index_size=240)
        fill(index, [(51, 0), (52, 1)])
        index.close()
        assert fs.stat(f"{directory}/45.index").size_bytes == 16
        again = OffsetIndex(fs, f"{directory}/45.index", BASE)
        assert (again.entries, again.last_offset, again.lookup(51)) == (2, 52, (51, 0))
        with pytest.raises(ValueError, match="full"):
            again.append(53, 2)
        assert again.resize(240)
        again.append(53, 2)
        assert all_entries(again) == [(51, 0), (52, 1), (53, 2)]
        again.close()

    def test_an_empty_file_is_an_index_without_entries(
        self, both_file_systems: tuple[FileSystem, str]
    ) -> None:
        fs, directory = both_file_systems
        path = f"{directory}/45.index"
        fs.open(path, OpenMode.CREATE).close()
        index = OffsetIndex(fs, path, BASE, max_index_size=80)
        index.sanity_check()
        assert (index.entries, index.max_entries, index.is_full, index.lookup(99)) == (0, 0, True, (BASE, 0))
        assert index.resize(80)
        index.append(46, 1)
        assert index.lookup(99) == (46, 1)
        index.truncate()
        index.close()
        assert fs.stat(path).size_bytes == 0

    def test_read_only_changes_nothing(self) -> None:
        disk, fs = simulated()
        index = new_index(fs)
        fill(index, [(51, 0)])
        index.close_handler()
        before = disk.operations
        reader = OffsetIndex(fs, "45.index", BASE, read_only=True)
        assert reader.entry(0) == (51, 0)
        reader.close()
        assert disk.operations == before
        with pytest.raises(FileNotFoundError):
            OffsetIndex(fs, "none.index", BASE, read_only=True)

    def test_ix4_resize_says_whether_it_changed_and_keeps_entries(
        self, both_file_systems: tuple[FileSystem, str]
    ) -> None:
        fs, directory = both_file_systems
        index = OffsetIndex(fs, f"{directory}/45.index", BASE, max_index_size=240)
        fill(index, [(46, 1), (47, 2)])
        assert not index.resize(247)  # rounds down to what it is
        assert index.resize(120) and index.max_entries == 15
        assert index.resize(480) and index.max_entries == 60
        assert all_entries(index) == [(46, 1), (47, 2)]
        index.close()

    def test_ix4_entries_that_would_not_fit_are_kept(self) -> None:
        _, fs = simulated()
        index = new_index(fs)
        fill(index, [(46, 1), (47, 2)])
        with pytest.raises(ValueError):
            index.resize(15)
        assert index.length_bytes == fs.stat("45.index").size_bytes == 240
        assert all_entries(index) == [(46, 1), (47, 2)]

    def test_ix4_after_a_resize_that_failed_the_index_still_reads(self) -> None:
        disk, fs = simulated()
        index = new_index(fs)
        fill(index, [(46, 1)])
        disk.fail(1)
        with pytest.raises(OSError):
            index.resize(80)
        assert index.lookup(99) == (46, 1)
        assert index.resize(80)

    def test_ix5_trim_and_reset(self) -> None:
        _, fs = simulated()
        index = new_index(fs)
        fill(index, [(46, 1), (47, 2)])
        assert index.trim_to_valid_size()
        assert not index.trim_to_valid_size()
        assert index.length_bytes == 16
        index.reset()
        assert (index.entries, index.last_offset, index.length_bytes) == (0, BASE, 240)

    def test_ix6_close_trims_and_may_be_repeated(self) -> None:
        _, fs = simulated()
        index = new_index(fs)
        fill(index, [(46, 1)])
        index.close()
        index.close()
        assert fs.stat("45.index").size_bytes == 8

    def test_ix6_delete_if_exists(self, both_file_systems: tuple[FileSystem, str]) -> None:
        fs, directory = both_file_systems
        index = OffsetIndex(fs, f"{directory}/45.index", BASE, max_index_size=240)
        assert index.delete_if_exists()
        assert not index.delete_if_exists()
        assert fs.list(directory) == []

    def test_ix7_flush_makes_the_entries_durable(self) -> None:
        disk, fs = simulated()
        index = new_index(fs)
        fill(index, [(46, 1)])
        index.flush()
        fill(index, [(47, 2)])
        fs.sync_directory("")
        assert disk.durable_bytes("45.index") == struct.pack(">ii", 1, 1) + bytes(232)

    def test_ix7_rename_and_update_of_the_parent(self) -> None:
        _, fs = simulated()
        fs.make_directory("a")
        index = new_index(fs, path="a/45.index")
        index.rename_to("a/45.index.deleted")
        assert fs.list("a") == ["45.index.deleted"]
        fs.rename("a", "b")
        index.update_parent_directory("b")
        assert index.path == "b/45.index.deleted"
        assert index.delete_if_exists()

    def test_ix8_offsets_that_can_be_appended(self) -> None:
        index = new_index()
        assert index.can_append_offset(BASE) and index.can_append_offset(BASE + 2**31 - 1)
        assert not index.can_append_offset(BASE - 1) and not index.can_append_offset(BASE + 2**31)

    def test_ix9_truncated_bytes_stay_until_overwritten(self) -> None:
        _, fs = simulated()
        index = new_index(fs)
        fill(index, [(46, 1), (47, 2)])
        before = read_file(fs, "45.index")
        index.truncate()
        assert read_file(fs, "45.index") == before
        assert (index.entries, index.last_offset) == (0, BASE)
        index.append(50, 9)
        assert all_entries(index) == [(50, 9)]

    def test_ix12_any_access_after_unmapping_is_an_error(self) -> None:
        index = new_index()
        fill(index, [(46, 1)])
        index.close_handler()
        calls: list[Callable[[], object]] = [lambda: index.lookup(46), lambda: index.entry(0)]
        for call in calls:
            with pytest.raises(ValueError, match="closed"):
                call()


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


class TestLazyIndex:
    def test_ix25_nothing_is_made_before_the_first_get(self) -> None:
        disk, fs = simulated()
        lazy = lazy_offset_index(fs, "45.index", BASE, max_index_size=80)
        lazy.rename_to("46.index")  # a missing file is accepted
        assert not lazy.delete_if_exists()
        lazy.close()
        lazy.close_handler()
        assert (disk.operations, lazy.is_open) == (0, False)
        lazy.get().append(BASE, 1)
        assert lazy.is_open and lazy.get().entries == 1
        assert fs.list("") == ["46.index"]

    def test_ix25_before_the_first_get_the_file_is_acted_on(self) -> None:
        _, fs = simulated()
        fs.make_directory("a")
        new_index(fs, path="a/45.index").close()
        lazy = lazy_offset_index(fs, "a/45.index", BASE)
        lazy.rename_to("a/45.index.deleted")
        fs.rename("a", "b")
        lazy.update_parent_directory("b")
        assert lazy.path == "b/45.index.deleted"
        assert lazy.delete_if_exists()
        assert fs.list("b") == []

    def test_ix25_after_it_the_index_acts(self) -> None:
        _, fs = simulated()
        fs.make_directory("a")
        lazy = lazy_time_index(fs, "a/45.timeindex", BASE, max_index_size=120)
        lazy.get().maybe_append(1, 46)
        lazy.rename_to("a/45.timeindex.deleted")
        fs.rename("a", "b")
        lazy.update_parent_directory("b")
        assert lazy.path == lazy.get().path == "b/45.timeindex.deleted"
        lazy.close()
        assert fs.stat(lazy.path).size_bytes == 12
        assert lazy.delete_if_exists()


def test_reads_and_writes_go_through_the_real_map_too(tmp_path: object) -> None:
    index = OffsetIndex(OsFileSystem(), f"{tmp_path}/45.index", BASE, max_index_size=10 << 20)
    index.append_all(range(BASE, BASE + 5000), range(0, 50_000, 10))
    assert index.lookup(BASE + 17) == (BASE + 17, 170)
    index.truncate_to(BASE + 4000)
    index.append(BASE + 9000, 1)
    assert index.lookup(BASE + 8999) == (BASE + 3999, 39_990)
    assert index.lookup(BASE + 9000) == (BASE + 9000, 1)
    index.close()
