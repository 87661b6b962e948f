"""Producer state: rules PS1 to PS22, PS25 and Kafka's ProducerStateManagerTest (reference 2.10, 3.15)."""

from __future__ import annotations

import pytest

from sim.crash import Dead, Life
from sim.disk import SimDisk
from storage.batch import Record, RecordBatch, build_batch
from storage.batch_format import TRANSACTIONAL_FLAG
from storage.control_records import encode_end_transaction_marker
from storage.draws import Draws
from storage.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from storage.filesystem import FileSystem, OpenMode
from storage.offset_metadata import LogOffsetMetadata
from storage.producer_append import AppendOrigin, BatchMetadata, CompletedTransaction
from storage.producer_snapshot import snapshot_name
from storage.producer_state import ProducerStateManager

PID = 1
INT_MAX = (1 << 31) - 1
DAY_MS = 86_400_000
NOW = 1_700_000_000_000


def new_disk() -> tuple[SimDisk, FileSystem]:
    disk = SimDisk(Draws(1), lambda: 0)
    file_system = disk.file_system(Life())
    file_system.make_directory("/log")
    file_system.sync_directory("/")
    return disk, file_system


@pytest.fixture
def file_system() -> FileSystem:
    return new_disk()[1]


@pytest.fixture
def manager(file_system: FileSystem) -> ProducerStateManager:
    return ProducerStateManager(file_system, "/log")


def data(
    offset: int,
    sequence: int,
    *,
    count: int = 1,
    pid: int = PID,
    epoch: int = 0,
    transactional: bool = False,
    timestamp: int = NOW,
) -> RecordBatch:
    content = build_batch(
        [Record(offset + index, timestamp, b"k", b"v") for index in range(count)],
        base_offset=offset,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return RecordBatch(content, 0, len(content))


def marker(
    offset: int,
    *,
    commit: bool,
    pid: int = PID,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = NOW,
) -> RecordBatch:
    key, value = encode_end_transaction_marker(is_commit=commit, coordinator_epoch=coordinator_epoch)
    content = build_batch(
        [Record(offset, timestamp, key, value)],
        base_offset=offset,
        producer_id=pid,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
    )
    return RecordBatch(content, 0, len(content))


def append(
    manager: ProducerStateManager, *batches: RecordBatch, origin: AppendOrigin = AppendOrigin.CLIENT
) -> list[CompletedTransaction]:
    prepared = manager.prepare_append(batches, origin=origin)
    assert prepared.duplicate is None
    manager.commit(prepared)
    for completed in prepared.completed:
        manager.complete_transaction(completed)
    manager.map_end_offset = batches[-1].next_offset
    return prepared.completed


def state(manager: ProducerStateManager) -> list[str]:
    return [repr(entry) for entry in manager.producers.values()]


def names(file_system: FileSystem) -> list[int]:
    return [int(name.split(".")[0]) for name in file_system.list("/log") if name.endswith(".snapshot")]


def write_garbage(file_system: FileSystem, offset: int, content: bytes) -> None:
    file = file_system.open(f"/log/{snapshot_name(offset)}", OpenMode.CREATE)
    file.set_length(0)
    file.write_at(0, content)
    file.close()


def test_ps1_prepare_update_does_not_mutate(manager: ProducerStateManager) -> None:
    info = manager.prepare_update(PID, AppendOrigin.CLIENT)
    info.append(data(15, 0, count=6))
    assert manager.last_entry(PID) is None
    manager.update(info)
    before = state(manager)
    info = manager.prepare_update(PID, AppendOrigin.CLIENT)
    info.append(data(21, 6, count=5))
    assert state(manager) == before
    manager.update(info)
    entry = manager.producers[PID]
    assert (entry.first_sequence, entry.last_sequence, entry.last_offset) == (0, 10, 25)


def test_ps1_a_refused_append_leaves_no_trace(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0, transactional=True))
    before = state(manager)
    with pytest.raises(OutOfOrderSequence):
        manager.prepare_append(
            [data(1, 1, transactional=True), data(2, 5, transactional=True)], origin=AppendOrigin.CLIENT
        )
    assert state(manager) == before
    assert [transaction.first_offset for transaction in manager.ongoing_transactions] == [0]


