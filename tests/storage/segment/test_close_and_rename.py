"""A segment's rules one step to either side: full, closed, asked by time, renamed, deleted (LS14 to LS24)."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sim.disk import SimFileSystem
from storage.batch import Record, build_batch
from storage.codec.buffer import Buffer
from storage.config import LogConfig
from storage.disk.filesystem import OpenMode
from storage.disk.handle_pool import HandlePool
from storage.disk.os_filesystem import OsFileSystem
from storage.index.transaction_index import AbortedTransaction
from storage.segment import LogSegment, log_path
from storage.segment.file_records import FileRecords
from storage.segment.lookups import find_offset_by_timestamp, has_overflow
from storage.segment.replace import create_cleaned_segment
from storage.segment.split import CHUNK_BYTES, append_from_file
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    SIZE,
    SMALL,
    append_batch,
    append_each,
    batch,
    filled_segment,
    new_disk,
    new_file_system,
    open_log,
    open_segment,
)

INT_MAX = 2**31 - 1
EACH = LogConfig(index_interval_bytes=0, segment_index_bytes=1200)
KINDS = ("index", "log", "timeindex", "txnindex")


def with_four_files(file_system: SimFileSystem) -> LogSegment:
    segment = filled_segment(file_system)
    segment.transaction_index.append(AbortedTransaction(1, 0, 5, 6))
    return segment


# Full, closed


def test_ls14_a_preallocated_log_is_cut_to_its_records() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system, config=replace(SMALL, preallocate=True))
    append_batch(segment, batch(0))
    assert file_system.stat(segment.path).size_bytes == SMALL.segment_bytes
    segment.on_become_inactive()
    assert file_system.stat(segment.path).size_bytes == SIZE


def test_ls14_the_last_time_entry_takes_the_slot_that_was_kept_for_it() -> None:
    config = LogConfig(index_interval_bytes=2 * SIZE, segment_index_bytes=36)
    segment = open_segment(new_file_system(), config=config)
    for offset in range(8):
        append_batch(segment, batch(offset, timestamp=NOW_MS + offset))
    assert segment.time_index.is_full and segment.time_index.last_entry == (NOW_MS + 6, 6)
    segment.on_become_inactive()
    assert segment.time_index.last_entry == (NOW_MS + 7, 7)


def test_ls15_a_close_does_not_read_a_maximum_that_was_never_read() -> None:
    file_system = new_file_system()
    path = filled_segment(file_system, range(3)).time_index_path
    file_system.unlink(path)
    open_segment(file_system, file_already_exists=True).close()
    # The file is not even opened.
    assert not file_system.exists(path)


@pytest.mark.parametrize("damage", [(NOW_MS + 50, 1), (NOW_MS - 50, 40)], ids=["later", "behind"])
def test_ls15_an_entry_that_the_time_index_refuses_is_logged_and_the_close_continues(
    damage: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    file_system = new_file_system()
    segment = filled_segment(file_system, range(2))
    segment.time_index.maybe_append(*damage)
    with caplog.at_level(logging.WARNING):
        segment.close()
    assert "last time entry left out" in caplog.text
    assert file_system.stat(segment.time_index_path).size_bytes == 12
    with pytest.raises(ValueError, match="closed"):
        segment.time_index.lookup(0)


def test_ls15_a_close_leaves_trimmed_indexes_on_disk() -> None:
    disk = new_disk()
    file_system = new_file_system(disk)
    segment = open_segment(file_system, config=EACH)
    for offset in range(4):
        append_batch(segment, batch(offset, timestamp=NOW_MS + offset))
    disk.sync_all()
    segment.close()
    for path, size_bytes in ((segment.offset_index_path, 3 * 8), (segment.time_index_path, 3 * 12)):
        assert len(disk.durable_bytes(path)) == file_system.stat(path).size_bytes == size_bytes


# Start


def test_ls17_neither_the_offset_nor_the_time_index_is_checked() -> None:
    file_system = new_file_system()
    segment = with_four_files(file_system)
    segment.close()
    for path in (segment.offset_index_path, segment.time_index_path):
        file_system.open(path, OpenMode.WRITE).set_length(11)
    again = open_segment(file_system, file_already_exists=True)
    again.sanity_check()
    assert again.transaction_index.exists


def test_ls17_a_time_index_that_was_missing_has_no_room() -> None:
    file_system = new_file_system()
    log = open_log(file_system)
    append_each(log, 3)
    log.flushes.roll(now_ms=NOW_MS)
    append_each(log, 1)
    log.close()
    file_system.unlink(f"{DIRECTORY}/{0:020d}.timeindex")
    first = open_log(file_system, clean=True, recovery_point=4).local.segments.first
    assert first is not None and first.base_offset == 0
    assert (first.time_index.entries, first.time_index.length_bytes) == (0, 0)


# By time


def test_ls18_the_search_begins_where_the_index_and_the_start_allow() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system, config=EACH)
    for offset in range(10):
        append_batch(segment, batch(offset, timestamp=NOW_MS + 10 * offset))
    found = find_offset_by_timestamp(segment, NOW_MS + 45, 0)
    assert found is not None and (found.offset, found.timestamp) == (5, NOW_MS + 50)
    found = find_offset_by_timestamp(segment, NOW_MS + 45, 8)
    assert found is not None and (found.offset, found.timestamp) == (8, NOW_MS + 80)
    found = find_offset_by_timestamp(segment, NOW_MS, 3)
    assert found is not None and found.offset == 3
    # A walk from the beginning would find damage. The timestamp allows to skip it, and so does the start.
    file_system.open(segment.path, OpenMode.WRITE).write_at(SIZE + 8, bytes(4))
    found = find_offset_by_timestamp(segment, NOW_MS + 45, 0)
    assert found is not None and found.offset == 5
    found = find_offset_by_timestamp(segment, NOW_MS, 3)
    assert found is not None and found.offset == 3


def test_ls18_a_record_below_the_index_entrys_offset_may_be_the_answer() -> None:
    """The entry's offset is the last of its batch, so the search begins at the start asked for, not there."""
    segment = open_segment(new_file_system(), config=EACH)
    append_batch(segment, batch(0, timestamp=NOW_MS))
    # The times are 100 to 104, at offsets 1 to 5.
    append_batch(segment, batch(1, 5, timestamp=NOW_MS + 100))
    assert segment.time_index.last_entry == (NOW_MS + 104, 5)
    found = find_offset_by_timestamp(segment, NOW_MS + 104, 2)
    assert found is not None and found.offset == 5
    found = find_offset_by_timestamp(segment, NOW_MS + 101, 0)
    assert found is not None and found.offset == 2
    # The time 104 comes again, after the entry.
    append_batch(segment, batch(6, 3, timestamp=NOW_MS + 104))
    found = find_offset_by_timestamp(segment, NOW_MS + 105, 0)
    assert found is not None and found.offset == 7


