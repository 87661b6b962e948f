"""The effect of each step of a roll and a flush on the disk and the marks. Rules RO2, RO3, FL1, FL2, FL5."""

from __future__ import annotations

import errno

import pytest

from sim.disk import SimFile
from storage.config import LogConfig
from storage.disk.filesystem import OpenMode
from storage.errors import StorageError, TruncatedWhileRead
from storage.log import PartitionLog
from storage.log.reads import MAX_TIMESTAMP
from storage.segment.place import LogOffsetMetadata
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    ROOMY,
    SIZE,
    THREE,
    append_each,
    disk_and_log,
    new_disk,
    new_file_system,
    open_log,
)
from tests.storage.recovery.stopped_logs import file_of


def test_ro2_the_log_end_is_in_the_new_segment() -> None:
    log = open_log(new_file_system())
    append_each(log, 3)
    assert log.local.log_end == LogOffsetMetadata(3, 0, 3 * SIZE)
    log.flushes.roll(now_ms=NOW_MS)
    assert log.local.log_end == LogOffsetMetadata(3, 3, 0)


def test_ro2_an_empty_segment_that_is_made_again_is_on_the_disk_and_the_recovery_point_there() -> None:
    disk = new_disk()
    file_system = new_file_system(disk)
    disk.sync_all()
    log = open_log(file_system)
    append_each(log, 2)
    log.flushes.roll(now_ms=NOW_MS)
    log.flushes.roll(now_ms=NOW_MS)
    assert disk.durable_bytes(file_of(2)) == b""
    assert (log.local.segments.base_offsets, log.local.recovery_point) == ([0, 2], 2)
    log.truncate_to(0, now_ms=NOW_MS)
    log.flushes.roll(now_ms=NOW_MS)
    assert disk.durable_bytes(file_of(0)) == b"" and log.local.recovery_point == 0


def test_fl5_a_flush_that_a_later_one_overtook_moves_no_recovery_point_beyond_the_end() -> None:
    log = open_log(new_file_system())
    append_each(log, 10)
    early, late = log.flushes.prepare(5), log.flushes.prepare(10)
    early()
    late()
    log.flushes.done(late.offset)
    assert log.local.recovery_point == 10
    log.truncate_to(3, now_ms=NOW_MS)
    log.flushes.done(early.offset)
    assert (log.log_end_offset, log.local.recovery_point) == (3, 3)


def test_fl5_a_flush_that_was_overtaken_does_not_count_records_that_came_after_a_truncation() -> None:
    log = open_log(new_file_system())
    append_each(log, 10)
    early = log.flushes.prepare(5)
    early()
    log.flushes.flush()
    log.truncate_to(3, now_ms=NOW_MS)
    append_each(log, 6)
    # It has synced other records at the offsets 3 and 4.
    log.flushes.done(early.offset)
    assert (log.log_end_offset, log.local.recovery_point) == (9, 3)
    log.flushes.flush()
    assert log.local.recovery_point == 9


@pytest.mark.parametrize("cuts", [(3, 6), (6, 3), (3, 3), (9, 3, 8)])
def test_fl5_of_several_truncations_under_a_flush_the_lowest_counts(cuts: tuple[int, ...]) -> None:
    """Between two of them other records may come, which nobody has synced."""
    log = open_log(new_file_system())
    append_each(log, 10)
    prepared = log.flushes.prepare()
    for cut in cuts:
        log.truncate_to(cut, now_ms=NOW_MS)
        append_each(log, 10 - cut)
    prepared()
    log.flushes.done(prepared.offset)
    assert (log.log_end_offset, log.local.recovery_point) == (10, 3)


def test_fl2_segments_that_a_truncation_deleted_meanwhile_need_no_sync() -> None:
    log = open_log(new_file_system(), THREE)
    log.flushes.flush()
    append_each(log, 2)
    prepared = log.flushes.prepare()
    log.truncation.truncate_fully_and_start_at(50, now_ms=NOW_MS)
    prepared()
    log.flushes.done(prepared.offset)
    assert log.local.recovery_point <= log.log_end_offset and log.online.reason is None


