"""A roll of a log with many producers leaves their snapshot to a job: rules PS15, T12, LL6."""

from __future__ import annotations

import pytest

from sim.disk.handles import SimFileSystem
from storage.log import PartitionLog
from storage.producers.prepared_snapshot import PreparedSnapshot
from storage.producers.snapshot import ENTRY_BYTES, read_content, snapshot_name
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    ROOMY,
    durable_file_system,
    new_disk,
    new_file_system,
    open_log,
)
from tests.storage.producers.producer_logs import last_sequences, segmented, send, snapshots

MANY = range(1, 9)


def rolled(file_system: SimFileSystem, *, most_in_a_roll: int) -> PartitionLog:
    """A log of eight producers, one of them in a transaction, that has just been rolled."""
    log = open_log(file_system, ROOMY)
    log.flushes.most_in_a_roll = most_in_a_roll
    for pid in MANY:
        send(log, pid=pid, is_transactional=pid == 3)
    log.flushes.roll(now_ms=NOW_MS)
    return log


def begun(log: PartitionLog) -> PreparedSnapshot:
    snapshot = log.flushes.begin_snapshot()
    assert snapshot is not None
    return snapshot


def content(file_system: SimFileSystem, offset: int) -> bytes:
    return read_content(file_system, f"{DIRECTORY}/{snapshot_name(offset)}")


def test_ps15_no_snapshot_is_prepared_at_or_below_the_offset_of_the_last_one() -> None:
    log = open_log(new_file_system(), ROOMY)
    send(log, pid=1)
    producers = log.producers
    assert producers.take_snapshot() is not None
    assert (producers.take_snapshot(), producers.prepare_snapshot(0)) == (None, None)
    send(log, pid=2)
    prepared = producers.prepare_snapshot(0)
    assert prepared is not None and prepared.offset == 2
    producers.end_snapshot(is_kept=False)


def change_all(log: PartitionLog) -> None:
    """Change, end, expire and replace producers."""
    for pid in MANY:
        send(log, 1, pid=pid, is_transactional=pid == 3, timestamp=NOW_MS + pid)
    send(log, pid=1, epoch=5)
    send(log, pid=99)
    log.producers.remove_expired(NOW_MS + 86_400_000 + 2)
    send(log, pid=2)


@pytest.mark.parametrize("changes_before_the_job", [True, False])
def test_ps15_a_snapshot_of_a_job_is_that_of_the_roll_whatever_changes_meanwhile(
    changes_before_the_job: bool,
) -> None:
    in_step, by_job = new_file_system(), new_file_system()
    rolled(in_step, most_in_a_roll=8)
    log = rolled(by_job, most_in_a_roll=7)
    assert (snapshots(in_step), snapshots(by_job)) == ([8], [])
    snapshot = begun(log)
    if changes_before_the_job:
        change_all(log)
        snapshot()
    else:
        snapshot()
        change_all(log)
    assert snapshots(by_job) == []
    log.flushes.snapshot_done()
    assert content(by_job, 8) == content(in_step, 8)
    assert log.producers.snapshots.offsets == snapshots(by_job) == [8]
    assert log.producers.last_snapshot_offset == 8


def test_ps15_an_entry_that_changes_while_the_job_reads_is_written_as_it_was() -> None:
    """Half of the change is made when the job reads the entry; its copy was made before."""
    in_step, by_job = new_file_system(), new_file_system()
    rolled(in_step, most_in_a_roll=8)
    log = rolled(by_job, most_in_a_roll=7)
    snapshot, entry = begun(log), log.producers.producers[5]
    snapshot.keep(entry)
    entry.batches = ()
    entry.producer_epoch = 77
    snapshot()
    log.flushes.snapshot_done()
    assert content(by_job, 8) == content(in_step, 8)


def test_t12_the_saved_recovery_point_waits_for_the_snapshot() -> None:
    log = rolled(new_file_system(), most_in_a_roll=7)
    assert (log.local.recovery_point, log.flushes.saved_recovery_point) == (8, 0)
    snapshot = begun(log)
    send(log, pid=50)
    log.flushes.flush()
    snapshot()
    assert (log.local.recovery_point, log.flushes.saved_recovery_point) == (9, 0)
    log.flushes.snapshot_done()
    assert log.flushes.saved_recovery_point == 9


