"""Roll and flush of a log. Rules RO1 to RO4, FL1 to FL6, T12."""

from __future__ import annotations

import pytest

from sim.disk import PowerLoss
from storage.config import LogConfig
from storage.disk.filesystem import OpenMode, read_file
from storage.errors import StorageError
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    SIZE,
    SMALL,
    append_each,
    bases,
    batch,
    durable_file_system,
    new_disk,
    new_file_system,
    open_log,
    produced,
    read_offsets,
)

# Roll


@pytest.mark.covers("UnifiedLogTest.testSizeBasedLogRoll")
def test_ro1_rolls_by_size_when_the_next_set_would_not_fit() -> None:
    log = open_log(new_file_system(), LogConfig(segment_bytes=3 * SIZE, segment_index_bytes=1200))
    append_each(log, 7)
    assert bases(log) == [0, 3, 6] and read_offsets(log) == list(range(7))


def test_ro1_rolls_by_time_of_the_records() -> None:
    log = open_log(new_file_system(), LogConfig(segment_ms=1000, segment_index_bytes=1200))
    for timestamp in (0, 1000, 1001, 1500, 2002):
        log.append_as_leader(produced(timestamp=NOW_MS + timestamp), leader_epoch=0, now_ms=NOW_MS)
    assert bases(log) == [0, 2, 4]


@pytest.mark.covers("UnifiedLogTest.testTimeBasedLogRollDuringAppend")
@pytest.mark.parametrize("in_slices", [False, True])
def test_ro1_rolls_by_the_clock_where_records_have_no_time(in_slices: bool) -> None:
    log = open_log(new_file_system(), LogConfig(segment_ms=1000, segment_index_bytes=1200))
    # The log was opened at NOW_MS.
    for now_ms in (NOW_MS + 900, NOW_MS + 1000, NOW_MS + 1001, NOW_MS + 2001, NOW_MS + 2002):
        if in_slices:
            validation = log.appends.validation(produced(timestamp=-1), now_ms)
            validation.run()
            log.appends.validated_as_leader(validation, leader_epoch=0, now_ms=now_ms)
        else:
            log.append_as_leader(produced(timestamp=-1), leader_epoch=0, now_ms=now_ms)
    assert bases(log) == [0, 2, 4]


def test_ro1_an_empty_segment_never_rolls_for_its_age() -> None:
    log = open_log(new_file_system(), LogConfig(segment_ms=1000, segment_index_bytes=1200))
    for now_ms in (NOW_MS + 5000, NOW_MS + 5000):
        log.append_as_leader(produced(timestamp=-1), leader_epoch=0, now_ms=now_ms)
    assert bases(log) == [0, 1]


def test_ro1_rolls_when_the_index_is_full() -> None:
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=48)
    log = open_log(new_file_system(), config)
    for index in range(12):
        log.append_as_leader(produced(timestamp=NOW_MS + index), leader_epoch=0, now_ms=NOW_MS)
    assert len(bases(log)) > 1 and read_offsets(log) == list(range(12))
    for segment in log.local.segments:
        assert segment.offset_index.entries <= 6 and segment.time_index.entries <= 4


def test_ap11_a_follower_rolls_to_the_first_offset_of_the_set() -> None:
    log = open_log(new_file_system(), LogConfig(segment_bytes=2 * SIZE, segment_index_bytes=1200))
    for offset in (0, 1, 50):
        log.append_as_follower(batch(offset), leader_epoch=0, now_ms=NOW_MS)
    assert bases(log) == [0, 50] and log.log_end_offset == 51


@pytest.mark.covers(
    "LocalLogTest.testRollEmptyActiveSegment",
    "LocalLogTest.testRollSegmentThatAlreadyExists",
    "UnifiedLogTest.testRollSegmentThatAlreadyExists",
)
def test_ro2_an_empty_active_segment_is_made_new_in_place() -> None:
    log = open_log(new_file_system())
    log.flushes.roll(now_ms=NOW_MS)
    assert bases(log) == [0]
    append_each(log, 1)
    log.flushes.roll(now_ms=NOW_MS)
    log.flushes.roll(now_ms=NOW_MS)
    assert bases(log) == [0, 1]


