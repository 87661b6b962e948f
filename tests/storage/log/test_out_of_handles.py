"""A process without a descriptor left: one call fails, and no log goes offline."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from storage.disk.handle_pool import HandlePool
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import OutOfHandles
from storage.index.due_entries import IndexEntries
from storage.index.time_index import TimestampOffset
from storage.log import PartitionLog
from tests.storage.disk.test_machine_limits import open_files_limited_to
from tests.storage.log.failing_calls import ROOT
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    ROOMY,
    SMALL,
    append_each,
    disk_and_log,
    new_disk,
    new_file_system,
    open_log,
    produced,
    read_offsets,
)


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Let connections, as it were, hold all descriptors of the process but `count`."""
    others: list[int] = []
    # A file that an earlier test has left open must not be closed within the block.
    gc.collect()
    with open_files_limited_to(len(os.listdir("/proc/self/fd")) + 50):
        try:
            while True:
                others.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            for _ in range(count):
                os.close(others.pop())
        yield
    for each in others:
        os.close(each)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    """Yield a log of several segments, of which no file is open."""
    file_system = OsFileSystem(handles=HandlePool(100))
    log = PartitionLog.open(file_system, f"{tmp_path}/t-0", SMALL, clean=True, now_ms=NOW_MS)
    append_each(log, 60, value_bytes=100)
    log.flushes.flush()
    file_system.handles.make_room(100)
    assert len(file_system.handles) == 0
    yield log
    log.close_handles()


def test_ap16_a_read_that_finds_no_descriptor_fails_alone(log: PartitionLog) -> None:
    with descriptors_left(0):
        with pytest.raises(OutOfHandles, match="ulimit -n"):
            log.read(5, max_size=1000)
        with pytest.raises(OutOfHandles, match="ulimit -n"):
            log.reads.offset_for_timestamp(NOW_MS)
    assert log.online.reason is None
    assert read_offsets(log) == list(range(60))


def test_ap16_an_append_that_finds_no_descriptor_writes_nothing(log: PartitionLog) -> None:
    with descriptors_left(0), pytest.raises(OutOfHandles, match="ulimit -n"):
        append_each(log, 1)
    assert (log.online.reason, log.log_end_offset) == (None, 60)
    append_each(log, 1)
    assert read_offsets(log) == list(range(61))


def test_fl1_a_flush_that_was_prepared_without_descriptors_fails_though_it_finds_some_when_it_runs(
    log: PartitionLog,
) -> None:
    """An index that could not be opened may be one that must be created, which only the log's own step may do."""
    log.close()
    file_system = OsFileSystem(handles=HandlePool(100))
    again = PartitionLog.open(file_system, log.directory, SMALL, clean=True, now_ms=NOW_MS)
    # As after a start that lost the recovery points: no index was opened yet.
    again.local.recovery_point = 0
    with descriptors_left(0):
        prepared = again.flushes.prepare()
    with pytest.raises(OutOfHandles, match="not flushed up to offset 60"):
        prepared()
    again.flushes.failed(prepared)
    assert (again.online.reason, again.local.recovery_point) == (None, 0)
    again.flushes.flush()
    assert again.local.recovery_point == 60
    again.close()


def test_fl1_a_flush_that_found_no_descriptor_does_not_hold_the_next_one_back() -> None:
    disk, log = disk_and_log()
    append_each(log, 5)
    disk.fail(1, errno.EMFILE, verbs={"sync"})
    with pytest.raises(OutOfHandles, match="not flushed up to offset 5"):
        log.flushes.flush()
    # The cut is below what the first flush was to sync, and the second flush ends where the first was to end.
    log.truncate_to(3, now_ms=NOW_MS)
    append_each(log, 2)
    log.flushes.flush()
    assert (log.online.reason, log.local.recovery_point) == (None, 5)


@pytest.mark.parametrize("at", range(1, 5))
def test_ro2_an_empty_segment_whose_restart_finds_no_descriptor_keeps_its_files(at: int) -> None:
    """Only the files of a segment that was not begun are deleted: this one takes the next append."""
    disk = new_disk()
    log = open_log(new_file_system(disk), ROOMY)
    append_each(log, 2)
    log.flushes.roll(now_ms=NOW_MS)
    names = set(log.local.file_system.list(DIRECTORY))
    disk.fail(at, errno.EMFILE)
    with pytest.raises(OutOfHandles):
        log.flushes.roll(now_ms=NOW_MS)
    assert names <= set(log.local.file_system.list(DIRECTORY))
    append_each(log, 2)
    assert read_offsets(log) == [0, 1, 2, 3]


