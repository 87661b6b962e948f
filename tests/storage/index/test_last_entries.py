"""The last entry on either side of what the rules of the indexes allow (IX1 to IX31)."""

from __future__ import annotations

import struct

import pytest

from storage.disk.filesystem import OpenMode
from storage.errors import CorruptIndex, SegmentOffsetOverflow
from storage.index.lazy import lazy_offset_index
from storage.index.memory_mapped import WARM_BYTES, Unpack
from storage.index.offset_index import OffsetIndex, OffsetPosition
from storage.index.time_index import TimeIndex
from storage.index.transaction_index import AbortedTransaction, TransactionIndex
from tests.storage.index.indexes import BASE, all_entries, fill, new_index, simulated

A = AbortedTransaction(0, 0, 10, 11)
B = AbortedTransaction(1, 5, 15, 13)


def new_time_index(slots: int = 3) -> TimeIndex:
    return TimeIndex(simulated()[1], "45.timeindex", BASE, max_index_size=slots * 12)


def test_ix1_room_for_one_entry_is_enough() -> None:
    _, fs = simulated()
    index = OffsetIndex(fs, "45.index", BASE, max_index_size=8)
    assert (index.max_entries, index.is_full) == (1, False)


def test_ix2_an_existing_file_keeps_its_length_whatever_a_new_one_would_have() -> None:
    disk, fs = simulated()
    fs.open("45.index", OpenMode.CREATE).append(struct.pack(">iiii", 1, 1, 2, 2))
    disk.call_log = []
    index = OffsetIndex(fs, "45.index", BASE, max_index_size=240)
    assert (index.entries, index.max_entries, index.length_bytes, index.is_full) == (2, 2, 16, True)
    assert disk.call_log == []


def test_ix6_a_deleted_index_is_unmapped() -> None:
    index = new_index()
    fill(index, [(46, 1)])
    assert index.delete_if_exists()
    with pytest.raises(ValueError, match="closed"):
        index.lookup(46)