def test_ls18_the_start_offset_is_inside_a_batch() -> None:
    segment = open_segment(new_file_system(), config=EACH)
    append_batch(segment, batch(0, timestamp=NOW_MS))
    append_batch(segment, batch(1, 5, timestamp=NOW_MS + 100))
    found = find_offset_by_timestamp(segment, NOW_MS + 100, 3)
    assert found is not None and (found.offset, found.timestamp) == (3, NOW_MS + 102)
    records = [Record(6, NOW_MS + 200, None, None), Record(7, NOW_MS + 150, None, None)]
    append_batch(segment, build_batch(records, base_offset=6))
    assert segment.time_index.last_entry == (NOW_MS + 200, 7)
    found = find_offset_by_timestamp(segment, NOW_MS + 200, 0)
    assert found is not None and found.offset == 6


def test_ls19_a_timestamp_of_0_counts_and_without_any_the_files_time_does() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system)
    append_batch(segment, batch(0, timestamp=0))
    segment.set_modified(NOW_MS - 777)
    assert segment.largest_timestamp_ms == 0
    untimed = open_segment(file_system, 10)
    append_batch(untimed, batch(10, timestamp=-1))
    untimed.set_modified(NOW_MS - 777)
    assert untimed.largest_timestamp_ms == NOW_MS - 777


@pytest.mark.parametrize(
    ("offset", "is_over"), [(5 + INT_MAX - 1, False), (5 + INT_MAX, False), (6 + INT_MAX, True)]
)
def test_ls20_the_last_offset_counts_not_the_next(offset: int, is_over: bool) -> None:
    segment = open_segment(new_file_system(), 5)
    # The segment is empty.
    assert not has_overflow(segment)
    segment.records.append(batch(5) + batch(offset))
    assert has_overflow(segment) == is_over


# Copied