@pytest.mark.covers("LocalLogTest.testRollSegmentErrorWhenNextOffsetIsIllegal")
def test_ro2_below_the_active_base_is_refused() -> None:
    log = open_log(new_file_system())
    log.flushes.roll(10, now_ms=NOW_MS)
    assert bases(log) == [0, 10] and log.log_end_offset == 0
    with pytest.raises(StorageError):
        log.flushes.roll(5, now_ms=NOW_MS)
    # Nothing has changed, and the log goes on.
    log.append_as_follower(batch(10), leader_epoch=0, now_ms=NOW_MS)
    assert bases(log) == [0, 10] and read_offsets(log, 10) == [10]


def test_ro2_a_roll_above_a_gap_is_judged_by_the_offset_that_is_expected() -> None:
    log = open_log(new_file_system())
    append_each(log, 2)
    log.flushes.roll(10, now_ms=NOW_MS)
    for expected, is_refused in ((None, True), (1, True), (9, True), (10, False), (11, False), (30, False)):
        if is_refused:
            with pytest.raises(StorageError, match="below the active segment at 10"):
                log.local.check_roll(expected)
        else:
            log.local.check_roll(expected)
    log.flushes.roll(30, now_ms=NOW_MS)
    assert (bases(log), log.log_end_offset, log.local.recovery_point) == ([0, 10, 30], 2, 30)


def test_ro2_stale_files_of_the_new_base_are_removed() -> None:
    file_system = new_file_system()
    log = open_log(file_system)
    append_each(log, 2)
    for kind in ("log", "index", "timeindex", "txnindex"):
        file_system.open(f"{DIRECTORY}/{2:020d}.{kind}", OpenMode.CREATE).write_at(0, b"stale")
    log.flushes.roll(now_ms=NOW_MS)
    assert (
        log.local.segments.active.size_bytes == 0 and not log.local.segments.active.transaction_index.exists
    )
    append_each(log, 1)
    assert log.local.segments.active.time_index.entries == 0 and read_offsets(log) == [0, 1, 2]


@pytest.mark.covers("UnifiedLogTest.testLogRolls")
def test_ro3_a_roll_takes_a_snapshot_and_syncs_earlier_records() -> None:
    log = open_log(new_file_system())
    append_each(log, 3)
    log.flushes.roll(now_ms=NOW_MS)
    assert log.producers.snapshots.latest_offset == 3 and log.local.recovery_point == 3


def test_a_roll_after_a_restart_syncs_what_the_life_before_left_unsynced() -> None:
    disk = new_disk()
    file_system = durable_file_system(disk)
    log = open_log(file_system)
    append_each(log, 3)
    disk.crash_process()
    log = open_log(new_file_system(disk))
    assert log.local.recovery_point == 0
    append_each(log, 1)
    log.flushes.roll(now_ms=NOW_MS)
    disk.lose_power("none")
    assert read_offsets(open_log(new_file_system(disk), recovery_point=4)) == [0, 1, 2, 3]


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_ro3_a_roll_syncs_the_indexes_as_it_has_closed_them(suffix: str) -> None:
    """Their last entry and their length are below the recovery point, where no start looks at them."""
    disk = new_disk()
    log = open_log(durable_file_system(disk), SMALL)
    append_each(log, 10)
    log.flushes.roll(now_ms=NOW_MS)
    name = f"{DIRECTORY}/{0:020d}.{suffix}"
    before = read_file(new_file_system(disk), name)
    disk.lose_power("none")
    assert read_file(new_file_system(disk), name) == before
    # Cut to the entries, of which the time index has one for the greatest time.
    assert 0 < len(before) < SMALL.segment_index_bytes


MODES: list[PowerLoss] = ["none", "prefix", "subset", "torn"]


@pytest.mark.parametrize("mode", MODES)
def test_a_power_loss_leaves_no_hole_between_segments(mode: PowerLoss) -> None:
    for seed in range(20):
        disk = new_disk(seed)
        file_system = durable_file_system(disk)
        log = open_log(file_system, LogConfig(segment_bytes=3 * SIZE, segment_index_bytes=1200))
        append_each(log, 14)
        disk.lose_power(mode)
        offsets = read_offsets(open_log(new_file_system(disk)))
        assert offsets == list(range(len(offsets))) and len(offsets) >= 12


