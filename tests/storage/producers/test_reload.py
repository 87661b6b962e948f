"""Producer state that expires, is saved, cut and loaded again: rules PS13 to PS21 (reference 2.10, 3.15)."""

from __future__ import annotations

import pytest

from sim.disk.life import Dead, Life
from storage.codec.crc32c import crc32c
from storage.disk.filesystem import FileSystem, read_file
from storage.producers.entry import AppendOrigin, BatchMetadata
from storage.producers.state import ProducerStateManager
from tests.storage.producers.producers import (
    DAY_MS,
    NOW,
    PID,
    append,
    data,
    marker,
    names,
    new_disk,
    write_garbage,
)


@pytest.fixture
def file_system() -> FileSystem:
    return new_disk()[1]


@pytest.fixture
def manager(file_system: FileSystem) -> ProducerStateManager:
    return ProducerStateManager(file_system, "/log")


@pytest.mark.covers(
    "ProducerStateManagerTest.testPidExpirationTimeout",
    "ProducerStateManagerTest.testProducersWithOngoingTransactionsDontExpire",
)
def test_ps13_idle_producers_expire_but_not_within_a_transaction(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0, pid=1, timestamp=NOW), data(1, 0, pid=2, timestamp=NOW + 1))
    append(manager, data(2, 0, pid=3, transactional=True, timestamp=NOW))
    manager.remove_expired(NOW + DAY_MS - 1)
    assert sorted(manager.producers) == [1, 2, 3]
    manager.remove_expired(NOW + DAY_MS)
    assert sorted(manager.producers) == [2, 3]
    append(manager, data(3, 17, pid=1))


@pytest.mark.covers("ProducerStateManagerTest.testRemoveExpiredPidsOnReload")
def test_ps13_expired_producers_are_not_loaded(file_system: FileSystem) -> None:
    manager = ProducerStateManager(file_system, "/log", producer_id_expiration_ms=10_000)
    append(manager, data(0, 0, pid=1, timestamp=1), data(1, 0, pid=2, timestamp=61_000))
    manager.take_snapshot()
    again = ProducerStateManager(file_system, "/log", producer_id_expiration_ms=10_000)
    again.truncate_and_reload(0, 2, 70_000)
    assert sorted(again.producers) == [2] and again.map_end_offset == 2


@pytest.mark.covers(
    "ProducerStateManagerTest.testHasLateTransaction",
    "ProducerStateManagerTest.testHasLateTransactionInitializedAfterReload",
    "ProducerStateManagerTest.testHasLateTransactionUpdatedAfterFullTruncation",
)
def test_ps14_late_transactions(file_system: FileSystem) -> None:
    manager = ProducerStateManager(file_system, "/log", max_transaction_timeout_ms=300_000)
    limit = NOW + 600_000
    append(manager, data(0, 0, transactional=True), data(1, 0, pid=2, transactional=True, timestamp=NOW + 5))
    assert not manager.has_late_transaction(limit)
    assert manager.has_late_transaction(limit + 1)
    append(manager, marker(2, commit=True, timestamp=NOW + 10), origin=AppendOrigin.COORDINATOR)
    assert not manager.has_late_transaction(limit + 5)
    assert manager.has_late_transaction(limit + 6)
    manager.take_snapshot()
    again = ProducerStateManager(file_system, "/log", max_transaction_timeout_ms=300_000)
    again.truncate_and_reload(0, 3, NOW)
    assert again.has_late_transaction(limit + 6)
    append(manager, marker(3, commit=False, pid=2), origin=AppendOrigin.COORDINATOR)
    assert not manager.has_late_transaction(limit + 10_000)
    again.truncate_fully_and_start_at(0)
    assert not again.has_late_transaction(limit + 10_000)


@pytest.mark.covers(
    "ProducerStateManagerTest.testTakeSnapshot", "ProducerStateManagerTest.testSkipSnapshotIfOffsetUnchanged"
)
def test_ps15_snapshot_is_named_by_the_map_end_and_taken_once(
    manager: ProducerStateManager, file_system: FileSystem
) -> None:
    assert manager.take_snapshot() is None
    append(manager, data(0, 0))
    assert manager.take_snapshot() == "/log/00000000000000000001.snapshot"
    assert manager.take_snapshot() is None
    manager.reached(5)
    manager.take_snapshot()
    assert names(file_system) == manager.snapshots.offsets == [1, 5]
    assert manager.last_snapshot_offset == 5


@pytest.mark.covers(
    "ProducerStateManagerTest.testRecoverFromSnapshotUnfinishedTransaction",
    "ProducerStateManagerTest.testLoadFromSnapshotRetainsNonExpiredProducers",
)
@pytest.mark.parametrize("transactional", [True, False])
def test_ps16_reload_restores_the_last_batch_and_the_open_transaction(
    file_system: FileSystem, transactional: bool
) -> None:
    manager = ProducerStateManager(file_system, "/log")
    append(manager, data(0, 0, transactional=transactional))
    append(manager, data(1, 1, transactional=transactional))
    manager.take_snapshot()
    again = ProducerStateManager(file_system, "/log")
    again.truncate_and_reload(0, 3, NOW)
    assert again.map_end_offset == again.last_snapshot_offset == 2
    assert again.producers[PID].batch_metadata == [BatchMetadata(1, 1, 0, NOW)]
    assert again.first_undecided_offset == (0 if transactional else None)
    append(again, data(2, 2, transactional=transactional))