def test_ps2_empty_control_batch_makes_an_entry_without_a_transaction(manager: ProducerStateManager) -> None:
    content = bytearray(marker(15, commit=True).tobytes()[:61])
    content[57:61] = bytes(4)
    batch = RecordBatch(bytes(content), 0, 61)
    assert append(manager, batch, origin=AppendOrigin.REPLICATION) == []
    entry = manager.producers[PID]
    assert entry.transaction_first_offset is None and entry.is_empty


def test_ps2_a_control_record_that_is_no_marker_is_refused(manager: ProducerStateManager) -> None:
    content = build_batch(
        [Record(0, NOW, b"\x00\x00\x00\x02", b"")],
        producer_id=PID,
        producer_epoch=0,
        is_control=True,
        is_transactional=True,
    )
    with pytest.raises(InvalidRecord):
        manager.replay(RecordBatch(content, 0, len(content)))
    assert state(manager) == []


def test_ps3_an_older_epoch_is_refused_but_for_replication(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0, epoch=5))
    for origin in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR):
        with pytest.raises(InvalidProducerEpoch, match="older"):
            manager.prepare_append([data(1, 0, epoch=4)], origin=origin)
        with pytest.raises(InvalidProducerEpoch):
            manager.prepare_append([marker(1, commit=True, epoch=3)], origin=origin)
    append(manager, data(1, 0, epoch=4), origin=AppendOrigin.REPLICATION)
    assert manager.producers[PID].producer_epoch == 4


def test_ps4_basic_sequences(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0))
    append(manager, data(1, 1))
    for sequence in (5, 3, 0):
        info = manager.prepare_update(PID, AppendOrigin.CLIENT)
        with pytest.raises(OutOfOrderSequence, match=f"sequence {sequence} does not follow 1"):
            info.append(data(2, sequence))
    append(manager, data(2, 0, epoch=1))
    with pytest.raises(InvalidProducerEpoch):
        manager.prepare_append([data(3, 0, epoch=0)], origin=AppendOrigin.CLIENT)


def test_ps4_sequences_follow_within_one_append(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0, count=3), data(3, 3), data(4, 4, count=2))
    assert manager.producers[PID].last_sequence == 5
    with pytest.raises(OutOfOrderSequence):
        manager.prepare_append([data(6, 6), data(7, 8)], origin=AppendOrigin.CLIENT)


def test_ps4_new_epoch_must_begin_at_zero(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0))
    with pytest.raises(OutOfOrderSequence, match="expected 0"):
        manager.prepare_append([data(1, 1, epoch=1)], origin=AppendOrigin.CLIENT)
    append(manager, data(1, 0, epoch=1))


def test_ps4_unknown_producer_may_begin_anywhere(manager: ProducerStateManager) -> None:
    append(manager, data(0, 17, epoch=3))
    assert manager.producers[PID].last_sequence == 17
    with pytest.raises(OutOfOrderSequence):
        manager.prepare_append([data(1, 19, epoch=3)], origin=AppendOrigin.CLIENT)


def test_ps4_sequence_wraps_around(manager: ProducerStateManager) -> None:
    append(manager, data(0, INT_MAX), origin=AppendOrigin.REPLICATION)
    append(manager, data(1, 0))
    entry = manager.producers[PID]
    assert (entry.first_sequence, entry.last_sequence) == (INT_MAX, 0)


def test_ps4_sequence_wraps_within_a_batch(manager: ProducerStateManager) -> None:
    append(manager, data(2000, INT_MAX - 10, count=21), origin=AppendOrigin.REPLICATION)
    assert manager.producers[PID].batch_metadata == [BatchMetadata(9, 2020, 20, NOW)]
    assert manager.producers[PID].first_sequence == INT_MAX - 10
    append(manager, data(2021, 10))


