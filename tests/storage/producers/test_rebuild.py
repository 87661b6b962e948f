"""Producers and transactions of a log that is reopened or compacted, and its snapshots.

Rules PS7, PS15, PS16, PS22 to PS25, traps T11, T12, T45, T46.
"""

from __future__ import annotations

import pytest

from sim.disk import SimDisk
from sim.disk.handles import SimFileSystem
from sim.disk.life import Life
from storage.codec.crc32c import crc32c
from storage.errors import OutOfOrderSequence, StorageError, TransactionCoordinatorFenced
from storage.log import PartitionLog
from storage.producers.rebuild import rebuild_producer_state
from storage.producers.snapshot import snapshot_name, snapshot_offset
from storage.producers.state import ProducerStateManager
from storage.segment.fetch_data import Isolation
from tests.storage.log.appends import end_transaction
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    ROOMY,
    append_each,
    batch,
    durable_file_system,
    new_disk,
    new_file_system,
    open_log,
)
from tests.storage.producers.producer_logs import (
    last_sequences,
    remove_snapshots,
    segmented,
    send,
    snapshots,
)

# Rebuilding


def rebuilt(log: PartitionLog, *, is_clean: bool, file_system: SimFileSystem) -> ProducerStateManager:
    producers = ProducerStateManager(file_system, DIRECTORY)
    rebuild_producer_state(
        producers,
        log.local.segments,
        log_start_offset=log.log_start_offset,
        last_offset=log.log_end_offset,
        now_ms=NOW_MS,
        is_clean=is_clean,
    )
    return producers


@pytest.mark.covers("UnifiedLogTest.testInitializationOfProducerSnapshotsUpgradePath")
def test_ps24_without_a_snapshot_a_clean_start_scans_nothing_and_saves_at_the_last_two_bases() -> None:
    file_system = new_file_system()
    log = segmented(file_system, 5)
    remove_snapshots(file_system)
    producers = rebuilt(log, is_clean=True, file_system=file_system)
    assert not producers.producers and producers.map_end_offset == 5
    assert snapshots(file_system) == [3, 4, 5]


def test_ps24_otherwise_the_log_is_scanned_from_the_newest_snapshot_on() -> None:
    file_system = new_file_system()
    log = segmented(file_system, 5)
    remove_snapshots(file_system)
    producers = rebuilt(log, is_clean=False, file_system=file_system)
    assert {pid: entry.last_sequence for pid, entry in producers.producers.items()} == {1: 4}
    assert snapshots(file_system) == [3, 4, 5] and producers.map_end_offset == 5
    assert [part.last_sequence for part in producers.producers[1].batch_metadata] == [0, 1, 2, 3, 4]


def test_ps24_a_clean_start_reads_the_batches_after_the_snapshot() -> None:
    file_system = new_file_system()
    log = segmented(file_system, 5)
    for offset in (1, 2):
        file_system.unlink(f"{DIRECTORY}/{snapshot_name(offset)}")
    producers = rebuilt(log, is_clean=True, file_system=file_system)
    assert {pid: entry.last_sequence for pid, entry in producers.producers.items()} == {1: 4}


def test_ps24_an_empty_state_that_has_seen_all_is_not_scanned_for() -> None:
    file_system = new_file_system()
    log = segmented(file_system, 3)
    producers = ProducerStateManager(file_system, DIRECTORY)
    # This is beyond the end that is asked for, and no producer is known.
    producers.reached(9)
    rebuild_producer_state(
        producers, log.local.segments, log_start_offset=0, last_offset=2, now_ms=NOW_MS, is_clean=False
    )
    assert producers.map_end_offset == 2
    assert {pid: entry.last_sequence for pid, entry in producers.producers.items()} == {1: 1}, "by a snapshot"


def test_ps24_records_below_the_log_start_are_not_looked_at() -> None:
    file_system = new_file_system()
    log = open_log(file_system, ROOMY)
    send(log, 0, pid=1)
    send(log, 0, pid=2)
    remove_snapshots(file_system)
    producers = ProducerStateManager(file_system, DIRECTORY)
    rebuild_producer_state(
        producers, log.local.segments, log_start_offset=1, last_offset=2, now_ms=NOW_MS, is_clean=False
    )
    assert sorted(producers.producers) == [2]


