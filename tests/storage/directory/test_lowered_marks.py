"""The log starts and high watermarks of logs that were truncated below them: the checkpoints are as low before bytes
follow a cut (RT16, HWM-8).
"""

from __future__ import annotations

import pytest

from sim.disk import SimDisk
from storage.directory.manager import LogManager
from storage.log import PartitionLog
from tests.storage.directory.directories import content, started
from tests.storage.logs import NOW_MS, append_each, new_disk, read_offsets

CHECKPOINTS = ("log-start-offset-checkpoint", "replication-offset-checkpoint")


def with_a_committed_log(disk: SimDisk) -> tuple[LogManager, PartitionLog]:
    """Records 0 to 9 of `a-0`, all committed; those below 8 are deleted, in the middle of a segment."""
    logs = started(disk)
    log = logs.create("a", 0)
    append_each(log, 10)
    log.marks.update_high_watermark(10)
    log.marks.maybe_increment_log_start_offset(8)
    logs.checkpoint_log_start_offsets()
    logs.checkpoint_high_watermarks()
    assert [content(disk, name) for name in CHECKPOINTS] == [b"0\n1\na 0 8\n", b"0\n1\na 0 10\n"]
    return logs, log


def next_life(disk: SimDisk) -> PartitionLog:
    disk.crash_process()
    return started(disk).logs["a-0"]


@pytest.mark.parametrize("is_full", [False, True])
def test_rt16_a_log_cut_below_its_log_start_is_not_emptied_by_the_checkpoint_of_before(is_full: bool) -> None:
    """Such a cut follows an unclean election: what comes after it is committed, and the replica may lead next."""
    disk = new_disk()
    _, log = with_a_committed_log(disk)
    if is_full:
        log.truncation.truncate_fully_and_start_at(4, now_ms=NOW_MS)
    else:
        log.truncate_to(4, now_ms=NOW_MS)
    append_each(log, 3)
    log.marks.update_high_watermark(7)
    log = next_life(disk)
    assert (log.log_start_offset, log.log_end_offset) == (4, 7)
    assert read_offsets(log) == [4, 5, 6]


def test_hwm8_what_follows_a_cut_below_the_high_watermark_does_not_count_as_committed() -> None:
    disk = new_disk()
    _, log = with_a_committed_log(disk)
    log.truncate_to(9, now_ms=NOW_MS)
    append_each(log, 3)
    assert log.high_watermark == 9
    log = next_life(disk)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (8, 9, 12)


def test_rt16_a_job_does_not_put_marks_of_before_the_cut_in_place() -> None:
    disk = new_disk()
    logs, log = with_a_committed_log(disk)
    written = logs.prepare_checkpoint()
    written()
    log.truncate_to(4, now_ms=NOW_MS)
    append_each(log, 3)
    assert not written.adopt()
    log = next_life(disk)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (4, 4, 7)


def test_rt16_recovery_points_by_the_clock_have_the_lowered_marks_with_them() -> None:
    disk = new_disk()
    logs, log = with_a_committed_log(disk)
    log.truncate_to(4, now_ms=NOW_MS)
    logs.checkpoint_recovery_points()
    calls = disk.call_log = []
    append_each(log, 3)
    assert not [call for call in calls if "checkpoint" in call and "a-0" not in call], calls
    log = next_life(disk)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (4, 4, 7)


def test_rt16_a_cut_above_the_marks_writes_neither_of_them() -> None:
    disk = new_disk()
    _, log = with_a_committed_log(disk)
    append_each(log, 5)
    log.flushes.flush()
    calls = disk.call_log = []
    log.truncate_to(12, now_ms=NOW_MS)
    append_each(log, 1)
    assert any("recovery-point" in call for call in calls)
    assert not [call for call in calls if any(name in call for name in CHECKPOINTS)], calls
