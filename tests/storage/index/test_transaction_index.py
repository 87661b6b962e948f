"""The index of aborted transactions. Kafka: TransactionIndexTest; rules IX26 to IX31, T13."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sim.disk import SimFileSystem
from storage.disk.filesystem import OpenMode, read_file
from storage.disk.handle_pool import HandlePool
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import CorruptIndex
from storage.index.transaction_index import ENTRY, AbortedTransaction, TransactionIndex, unpack_entries
from tests.storage.logs import DIRECTORY, new_disk, new_file_system

PATH = f"{DIRECTORY}/00000000000000000000.txnindex"

A = AbortedTransaction(0, 0, 10, 11)
B = AbortedTransaction(1, 5, 15, 13)
C = AbortedTransaction(2, 18, 35, 25)
D = AbortedTransaction(3, 32, 50, 40)
FOUR = [A, B, C, D]


def new_index(
    file_system: SimFileSystem, entries: list[AbortedTransaction] | None = None
) -> TransactionIndex:
    index = TransactionIndex(file_system, PATH, 0)
    for each in FOUR if entries is None else entries:
        index.append(each)
    return index


def write(file_system: SimFileSystem, content: bytes) -> None:
    file = file_system.open(PATH, OpenMode.CREATE)
    file.append(content)
    file.close()


def names(file_system: SimFileSystem) -> list[str]:
    return [name for name in file_system.list(DIRECTORY) if "txnindex" in name]


@pytest.mark.covers("TransactionIndexTest.testAbortedTxnSerde")
def test_t13_an_entry_is_34_bytes_with_neither_header_nor_trailer() -> None:
    file_system = new_file_system()
    new_index(file_system, [AbortedTransaction(983493, 137, 299, 200)])
    content = read_file(file_system, PATH)
    assert content.hex() == "0000" + f"{983493:016x}{137:016x}{299:016x}{200:016x}"
    assert list(unpack_entries(content, PATH)) == [(0, (983493, 137, 299, 200))]


@pytest.mark.parametrize(
    ("version", "is_read"), [(0x0001, True), (0x00FF, True), (-1, True), (0x0100, False)]
)
def test_t13_of_the_version_only_the_first_byte_counts(version: int, is_read: bool) -> None:
    content = ENTRY.pack(version, *A)
    if is_read:
        assert list(unpack_entries(content, PATH)) == [(0, A)]
    else:
        with pytest.raises(CorruptIndex, match="at byte 0: an entry of version 1"):
            list(unpack_entries(content, PATH))


def test_ix26_the_file_is_made_by_the_first_append_and_no_sooner() -> None:
    file_system = new_file_system()
    index = TransactionIndex(file_system, PATH, 0)
    index.sanity_check()
    index.truncate_to(0)
    index.reset()
    assert index.collect(0, 100) == ([], False) and not index.exists and names(file_system) == []
    index.append(A)
    assert index.exists and list(index.entries()) == [A]


@pytest.mark.covers("TransactionIndexTest.testPositionSetCorrectlyWhenOpened")
def test_ix26_an_index_that_starts_again_has_no_file_and_takes_any_entry() -> None:
    file_system = new_file_system()
    index = new_index(file_system)
    index.restart_empty()
    assert names(file_system) == [] and list(index.entries()) == []
    index.append(A)
    assert list(index.entries()) == [A] and read_file(file_system, PATH) == ENTRY.pack(0, *A)


def test_ix26_an_existing_file_is_appended_to_at_its_end() -> None:
    file_system = new_file_system()
    new_index(file_system).close()
    index = TransactionIndex(file_system, PATH, 0)
    fifth = AbortedTransaction(3, 50, 60, 55)
    index.append(fifth)
    assert list(index.entries()) == [*FOUR, fifth]


@pytest.mark.parametrize("tail", [1, 33])
def test_ix26_a_torn_entry_at_the_end_is_passed_over_and_overwritten(tail: int) -> None:
    file_system = new_file_system()
    new_index(file_system, [A]).close()
    write(file_system, bytes(tail))
    index = TransactionIndex(file_system, PATH, 0)
    assert list(index.entries()) == [A]
    index.append(B)
    assert list(index.entries()) == [A, B]
    assert len(read_file(file_system, PATH)) == 2 * ENTRY.size


@pytest.mark.covers(
    "TransactionIndexTest.testLastOffsetMustIncrease", "TransactionIndexTest.testLastOffsetCannotDecrease"
)
@pytest.mark.parametrize("last_offset", [15, 10])
def test_ix27_the_last_offset_must_increase(last_offset: int) -> None:
    index = new_index(new_file_system(), [A, B])
    with pytest.raises(ValueError, match=f"ends at {last_offset} after one that ends at 15"):
        index.append(AbortedTransaction(0, 0, last_offset, 11))
    assert list(index.entries()) == [A, B]


def test_ix27_entries_found_on_disk_do_not_restrict_the_order() -> None:
    file_system = new_file_system()
    new_index(file_system, [A, B]).close()
    index = TransactionIndex(file_system, PATH, 0)
    index.append(A)
    assert list(index.entries()) == [A, B, A]


@pytest.mark.covers("TransactionIndexTest.testTruncate")
def test_ix28_truncation_cuts_from_the_first_entry_that_reaches_the_offset() -> None:
    file_system = new_file_system()
    index = new_index(file_system)
    index.truncate_to(51)
    assert list(index.entries()) == FOUR
    index.truncate_to(50)
    assert list(index.entries()) == [A, B, C]
    assert len(read_file(file_system, PATH)) == 3 * ENTRY.size
    index.truncate_to(16)
    assert list(index.entries()) == [A, B]


def test_ix28_the_entry_before_the_cut_binds_the_next_append() -> None:
    index = new_index(new_file_system())
    index.truncate_to(16)
    with pytest.raises(ValueError, match="after one that ends at 15"):
        index.append(B)
    index.truncate_to(0)
    index.append(A)
    assert list(index.entries()) == [A]


@pytest.mark.covers("TransactionIndexTest.testCollectAbortedTransactions")
@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound", "found", "is_complete"),
    [
        (0, 100, FOUR, False),
        (0, 32, [A, B, C], True),
        (0, 35, FOUR, True),
        (0, 40, FOUR, True),
        (10, 35, FOUR, True),
        (11, 35, [B, C, D], True),
        (20, 41, [C, D], False),
    ],
)
def test_ix29_those_that_reach_into_the_range_up_to_one_that_knows_of_all(
    fetch_offset: int, upper_bound: int, found: list[AbortedTransaction], is_complete: bool
) -> None:
    assert new_index(new_file_system()).collect(fetch_offset, upper_bound) == (found, is_complete)


@pytest.mark.covers("TransactionIndexTest.testSanityCheck")
def test_ix30_an_entry_that_ends_below_the_base_is_corrupt() -> None:
    file_system = new_file_system()
    new_index(file_system).close()
    with pytest.raises(CorruptIndex, match="at byte 0: the end 10 is below 100"):
        TransactionIndex(file_system, PATH, 100).sanity_check()
    TransactionIndex(file_system, PATH, 10).sanity_check()


def test_ix30_an_unknown_version_is_corrupt() -> None:
    file_system = new_file_system()
    write(file_system, ENTRY.pack(0, *A) + ENTRY.pack(0x0100, *B))
    with pytest.raises(CorruptIndex, match="at byte 34"):
        TransactionIndex(file_system, PATH, 0).sanity_check()


def test_ix31_reset_empties_the_file_and_forgets_the_order() -> None:
    file_system = new_file_system()
    index = new_index(file_system)
    index.reset()
    assert list(index.entries()) == [] and read_file(file_system, PATH) == b""
    index.append(A)
    assert list(index.entries()) == [A]


@pytest.mark.covers("TransactionIndexTest.testRenameIndex")
def test_ix31_a_renamed_index_continues_under_its_new_name() -> None:
    file_system = new_file_system()
    index = new_index(file_system, [A])
    index.rename_to(PATH + ".swap")
    index.append(B)
    assert index.path == PATH + ".swap" and list(index.entries()) == [A, B]
    assert names(file_system) == ["00000000000000000000.txnindex.swap"]


def test_ix31_an_index_that_was_renamed_or_moved_is_opened_again_there_after_a_rest(tmp_path: Path) -> None:
    file_system = OsFileSystem(handles=HandlePool(100))
    (tmp_path / "p-0").mkdir()
    index = TransactionIndex(file_system, f"{tmp_path}/p-0/0.txnindex", 0)
    index.append(A)
    index.flush()
    # More than one name, because the one before the last is looked at too.
    for suffix in (".cleaned", ".swap", ""):
        index.rename_to(f"{tmp_path}/p-0/0.txnindex{suffix}")
    for directory in ("p-0.first", "p-0.second"):
        os.rename(os.path.dirname(index.path), tmp_path / directory)
        index.update_parent_directory(f"{tmp_path}/{directory}")
    file_system.handles.make_room(100)
    assert len(file_system.handles) == 0
    assert list(index.entries()) == [A]
    index.close()


def test_ix31_a_missing_file_is_skipped_and_the_name_remembered() -> None:
    file_system = new_file_system()
    index = TransactionIndex(file_system, PATH, 0)
    index.rename_to(PATH + ".swap")
    assert names(file_system) == []
    index.append(A)
    assert names(file_system) == ["00000000000000000000.txnindex.swap"]


@pytest.mark.covers("TransactionIndexTest.testUpdateParentDir")
def test_ix31_a_renamed_directory_changes_the_path_alone() -> None:
    index = TransactionIndex(new_file_system(), PATH, 0)
    index.update_parent_directory("logs/topic-0.abc-delete")
    assert index.path == "logs/topic-0.abc-delete/00000000000000000000.txnindex"


@pytest.mark.covers("TransactionIndexTest.testFlush")
def test_ix31_a_flush_without_a_file_makes_none() -> None:
    file_system = new_file_system()
    index = TransactionIndex(file_system, PATH, 0)
    index.flush()
    assert names(file_system) == []
    index.append(A)
    index.flush()
    assert names(file_system) != []


def test_ix26_an_index_that_was_missing_is_present_from_its_first_append_on() -> None:
    index = TransactionIndex(new_file_system(), PATH, 0)
    assert not index.is_present()
    index.append(A)
    assert index.is_present() and index.exists
    index.restart_empty()
    assert not index.is_present()
    index.append(A)
    assert index.is_present() and list(index.entries()) == [A]


@pytest.mark.parametrize("before", [[], [A]])
def test_ix27_an_append_that_fails_leaves_no_entry_and_the_next_one_takes_its_place(
    before: list[AbortedTransaction],
) -> None:
    disk = new_disk()
    index = new_index(new_file_system(disk), before)
    disk.fail(1, verbs={"write_at"}, path_suffix=".txnindex", applied_bytes=20)
    with pytest.raises(OSError):
        index.append(B)
    assert list(index.entries()) == before
    index.append(B)
    assert list(index.entries()) == [*before, B]


@pytest.mark.covers("TransactionIndexTest.testDeleteIfExists")
def test_ix31_deletion_returns_whether_there_was_a_file() -> None:
    file_system = new_file_system()
    assert not TransactionIndex(file_system, PATH, 0).delete_if_exists()
    assert new_index(file_system).delete_if_exists() and names(file_system) == []


def test_ix29_many_entries_are_read_block_by_block() -> None:
    entries = [AbortedTransaction(1, offset, offset + 1, offset + 2) for offset in range(0, 2000, 2)]
    index = new_index(new_file_system(), entries)
    assert index.collect(0, 10_000).transactions == entries
    assert index.collect(1500, 1502) == (entries[750:751], True)


def test_ix29_a_search_among_many_finds_what_a_walk_over_all_finds() -> None:
    """Above two pages of entries the first that reaches the range is found by a binary search."""
    many = [AbortedTransaction(n % 7, 3 * n, 3 * n + 2 + n % 5, 3 * n) for n in range(1000)]
    many = [each for n, each in enumerate(many) if n == 0 or each.last_offset > many[n - 1].last_offset]
    index = new_index(new_file_system(), many)
    for fetch_offset in range(0, 3100, 37):
        for bound in (fetch_offset + 1, fetch_offset + 40, 5000):
            wanted = []
            for each in many:
                if each.last_offset >= fetch_offset and each.first_offset < bound:
                    wanted.append(each)
                if each.last_stable_offset >= bound:
                    break
            assert index.collect(fetch_offset, bound).transactions == wanted, (fetch_offset, bound)