def test_ps24_records_at_and_above_the_last_offset_are_not_looked_at() -> None:
    file_system = new_file_system()
    log = open_log(file_system, ROOMY)
    for sequence in range(4):
        send(log, sequence)
    producers = ProducerStateManager(file_system, DIRECTORY)
    rebuild_producer_state(
        producers, log.local.segments, log_start_offset=0, last_offset=2, now_ms=NOW_MS, is_clean=False
    )
    assert producers.producers[1].last_sequence == 1 and producers.map_end_offset == 2


def test_t45_without_snapshots_a_clean_restart_forgets_the_producers() -> None:
    file_system = new_file_system()
    log = segmented(file_system, 2)
    log.close()
    remove_snapshots(file_system)
    again = open_log(file_system, ROOMY, clean=True, recovery_point=2)
    assert last_sequences(again) == {}
    assert not send(again, 1).is_duplicate, "idempotence is lost"


def test_t45_after_an_unclean_stop_they_are_found_in_the_log() -> None:
    file_system = new_file_system()
    log = segmented(file_system, 2)
    log.close_handles()
    remove_snapshots(file_system)
    assert last_sequences(open_log(file_system, ROOMY)) == {1: 1}


def test_t46_of_snapshots_at_no_base_only_the_largest_beyond_all_stays() -> None:
    file_system = new_file_system()
    log = segmented(file_system, 3)
    # The close takes a snapshot at 3, the log end.
    log.close()
    assert snapshots(file_system) == [1, 2, 3]
    producers = ProducerStateManager(file_system, DIRECTORY)
    producers.snapshots.delete_strays([0, 2])
    assert snapshots(file_system) == [2, 3]
    producers.snapshots.delete_strays([0, 3])
    assert snapshots(file_system) == [3]
    producers.snapshots.delete_strays([0, 4])
    assert snapshots(file_system) == []


def test_t12_a_snapshot_at_a_roll_is_on_disk_before_the_recovery_point_passes_it() -> None:
    for kept in ("none", "prefix"):
        disk = new_disk()
        file_system = durable_file_system(disk)
        log = open_log(file_system, ROOMY)
        send(log)
        log.flushes.roll(now_ms=NOW_MS)
        recovery_point = log.local.recovery_point
        assert recovery_point == 1
        disk.lose_power(kept)
        again = open_log(file_of(disk), ROOMY, recovery_point=recovery_point)
        assert last_sequences(again) == {1: 0}


def file_of(disk: SimDisk) -> SimFileSystem:
    return disk.file_system(Life())


@pytest.mark.covers("UnifiedLogTest.testRecoveryPointNotIncrementedOnProducerStateSnapshotFlushFailure")
def test_kafka_15046_when_the_snapshot_cannot_be_synced_the_recovery_point_stays() -> None:
    disk = new_disk()
    log = open_log(new_file_system(disk), ROOMY)
    send(log)
    disk.fail(1, verbs={"sync"}, path_suffix=".snapshot")
    with pytest.raises(StorageError):
        log.flushes.roll(now_ms=NOW_MS)
    assert log.local.recovery_point == 0 and log.online.reason is not None


@pytest.mark.covers("UnifiedLogTest.testProducerIdMapOffsetUpdatedForNonIdempotentData")
def test_ps15_a_snapshot_includes_records_without_a_producer_too() -> None:
    file_system = new_file_system()
    log = open_log(file_system, ROOMY)
    append_each(log, 1)
    log.producers.take_snapshot()
    assert snapshots(file_system) == [1] and log.producers.snapshots.latest_offset == 1


def compacted(base_offset: int, kept: list[int], sequence: int, count: int, *, pid: int = 1) -> bytes:
    """Make a batch of `count` records of which compaction kept those at `kept`."""
    content = bytearray(
        batch(
            base_offset,
            count,
            offsets=kept or [base_offset],
            producer_id=pid,
            producer_epoch=0,
            sequence=sequence,
        )
    )
    if not kept:
        content = content[:61]
        content[8:12] = (49).to_bytes(4, "big")
        content[57:61] = bytes(4)
    content[23:27] = (count - 1).to_bytes(4, "big")
    content[17:21] = crc32c(bytes(content[21:])).to_bytes(4, "big")
    return bytes(content)


