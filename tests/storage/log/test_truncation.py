"""Truncation of a log, and its effects. Rules RT9 to RT12, T9."""

from __future__ import annotations

import pytest

from sim.disk import PowerLoss
from sim.disk.life import Dead, Life
from storage.disk.filesystem import read_file
from storage.log import LogOffsetMetadata, PartitionLog
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    SIZE,
    SMALL,
    THREE,
    append_each,
    durable_file_system,
    epochs,
    new_disk,
    new_file_system,
    open_log,
    produced,
    read_offsets,
)


def test_rt9_at_or_beyond_the_end_the_log_answers_that_nothing_changed() -> None:
    log = open_log(new_file_system())
    append_each(log, 5)
    size = log.local.segments.size_bytes
    assert log.truncate_to(5, now_ms=NOW_MS) is False and log.truncate_to(500, now_ms=NOW_MS) is False
    assert log.log_end_offset == 5 and log.local.segments.size_bytes == size


@pytest.mark.covers("UnifiedLogTest.testTruncateToEndOffsetClearsEpochCache")
@pytest.mark.parametrize("offset", [29, 30])
def test_rt9_beyond_the_end_epochs_without_records_are_forgotten(offset: int) -> None:
    log = open_log(new_file_system())
    append_each(log, 29, epoch=19)
    log.appends.assign_epoch(20, 29)
    assert log.truncate_to(offset, now_ms=NOW_MS) is False
    assert log.epochs.latest_epoch == 19


def test_rt9_a_segment_that_a_truncation_empties_is_as_new_as_the_truncation() -> None:
    log = open_log(new_file_system())
    append_each(log, 2)
    log.truncate_to(0, now_ms=NOW_MS + 500)
    assert log.local.segments.active.created_ms == NOW_MS + 500


def test_rt9_a_negative_offset_raises() -> None:
    with pytest.raises(ValueError):
        open_log(new_file_system()).truncate_to(-1, now_ms=NOW_MS)


@pytest.mark.covers("LocalLogTest.testTruncateTo")
def test_rt9_whole_segments_and_the_rest_of_one_are_deleted() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 12)
    assert log.local.segments.base_offsets == [0, 3, 6, 9]
    assert log.truncate_to(7, now_ms=NOW_MS) is True
    assert log.local.segments.base_offsets == [0, 3, 6] and log.log_end_offset == 7
    assert log.local.log_end == LogOffsetMetadata(7, 6, SIZE)
    assert read_offsets(log) == list(range(7))
    assert not [name for name in file_system.list(DIRECTORY) if name.startswith(f"{9:020d}")]
    append_each(log, 2)
    assert read_offsets(log) == list(range(9))


def test_rt10_inside_a_batch_the_whole_batch_is_deleted_and_the_end_is_the_offset_asked_for() -> None:
    log = open_log(new_file_system())
    for count in (3, 5):
        log.append_as_leader(produced(count), leader_epoch=0, now_ms=NOW_MS)
    assert log.truncate_to(5, now_ms=NOW_MS)
    assert log.log_end_offset == 5 and read_offsets(log) == [0, 1, 2]
    append_each(log, 1)
    assert read_offsets(log) == [0, 1, 2, 5]


def test_rt11_a_segment_based_at_the_offset_stays_and_is_empty() -> None:
    log = open_log(new_file_system(), THREE)
    append_each(log, 8)
    assert log.truncate_to(6, now_ms=NOW_MS)
    assert log.local.segments.base_offsets == [0, 3, 6] and log.local.segments.active.size_bytes == 0


def test_rt9_below_the_first_segment_everything_is_deleted() -> None:
    log = open_log(new_file_system(), log_start_offset=10)
    append_each(log, 5)
    assert log.truncate_to(4, now_ms=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.local.segments.base_offsets) == (4, 4, [4])