@pytest.mark.parametrize("at", range(1, 8))
def test_rt5_a_roll_that_finds_no_descriptor_makes_no_later_record_older(at: int) -> None:
    """It may have trimmed the time index: what is appended then must not be missing there after the next roll."""
    disk, retention_ms = new_disk(), 1000
    config = replace(ROOMY, index_interval_bytes=0, retention_ms=retention_ms)
    file_system = new_file_system(disk)
    log = open_log(file_system, config)
    append_each(log, 3)
    disk.fail(at, errno.EMFILE)
    with pytest.raises(OutOfHandles):
        log.flushes.roll(now_ms=NOW_MS)
    later_ms = NOW_MS + 2 * retention_ms
    log.append_as_leader(produced(timestamp=later_ms), leader_epoch=0, now_ms=later_ms)
    log.flushes.roll(now_ms=later_ms)
    log.close()
    again = open_log(file_system, config, clean=True)
    again.marks.update_high_watermark(4)
    again.retention.delete_old(later_ms)
    assert 3 in read_offsets(again)


def test_ls1_an_index_that_finds_no_descriptor_misses_the_entry(log: PartitionLog) -> None:
    """The bytes are written by then, so the append must not fail; a cut looks for the timestamp in the records."""
    active = log.local.segments.active
    before = active.offset_index.entries, active.time_index.entries
    latest = TimestampOffset(NOW_MS + 1, 60)
    assert active.unseen_from(60) is None
    with descriptors_left(0):
        active.indexes.append(60, active.size_bytes, latest)
        assert (active.offset_index.entries, active.time_index.entries) == before
    assert active.unseen_from(60) is not None
    active.indexes.append(60, active.size_bytes, latest)
    assert active.offset_index.last_offset == 60
    assert active.time_index.last_entry == latest


def test_ls1_an_index_that_finds_no_descriptor_for_the_entries_of_a_set_misses_them(
    log: PartitionLog,
) -> None:
    active = log.local.segments.active
    before = active.offset_index.entries, active.time_index.entries
    entries = IndexEntries()
    entries.offsets = entries.time_offsets = [60, 61]
    entries.positions = [active.size_bytes, active.size_bytes + 1]
    entries.times = [NOW_MS + 1, NOW_MS + 2]
    assert active.unseen_from(60) is None
    with descriptors_left(0):
        active.indexes.append_all(entries)
        assert (active.offset_index.entries, active.time_index.entries) == before
    assert active.unseen_from(60) is not None
    active.indexes.append_all(entries)
    assert active.offset_index.last_offset == 61
    assert active.time_index.last_entry == (NOW_MS + 2, 61)


def test_an_append_closes_idle_files_before_it_fails(log: PartitionLog) -> None:
    active, fs = log.local.segments.active, log.local.file_system
    active.records.read_slice(0, 1)
    with descriptors_left(0):
        append_each(log, 3, value_bytes=100)
        assert len(fs.handles) == 1
    assert log.online.reason is None
    assert read_offsets(log) == list(range(63))


def test_a_log_that_rolls_takes_the_spare_descriptors(tmp_path: Path) -> None:
    file_system = OsFileSystem(spare_descriptors=4)
    log = PartitionLog.open(file_system, f"{tmp_path}/t-0", SMALL, clean=True, now_ms=NOW_MS)
    append_each(log, 5)
    log.flushes.flush()
    file_system.handles.make_room(100)
    with descriptors_left(0):
        log.flushes.roll(now_ms=NOW_MS)
        append_each(log, 5)
    assert log.online.reason is None
    assert len(log.local.segments) == 2
    assert read_offsets(log) == list(range(10))
    used = len(os.listdir("/proc/self/fd"))
    log.close()
    assert len(os.listdir("/proc/self/fd")) < used


def test_rt5_segments_whose_times_cannot_be_read_for_want_of_a_descriptor_are_left(log: PartitionLog) -> None:
    log.close()
    config = replace(SMALL, retention_ms=1000)
    file_system = OsFileSystem(handles=HandlePool(100))
    again = PartitionLog.open(file_system, log.directory, config, clean=True, now_ms=NOW_MS)
    again.marks.update_high_watermark(60)
    file_system.handles.make_room(100)
    with descriptors_left(0), pytest.raises(OutOfHandles, match="no old segment deleted"):
        again.retention.delete_old(NOW_MS + 2000)
    assert (again.online.reason, again.log_start_offset) == (None, 0)
    assert again.retention.delete_old(NOW_MS + 2000) > 1
    again.close()