def test_ps4_wrap_to_anything_but_zero_is_refused(manager: ProducerStateManager) -> None:
    append(manager, data(0, INT_MAX), origin=AppendOrigin.REPLICATION)
    with pytest.raises(OutOfOrderSequence):
        manager.prepare_append([data(1, 1)], origin=AppendOrigin.CLIENT)


@pytest.mark.parametrize("origin", [AppendOrigin.REPLICATION, AppendOrigin.COORDINATOR])
def test_ps4_only_clients_sequences_are_checked(manager: ProducerStateManager, origin: AppendOrigin) -> None:
    append(manager, data(0, 5), origin=origin)
    append(manager, data(1, 9), origin=origin)
    append(manager, data(2, 9), origin=origin)
    assert manager.producers[PID].last_sequence == 9


def test_ps5_five_batches_are_kept_and_another_epoch_forgets_them(manager: ProducerStateManager) -> None:
    for number in range(7):
        append(manager, data(number, number, timestamp=NOW + number))
    entry = manager.producers[PID]
    assert [batch.last_sequence for batch in entry.batch_metadata] == [2, 3, 4, 5, 6]
    assert entry.last_timestamp == NOW + 6
    append(manager, data(7, 0, epoch=1))
    assert [batch.last_offset for batch in entry.batch_metadata] == [7]


def test_ps6_data_outside_an_open_transaction_is_refused(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0, transactional=True))
    for origin in AppendOrigin:
        with pytest.raises(InvalidTransactionState, match="begun at 0 is open"):
            manager.prepare_append([data(1, 1)], origin=origin)
    before = state(manager)
    with pytest.raises(InvalidTransactionState):
        manager.replay(data(1, 1))
    assert state(manager) == before


def test_ps6_a_transaction_opens_at_its_first_batch_with_its_place(manager: ProducerStateManager) -> None:
    first, second = data(13, 0, transactional=True), data(14, 1, transactional=True)
    other = data(15, 0, pid=2, transactional=True)
    content = first.tobytes() + second.tobytes() + other.tobytes()
    batches, position = [], 0
    for batch in (first, second, other):
        batches.append(RecordBatch(content, position, batch.size_bytes))
        position += batch.size_bytes
    prepared = manager.prepare_append(
        batches, origin=AppendOrigin.CLIENT, segment_base_offset=10, position=1000
    )
    assert manager.first_unstable_transaction is None
    manager.commit(prepared)
    assert [transaction.place for transaction in manager.ongoing_transactions] == [
        LogOffsetMetadata(13, 10, 1000),
        LogOffsetMetadata(15, 10, 1000 + first.size_bytes + second.size_bytes),
    ]


def test_ps7_a_marker_completes_the_transaction(manager: ProducerStateManager) -> None:
    append(manager, data(16, 1, count=5, transactional=True))
    append(manager, data(26, 6, count=5, transactional=True))
    assert append(manager, marker(40, commit=True), origin=AppendOrigin.COORDINATOR) == [
        CompletedTransaction(PID, 16, 40, False)
    ]
    entry = manager.producers[PID]
    assert entry.transaction_first_offset is None and entry.coordinator_epoch == 0
    assert [batch.last_sequence for batch in entry.batch_metadata] == [5, 10]


def test_ps7_a_marker_without_data_completes_nothing(manager: ProducerStateManager) -> None:
    for offset in (10, 11):
        assert append(manager, marker(offset, commit=False), origin=AppendOrigin.COORDINATOR) == []
    append(manager, data(24, 0, count=4, transactional=True))
    aborted = append(manager, marker(28, commit=False), origin=AppendOrigin.COORDINATOR)
    assert aborted == [CompletedTransaction(PID, 24, 28, True)]
    append(manager, data(30, 4, count=2, transactional=True))
    manager.on_high_watermark_updated(32)
    assert manager.first_unstable_offset == 30