def test_fl2_a_segment_whose_names_another_one_took_on_its_way_out_of_the_log_needs_no_sync() -> None:
    """A compaction replaced it, then retention the one in its place: both wait for deletion under one name."""
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 5)
    prepared = log.flushes.prepare()
    segment = log.local.segments.active
    segment.change_file_suffixes("", ".deleted")
    other = file_system.open(f"{DIRECTORY}/other", OpenMode.CREATE_NEW)
    other.close()
    # It rests, and is not found any more.
    file = segment.records._file
    assert isinstance(file, SimFile) and file.give_up()
    file_system.rename(f"{DIRECTORY}/other", segment.path)
    with pytest.raises(FileNotFoundError, match="Another file took its place"):
        segment.records.read_slice(0, 1)
    prepared()
    log.flushes.done(prepared.offset)
    assert log.local.recovery_point == 5 and log.online.reason is None


def test_fl2_a_live_segment_whose_file_is_gone_is_an_error() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 5)
    prepared = log.flushes.prepare()
    segment = log.local.segments.active
    file = segment.records._file
    assert isinstance(file, SimFile) and file.give_up()
    file_system.unlink(segment.path)
    with pytest.raises(FileNotFoundError):
        prepared()


def test_fl2_a_live_segment_that_cannot_be_synced_is_an_error() -> None:
    disk = new_disk()
    log = open_log(new_file_system(disk), THREE)
    append_each(log, 2)
    disk.fail(1, errno.EIO, verbs={"sync"}, path_suffix=".log")
    with pytest.raises(StorageError, match=r"flush failed: .*Input/output error"):
        log.flushes.flush()
    assert log.local.recovery_point == 0


def test_fl1_a_roll_whose_names_cannot_be_synced_leaves_the_recovery_point() -> None:
    disk, log = disk_and_log()
    append_each(log, 3)
    disk.fail(1, errno.EIO, verbs={"sync_directory"})
    with pytest.raises(StorageError):
        log.flushes.roll(now_ms=NOW_MS)
    assert (log.local.recovery_point, log.log_end_offset) == (0, 3)


def after_a_flush_that_failed(config: LogConfig = ROOMY) -> PartitionLog:
    """Returns a log of two records, whose flush job has failed without a word to the log's thread yet."""
    disk, log = disk_and_log(config)
    append_each(log, 2)
    prepared = log.flushes.prepare(2)
    disk.fail(1, verbs={"sync"}, path_suffix=".log")
    with pytest.raises(OSError):
        prepared()
    return log


def test_fl1_a_roll_does_not_vouch_for_what_a_flush_job_has_failed_to_sync() -> None:
    """The log's thread rolls before it hears of the job: the kernel reports an error once."""
    log = after_a_flush_that_failed(THREE)
    with pytest.raises(StorageError):
        append_each(log, 2)
    assert log.online.reason is not None and log.local.recovery_point == 0


def test_fl1_an_orderly_stop_does_not_vouch_for_what_a_flush_job_has_failed_to_sync() -> None:
    """It has forgotten the job by the time that this ends."""
    with pytest.raises(StorageError):
        after_a_flush_that_failed().close()


@pytest.mark.parametrize("timestamp", [NOW_MS, MAX_TIMESTAMP])
def test_rd8_a_search_of_a_segment_whose_names_another_one_took_fails_alone(timestamp: int) -> None:
    """A compaction replaced it, then retention deleted the one in its place: the disk has not failed."""
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 5)
    search = log.reads.search_for_timestamp(timestamp)
    assert search is not None
    segment = log.local.segments.first
    assert segment is not None and search(None) is not None
    log.flushes.flush()
    segment.change_file_suffixes("", ".deleted")
    segment.rest()
    file = segment.records._file
    assert isinstance(file, SimFile) and file.give_up()
    for path in (segment.path, segment.path.replace(".log", ".timeindex")):
        file_system.open(f"{DIRECTORY}/other", OpenMode.CREATE_NEW).close()
        file_system.rename(f"{DIRECTORY}/other", path)
    with pytest.raises(TruncatedWhileRead, match="has left the log"):
        search(None)
    assert log.online.reason is None
