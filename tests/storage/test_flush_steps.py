"""What a roll and a flush owe the disk and the marks, step by step. Rules RO2, RO3, FL1, FL2, FL5."""

from __future__ import annotations

import errno

import pytest

from storage.errors import StorageError
from storage.offset_metadata import LogOffsetMetadata
from tests.storage.log_helpers import NOW_MS, SIZE, THREE, append_each, new_disk, new_file_system, open_log
from tests.storage.start_up_helpers import file_of


def test_ro2_the_log_end_lies_in_the_new_segment() -> None:
    log = open_log(new_file_system())
    append_each(log, 3)
    assert log.log_end == LogOffsetMetadata(3, 0, 3 * SIZE)
    log.roll(now_ms=NOW_MS)
    assert log.log_end == LogOffsetMetadata(3, 3, 0)


def test_ro2_an_empty_segment_that_is_made_anew_is_on_the_disk_and_the_recovery_point_there() -> None:
    disk = new_disk()
    file_system = new_file_system(disk)
    disk.sync_all()
    log = open_log(file_system)
    append_each(log, 2)
    log.roll(now_ms=NOW_MS)
    log.roll(now_ms=NOW_MS)
    assert disk.durable_bytes(file_of(2)) == b""
    assert (log.segments.base_offsets, log.recovery_point) == ([0, 2], 2)
    log.truncate_to(0)
    log.roll(now_ms=NOW_MS)
    assert disk.durable_bytes(file_of(0)) == b"" and log.recovery_point == 0


def test_fl5_a_flush_that_a_later_one_overtook_moves_no_recovery_point_beyond_the_end() -> None:
    log = open_log(new_file_system())
    append_each(log, 10)
    early, late = log.prepare_flush(5), log.prepare_flush(10)
    early()
    late()
    log.flushed(late.offset)
    assert log.recovery_point == 10
    log.truncate_to(3)
    log.flushed(early.offset)
    assert (log.log_end_offset, log.recovery_point) == (3, 3)


def test_fl2_what_a_truncation_deleted_meanwhile_needs_no_sync() -> None:
    log = open_log(new_file_system(), THREE)
    log.flush()
    append_each(log, 2)
    prepared = log.prepare_flush()
    log.truncate_fully_and_start_at(50)
    prepared()
    log.flushed(prepared.offset)
    assert log.recovery_point <= log.log_end_offset and log.offline_reason is None


def test_fl2_what_is_there_and_cannot_be_synced_is_an_error() -> None:
    disk = new_disk()
    log = open_log(new_file_system(disk), THREE)
    append_each(log, 2)
    disk.fail(1, errno.EIO, verbs={"sync"}, path_suffix=".log")
    with pytest.raises(StorageError, match=r"flush failed: .*Input/output error"):
        log.flush()
    assert log.recovery_point == 0