def test_ps7_an_older_coordinator_is_fenced_but_for_replication(manager: ProducerStateManager) -> None:
    for offset, coordinator_epoch in ((0, 1), (1, 1), (2, 2)):
        append(
            manager,
            marker(offset, commit=False, coordinator_epoch=coordinator_epoch),
            origin=AppendOrigin.COORDINATOR,
        )
    with pytest.raises(TransactionCoordinatorFenced):
        manager.prepare_append(
            [marker(3, commit=False, coordinator_epoch=1)], origin=AppendOrigin.COORDINATOR
        )
    append(manager, marker(3, commit=False, coordinator_epoch=1), origin=AppendOrigin.REPLICATION)
    assert manager.producers[PID].coordinator_epoch == 1


def test_ps8_a_marker_of_a_higher_epoch_fences(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0, transactional=True))
    append(manager, marker(1, commit=False, epoch=1), origin=AppendOrigin.COORDINATOR)
    entry = manager.producers[PID]
    assert (entry.producer_epoch, entry.last_sequence, entry.transaction_first_offset) == (1, -1, None)
    for epoch in (1, 2):
        with pytest.raises(OutOfOrderSequence):
            manager.prepare_append([data(2, 2, epoch=epoch)], origin=AppendOrigin.CLIENT)
    append(manager, data(2, 0, epoch=1))


def test_ps8_a_marker_makes_an_unknown_producer_known(manager: ProducerStateManager) -> None:
    append(manager, marker(27, commit=True, epoch=2), origin=AppendOrigin.COORDINATOR)
    assert manager.producers[PID].last_sequence == -1
    with pytest.raises(InvalidProducerEpoch):
        manager.prepare_append([data(28, 0, epoch=0)], origin=AppendOrigin.CLIENT)
    with pytest.raises(OutOfOrderSequence):
        manager.prepare_append([data(28, 17, epoch=2)], origin=AppendOrigin.CLIENT)
    append(manager, data(28, 0, epoch=2))


def test_ps10_a_retry_of_one_of_the_last_five_is_known(manager: ProducerStateManager) -> None:
    for number in range(6):
        append(manager, data(number * 2, number * 2, count=2))
    for number in range(1, 6):
        prepared = manager.prepare_append(
            [data(50, number * 2, count=2), data(99, 77)], origin=AppendOrigin.CLIENT
        )
        assert prepared.duplicate == BatchMetadata(number * 2 + 1, number * 2 + 1, 1, NOW)
        assert prepared.duplicate.first_offset == number * 2
    for unknown in (data(50, 0, count=2), data(50, 2), data(50, 2, count=3)):
        with pytest.raises(OutOfOrderSequence):
            manager.prepare_append([unknown], origin=AppendOrigin.CLIENT)
    assert manager.find_duplicate(data(50, 2, count=2, epoch=1)) is None
    assert manager.find_duplicate(data(50, 2, count=2, pid=9)) is None


def test_ps10_replication_knows_no_duplicates(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0))
    append(manager, data(1, 0), origin=AppendOrigin.REPLICATION)
    assert manager.producers[PID].last_offset == 1


def test_ps11_last_stable_offset_of_overlapping_transactions(manager: ProducerStateManager) -> None:
    for pid, offset in ((1, 99), (2, 100), (3, 104)):
        append(manager, data(offset, 0, pid=pid, transactional=True))

    def complete(pid: int, offset: int) -> int:
        prepared = manager.prepare_append(
            [marker(offset, commit=True, pid=pid)], origin=AppendOrigin.COORDINATOR
        )
        manager.commit(prepared)
        (completed,) = prepared.completed
        last_stable_offset = manager.last_stable_offset(completed)
        manager.complete_transaction(completed)
        manager.on_high_watermark_updated(offset + 1)
        assert manager.first_unstable_offset == manager.first_undecided_offset
        return last_stable_offset

    assert [complete(1, 105), complete(3, 106), complete(2, 107)] == [100, 100, 108]


def test_ps12_completing_an_unknown_transaction_is_a_bug(manager: ProducerStateManager) -> None:
    with pytest.raises(AssertionError):
        manager.complete_transaction(CompletedTransaction(PID, 5, 6, False))