@pytest.mark.covers(
    "UnifiedLogTest.testRebuildProducerIdMapWithCompactedData",
    "UnifiedLogTest.testRebuildProducerStateWithEmptyCompactedBatch",
    "UnifiedLogTest.testUpdateProducerIdMapWithCompactedData",
)
@pytest.mark.parametrize("kept", [[24, 26], [], [23]])
@pytest.mark.parametrize("is_rebuilt", [True, False])
def test_ps25_the_header_of_a_compacted_batch_has_the_last_sequence(
    kept: list[int], is_rebuilt: bool
) -> None:
    file_system = new_file_system()
    log = open_log(file_system, ROOMY, log_start_offset=23)
    log.append_as_follower(compacted(23, kept, 0, 4), leader_epoch=0, now_ms=NOW_MS)
    assert log.log_end_offset == 27
    if is_rebuilt:
        log.close_handles()
        remove_snapshots(file_system)
        log = open_log(file_system, ROOMY, log_start_offset=23, recovery_point=23)
    assert last_sequences(log) == {1: 3}
    entry = log.producers.last_entry(1)
    assert entry is not None and (entry.last_offset, entry.last_offset_delta) == (26, 3)
    assert send(log, 0, 4).is_duplicate and not send(log, 4).is_duplicate


# Snapshots


@pytest.mark.covers("UnifiedLogTest.testOffsetFromProducerSnapshotFile")
def test_ps15_a_snapshots_name_has_its_offset() -> None:
    assert snapshot_offset(snapshot_name(23_423_423)) == 23_423_423


@pytest.mark.covers(
    "UnifiedLogTest.testTakeSnapshotOnRollAndDeleteSnapshotOnRecoveryPointCheckpoint",
    "UnifiedLogTest.testProducerSnapshotAfterSegmentRollOnAppend",
)
def test_ps15_each_roll_saves_and_no_flush_deletes() -> None:
    file_system = new_file_system()
    log = segmented(file_system, 4)
    assert (log.producers.snapshots.oldest_offset, log.producers.snapshots.latest_offset) == (1, 3)
    log.flushes.flush()
    assert snapshots(file_system) == [1, 2, 3]
    log.truncate_to(1, now_ms=NOW_MS)
    assert snapshots(file_system) == [1] and last_sequences(log) == {1: 0}


@pytest.mark.covers("UnifiedLogTest.testLoadingLogDeletesProducerStateSnapshotsPastLogEndOffset")
def test_ps16_a_snapshot_beyond_the_log_end_is_deleted_when_loaded() -> None:
    file_system = new_file_system()
    other = ProducerStateManager(file_system, DIRECTORY)
    other.reached(42)
    other.take_snapshot()
    assert snapshots(file_system) == [42]
    open_log(file_system, ROOMY)
    assert 42 not in snapshots(file_system)


@pytest.mark.covers("UnifiedLogTest.testActiveProducers")
def test_ps7_the_last_entries_of_active_producers() -> None:
    log = open_log(new_file_system(), ROOMY)
    send(log, 0, 5, pid=23, is_transactional=True)
    entry = log.producers.producers[23]
    assert (entry.last_sequence, entry.transaction_first_offset, entry.coordinator_epoch) == (4, 0, -1)
    end_transaction(log, 23, is_commit=True, coordinator_epoch=15)
    assert (entry.last_sequence, entry.transaction_first_offset, entry.coordinator_epoch) == (4, None, 15)
    send(log, 0, 3, pid=983)
    assert log.producers.producers[983].last_sequence == 2