@pytest.mark.covers("ProducerStateManagerTest.testTruncateAndReloadRemovesOutOfRangeSnapshots")
def test_ps16_snapshots_outside_the_log_are_deleted(file_system: FileSystem) -> None:
    manager = ProducerStateManager(file_system, "/log")
    for offset in range(5):
        append(manager, data(offset, offset))
        manager.take_snapshot()
    manager.truncate_and_reload(1, 3, NOW)
    assert (manager.snapshots.oldest_offset, manager.snapshots.latest_offset) == (2, 3)
    assert names(file_system) == [2, 3]
    assert manager.map_end_offset == 3 and manager.producers[PID].last_sequence == 2


@pytest.mark.covers(
    "ProducerStateManagerTest.testLoadFromEmptySnapshotFile",
    "ProducerStateManagerTest.testLoadFromTruncatedSnapshotFile",
    "ProducerStateManagerTest.testLoadFromCorruptSnapshotFile",
)
@pytest.mark.parametrize("damage", [b"", bytes(20), bytes(37) + b"x" * 19, b"\x00\x01"])
def test_ps16_a_snapshot_that_does_not_load_is_deleted_and_the_next_tried(
    file_system: FileSystem, damage: bytes
) -> None:
    manager = ProducerStateManager(file_system, "/log")
    append(manager, data(0, 0))
    manager.take_snapshot()
    append(manager, data(1, 1))
    manager.take_snapshot()
    write_garbage(file_system, 2, damage)
    again = ProducerStateManager(file_system, "/log")
    again.truncate_and_reload(0, 2, NOW)
    assert again.map_end_offset == 1 and again.producers[PID].last_sequence == 0
    assert names(file_system) == [1]


def test_ps16_without_a_snapshot_the_state_begins_at_the_log_start(manager: ProducerStateManager) -> None:
    append(manager, data(9, 0))
    manager.truncate_and_reload(5, 20, NOW)
    assert manager.is_empty and manager.map_end_offset == manager.last_snapshot_offset == 5


def test_ps16_the_same_end_keeps_the_producers(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0))
    manager.truncate_and_reload(0, 1, NOW)
    assert sorted(manager.producers) == [PID]


def test_ps16_a_snapshot_cut_off_does_not_come_back_after_a_power_loss() -> None:
    """The snapshot would pass for the state of the records that replaced the ones that were cut."""
    disk, file_system = new_disk()
    manager = ProducerStateManager(file_system, "/log")
    for offset in (0, 1):
        append(manager, data(offset, offset))
        manager.take_snapshot()
        file_system.sync_directory("/log")
    manager.truncate_and_reload(0, 1, NOW)
    disk.lose_power("none")
    assert ProducerStateManager(disk.file_system(Life()), "/log").snapshots.offsets == [1]


def test_ps16_a_crash_within_a_snapshot_heals() -> None:
    for nth in range(1, 9):
        disk, file_system = new_disk()
        manager = ProducerStateManager(file_system, "/log")
        append(manager, data(0, 0))
        manager.take_snapshot()
        file_system.sync_directory("/log")
        append(manager, data(1, 1))
        disk.arm_crash(nth)
        try:
            manager.take_snapshot()
        except Dead:
            disk.lose_power("torn")
            again = ProducerStateManager(disk.file_system(Life()), "/log")
            again.truncate_and_reload(0, 2, NOW)
            assert again.map_end_offset in (1, 2)
            assert again.producers[PID].last_offset == again.map_end_offset - 1
        else:
            return
    pytest.fail("the snapshot never came to its end")


@pytest.mark.covers("ProducerStateManagerTest.testTruncateFullyAndStartAt")
def test_ps17_truncate_fully_forgets_everything(
    manager: ProducerStateManager, file_system: FileSystem
) -> None:
    append(manager, data(0, 0, transactional=True))
    manager.take_snapshot()
    manager.truncate_fully_and_start_at(0)
    assert manager.is_empty and manager.first_unstable_offset is None and names(file_system) == []
    append(manager, data(0, 0), data(1, 1))
    assert manager.take_snapshot() is not None and names(file_system) == [2]


def test_ps18_a_moved_log_start_keeps_producers(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0, transactional=True), marker(1, commit=True), origin=AppendOrigin.REPLICATION)
    assert manager.first_unstable_offset == 0
    manager.on_log_start_offset_incremented(2)
    assert manager.first_unstable_offset is None
    assert sorted(manager.producers) == [PID] and manager.map_end_offset == 2
    manager.on_log_start_offset_incremented(10)
    assert manager.map_end_offset == manager.last_snapshot_offset == 10