def test_ps12_ps22_unstable_until_the_high_watermark_has_passed_the_marker(
    manager: ProducerStateManager,
) -> None:
    append(manager, data(99, 0, transactional=True))
    append(manager, data(105, 0, pid=2, transactional=True))
    append(manager, marker(109, commit=True), origin=AppendOrigin.COORDINATOR)
    assert (manager.first_unstable_offset, manager.first_undecided_offset) == (99, 105)
    manager.on_high_watermark_updated(109)
    assert manager.first_unstable_offset == 99
    manager.on_high_watermark_updated(110)
    assert manager.first_unstable_offset == 105
    append(manager, marker(112, commit=False, pid=2), origin=AppendOrigin.COORDINATOR)
    manager.on_high_watermark_updated(113)
    assert manager.first_unstable_transaction is None and manager.first_undecided_offset is None


def test_ps13_idle_producers_expire_but_not_within_a_transaction(manager: ProducerStateManager) -> None:
    append(manager, data(0, 0, pid=1, timestamp=NOW), data(1, 0, pid=2, timestamp=NOW + 1))
    append(manager, data(2, 0, pid=3, transactional=True, timestamp=NOW))
    manager.remove_expired(NOW + DAY_MS - 1)
    assert sorted(manager.producers) == [1, 2, 3]
    manager.remove_expired(NOW + DAY_MS)
    assert sorted(manager.producers) == [2, 3]
    append(manager, data(3, 17, pid=1))


def test_ps13_expired_producers_are_not_loaded(file_system: FileSystem) -> None:
    manager = ProducerStateManager(file_system, "/log", producer_id_expiration_ms=10_000)
    append(manager, data(0, 0, pid=1, timestamp=1), data(1, 0, pid=2, timestamp=61_000))
    manager.take_snapshot()
    again = ProducerStateManager(file_system, "/log", producer_id_expiration_ms=10_000)
    again.truncate_and_reload(0, 2, 70_000)
    assert sorted(again.producers) == [2] and again.map_end_offset == 2


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


def test_ps15_snapshot_is_named_by_the_map_end_and_taken_once(
    manager: ProducerStateManager, file_system: FileSystem
) -> None:
    assert manager.take_snapshot() is None
    append(manager, data(0, 0))
    assert manager.take_snapshot() == "/log/00000000000000000001.snapshot"
    assert manager.take_snapshot() is None
    manager.map_end_offset = 5
    manager.take_snapshot(sync=False)
    assert names(file_system) == manager.snapshot_offsets == [1, 5]
    assert manager.last_snapshot_offset == 5


def test_t12_snapshot_without_sync_is_durable_after_sync_snapshot() -> None:
    disk, file_system = new_disk()
    manager = ProducerStateManager(file_system, "/log")
    append(manager, data(0, 0))
    path = manager.take_snapshot(sync=False)
    assert path is not None
    manager.sync_snapshot(1)
    manager.sync_snapshot(99)
    file_system.sync_directory("/log")
    disk.lose_power("none")
    again = ProducerStateManager(disk.file_system(Life()), "/log")
    again.truncate_and_reload(0, 1, NOW)
    assert sorted(again.producers) == [PID]


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


def test_ps16_snapshots_outside_the_log_go(file_system: FileSystem) -> None:
    manager = ProducerStateManager(file_system, "/log")
    for offset in range(5):
        append(manager, data(offset, offset))
        manager.take_snapshot()
    manager.truncate_and_reload(1, 3, NOW)
    assert (manager.oldest_snapshot_offset, manager.latest_snapshot_offset) == (2, 3)
    assert names(file_system) == [2, 3]
    assert manager.map_end_offset == 3 and manager.producers[PID].last_sequence == 2


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
    """It would pass for the state of another history, of the records that replaced those cut."""
    disk, file_system = new_disk()
    manager = ProducerStateManager(file_system, "/log")
    for offset in (0, 1):
        append(manager, data(offset, offset))
        manager.take_snapshot()
        file_system.sync_directory("/log")
    manager.truncate_and_reload(0, 1, NOW)
    disk.lose_power("none")
    assert ProducerStateManager(disk.file_system(Life()), "/log").snapshot_offsets == [1]


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
    manager.remove_stray_snapshots(bases)
    assert names(file_system) == manager.snapshot_offsets == left


