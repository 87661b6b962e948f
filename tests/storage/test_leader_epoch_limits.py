"""Leader epochs one step to either side of each rule, and when they are on the disk. Rules EP2 to EP12."""

from __future__ import annotations

import errno
from itertools import product

import pytest

from sim.disk.life import Life
from storage.batch.legacy.builder import build_message
from storage.disk.filesystem import read_file
from storage.errors import StorageError
from storage.leader_epochs import LeaderEpochCache
from tests.storage.epochs import PATH, A, cache_of, file_content
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    append_each,
    batch,
    disk_and_log,
    new_epochs,
    new_file_system,
    open_log,
)
from tests.storage.producers.producers import new_disk

THREE_LINES = b"0\n3\n2 6\n3 8\n4 11\n"


def test_ep2_epoch_zero_and_offset_zero_are_as_good_as_any() -> None:
    cache = cache_of()
    assert cache.assign(0, 0) and cache.entries == [(0, 0)]


@pytest.mark.parametrize(("epoch", "start_offset"), [(9, 11), (3, 9), (9, 5)])
def test_ep3_dropped_entries_are_off_the_disk_when_assign_returns(epoch: int, start_offset: int) -> None:
    cache = cache_of(*A)
    cache.assign(epoch, start_offset)
    lines = "".join(f"{each.epoch} {each.start_offset}\n" for each in cache.entries)
    assert file_content(cache) == f"0\n{len(cache)}\n{lines}".encode() and not cache.is_dirty


def test_ep4_a_repeated_epoch_in_the_file_keeps_its_first_start() -> None:
    file_system = new_disk()[1]
    plain = LeaderEpochCache(file_system, PATH)
    plain._checkpoint.write([(2, 6), (2, 9)])
    assert LeaderEpochCache(file_system, PATH).entries == [(2, 6)]


def test_ep6_a_truncation_from_the_end_is_scheduled_not_written() -> None:
    scheduled: list[int] = []
    cache = LeaderEpochCache(new_disk()[1], PATH, schedule=lambda: scheduled.append(1))
    for entry in A:
        cache.assign(*entry)
    assert cache.truncate_from_end(11)
    assert scheduled == [1] and cache.is_dirty and file_content(cache) == THREE_LINES
    cache.flush()
    assert file_content(cache) == b"0\n2\n2 6\n3 8\n" and not cache.is_dirty


def test_ep6_a_flush_that_fails_in_a_directory_that_is_there_is_an_error() -> None:
    class Gone:
        """A disk that denies its own directory at the rename."""

        def __init__(self, cache: LeaderEpochCache) -> None:
            self._file_system = cache._file_system

        def rename(self, old: str, new: str) -> None:
            raise FileNotFoundError(old)

        def __getattr__(self, name: str) -> object:
            return getattr(self._file_system, name)

    cache = LeaderEpochCache(Gone(cache_of(*A)), PATH)  # type: ignore[arg-type]
    assert cache.truncate_from_end(11)
    with pytest.raises(FileNotFoundError):
        cache.flush()


def test_ep7_a_truncation_from_the_start_is_scheduled_not_written() -> None:
    scheduled: list[int] = []
    cache = LeaderEpochCache(new_disk()[1], PATH, schedule=lambda: scheduled.append(1))
    for entry in A:
        cache.assign(*entry)
    assert cache.truncate_from_start(9)
    assert scheduled == [1] and cache.is_dirty and file_content(cache) == THREE_LINES
    cache.flush()
    assert file_content(cache) == b"0\n2\n3 9\n4 11\n" and not cache.is_dirty


def test_ep8_an_end_of_zero_is_not_negative() -> None:
    cache = cache_of((0, 0), *A)
    assert cache.truncate_from_end(0) and cache.entries == []


def test_ep10_a_copy_knows_its_latest_epoch_and_owes_its_file_a_write() -> None:
    file_system = new_disk()[1]
    cache = LeaderEpochCache(file_system, PATH)
    for entry in A:
        cache.assign(*entry)
    copy = cache.copy_to(file_system, "/log/other")
    assert copy.latest_entry == (4, 11) and not copy.assign(4, 20)
    assert copy.end_offset_for(4, 30) == (4, 30)
    assert copy.is_dirty and read_file(file_system, "/log/other") == b""
    copy.flush()
    assert read_file(file_system, "/log/other") == THREE_LINES


def test_ep11_negative_bounds_bound_nothing() -> None:
    cache = cache_of((0, 0), *A)
    assert cache.entries_in_range(-1, -1) == [(0, 0), *A]
    assert cache.entries_in_range(8, -1) == A[1:]
    assert cache.entries_in_range(-1, 8) == [(0, 0), A[0]]