def test_ep3_a_leader_epoch_that_finds_no_descriptor_is_not_noted(log: PartitionLog) -> None:
    with descriptors_left(0), pytest.raises(OutOfHandles, match="leader epoch 5 not noted"):
        log.appends.assign_epoch(5)
    assert (log.online.reason, log.epochs.last_epoch) == (None, 0)
    log.appends.assign_epoch(5)
    assert log.epochs.last_epoch == 5


def test_rt15_a_directory_that_cannot_be_renamed_for_want_of_a_descriptor_keeps_its_name(
    log: PartitionLog,
) -> None:
    before = log.directory
    with descriptors_left(0), pytest.raises(OutOfHandles, match="is not changed"):
        log.rename_directory("t-1")
    assert (log.online.reason, log.directory) == (None, before)
    assert read_offsets(log) == list(range(60))
    assert log.rename_directory("t-1")
    assert read_offsets(log) == list(range(60))


def test_rd11_a_high_watermark_whose_place_finds_no_descriptor_is_looked_up_later(log: PartitionLog) -> None:
    log.marks.update_high_watermark(30)
    with descriptors_left(0):
        assert log.marks.high_watermark_metadata.is_message_only
    assert log.online.reason is None
    assert not log.marks.high_watermark_metadata.is_message_only
    assert log.high_watermark == 30


Operation = Callable[[PartitionLog], None]


def lead(log: PartitionLog) -> None:
    append_each(log, 1, value_bytes=100)


def lead_in_a_new_epoch(log: PartitionLog) -> None:
    batch = produced(value_bytes=100, producer_id=9, producer_epoch=0, sequence=0)
    log.append_as_leader(batch, leader_epoch=log.epochs.last_epoch + 1, now_ms=NOW_MS)


def lead_into_a_new_segment(log: PartitionLog) -> None:
    log.append_as_leader(produced(value_bytes=1800), leader_epoch=0, now_ms=NOW_MS)


def flush(log: PartitionLog) -> None:
    log.flushes.flush()


def roll(log: PartitionLog) -> None:
    log.flushes.roll(now_ms=NOW_MS)


def truncate(log: PartitionLog) -> None:
    log.truncate_to(3, now_ms=NOW_MS)


def truncate_within_a_segment(log: PartitionLog) -> None:
    log.truncate_to(log.log_end_offset - 1, now_ms=NOW_MS)


def truncate_fully(log: PartitionLog) -> None:
    log.truncation.truncate_fully_and_start_at(0, now_ms=NOW_MS)


def truncate_in_slices(log: PartitionLog) -> None:
    log.truncation.batches_a_slice = 1
    while not log.truncation.prepare(5, now_ms=NOW_MS):
        pass
    log.truncate_to(5, now_ms=NOW_MS)


def delete_old_segments(log: PartitionLog) -> None:
    log.update_config(replace(SMALL, retention_bytes=500))
    log.marks.update_high_watermark(log.log_end_offset)
    assert log.retention.delete_old(NOW_MS)


def raise_log_start(log: PartitionLog) -> None:
    log.marks.update_high_watermark(log.log_end_offset)
    log.marks.maybe_increment_log_start_offset(20)


OPERATIONS = (
    lead,
    lead_in_a_new_epoch,
    lead_into_a_new_segment,
    flush,
    roll,
    truncate,
    truncate_within_a_segment,
    truncate_fully,
    truncate_in_slices,
    delete_old_segments,
    raise_log_start,
)


@pytest.mark.parametrize("operate", OPERATIONS, ids=lambda operate: operate.__name__)
def test_ap16_an_append_a_roll_a_flush_a_cut_and_a_deletion_that_find_no_descriptor_fail_alone(
    tmp_path: Path, operate: Operation
) -> None:
    assert fails_alone(tmp_path / "t-0", operate, left=0)


@pytest.mark.slow
@pytest.mark.parametrize("operate", OPERATIONS, ids=lambda operate: operate.__name__)
def test_ap16_whichever_file_finds_no_descriptor_the_log_stays_online(
    tmp_path: Path, operate: Operation
) -> None:
    """Another file is the first that cannot be opened, with 1, 2 … descriptors left."""
    left = 1
    while fails_alone(tmp_path / f"t-{left}", operate, left):
        left += 1
    assert left < 20


