"""The shared part of both indexes, shown on the offset index, and lazy opening: rules IX1 to IX12, IX25."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from storage.disk.filesystem import FileSystem, OpenMode, read_file
from storage.errors import CorruptIndex, SegmentOffsetOverflow
from storage.index.lazy import lazy_offset_index, lazy_time_index
from storage.index.memory_mapped import Unpack
from storage.index.offset_index import OffsetIndex
from tests.storage.index.indexes import BASE, all_entries, fill, new_index, simulated


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
        # A crash leaves the file untrimmed.
        index.close_handler()
        again = OffsetIndex(fs, f"{directory}/45.index", BASE)
        assert (again.entries, again.is_full, again.last_offset) == (30, True, BASE)
        # A tail of zeros passes (IX17).
        again.sanity_check()
        again.close_handler()

    @pytest.mark.covers("OffsetIndexTest.testReopen")
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

    def test_ix12_a_read_only_index_keeps_its_copy_while_another_process_trims_the_file(self) -> None:
        _, fs = simulated()
        writer = new_index(fs)
        fill(writer, [(46, 1), (51, 2)])
        reader = OffsetIndex(fs, "45.index", BASE, read_only=True)
        reader.rest()
        writer.truncate()
        writer.trim_to_valid_size()
        assert (reader.entry(1), reader.entries) == ((51, 2), 30)

    @pytest.mark.parametrize(
        "end", [OffsetIndex.close, OffsetIndex.close_handler, OffsetIndex.delete_if_exists]
    )
    def test_ix6_an_index_that_has_ended_is_no_longer_among_the_open_files(
        self, end: Callable[[OffsetIndex], object]
    ) -> None:
        _, fs = simulated()
        index = new_index(fs)
        fill(index, [(46, 1)])
        assert index.lookup(46) == (46, 1)
        assert index in fs.handles
        end(index)
        assert index not in fs.handles and len(fs.handles) == 0

    @pytest.mark.parametrize(("length", "is_taken"), [(2**31 - 8, True), (2**31, False)])
    def test_ix2_an_existing_file_above_31_bits_is_refused(self, length: int, is_taken: bool) -> None:
        _, fs = simulated()
        fs.open("45.index", OpenMode.CREATE).set_length(length)
        if is_taken:
            assert OffsetIndex(fs, "45.index", BASE).entries == length // 8
        else:
            with pytest.raises(CorruptIndex, match="more than an index may have"):
                OffsetIndex(fs, "45.index", BASE)

    def test_ix4_a_resize_that_fails_leaves_an_index_that_is_written_and_read_as_before(self) -> None:
        disk, fs = simulated()
        index = new_index(fs)
        fill(index, [(46, 1)])
        for size_bytes in (80, 800):
            assert index.lookup(99).offset == index.last_offset
            disk.fail(1, path_suffix="45.index")
            with pytest.raises(OSError):
                index.resize(size_bytes)
            assert (index.length_bytes, index.max_entries) == (240, 30)
            index.append(index.last_offset + 1, 2)
            assert index.lookup(99) == (index.last_offset, 2)

    def test_ix4_resize_says_whether_it_changed_and_keeps_entries(
        self, both_file_systems: tuple[FileSystem, str]
    ) -> None:
        fs, directory = both_file_systems
        index = OffsetIndex(fs, f"{directory}/45.index", BASE, max_index_size=240)
        fill(index, [(46, 1), (47, 2)])
        # The size is rounded down to what it is already.
        assert not index.resize(247)
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

    @pytest.mark.covers("OffsetIndexTest.forceUnmapTest")
    def test_ix12_any_access_after_unmapping_is_an_error(self) -> None:
        index = new_index()
        fill(index, [(46, 1)])
        index.close_handler()
        calls: list[Callable[[], object]] = [lambda: index.lookup(46), lambda: index.entry(0)]
        for call in calls:
            with pytest.raises(ValueError, match="closed"):
                call()

    def test_ix3_fullness_depends_on_the_present_length_of_the_file(self) -> None:
        index = new_index(slots=2)
        fill(index, [(46, 1), (47, 2)])
        assert index.is_full
        index.resize(80)
        assert not index.is_full and index.max_entries == 10

    def test_ix4_an_equal_length_touches_nothing(self) -> None:
        disk, fs = simulated()
        index = new_index(fs)
        before = disk.operations
        assert not index.resize(30 * 8) and not index.resize(30 * 8 + 7)
        assert disk.operations == before

    def test_ix5_a_reset_index_has_the_size_of_a_new_one(self) -> None:
        _, fs = simulated()
        index = new_index(fs, slots=5)
        fill(index, [(46, 1)])
        index.trim_to_valid_size()
        index.reset()
        assert (index.entries, fs.stat("45.index").size_bytes) == (0, 40)

    def test_ix6_the_handler_alone_leaves_the_tail(self) -> None:
        _, fs = simulated()
        index = new_index(fs, slots=5)
        fill(index, [(46, 1)])
        index.close_handler()
        assert fs.stat("45.index").size_bytes == 40

    def test_ix7_a_rename_syncs_no_directory(self) -> None:
        disk, fs = simulated()
        index = new_index(fs)
        disk.call_log = []
        index.rename_to("46.index")
        index.flush()
        assert disk.call_log == ["rename 45.index 46.index", "sync 45.index"]

    def test_ix8_an_offset_that_does_not_fit_31_bits_is_refused(self) -> None:
        index = new_index()
        assert index.relative_offset(BASE) == 0 and index.relative_offset(BASE + 2**31 - 1) == 2**31 - 1
        for offset in (BASE - 1, BASE + 2**31):
            with pytest.raises(SegmentOffsetOverflow):
                index.relative_offset(offset)

    def test_ix9_truncation_lowers_the_count_only(self) -> None:
        disk, fs = simulated()
        index = new_index(fs)
        fill(index, [(46, 1), (47, 2), (48, 3)])
        before = disk.operations
        index.truncate_to(47)
        assert (index.entries, disk.operations, index.length_bytes) == (1, before, 240)

    def test_ix12_a_lookup_that_a_change_of_the_map_overtakes_starts_again(self) -> None:
        """Another thread resizes, truncates and writes the index between two steps of one look-up."""
        index = new_index(slots=40)
        fill(index, [(BASE + i, i) for i in range(1, 20)])
        search, rounds = index._search, []

        def overtaken(target: int, unpack: Unpack, column: int) -> tuple[int, int]:
            found = search(target, unpack, column)
            rounds.append(found)
            if len(rounds) == 1:
                index.resize(800)
                index.truncate_to(BASE + 10)
                index.append(BASE + 15, 77)
                rounds.append(found)
            return found

        index._search = overtaken  # type: ignore[method-assign]
        assert index.lookup(BASE + 18) == (BASE + 15, 77)
        assert len(rounds) > 2

    def test_ix12_a_lookup_that_a_truncation_overtakes_starts_again(self) -> None:
        """A look-up counts on slots that are written again meanwhile: it could see half an entry there."""
        index = new_index(slots=40)
        fill(index, [(BASE + i, i) for i in range(1, 20)])
        search, rounds = index._search, []

        def overtaken(target: int, unpack: Unpack, column: int) -> tuple[int, int]:
            rounds.append(target)
            if len(rounds) == 1:
                found = search(target, unpack, column)
                index.truncate_to(BASE + 10)
                index.append(BASE + 30, 77)
                return found
            return search(target, unpack, column)

        index._search = overtaken  # type: ignore[method-assign]
        assert index.lookup(BASE + 10) == (BASE + 9, 9)
        assert len(rounds) > 1

    def test_ix12_while_the_file_has_no_map_its_entries_are_readable(self) -> None:
        disk, fs = simulated()
        index = new_index(fs)
        fill(index, [(46, 1), (47, 2)])
        seen: list[tuple[int, int]] = []
        disk.observer = lambda verb, path: seen.append(index.lookup(47))
        index.resize(800)
        index.trim_to_valid_size()
        assert seen == [(47, 2), (47, 2)]


class TestLazyIndex:
    def test_ix25_nothing_is_made_before_the_first_get(self) -> None:
        disk, fs = simulated()
        lazy = lazy_offset_index(fs, "45.index", BASE, max_index_size=80)
        # A missing file is accepted.
        lazy.rename_to("46.index")
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

    def test_ix25_after_the_first_use_the_index_acts(self) -> None:
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