def test_ps15_one_job_writes_at_a_time_and_the_next_roll_takes_its_own_snapshot() -> None:
    file_system = new_file_system()
    log = rolled(file_system, most_in_a_roll=7)
    snapshot = begun(log)
    assert log.flushes.begin_snapshot() is None
    send(log, pid=50)
    log.flushes.roll(now_ms=NOW_MS)
    assert snapshots(file_system) == [9]
    snapshot()
    log.flushes.snapshot_done()
    assert log.producers.snapshots.offsets == snapshots(file_system) == [8, 9]
    assert log.producers.last_snapshot_offset == 9


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("fully", [True, False])
def test_ps16_a_truncation_meanwhile_leaves_no_snapshot_of_what_was_cut(
    fully: bool, is_written: bool
) -> None:
    file_system = new_file_system()
    log = rolled(file_system, most_in_a_roll=7)
    snapshot = begun(log)
    if is_written:
        snapshot()
    if fully:
        log.truncation.truncate_fully_and_start_at(6, now_ms=NOW_MS)
    else:
        log.truncate_to(6, now_ms=NOW_MS)
    expected = snapshots(file_system)
    for number in range(2):
        send(log, number, pid=70)
    # The same offset again, while the job of before is not done.
    log.flushes.roll(now_ms=NOW_MS)
    right = content(file_system, 8)
    if not is_written:
        snapshot()
    log.flushes.snapshot_done()
    assert snapshots(file_system) == log.producers.snapshots.offsets == [*expected, 8]
    assert content(file_system, 8) == right
    assert not [name for name in file_system.list(DIRECTORY) if name.endswith(".tmp")]


@pytest.mark.parametrize("fully", [True, False])
def test_ps15_after_a_truncation_that_dropped_a_snapshot_before_its_job_the_next_roll_prepares_one(
    fully: bool,
) -> None:
    file_system = new_file_system()
    log = rolled(file_system, most_in_a_roll=7)
    if fully:
        log.truncation.truncate_fully_and_start_at(7, now_ms=NOW_MS)
    else:
        log.truncate_to(7, now_ms=NOW_MS)
    assert log.flushes.begin_snapshot() is None
    for pid in range(50, 58):
        send(log, pid=pid)
    log.flushes.roll(now_ms=NOW_MS)
    begun(log)()
    log.flushes.snapshot_done()
    assert snapshots(file_system)[-1] == log.producers.snapshots.latest_offset == 15


def test_ll6_a_start_deletes_the_file_of_a_job_that_a_crash_ended() -> None:
    file_system = new_file_system()
    log = rolled(file_system, most_in_a_roll=7)
    begun(log)()
    expected = last_sequences(log)
    again = open_log(file_system, ROOMY)
    assert last_sequences(again) == expected
    assert not [name for name in file_system.list(DIRECTORY) if name.endswith(".tmp")]


def test_rt14_an_orderly_stop_does_not_wait_for_the_job() -> None:
    file_system = new_file_system()
    log = rolled(file_system, most_in_a_roll=7)
    begun(log)()
    send(log, pid=50)
    expected = last_sequences(log)
    log.close()
    assert log.flushes.saved_recovery_point == 9
    again = open_log(file_system, ROOMY, clean=True, recovery_point=9)
    assert last_sequences(again) == expected


def test_ps15_few_producers_are_saved_in_the_roll() -> None:
    file_system = new_file_system()
    log = segmented(file_system, 2)
    assert log.flushes.begin_snapshot() is None
    assert snapshots(file_system) == [1]


def test_ps20_a_snapshot_whose_segment_was_deleted_meanwhile_is_not_kept() -> None:
    file_system = new_file_system()
    log = rolled(file_system, most_in_a_roll=7)
    snapshot = begun(log)
    snapshot()
    send(log, pid=50)
    log.flushes.roll(now_ms=NOW_MS)
    log.marks.update_high_watermark(log.log_end_offset)
    log.marks.maybe_increment_log_start_offset(9)
    assert log.retention.delete_old(NOW_MS) == 2
    log.flushes.snapshot_done()
    assert log.producers.snapshots.offsets == snapshots(file_system) == [9]
    assert not [name for name in file_system.list(DIRECTORY) if name.endswith(".tmp")]


def test_t12_the_bytes_of_a_snapshot_are_on_the_disk_before_its_name() -> None:
    disk = new_disk()
    file_system = durable_file_system(disk)
    log = rolled(file_system, most_in_a_roll=7)
    begun(log)()
    log.flushes.snapshot_done()
    file_system.sync_directory(DIRECTORY)
    durable = disk.durable_bytes(f"{DIRECTORY}/{snapshot_name(8)}")
    assert durable == content(file_system, 8)
    assert len(durable) > 8 * ENTRY_BYTES