class Others:
    """Take every descriptor that is free at calls of storage's functions, from the `first`-th call on.

    They take none between a descriptor that was closed for a call and that call: of many threads that want one, that
    one is as quick as the others.
    """

    def __init__(self, first: int) -> None:
        self.calls, self._first = 0, first
        self._taken: list[int] = []

    @property
    def has_taken(self) -> bool:
        return bool(self._taken)

    def during(self, run: Callable[[], object]) -> None:
        gc.collect()
        with open_files_limited_to(len(os.listdir("/proc/self/fd")) + 50):
            before = sys.getprofile()
            sys.setprofile(self._on_event)
            try:
                run()
            finally:
                sys.setprofile(before)
        for each in self._taken:
            os.close(each)

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(ROOT) or code.co_name == "<lambda>":
            return
        self.calls += 1
        if self.calls >= self._first:
            with suppress(OSError):
                while True:
                    self._taken.append(os.open(os.devnull, os.O_RDONLY))


CHANGES = (
    truncate,
    truncate_within_a_segment,
    truncate_fully,
    truncate_in_slices,
    delete_old_segments,
)


def survives(directory: Path, operate: Operation, first: int) -> bool:
    """Let others take all descriptors from the `first`-th call on, and check that nothing or all was done.

    Returns whether the operation took so many calls.
    """
    log = opened(directory)
    before, failure, others = (log.log_start_offset, log.log_end_offset), None, Others(first)
    try:
        others.during(lambda: operate(log))
    except OutOfHandles as error:
        failure = error
    assert log.online.reason is None, (first, log.online.reason)
    if failure is not None:
        assert (log.log_start_offset, log.log_end_offset) == before, first
        check_known(log, directory)
        operate(log)
    check_known(log, directory)
    log.close()
    return others.has_taken


@pytest.mark.slow
@pytest.mark.parametrize("operate", [*CHANGES, raise_log_start], ids=lambda operate: operate.__name__)
def test_ap16_others_that_take_all_descriptors_in_the_midst_of_a_change_do_not_take_the_log_offline(
    tmp_path: Path, operate: Operation
) -> None:
    first = 1
    while survives(tmp_path / f"t-{first}", operate, first):
        first += 17
    assert first > 100


@pytest.mark.parametrize("operate", CHANGES, ids=lambda operate: operate.__name__)
@pytest.mark.parametrize("first", [60, 150])
def test_ap16_others_that_take_all_descriptors_at_some_call_do_not_take_the_log_offline(
    tmp_path: Path, operate: Operation, first: int
) -> None:
    assert survives(tmp_path / "t-0", operate, first)


def fails_alone(directory: Path, operate: Operation, left: int) -> bool:
    """Whether the operation finds too few descriptors; check that the log then knows what it holds, and goes on."""
    log = opened(directory)
    before, failure = (log.log_start_offset, log.log_end_offset), None
    with descriptors_left(left):
        try:
            operate(log)
        except OutOfHandles as error:
            failure = error
    assert log.online.reason is None
    if failure is not None:
        assert (log.log_start_offset, log.log_end_offset) == before
        check_known(log, directory)
        operate(log)
    check_known(log, directory)
    log.close()
    return failure is not None


def opened(directory: Path) -> PartitionLog:
    """Open a log of two segments with unsynced records in the last one, none of whose files is open."""
    file_system = OsFileSystem(handles=HandlePool(100))
    log = PartitionLog.open(file_system, str(directory), SMALL, clean=True, now_ms=NOW_MS)
    append_each(log, 24, value_bytes=100)
    batch = produced(producer_id=7, producer_epoch=0, sequence=0)
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    file_system.handles.make_room(100)
    assert len(file_system.handles) == 0
    return log


def check_known(log: PartitionLog, directory: Path) -> None:
    """Check that the log reads what it says it holds, and that a start after a crash finds the same."""
    offsets = list(range(log.log_start_offset, log.log_end_offset))
    assert read_offsets(log) == offsets
    copy = directory.parent / "copy" / directory.name
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, copy)
    found = PartitionLog.open(
        OsFileSystem(),
        str(copy),
        SMALL,
        log_start_offset=log.log_start_offset,
        recovery_point=log.local.recovery_point,
        clean=False,
        now_ms=NOW_MS,
    )
    assert read_offsets(found) == offsets
    assert found.epochs.entries == log.epochs.entries
    assert list(found.local.segments.base_offsets) == list(log.local.segments.base_offsets)
    assert {key: entry.last_offset for key, entry in found.producers.producers.items()} == {
        key: entry.last_offset for key, entry in log.producers.producers.items()
    }
    found.close_handles()
