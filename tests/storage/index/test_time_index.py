"""The time index by rule number (IX). What it shares with the offset index is tested there."""

from __future__ import annotations

import struct
from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.disk.filesystem import FileSystem, OpenMode, read_file
from storage.draws import Draws
from storage.errors import CorruptIndex, InvalidOffset, SegmentOffsetOverflow
from storage.index.memory_mapped import WARM_BYTES
from storage.index.time_index import TimeIndex

BASE = 45


def new_file_system() -> FileSystem:
    return SimDisk(Draws(1), lambda: 1000).file_system(Life())


def new_index(fs: FileSystem | None = None, slots: int = 30, path: str = "45.timeindex") -> TimeIndex:
    return TimeIndex(fs or new_file_system(), path, BASE, max_index_size=slots * 12)


def filled(entries: int = 29) -> TimeIndex:
    index = new_index()
    for i in range(entries):
        assert index.maybe_append(10 * i, BASE + 10 * i)
    return index


def all_entries(index: TimeIndex) -> list[tuple[int, int]]:
    return [(entry.timestamp, entry.offset) for entry in map(index.entry, range(index.entries))]


def test_ix1_ten_mebibytes_hold_873813_entries() -> None:
    index = TimeIndex(new_file_system(), "0.timeindex", 0, max_index_size=10 << 20)
    assert (index.max_entries, index.length_bytes) == (873_813, 10_485_756)


@pytest.mark.covers("TimeIndexTest.testEntrySize", "TimeIndexTest.testParseEntry")
def test_layout_is_timestamp_and_relative_offset_big_endian() -> None:
    fs = new_file_system()
    index = new_index(fs, slots=2)
    index.maybe_append(2**40, BASE + 7)
    assert read_file(fs, "45.timeindex") == struct.pack(">qi", 2**40, 7) + bytes(12)


@pytest.mark.covers("TimeIndexTest.testAppend", "TimeIndexTest.testIsFull")
def test_ix3_one_slot_is_kept_for_the_roll() -> None:
    index = filled(29)
    assert index.is_full and index.max_entries == 30
    with pytest.raises(ValueError, match="full"):
        index.maybe_append(10_000, 1000)
    with pytest.raises(InvalidOffset):
        index.maybe_append(10_000, 280, skip_full_check=True)
    assert index.maybe_append(10_000, 1000, skip_full_check=True)
    assert index.entries == 30


def test_ix4_resize_reads_the_last_entry_again() -> None:
    index = filled(5)
    assert not index.resize(30 * 12)
    assert index.resize(15 * 12) and index.resize(60 * 12)
    assert index.last_entry == (40, BASE + 40)
    assert index.trim_to_valid_size() and index.length_bytes == 60


@pytest.mark.covers("TimeIndexTest.testResize")
def test_ix4_whether_the_length_changed() -> None:
    index = new_index(slots=30)
    assert not index.resize(30 * 12)
    assert index.resize(15 * 12) and index.max_entries == 15
    assert index.resize(60 * 12) and index.max_entries == 60


@pytest.mark.covers("TimeIndexTest.testTruncate")
def test_ix23_emptied_filled_again_and_cut_at_its_second_entry() -> None:
    index = filled(29)
    index.truncate()
    assert index.entries == 0
    for i in range(29):
        index.maybe_append(10 * i + 10, BASE + 10 + 10 * i)
    index.truncate_to(BASE + 10)
    assert index.entries == 0


def test_ix10_682_entries_are_warm_and_in_the_last_three_pages() -> None:
    entries = 14 * 4096 // 12
    index = new_index(slots=entries + 1)
    index.append_all(range(entries), range(BASE, BASE + entries))
    unpack = struct.Struct(">q").unpack_from
    touched: list[int] = []

    def noting(view: bytes | bytearray | memoryview, position: int) -> tuple[int, ...]:
        touched.append(position)
        return unpack(view, position)

    for target in range(entries - 682, entries):
        index._search(target, noting, 0)
    assert min(touched) == (entries - 1 - 682) * 12
    assert WARM_BYTES // 12 == 682
    assert min(touched) // 4096 >= (entries * 12 - 1) // 4096 - 2
    index._search(entries - 1 - 682, noting, 0)
    assert min(touched) == 0


def test_ix20_only_greater_timestamps_are_kept() -> None:
    index = new_index()
    # The last timestamp of an empty index is -1.
    assert not index.maybe_append(-1, BASE)
    assert index.maybe_append(0, BASE)
    assert not index.maybe_append(0, BASE)
    assert not index.maybe_append(0, BASE + 9)
    assert index.maybe_append(1, BASE + 9)
    # The offset may stay the same.
    assert index.maybe_append(2, BASE + 9)
    assert all_entries(index) == [(0, BASE), (1, BASE + 9), (2, BASE + 9)]


def test_ix20_a_decreasing_entry_is_refused_and_writes_nothing() -> None:
    fs = new_file_system()
    index = new_index(fs)
    index.maybe_append(10, BASE + 10)
    before = read_file(fs, "45.timeindex")
    with pytest.raises(InvalidOffset):
        index.maybe_append(11, BASE + 9)
    with pytest.raises(ValueError, match="below the last timestamp"):
        index.maybe_append(9, BASE + 11)
    with pytest.raises(SegmentOffsetOverflow):
        index.maybe_append(11, BASE + 2**31)
    assert read_file(fs, "45.timeindex") == before
    assert index.last_entry == (10, BASE + 10)


