"""The files of a segment: created, sized, trimmed, synced, renamed. Rules LS11, LS14 to LS17, LS24, T4 to T6."""

from __future__ import annotations

import pytest

from sim.disk import SimFileSystem
from storage.config import LogConfig
from storage.disk.filesystem import File, OpenMode, read_file
from storage.errors import CorruptIndex
from storage.index.transaction_index import AbortedTransaction
from storage.log import PartitionLog
from storage.recovery.walk import recover_segment
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    SIZE,
    append_batch,
    append_each,
    batch,
    filled_segment,
    new_epochs,
    new_file_system,
    new_producers,
    open_log,
    open_segment,
)

INDEX, TIME_INDEX = f"{DIRECTORY}/{0:020d}.index", f"{DIRECTORY}/{0:020d}.timeindex"
TRANSACTION_INDEX = f"{DIRECTORY}/{0:020d}.txnindex"


def size_of(file_system: SimFileSystem, path: str) -> int:
    return file_system.stat(path).size_bytes


# Sizes


def test_t5_an_active_index_has_its_full_size_and_a_closed_one_its_entries() -> None:
    file_system = new_file_system()
    config = LogConfig(segment_index_bytes=10_485_760, index_interval_bytes=0)
    segment = open_segment(file_system, config=config)
    for offset in range(4):
        append_batch(segment, batch(offset, timestamp=NOW_MS + offset))
    assert size_of(file_system, INDEX) == 10_485_760 and size_of(file_system, TIME_INDEX) == 10_485_756
    segment.close()
    assert size_of(file_system, INDEX) == 3 * 8 and size_of(file_system, TIME_INDEX) == 3 * 12


def test_t4_a_slot_of_the_time_index_is_kept_for_the_roll() -> None:
    config = LogConfig(segment_index_bytes=48, index_interval_bytes=SIZE)
    segment = open_segment(new_file_system(), config=config)
    for offset in range(8):
        append_batch(segment, batch(offset, timestamp=NOW_MS + offset))
    assert segment.time_index.entries == 3 and segment.time_index.is_full
    assert segment.time_index.max_entries == 4 and not segment.offset_index.is_full
    segment.on_become_inactive()
    assert segment.time_index.entries == 4 and segment.time_index.last_entry == (NOW_MS + 7, 7)


def test_t6_zeros_after_the_entries_count_as_entries_until_recovery() -> None:
    file_system = new_file_system()
    config = LogConfig(segment_index_bytes=80, index_interval_bytes=0)
    segment = open_segment(file_system, config=config)
    for offset in range(4):
        append_batch(segment, batch(offset, timestamp=NOW_MS + offset))
    segment.close_handlers()
    again = open_segment(file_system, config=config, file_already_exists=True)
    assert again.offset_index.entries == 10 and again.offset_index.is_full
    assert again.offset_index.last_offset == 0
    again.offset_index.sanity_check()
    recover_segment(again, new_producers(file_system), new_epochs(file_system))
    assert again.offset_index.entries == 3 and again.offset_index.last_offset == 3


def test_ls11_single_batches_are_indexed_alike_by_append_and_by_recovery() -> None:
    file_system = new_file_system()
    config = LogConfig(segment_index_bytes=1200, index_interval_bytes=2 * SIZE)
    segment = open_segment(file_system, config=config)
    for offset in range(20):
        append_batch(segment, batch(offset, timestamp=NOW_MS + offset))
    appended = [segment.offset_index.entry(slot) for slot in range(segment.offset_index.entries)]
    assert [entry.offset for entry in appended] == [3, 6, 9, 12, 15, 18]
    recover_segment(segment, new_producers(file_system), new_epochs(file_system))
    assert [segment.offset_index.entry(slot) for slot in range(segment.offset_index.entries)] == appended