# Flush


def test_fl6_an_append_syncs_nothing_by_default() -> None:
    disk = new_disk()
    log = open_log(new_file_system(disk), LogConfig(segment_index_bytes=1200))
    append_each(log, 1)
    disk.call_log = []
    append_each(log, 5)
    assert not any(line.startswith("sync") for line in disk.call_log)
    assert log.local.recovery_point == 0 and log.flushes.wanted is None


def test_fl1_after_a_flush_a_power_loss_takes_nothing() -> None:
    disk = new_disk()
    file_system = new_file_system(disk)
    log = open_log(file_system)
    append_each(log, 60)
    assert len(log.local.segments) > 2
    log.flushes.flush()
    assert log.local.recovery_point == 60
    file_system.sync_directory("logs")
    file_system.sync_directory("")
    append_each(log, 5)
    disk.lose_power("none")
    again = open_log(new_file_system(disk), recovery_point=60)
    assert read_offsets(again) == list(range(60))


def test_flush_messages_asks_for_a_flush_of_everything() -> None:
    log = open_log(new_file_system(), LogConfig(flush_messages=3, segment_index_bytes=1200))
    append_each(log, 2)
    assert log.flushes.wanted is None
    append_each(log, 1)
    assert log.flushes.wanted == 3
    prepared = log.flushes.prepare(log.flushes.wanted)
    prepared()
    log.flushes.done(3)
    assert log.local.recovery_point == 3 and log.flushes.wanted is None


def test_a_prepared_flush_covers_earlier_records_while_appends_continue() -> None:
    disk = new_disk()
    file_system = new_file_system(disk)
    log = open_log(file_system)
    file_system.sync_directory("logs")
    file_system.sync_directory("")
    append_each(log, 4)
    prepared = log.flushes.prepare()
    append_each(log, 5)
    prepared()
    log.flushes.done(prepared.offset)
    assert log.local.recovery_point == 4
    disk.lose_power("none")
    again = open_log(new_file_system(disk), recovery_point=4)
    assert read_offsets(again)[:4] == [0, 1, 2, 3]


def test_a_prepared_flush_creates_no_file_when_it_runs() -> None:
    disk = new_disk()
    log = open_log(new_file_system(disk))
    append_each(log, 2)
    log.flushes.roll(now_ms=NOW_MS)
    prepared = log.flushes.prepare()
    disk.call_log = []
    prepared()
    assert {line.split()[0] for line in disk.call_log} <= {"sync", "sync_directory"}


def test_a_truncation_under_a_prepared_flush_keeps_the_recovery_point_below_it() -> None:
    log = open_log(new_file_system())
    append_each(log, 10)
    prepared = log.flushes.prepare()
    log.truncate_to(4, now_ms=NOW_MS)
    # Nobody has synced these other records.
    append_each(log, 10)
    prepared()
    log.flushes.done(prepared.offset)
    assert log.local.recovery_point == 4


def test_a_segment_that_a_truncation_took_does_not_fail_the_flush() -> None:
    log = open_log(new_file_system())
    append_each(log, 60)
    prepared = log.flushes.prepare()
    log.truncation.truncate_fully_and_start_at(100, now_ms=NOW_MS)
    prepared()
    log.flushes.done(prepared.offset)
    assert log.local.recovery_point <= log.log_end_offset == 100


def test_fl4_a_flush_of_everything_includes_an_empty_active_segment() -> None:
    disk = new_disk()
    file_system = new_file_system(disk)
    log = open_log(file_system)
    append_each(log, 2)
    log.flushes.roll(now_ms=NOW_MS)
    log.flushes.flush()
    names = file_system.list(DIRECTORY)
    assert f"{2:020d}.index" in names


def test_a_failed_sync_takes_the_log_offline_for_good() -> None:
    disk = new_disk()
    log = open_log(new_file_system(disk))
    append_each(log, 3)
    disk.fail(1, verbs={"sync"}, path_suffix=".log")
    with pytest.raises(StorageError):
        log.flushes.flush()
    assert log.local.recovery_point == 0
    with pytest.raises(StorageError):
        log.flushes.flush()