@pytest.mark.parametrize("start_offset", range(-1, 14))
def test_ep11_entries_in_a_range_are_those_that_two_truncations_leave(start_offset: int) -> None:
    for end_offset in range(start_offset, 15):
        cache, cut = cache_of((0, 0), *A), cache_of((0, 0), *A)
        cut.truncate_from_start(start_offset)
        cut.truncate_from_end(end_offset)
        assert cache.entries_in_range(start_offset, end_offset) == cut.entries, end_offset
        assert cache.entries == [(0, 0), *A]


def test_ep12_a_start_clips_entries_too_many_at_both_ends() -> None:
    file_system = new_file_system()
    log = open_log(file_system)
    for epoch in range(4):
        append_each(log, 3, epoch=epoch)
    log.close_handles()
    epochs = new_epochs(file_system)
    # A crash took the records of this epoch.
    epochs.assign(8, 12)
    log = open_log(file_system, log_start_offset=4)
    expected = [(1, 4), (2, 6), (3, 9)]
    assert log.epochs.entries == expected
    log.close_handles()
    assert new_epochs(file_system).entries == expected
    assert read_file(file_system, f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n3\n1 4\n2 6\n3 9\n"


def test_ep6_a_truncation_that_could_not_be_written_is_written_by_the_next_flush() -> None:
    disk, file_system = new_disk()
    cache = LeaderEpochCache(file_system, PATH)
    for entry in A:
        cache.assign(*entry)
    cache.truncate_from_end(11)
    disk.fail(1, errno.EMFILE)
    with pytest.raises(OSError):
        cache.flush()
    disk.disarm()
    assert cache.is_dirty and file_content(cache) == THREE_LINES
    cache.flush()
    assert LeaderEpochCache(file_system, PATH).entries == A[:2] and not cache.is_dirty


@pytest.mark.parametrize("known", [[], A[:1], A])
def test_ep3_an_epoch_that_found_no_descriptor_is_written_when_it_is_assigned_again(
    known: list[tuple[int, int]],
) -> None:
    disk, file_system = new_disk()
    cache = LeaderEpochCache(file_system, PATH)
    for entry in known:
        cache.assign(*entry)
    disk.fail(1, errno.EMFILE)
    with pytest.raises(OSError):
        cache.assign(9, 20)
    disk.disarm()
    assert cache.entries == known
    assert cache.assign(9, 20)
    assert LeaderEpochCache(file_system, PATH).entries == [*known, (9, 20)]


def test_ep12_what_recovery_notes_waits_for_the_flush() -> None:
    cache = cache_of(*A)
    cache.note(9, 20)
    assert cache.is_dirty and file_content(cache) == THREE_LINES
    cache.flush()
    assert not cache.is_dirty and file_content(cache) == THREE_LINES.replace(b"3\n", b"4\n", 1) + b"9 20\n"


@pytest.mark.parametrize("kinds", list(product((5, 6, None), repeat=3)))
def test_ap9_a_fetched_set_notes_the_same_epochs_as_its_batches_one_by_one(
    kinds: tuple[int | None, ...],
) -> None:
    """Each batch is of an epoch, or without one because it is of magic 1; a lower epoch after a higher one is none."""
    parts = [
        build_message(offset, magic=1, timestamp=NOW_MS, key=None, value=b"v")
        if epoch is None
        else batch(offset, epoch=epoch)
        for offset, epoch in enumerate(kinds)
    ]
    together, apart = open_log(new_file_system()), open_log(new_file_system())
    together.append_as_follower(b"".join(parts), leader_epoch=6, now_ms=NOW_MS)
    for part in parts:
        apart.append_as_follower(part, leader_epoch=6, now_ms=NOW_MS)
    assert together.epochs.entries == apart.epochs.entries
    assert together.log_end_offset == apart.log_end_offset == 3


def test_ep12_a_full_truncation_that_fails_in_the_log_leaves_the_epochs_in_their_file() -> None:
    disk, log = disk_and_log()
    append_each(log, 2, epoch=0)
    append_each(log, 1, epoch=4)
    disk.fail(1, errno.EIO, path_suffix=".log")
    with pytest.raises(StorageError):
        log.truncation.truncate_fully_and_start_at(10, now_ms=NOW_MS)
    disk.disarm()
    assert new_epochs(disk.file_system(Life())).entries == [(0, 0), (4, 2)]