@pytest.mark.covers("TimeIndexTest.testLookUp")
def test_ix21_lookup() -> None:
    index = new_index()
    assert index.lookup(100) == (-1, BASE)
    index = filled()
    assert index.lookup(-1) == (-1, BASE)
    assert index.lookup(9) == (0, BASE)
    assert index.lookup(25) == (20, BASE + 20)
    assert index.lookup(30) == (30, BASE + 30)
    assert index.lookup(2**62) == (280, BASE + 280)


@pytest.mark.covers("TimeIndexTest.testLastEntry")
def test_ix22_last_entry_and_reopening() -> None:
    fs = new_file_system()
    index = new_index(fs)
    assert index.last_entry == (-1, BASE)
    index.maybe_append(1, 46)
    assert index.last_entry == (1, 46)
    index.close()
    again = TimeIndex(fs, "45.timeindex", BASE)
    assert (again.entries, again.last_entry, again.is_full) == (1, (1, 46), True)


def test_ix22_an_untrimmed_file_reads_its_zeros_as_entries() -> None:
    fs = new_file_system()
    index = new_index(fs)
    index.maybe_append(1, 46)
    index.close_handler()
    again = TimeIndex(fs, "45.timeindex", BASE)
    assert (again.entries, again.last_entry) == (30, (0, BASE))
    # The first timestamp is above the last.
    with pytest.raises(CorruptIndex):
        again.sanity_check()


def test_ix23_truncate_drops_all_at_or_above_the_offset() -> None:
    index = filled(10)
    index.truncate_to(BASE + 95)
    # The offset is beyond the end: every entry stays.
    assert index.entries == 10
    index.truncate_to(BASE + 90)
    assert index.last_entry == (80, BASE + 80)
    index.truncate_to(BASE + 75)
    assert index.last_entry == (70, BASE + 70)
    index.truncate_to(BASE)
    assert (index.entries, index.last_entry) == (0, (-1, BASE))


def test_ix23_entries_of_one_offset_go_together() -> None:
    index = new_index()
    for timestamp, offset in ((1, 46), (2, 50), (3, 50), (4, 50), (5, 51)):
        index.maybe_append(timestamp, offset)
    index.truncate_to(50)
    assert all_entries(index) == [(1, 46)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (struct.pack(">qiqi", 10, 1, 9, 2), "before the first"),
        (struct.pack(">qiqi", 10, 1, 11, -1), "below the base offset"),
        (struct.pack(">qi", 10, 1) + b"\0", "13 bytes"),
    ],
)
def test_ix24_sanity(content: bytes, reason: str) -> None:
    fs = new_file_system()
    fs.open("0.timeindex", OpenMode.CREATE).append(content)
    with pytest.raises(CorruptIndex, match=reason):
        TimeIndex(fs, "0.timeindex", BASE).sanity_check()


@pytest.mark.covers("TimeIndexTest.testSanityCheck")
def test_ix24_sound_indexes_pass() -> None:
    for entries in (0, 5):
        index = filled(entries)
        index.sanity_check()
        assert index.entries == entries


@pytest.mark.covers("TimeIndexTest.testEntry", "TimeIndexTest.testEntryOverflow")
def test_entry_and_its_bounds() -> None:
    index = new_index()
    with pytest.raises(ValueError):
        index.entry(0)
    index = filled(4)
    assert all_entries(index) == [(0, 45), (10, 55), (20, 65), (30, 75)]
    with pytest.raises(ValueError):
        index.entry(4)


def test_append_all_is_many_appends_by_one_write() -> None:
    fs = new_file_system()
    index, one_by_one = new_index(fs), new_index(fs, path="other")
    for i in range(30):
        one_by_one.maybe_append(i, BASE + i, skip_full_check=True)
    index.append_all([], [])
    index.append_all(range(3), range(BASE, BASE + 3))
    index.append_all(range(3, 30), range(BASE + 3, BASE + 30))
    assert read_file(fs, "45.timeindex") == read_file(fs, "other")
    assert index.last_entry == one_by_one.last_entry == (29, BASE + 29)


def test_append_all_adds_all_or_none() -> None:
    index = new_index(slots=4)
    index.maybe_append(10, BASE + 10)
    with pytest.raises(ValueError, match="no room"):
        index.append_all([11, 12, 13, 14], [60, 61, 62, 63])
    with pytest.raises(ValueError, match="strictly"):
        index.append_all([10, 11], [60, 61])
    with pytest.raises(ValueError, match="strictly"):
        index.append_all([11, 11], [60, 61])
    with pytest.raises(InvalidOffset):
        index.append_all([11, 12], [BASE + 9, 61])
    with pytest.raises(InvalidOffset):
        index.append_all([11, 12], [61, 60])
    with pytest.raises(SegmentOffsetOverflow):
        index.append_all([11, 12], [61, BASE + 2**31])
    assert all_entries(index) == [(10, BASE + 10)]


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 3000), unique=True, max_size=50).map(sorted),
    st.integers(0, 30),
    st.lists(st.integers(-2, 3100), min_size=1, max_size=30),
)
def test_ix10_lookups_against_a_plain_list(timestamps: list[int], repeat: int, targets: list[int]) -> None:
    # Up to 1,550 entries, so that many look-ups leave the 682 warm ones.
    times = [
        round_number * 3001 + timestamp for round_number in range(repeat + 1) for timestamp in timestamps
    ]
    index = new_index(slots=max(1, len(times)))
    index.append_all(times, range(BASE, BASE + len(times)))
    for target in [round_number * 3001 + target for target in targets for round_number in (0, repeat)]:
        slot = bisect_right(times, target) - 1
        assert index.lookup(target) == ((times[slot], BASE + slot) if slot >= 0 else (-1, BASE))