@pytest.mark.covers("UnifiedLogTest.testIndexResizingAtTruncation")
def test_kafka_593_kafka_6492_a_truncation_restores_the_full_size_of_the_indexes() -> None:
    config = LogConfig(segment_bytes=10 * SIZE, segment_index_bytes=1200, index_interval_bytes=SIZE - 1)
    log = open_log(new_file_system(), config)
    append_each(log, 20)
    first = log.local.segments.first
    assert first is not None and len(log.local.segments) == 2
    assert first.offset_index.max_entries == 9 == first.offset_index.entries
    log.truncate_to(0, now_ms=NOW_MS)
    active = log.local.segments.active
    assert len(log.local.segments) == 1 and active.offset_index.max_entries == 1200 // 8
    assert active.time_index.max_entries == 1200 // 12
    append_each(log, 10)
    assert len(log.local.segments) == 1


# Syncs


class NotedSyncs:
    """The paths of the files that are synced, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file_system: SimFileSystem) -> None:
        self.paths: list[str] = []
        sample = file_system.open(f"{DIRECTORY}/sample", OpenMode.CREATE)
        file_class, sync = type(sample), type(sample).sync
        sample.close()

        def noting(file: File) -> None:
            self.paths.append(file.path)
            sync(file)  # type: ignore[arg-type]

        monkeypatch.setattr(file_class, "sync", noting)


def test_ls16_a_flush_syncs_log_offset_time_and_transaction_index_in_that_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file_system = new_file_system()
    segment = filled_segment(file_system)
    segment.transaction_index.append(AbortedTransaction(1, 0, 5, 6))
    noted = NotedSyncs(monkeypatch, file_system)
    segment.flush()
    assert noted.paths == [segment.path, INDEX, TIME_INDEX, TRANSACTION_INDEX]


@pytest.mark.covers("LocalLogTest.testLogFlush")
def test_fl2_a_flush_syncs_the_segments_between_the_recovery_point_and_its_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file_system = new_file_system()
    log = log_with_bases(file_system, 0, 3, 6)
    log.local.lower_recovery_point(3)
    noted = NotedSyncs(monkeypatch, file_system)
    directories: list[str] = []
    monkeypatch.setattr(file_system, "sync_directory", directories.append)
    log.flushes.flush(5)
    assert [path for path in noted.paths if path.endswith(".log")] == [f"{DIRECTORY}/{3:020d}.log"]
    assert log.local.recovery_point == 5 and directories == [DIRECTORY]
    noted.paths.clear()
    log.flushes.flush(5)
    assert noted.paths == []
    log.flushes.flush(6)
    assert [path for path in noted.paths if path.endswith(".log")] == [f"{DIRECTORY}/{3:020d}.log"]
    # No segment was made since the recovery point.
    assert directories == [DIRECTORY]


def log_with_bases(file_system: SimFileSystem, *bases: int) -> PartitionLog:
    log = open_log(file_system, LogConfig(segment_bytes=3 * SIZE, segment_index_bytes=1200))
    append_each(log, bases[-1] + 2)
    assert log.local.segments.base_offsets == list(bases)
    return log


def test_fl5_the_recovery_point_never_passes_the_log_end() -> None:
    log = log_with_bases(new_file_system(), 0, 3, 6)
    log.flushes.flush()
    assert log.local.recovery_point == 8
    log.truncate_to(4, now_ms=NOW_MS)
    assert log.local.recovery_point == 4
    log.marks.update_high_watermark(4)
    log.truncation.truncate_fully_and_start_at(2, now_ms=NOW_MS)
    assert log.local.recovery_point == 2
    append_each(log, 4)
    log.marks.update_high_watermark(6)
    log.marks.maybe_increment_log_start_offset(5)
    assert log.local.recovery_point == 5


def test_ro3_a_gap_below_a_new_segment_needs_no_recovery() -> None:
    """The recovery point is the base of the new segment, though the log end is below it until the append."""
    log = log_with_bases(new_file_system(), 0, 3, 6)
    log.append_as_follower(batch(50, value_bytes=2 * SIZE), leader_epoch=0, now_ms=NOW_MS)
    assert log.local.segments.base_offsets[-1] == 50 and log.local.recovery_point == 50


@pytest.mark.covers("LocalLogTest.testFlushingNonExistentDir")
def test_fl2_a_directory_that_was_deleted_needs_no_sync() -> None:
    file_system = new_file_system()
    log = log_with_bases(file_system, 0, 3, 6)
    file_system.rename(DIRECTORY, "logs/topic-0-gone")
    log.flushes.flush()
    assert log.local.recovery_point == 8


# Indexes on demand


@pytest.mark.covers("UnifiedLogTest.testFlushingEmptyActiveSegments")
def test_ro4_a_new_segment_has_no_index_files_until_they_are_needed() -> None:
    file_system = new_file_system()
    log = open_log(file_system)
    append_each(log, 1)
    log.flushes.roll(now_ms=NOW_MS)
    names = file_system.list(DIRECTORY)
    assert f"{1:020d}.log" in names and f"{1:020d}.index" not in names
    assert f"{1:020d}.timeindex" not in names
    append_each(log, 1)
    names = file_system.list(DIRECTORY)
    assert f"{1:020d}.index" in names and f"{1:020d}.timeindex" in names


def test_ls17_a_missing_time_index_is_made_empty_and_the_others_are_trusted() -> None:
    file_system = new_file_system()
    log = open_log(file_system)
    append_each(log, 3)
    log.close()
    file_system.unlink(TIME_INDEX)
    log = open_log(file_system, clean=True)
    assert log.local.segments.active.time_index.entries == 0
    log.close()
    file = file_system.open(INDEX, OpenMode.WRITE)
    # This is no whole number of entries, but this is not checked.
    file.set_length(11)
    file.close()
    assert open_log(file_system, clean=True).log_end_offset == 3


def test_ls17_the_transaction_index_is_checked() -> None:
    segment = open_segment(new_file_system(), 100)
    segment.transaction_index.append(AbortedTransaction(1, 90, 99, 100))
    with pytest.raises(CorruptIndex):
        segment.sanity_check()


def test_ls15_a_close_syncs_the_transaction_index(monkeypatch: pytest.MonkeyPatch) -> None:
    file_system = new_file_system()
    segment = filled_segment(file_system)
    segment.transaction_index.append(AbortedTransaction(1, 0, 5, 6))
    noted = NotedSyncs(monkeypatch, file_system)
    segment.close()
    assert TRANSACTION_INDEX in noted.paths and segment.path in noted.paths


@pytest.mark.covers("LogSegmentTest.testChangeFileSuffixes")
def test_ls24_all_four_files_are_renamed_and_none_is_made() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system)
    segment.change_file_suffixes("", ".deleted")
    assert file_system.list(DIRECTORY) == [f"{0:020d}.log.deleted"]
    assert segment.offset_index_path == INDEX + ".deleted"
    assert segment.time_index_path == TIME_INDEX + ".deleted"
    append_batch(segment, batch(0))
    segment.transaction_index.append(AbortedTransaction(1, 0, 5, 6))
    kinds = ("index", "log", "timeindex", "txnindex")
    _ = segment.offset_index
    assert file_system.list(DIRECTORY) == [f"{0:020d}.{kind}.deleted" for kind in kinds]
    segment.change_file_suffixes(".deleted", "")
    assert file_system.list(DIRECTORY) == [f"{0:020d}.{kind}" for kind in kinds]
    with pytest.raises(ValueError, match="does not end in"):
        segment.change_file_suffixes(".swap", "")


def test_ls22_delete_takes_the_transaction_index_too() -> None:
    file_system = new_file_system()
    segment = filled_segment(file_system)
    segment.transaction_index.append(AbortedTransaction(1, 0, 5, 6))
    assert read_file(file_system, TRANSACTION_INDEX)
    segment.delete()
    assert file_system.list(DIRECTORY) == []


def test_ls15_a_close_adds_the_last_time_entry_where_the_greatest_timestamp_is_known() -> None:
    file_system = new_file_system()
    segment = filled_segment(file_system, [0, 1])
    assert segment.time_index.entries == 0
    segment.close()
    again = open_segment(file_system, file_already_exists=True)
    assert again.time_index.last_entry == (NOW_MS + 1, 1)