@pytest.mark.covers(
    "ProducerStateManagerTest.testRecoverFromSnapshotFinishedTransaction",
    "ProducerStateManagerTest.testRecoverFromSnapshotEmptyTransaction",
    "ProducerStateManagerTest.testCoordinatorFencedAfterReload",
)
@pytest.mark.parametrize("with_data", [True, False])
@pytest.mark.parametrize("clean", [True, False])
def test_ps16_a_finished_transaction_is_finished_after_a_restart(with_data: bool, clean: bool) -> None:
    file_system = new_file_system()
    log = open_log(file_system, ROOMY)
    if with_data:
        send(log, 0, is_transactional=True)
        send(log, 1, is_transactional=True)
    end_transaction(log, 1, is_commit=False, coordinator_epoch=3)
    log.close() if clean else log.close_handles()
    again = open_log(file_system, ROOMY, clean=clean, recovery_point=log.log_end_offset)
    entry = again.producers.producers[1]
    assert (entry.last_sequence, entry.last_offset) == ((1, 1) if with_data else (-1, -1))
    assert (entry.transaction_first_offset, entry.last_timestamp) == (None, NOW_MS)
    with pytest.raises(TransactionCoordinatorFenced):
        end_transaction(again, 1, is_commit=False, coordinator_epoch=2)
    with pytest.raises(OutOfOrderSequence):
        send(again, 7)


# Transactions


@pytest.mark.covers("UnifiedLogTest.testRebuildTransactionalState")
@pytest.mark.parametrize("clean", [True, False])
def test_ps25_an_aborted_transaction_stays_ended_after_a_restart(clean: bool) -> None:
    file_system = new_file_system()
    log = open_log(file_system, ROOMY)
    send(log, 0, 4, is_transactional=True)
    end_transaction(log, 1, is_commit=False)
    log.marks.update_high_watermark(5)
    assert log.producers.first_unstable_offset is None
    log.close() if clean else log.close_handles()
    again = open_log(file_system, ROOMY, clean=clean, recovery_point=5 if clean else 0)
    again.marks.update_high_watermark(5)
    assert again.producers.first_unstable_offset is None and again.marks.last_stable_offset == 5
    found = again.read(0, max_size=1000, isolation=Isolation.TXN_COMMITTED)
    assert [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()] == [(1, 0)]


@pytest.mark.covers(
    "UnifiedLogTest.testFirstUnstableOffsetNoTransactionalData",
    "UnifiedLogTest.testFirstUnstableOffsetWithTransactionalData",
)
def test_ps22_the_first_unstable_offset_of_a_log() -> None:
    log = open_log(new_file_system(), ROOMY)
    append_each(log, 3)
    assert log.producers.first_unstable_offset is None
    send(log, 0, 2, is_transactional=True)
    append_each(log, 1)
    assert log.producers.first_unstable_offset == 3
    end_transaction(log, 1, is_commit=True)
    assert log.producers.first_unstable_offset == 3
    log.marks.update_high_watermark(6)
    assert log.producers.first_unstable_offset == 3, "the marker at 6 is not below it"
    log.marks.update_high_watermark(7)
    assert log.producers.first_unstable_offset is None


@pytest.mark.covers("UnifiedLogTest.testLastStableOffsetWithMixedProducerData")
def test_ps22_of_several_producers_the_earliest_counts() -> None:
    log = open_log(new_file_system(), ROOMY)
    send(log, 0, 2, pid=137, is_transactional=True)
    append_each(log, 1)
    send(log, 0, 2, pid=983, is_transactional=True)
    assert log.marks.last_stable_offset == 0
    end_transaction(log, 137, is_commit=False)
    log.marks.update_high_watermark(log.log_end_offset)
    assert log.marks.last_stable_offset == 3
    end_transaction(log, 983, is_commit=True)
    log.marks.update_high_watermark(log.log_end_offset)
    assert log.marks.last_stable_offset == log.log_end_offset == 7


def test_ps11_the_index_gets_the_last_stable_offset_of_each_abort() -> None:
    log = open_log(new_file_system(), ROOMY)
    send(log, 0, pid=1, is_transactional=True)
    send(log, 0, pid=2, is_transactional=True)
    end_transaction(log, 1, is_commit=False)
    end_transaction(log, 2, is_commit=False)
    found = [tuple(entry) for entry in log.local.segments.active.transaction_index.entries()]
    assert [entry[-4:] for entry in found] == [(1, 0, 2, 1), (2, 1, 3, 4)]