@pytest.mark.covers(
    "ProducerStateManagerTest.testRemoveStraySnapshotsKeepCleanShutdownSnapshot",
    "ProducerStateManagerTest.testRemoveAllStraySnapshots",
)
@pytest.mark.parametrize(
    ("snapshots", "bases", "left"),
    [
        ([2, 5, 42], [5], [5, 42]),
        ([2, 5, 42], [42], [42]),
        ([2, 5, 42], [50], []),
        ([2, 5, 42], [42, 50], [42]),
        ([2, 5, 42], [2], [2, 42]),
        ([2, 5], [], [5]),
        ([], [3], []),
    ],
)
def test_ps19_stray_snapshots(
    file_system: FileSystem, snapshots: list[int], bases: list[int], left: list[int]
) -> None:
    for offset in snapshots:
        write_garbage(file_system, offset, b"")
    manager = ProducerStateManager(file_system, "/log")
    manager.snapshots.delete_strays(bases)
    assert names(file_system) == manager.snapshots.offsets == left


@pytest.mark.covers("ProducerStateManagerTest.testDeleteSnapshotsBefore")
def test_ps20_snapshots_before_an_offset_are_deleted(
    manager: ProducerStateManager, file_system: FileSystem
) -> None:
    append(manager, data(0, 0), data(1, 1))
    manager.take_snapshot()
    append(manager, data(2, 2))
    manager.take_snapshot()
    manager.snapshots.delete_before(3)
    assert names(file_system) == [3]
    manager.snapshots.delete_before(4)
    assert names(file_system) == [] and manager.snapshots.offsets == []


@pytest.mark.covers(
    "ProducerStateManagerTest.testRemoveAndMarkSnapshotForDeletion",
    "ProducerStateManagerTest.testRemoveAndMarkSnapshotForDeletionAlreadyDeleted",
    "ProducerStateManagerTest.testFetchSnapshotEmptySnapShot",
)
def test_ps20_a_snapshot_is_renamed_for_deletion(
    manager: ProducerStateManager, file_system: FileSystem
) -> None:
    append(manager, data(0, 0))
    path = manager.take_snapshot()
    assert path is not None
    assert manager.snapshots.mark_for_deletion(1) == path + ".deleted"
    assert file_system.exists(path + ".deleted") and manager.snapshots.latest_offset is None
    assert manager.snapshots.mark_for_deletion(1) is None
    append(manager, data(1, 1))
    file_system.unlink(str(manager.take_snapshot()))
    assert manager.snapshots.mark_for_deletion(2) is None


def test_ps21_empty_without_producers_and_unreplicated_transactions(manager: ProducerStateManager) -> None:
    assert manager.is_empty
    append(manager, data(0, 0))
    assert not manager.is_empty


@pytest.mark.covers("ProducerStateManagerTest.testReloadSnapshots")
def test_reload_sees_files_that_were_added_and_deleted(
    manager: ProducerStateManager, file_system: FileSystem
) -> None:
    write_garbage(file_system, 7, b"")
    assert manager.snapshots.offsets == []
    manager.snapshots.reload()
    assert manager.snapshots.offsets == [7]


def test_t10_a_snapshot_lists_the_producers_that_have_not_expired_by_id(file_system: FileSystem) -> None:
    manager = ProducerStateManager(file_system, "/log")
    for offset, pid in enumerate(range(100, 114)):
        append(manager, data(offset, 0, pid=pid, timestamp=1))
    append(manager, data(14, 0, pid=16, timestamp=NOW), data(15, 0, pid=1, timestamp=NOW))
    manager.remove_expired(NOW)
    manager.take_snapshot()
    again = ProducerStateManager(file_system, "/log")
    again.truncate_and_reload(0, 16, NOW)
    assert list(again.producers) == [1, 16]


def test_t10_the_state_does_not_depend_on_the_order_of_a_snapshots_entries(file_system: FileSystem) -> None:
    manager = ProducerStateManager(file_system, "/log")
    for offset, pid in enumerate((17, 33, 5, 1000)):
        append(manager, data(offset, 0, pid=pid, transactional=pid == 5))
    content = read_file(file_system, str(manager.take_snapshot()))
    entries = [content[at : at + 46] for at in range(10, len(content), 46)]
    body = content[6:10] + b"".join([entries[number] for number in (1, 2, 0, 3)])
    write_garbage(file_system, 4, content[:2] + crc32c(body).to_bytes(4, "big") + body)

    again = ProducerStateManager(file_system, "/log")
    again.truncate_and_reload(0, 4, NOW)
    assert sorted(again.producers) == [5, 17, 33, 1000]
    assert again.first_unstable_offset == manager.first_unstable_offset == 2
    assert {pid: entry.last_offset for pid, entry in again.producers.items()} == {17: 0, 33: 1, 5: 2, 1000: 3}
    append(again, data(4, 1, pid=1000))
    written = read_file(file_system, str(again.take_snapshot()))
    assert written[10 : 10 + 3 * 46] == content[10 : 10 + 3 * 46]