def test_rt9_a_truncation_below_the_log_start_lowers_it() -> None:
    log = open_log(new_file_system())
    append_each(log, 10)
    log.marks.update_high_watermark(10)
    log.marks.maybe_increment_log_start_offset(8)
    assert log.truncate_to(5, now_ms=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (5, 5, 5)


def test_rt9_the_high_watermark_is_never_above_the_end() -> None:
    log = open_log(new_file_system())
    append_each(log, 10)
    log.marks.update_high_watermark(8)
    log.truncate_to(8, now_ms=NOW_MS)
    assert log.high_watermark == 8 and log.marks.high_watermark_metadata == log.local.log_end
    log.truncate_to(3, now_ms=NOW_MS)
    assert log.high_watermark == 3 and log.marks.high_watermark_metadata == log.local.log_end


@pytest.mark.covers("UnifiedLogTest.shouldTruncateLeaderEpochCheckpointFileWhenTruncatingLog")
def test_rt9_epochs_that_began_after_it_are_forgotten_on_disk_too() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    for epoch, count in ((0, 10), (1, 6), (2, 4)):
        append_each(log, count, epoch=epoch)
    for offset, expected in ((20, 3), (11, 2), (10, 1), (0, 0)):
        log.truncate_to(offset, now_ms=NOW_MS)
        assert len(epochs(log)) == expected
    assert read_file(file_system, f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n0\n"


def test_rt16_a_lowered_recovery_point_is_written_before_the_next_append() -> None:
    told: list[tuple[int, int]] = []
    file_system = new_file_system()
    log = PartitionLog.open(
        file_system,
        DIRECTORY,
        SMALL,
        clean=False,
        now_ms=NOW_MS,
        write_lowered_offsets=lambda: told.append((log.local.recovery_point, log.log_end_offset)),
    )
    append_each(log, 10)
    log.truncate_to(9, now_ms=NOW_MS)
    append_each(log, 1)
    # The recovery point was 0, so it was not lowered.
    assert told == []
    log.flushes.flush()
    log.truncate_to(4, now_ms=NOW_MS)
    append_each(log, 2)
    assert told == [(4, 4)]


def test_rt9_producers_are_as_they_were_at_the_offset() -> None:
    log = open_log(new_file_system())
    for sequence in range(6):
        data = produced(producer_id=3, producer_epoch=0, sequence=sequence)
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    log.truncate_to(3, now_ms=NOW_MS)
    entry = log.producers.last_entry(3)
    assert entry is not None and entry.last_sequence == 2
    data = produced(producer_id=3, producer_epoch=0, sequence=3)
    assert log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS).last_offset == 3


@pytest.mark.covers("UnifiedLogTest.testTruncateTo")
def test_rt9_a_refilled_log_reads_the_same() -> None:
    log = open_log(new_file_system(), THREE)
    append_each(log, 12)
    before = [segment.records.read_slice(0, 10_000) for segment in log.local.segments]
    log.truncate_to(0, now_ms=NOW_MS)
    assert log.local.segments.size_bytes == 0
    append_each(log, 12)
    assert [segment.records.read_slice(0, 10_000) for segment in log.local.segments] == before


@pytest.mark.covers("LocalLogTest.testTruncateFullyAndStartAt")
def test_rt12_a_full_truncation_restarts_the_log_at_the_given_offset() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 12, epoch=4)
    log.flushes.flush()
    log.marks.update_high_watermark(9)
    log.truncation.truncate_fully_and_start_at(50, now_ms=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (50, 50, 50)
    assert log.local.segments.base_offsets == [50] and epochs(log) == []
    assert log.producers.map_end_offset == 50
    append_each(log, 2, epoch=5)
    assert read_offsets(log) == [50, 51]
    log.close_handles()
    again = open_log(file_system, THREE)
    assert read_offsets(again) == [50, 51] and epochs(again) == [(5, 50)]


@pytest.mark.covers("UnifiedLogTest.testTruncateFullyAndStart")
def test_rt12_downward_too_and_with_a_log_start_of_its_own() -> None:
    log = open_log(new_file_system())
    append_each(log, 5)
    log.truncation.truncate_fully_and_start_at(2, 1, now_ms=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.local.recovery_point) == (1, 2, 0)


MODES: list[PowerLoss] = ["none", "prefix", "subset", "torn", "all"]


@pytest.mark.parametrize("mode", MODES)
def test_truncated_records_do_not_come_back_between_newer_ones(mode: PowerLoss) -> None:
    for seed in range(8):
        disk = new_disk(seed)
        file_system = durable_file_system(disk)
        log = open_log(file_system, THREE)
        append_each(log, 12, epoch=1)
        log.flushes.flush()
        log.truncate_to(4, now_ms=NOW_MS)
        append_each(log, 8, epoch=2)
        disk.lose_power(mode)
        again = open_log(new_file_system(disk), THREE, recovery_point=4)
        assert read_offsets(again)[:4] == [0, 1, 2, 3]
        for offset in read_offsets(again)[4:]:
            assert again.epochs.epoch_for_offset(offset) == 2
            data = again.read(offset, max_size=1).records
            assert int.from_bytes(data[12:16], "big") == 2


def _truncate_to_4(log: PartitionLog) -> None:
    log.truncate_to(4, now_ms=NOW_MS)


def _begin_again_at_4(log: PartitionLog) -> None:
    log.truncation.truncate_fully_and_start_at(4, now_ms=NOW_MS)


def test_a_crash_at_any_call_of_a_truncation_leaves_no_hole() -> None:
    disk = new_disk()
    file_system = durable_file_system(disk)
    log = open_log(file_system, THREE)
    append_each(log, 15)
    log.close()
    for verb in (_truncate_to_4, _begin_again_at_4):
        for call in range(1, 100):
            twin = disk.snapshot()
            log = open_log(twin.file_system(Life()), THREE, clean=True)
            twin.arm_crash(call)
            try:
                verb(log)
            except Dead:
                pass
            else:
                break
            log = open_log(twin.file_system(Life()), THREE, recovery_point=15)
            offsets = read_offsets(log)
            assert offsets == list(range(len(offsets))), (verb, call)
        assert call > 10