def test_ls21_batches_that_fill_a_chunk_exactly_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    file_system = new_file_system()
    overhead = len(batch(0, value_bytes=CHUNK_BYTES // 2)) - CHUNK_BYTES // 2
    halves = [batch(each, value_bytes=CHUNK_BYTES // 2 - overhead) for each in range(2)]
    assert sum(map(len, halves)) == CHUNK_BYTES
    source = open_segment(file_system, 0, EACH)
    source.records.append(b"".join(halves))
    new = create_cleaned_segment(file_system, DIRECTORY, 0, EACH, NOW_MS)
    sizes: list[int] = []
    append = FileRecords.append

    def noted(records: FileRecords, data: Buffer) -> int:
        sizes.append(len(data))
        return append(records, data)

    monkeypatch.setattr(FileRecords, "append", noted)
    assert append_from_file(new, source.records, 0) == CHUNK_BYTES
    assert sizes == [CHUNK_BYTES // 2] * 2


def test_ls21_a_batch_whose_last_offset_does_not_fit_ends_the_copy() -> None:
    file_system = new_file_system()
    source = open_segment(file_system, 0, EACH)
    # The offset INT_MAX would fit, but not the one after it.
    source.records.append(batch(0) + batch(INT_MAX, 2))
    new = create_cleaned_segment(file_system, DIRECTORY, 0, EACH, NOW_MS)
    assert append_from_file(new, source.records, 0) == SIZE
    new = create_cleaned_segment(file_system, DIRECTORY, 2, EACH, NOW_MS)
    assert append_from_file(new, source.records, SIZE) == len(batch(INT_MAX, 2))


# Deleted, renamed


def test_ls22_every_file_that_is_missing_is_passed_over() -> None:
    for missing in KINDS:
        file_system = new_file_system()
        segment = with_four_files(file_system)
        file_system.unlink(f"{DIRECTORY}/{0:020d}.{missing}")
        segment.delete()
        assert file_system.list(DIRECTORY) == []


@pytest.mark.parametrize("is_open", [True, False])
def test_ls22_files_of_a_future_directory_are_found_under_its_live_name(is_open: bool) -> None:
    """A copy between log directories may end while files of it wait for file.delete.delay.ms."""
    file_system = new_file_system()
    future = f"logs/some.topic-3.{'0a' * 16}-future"
    file_system.make_directory(future)
    segment = LogSegment.open(file_system, future, 0, SMALL, NOW_MS)
    if is_open:
        append_batch(segment, batch(0))
        segment.transaction_index.append(AbortedTransaction(1, 0, 5, 6))
        assert segment.offset_index.entries == segment.time_index.entries == 0
    segment.change_file_suffixes("", ".deleted")
    live = "logs/some.topic-3"
    file_system.rename(future, live)
    for kept in ("5.log.deleted", "0.log", f"{0:020d}.log"):
        file_system.open(f"{live}/{kept}", OpenMode.CREATE).close()
    segment.delete()
    assert file_system.list(live) == ["0.log", f"{0:020d}.log", "5.log.deleted"]


def test_ls22_files_that_are_not_marked_deleted_are_left_in_the_live_directory() -> None:
    file_system = new_file_system()
    future = f"logs/topic-0.{'0a' * 16}-future"
    file_system.make_directory(future)
    segment = LogSegment.open(file_system, future, 0, SMALL, NOW_MS)
    file_system.unlink(segment.path)
    live = log_path(DIRECTORY, 0)
    file_system.open(live, OpenMode.CREATE).close()
    segment.delete()
    assert file_system.exists(live)


@pytest.mark.parametrize("directory", ["logs/topic-1", f"logs/topic-0.{'0a' * 16}-delete", "logs/odd"])
def test_ls22_only_a_future_directory_has_another_name(directory: str) -> None:
    file_system = new_file_system()
    file_system.make_directory(directory)
    segment = LogSegment.open(file_system, directory, 0, SMALL, NOW_MS, suffix=".deleted")
    file_system.unlink(segment.path)
    other = log_path(DIRECTORY, 0, ".deleted")
    file_system.open(other, OpenMode.CREATE).close()
    segment.delete()
    assert file_system.exists(other)


def test_ls24_a_wrong_suffix_renames_nothing_and_the_log_is_renamed_first() -> None:
    disk = new_disk()
    file_system = new_file_system(disk)
    segment = with_four_files(file_system)
    with pytest.raises(ValueError, match="does not end in"):
        segment.change_file_suffixes(".cleaned", ".swap")
    assert file_system.list(DIRECTORY) == [f"{0:020d}.{kind}" for kind in KINDS]
    disk.call_log = []
    segment.change_file_suffixes("", ".swap")
    renamed = [call.split(" ")[1].rpartition(".")[2] for call in disk.call_log]
    assert renamed == ["log", "index", "timeindex", "txnindex"]


def test_ls24_without_a_log_nothing_is_renamed() -> None:
    file_system = new_file_system()
    segment = with_four_files(file_system)
    file_system.unlink(segment.path)
    with pytest.raises(FileNotFoundError):
        segment.change_file_suffixes("", ".swap")
    assert file_system.list(DIRECTORY) == [f"{0:020d}.{kind}" for kind in KINDS if kind != "log"]


def test_ls24_a_segment_that_was_renamed_or_moved_is_opened_again_there_after_a_rest(tmp_path: Path) -> None:
    file_system = OsFileSystem(handles=HandlePool(100))
    (tmp_path / "t-0").mkdir()
    segment = LogSegment.open(file_system, f"{tmp_path}/t-0", 0, EACH, NOW_MS)
    for offset in range(3):
        append_batch(segment, batch(offset, timestamp=NOW_MS + offset))
    segment.transaction_index.append(AbortedTransaction(1, 0, 5, 6))
    segment.flush()

    def check() -> None:
        file_system.handles.make_room(100)
        assert len(file_system.handles) == 0
        assert segment.records.read_slice(2 * SIZE, SIZE) == batch(2, timestamp=NOW_MS + 2)
        assert segment.offset_index.lookup(2) == (2, 2 * SIZE)
        assert segment.time_index.lookup(NOW_MS + 2) == (NOW_MS + 2, 2)
        assert segment.collect_aborted(0, 9).transactions == [AbortedTransaction(1, 0, 5, 6)]

    # Two names, because the one before the last is looked at too.
    for before, after in (("", ".cleaned"), (".cleaned", ".swap")):
        segment.change_file_suffixes(before, after)
    check()
    for directory in ("t-0.first", "t-0.second"):
        os.rename(segment.directory, tmp_path / directory)
        segment.update_parent_directory(f"{tmp_path}/{directory}")
    check()
    segment.close()