def test_ix10_a_search_before_the_warm_end_looks_at_no_entry_within_it() -> None:
    entries = 5 * WARM_BYTES // 8
    index = new_index(slots=entries)
    index.append_all(range(BASE, BASE + entries), range(entries))
    unpack, touched = struct.Struct(">i").unpack_from, list[int]()

    def noting(view: bytes | bytearray | memoryview, position: int) -> tuple[int, ...]:
        touched.append(position // 8)
        return unpack(view, position)

    first_warm = entries - 1 - WARM_BYTES // 8
    for target in (0, 1, first_warm // 2, first_warm - 1, first_warm):
        assert index._search(target, noting, 0) == (target, target)
    assert max(touched) == first_warm


def test_ix11_below_the_first_entry_it_is_the_first() -> None:
    index = new_index()
    fill(index, [(50, 100), (60, 200)])
    unpack = struct.Struct(">i").unpack_from
    assert index._search(3, unpack, 0) == (-1, 0)
    assert index._search(5, unpack, 0) == (0, 0)
    assert index._search(6, unpack, 0) == (0, 1)
    assert index._search(15, unpack, 0) == (1, 1)
    assert index._search(16, unpack, 0) == (1, -1)
    assert index.fetch_upper_bound_offset(OffsetPosition(BASE, 0), 60) == (50, 100)


def test_ix12_an_entry_that_a_truncation_overtakes_is_read_again() -> None:
    index = new_index()
    fill(index, [(BASE + i, i) for i in range(1, 10)])
    read, rounds = index._entry, list[int]()

    def overtaken(slot: int) -> OffsetPosition:
        found = read(slot)
        if not rounds:
            rounds.append(slot)
            index.truncate_to(BASE + 3)
            fill(index, [(BASE + 30, 77)])
        return found

    index._entry = overtaken  # type: ignore[method-assign]
    assert index.entry(2) == (BASE + 30, 77)


def test_ix12_a_lookup_that_loses_its_map_continues_in_the_copy() -> None:
    """Another thread is half way through a resize: the map is closed, and the file does not have its new length yet."""
    index = new_index()
    fill(index, [(46, 1), (47, 2)])
    search, rounds = index._search, list[int]()

    def overtaken(target: int, unpack: Unpack, column: int) -> tuple[int, int]:
        rounds.append(target)
        if len(rounds) == 1:
            index._show_copy()
            raise ValueError("operation forbidden on released memoryview object")
        return search(target, unpack, column)

    index._search = overtaken  # type: ignore[method-assign]
    assert index.lookup(47) == (47, 2)


def test_ix13_the_first_entry_of_many_may_be_of_the_base_offset() -> None:
    index = new_index()
    index.append_all([BASE, BASE + 1], [0, 10])
    assert all_entries(index) == [(BASE, 0), (BASE + 1, 10)]
    alone = new_index()
    alone.append(BASE, 0)
    assert all_entries(alone) == [(BASE, 0)]


def test_ix15_the_last_offset_follows_every_change() -> None:
    index = new_index()
    assert index.last_offset == BASE
    index.append(50, 1)
    assert index.last_offset == 50
    index.append_all([60, 70], [2, 3])
    assert index.last_offset == 70
    index.truncate_to(65)
    assert index.last_offset == 60
    index.truncate()
    assert index.last_offset == BASE


def test_ix20_an_append_to_a_full_index_is_refused_unless_it_may_use_the_last_slot() -> None:
    index = new_time_index(slots=3)
    assert index.maybe_append(1, BASE + 1) and index.maybe_append(2, BASE + 2)
    with pytest.raises(ValueError, match="full"):
        index.maybe_append(3, BASE + 3)
    with pytest.raises(ValueError, match="full"):
        # The call is refused, though it would add nothing.
        index.maybe_append(2, BASE + 2)
    assert index.maybe_append(3, BASE + 3, skip_full_check=True)
    assert (index.entries, index.last_entry) == (3, (3, BASE + 3))


def test_ix20_an_empty_index_has_no_last_offset_to_fall_below() -> None:
    index = new_time_index()
    with pytest.raises(SegmentOffsetOverflow):
        index.maybe_append(5, BASE - 1)
    assert not index.maybe_append(-1, BASE - 1)


def test_ix24_a_last_offset_equal_to_the_base_is_sound() -> None:
    index = new_time_index()
    index.maybe_append(7, BASE)
    index.sanity_check()
    _, fs = simulated()
    fs.open("45.timeindex", OpenMode.CREATE).append(struct.pack(">qi", 7, -1))
    with pytest.raises(CorruptIndex, match="below the base offset"):
        TimeIndex(fs, "45.timeindex", BASE).sanity_check()


def test_ix25_an_index_deleted_unopened_is_not_created_again() -> None:
    _, fs = simulated()
    lazy = lazy_offset_index(fs, "45.index", BASE, max_index_size=80)
    assert not lazy.delete_if_exists()
    with pytest.raises(FileNotFoundError):
        lazy.get()
    assert fs.list("") == []


def test_ix26_the_file_of_the_first_append_is_the_one_that_is_synced_and_closed() -> None:
    disk, fs = simulated()
    index = TransactionIndex(fs, "45.txnindex", 0)
    for count, entry in enumerate((A, B), start=1):
        index.append(entry)
        index.flush()
        fs.sync_directory("")
        assert len(disk.durable_bytes("45.txnindex")) == count * 34


def test_ix27_the_order_is_free_also_once_the_entries_on_disk_were_read() -> None:
    _, fs = simulated()
    written = TransactionIndex(fs, "45.txnindex", 0)
    written.append(A)
    written.append(B)
    written.close()
    index = TransactionIndex(fs, "45.txnindex", 0)
    index.sanity_check()
    assert list(index.entries()) == [A, B]
    index.append(A)
    assert list(index.entries()) == [A, B, A]


def test_ix30_only_the_first_byte_of_the_version_is_read() -> None:
    _, fs = simulated()
    fs.open("45.txnindex", OpenMode.CREATE).append(struct.pack(">hqqqq", 0x00FF, *A))
    index = TransactionIndex(fs, "45.txnindex", 0)
    index.sanity_check()
    assert list(index.entries()) == [A]


def test_ix31_a_flush_syncs_what_is_open_and_opens_nothing() -> None:
    disk, fs = simulated()
    index = TransactionIndex(fs, "45.txnindex", 0)
    index.append(A)
    disk.call_log = []
    index.flush()
    assert disk.call_log == ["sync 45.txnindex"]
    index.close()
    TransactionIndex(fs, "45.txnindex", 0).flush()
    assert disk.call_log == ["sync 45.txnindex"]