def test_ps20_snapshots_before_an_offset_go(manager: ProducerStateManager, file_system: FileSystem) -> None:
    append(manager, data(0, 0), data(1, 1))
    manager.take_snapshot()
    append(manager, data(2, 2))
    manager.take_snapshot()
    manager.delete_snapshots_before(3)
    assert names(file_system) == [3]
    manager.delete_snapshots_before(4)
    assert names(file_system) == [] and manager.snapshot_offsets == []


def test_ps20_a_snapshot_is_renamed_for_deletion(
    manager: ProducerStateManager, file_system: FileSystem
) -> None:
    append(manager, data(0, 0))
    path = manager.take_snapshot()
    assert path is not None
    assert manager.mark_snapshot_for_deletion(1) == path + ".deleted"
    assert file_system.exists(path + ".deleted") and manager.latest_snapshot_offset is None
    assert manager.mark_snapshot_for_deletion(1) is None
    append(manager, data(1, 1))
    file_system.unlink(str(manager.take_snapshot()))
    assert manager.mark_snapshot_for_deletion(2) is None


def test_ps21_empty_without_producers_and_unreplicated_transactions(manager: ProducerStateManager) -> None:
    assert manager.is_empty
    append(manager, data(0, 0))
    assert not manager.is_empty


def test_reload_sees_files_that_came_and_went(manager: ProducerStateManager, file_system: FileSystem) -> None:
    write_garbage(file_system, 7, b"")
    assert manager.snapshot_offsets == []
    manager.reload_snapshots()
    assert manager.snapshot_offsets == [7]


def test_ps25_replay_gives_the_state_that_the_appends_gave(file_system: FileSystem) -> None:
    live, replayed = (ProducerStateManager(file_system, "/log") for _ in range(2))
    batches = [
        data(0, 0),
        data(1, 1, count=4),
        data(5, 0, pid=2, transactional=True),
        data(6, 5),
        marker(7, commit=True, pid=2, timestamp=NOW + 3),
        data(8, 0, epoch=1),
        data(9, 1, pid=2, transactional=True),
        marker(10, commit=False, pid=2, epoch=1),
        data(11, INT_MAX - 1, pid=3, count=5),
    ]
    completed = []
    for batch in batches:
        append(live, batch, origin=AppendOrigin.REPLICATION)
        done = replayed.replay(batch)
        if done is not None:
            completed.append(done)
            replayed.complete_transaction(done)
    assert state(replayed) == state(live)
    assert completed == [CompletedTransaction(2, 5, 7, False), CompletedTransaction(2, 9, 10, True)]
    assert replayed.producers[3].last_sequence == 2
    assert replayed.replay(RecordBatch(build_batch([Record(0, 1, None, b"")]), 0, 68)) is None


def test_ps25_replayed_header_opens_transactions_in_order(manager: ProducerStateManager) -> None:
    manager.replay_data(TRANSACTIONAL_FLAG, 0, NOW, 5, 0, 0, 30)
    manager.replay_data(TRANSACTIONAL_FLAG, 0, NOW, 6, 0, 0, 20)
    manager.replay_data(TRANSACTIONAL_FLAG, 0, NOW, 5, 0, 1, 40)
    assert [transaction.first_offset for transaction in manager.ongoing_transactions] == [20, 30]
    assert manager.first_unstable_offset == 20


def test_snapshot_keeps_kafkas_table_after_producers_have_gone(file_system: FileSystem) -> None:
    """A Java map does not shrink, so neither does the order it gives its few that are left."""
    manager = ProducerStateManager(file_system, "/log")
    for offset, pid in enumerate(range(100, 114)):
        append(manager, data(offset, 0, pid=pid, timestamp=1))
    append(manager, data(14, 0, pid=16, timestamp=NOW), data(15, 0, pid=1, timestamp=NOW))
    manager.remove_expired(NOW)
    manager.take_snapshot()
    again = ProducerStateManager(file_system, "/log")
    again.truncate_and_reload(0, 16, NOW)
    assert list(again.producers) == [1, 16]
