"""Producer state, one step to either side of each rule: PS1 to PS25."""

from __future__ import annotations

import struct

import pytest

from storage.batch import Record, RecordBatch, build_batch
from storage.batch.format import MAX_TIMESTAMP_AT
from storage.disk.filesystem import read_file
from storage.errors import InvalidProducerEpoch, OutOfOrderSequence
from storage.log import AppendOrigin
from storage.producers.entry import BATCHES_KEPT
from storage.producers.rebuild import rebuild_producer_state
from storage.producers.snapshot import snapshot_name
from storage.producers.state import ProducerStateManager
from tests.storage.logs import DIRECTORY, NOW_MS, THREE, new_file_system, new_producers, open_log
from tests.storage.producers.producers import (
    INT_MAX,
    NOW,
    PID,
    append,
    data,
    marker,
    names,
    new_disk,
    write_garbage,
)

COORDINATOR, REPLICATION = AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION


def new_manager() -> ProducerStateManager:
    return ProducerStateManager(new_disk()[1], "/log")


def in_transaction() -> ProducerStateManager:
    """Return the state of an open transaction: offsets 0 to 2, coordinator epoch 4."""
    manager = new_manager()
    append(manager, data(0, 0, transactional=True), origin=REPLICATION)
    append(manager, marker(1, commit=True, coordinator_epoch=4), origin=COORDINATOR)
    append(manager, data(2, 1, transactional=True, timestamp=NOW + 7))
    return manager


def test_ps1_the_copy_has_all_but_the_batches() -> None:
    manager = in_transaction()
    info = manager.prepare_update(PID, AppendOrigin.CLIENT)
    copy = info.updated
    assert (copy.producer_epoch, copy.coordinator_epoch, copy.last_timestamp) == (0, 4, NOW + 7)
    assert copy.transaction_first_offset == 2 and copy.is_empty


def test_ps2_a_batch_counts_with_its_greatest_timestamp_and_a_marker_with_its_kind() -> None:
    manager = new_manager()
    info = manager.prepare_update(PID, REPLICATION)
    content = build_batch(
        [Record(offset, NOW + 5 * (offset == 1), b"k", b"v") for offset in range(3)],
        producer_id=PID,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    info.append(RecordBatch(content, 0, len(content)))
    assert info.updated.last_timestamp == NOW + 5
    completed = info.append(marker(3, commit=False))
    assert completed is not None and completed.is_aborted
    info.append(data(4, 3, transactional=True))
    completed = info.append(marker(5, commit=True))
    assert completed is not None and not completed.is_aborted


def test_ps3_the_present_epoch_is_not_old() -> None:
    manager = in_transaction()
    append(manager, marker(3, commit=True, coordinator_epoch=4), origin=COORDINATOR)
    append(manager, data(4, 2, epoch=0))
    append(manager, data(5, 0, epoch=2))
    with pytest.raises(InvalidProducerEpoch, match="epoch 1 at offset 6 is older than the last seen epoch 2"):
        append(manager, data(6, 1, epoch=1))


def test_ps4_a_batch_follows_the_one_before_it_in_the_same_append() -> None:
    manager = new_manager()
    append(manager, data(0, 0))
    append(manager, data(1, 1), data(2, 2))
    with pytest.raises(OutOfOrderSequence):
        append(manager, data(3, 3), data(4, 3, count=2))


def test_ps4_after_a_marker_of_a_higher_epoch_the_old_sequence_is_not_asked_for() -> None:
    manager = new_manager()
    append(manager, data(0, 8, transactional=True))
    info = manager.prepare_update(PID, AppendOrigin.CLIENT)
    info.append_end_marker(is_abort=True, coordinator_epoch=0, producer_epoch=1, offset=1, timestamp=NOW)
    with pytest.raises(OutOfOrderSequence):
        info.append(data(2, 9, epoch=1))
    info.append(data(2, 0, epoch=1))


def test_ps4_a_second_epoch_in_an_unknown_producers_first_append_begins_at_zero() -> None:
    manager = new_manager()
    with pytest.raises(OutOfOrderSequence):
        append(manager, data(0, 5), data(1, 6, epoch=1))
    append(manager, data(0, 5), data(1, 0, epoch=1))
    assert (manager.producers[PID].producer_epoch, manager.producers[PID].last_sequence) == (1, 0)


def test_ps4_no_sequence_of_an_unknown_producers_first_append_is_checked() -> None:
    manager = new_manager()
    append(manager, data(0, 5), data(1, 9))
    assert manager.producers[PID].last_sequence == 9


def test_ps5_five_batches_are_kept_and_the_last_timestamp_is_the_last_batchs() -> None:
    manager = new_manager()
    for number in range(7):
        append(manager, data(number, number, timestamp=NOW - number))
    entry = manager.producers[PID]
    assert [cached.last_sequence for cached in entry.batch_metadata] == [2, 3, 4, 5, 6]
    assert len(entry.batches) == BATCHES_KEPT == 5
    assert entry.last_timestamp == NOW - 6
    info = manager.prepare_update(PID, REPLICATION)
    for number in range(7, 14):
        info.append(data(number, number))
    assert len(info.updated.batches) == 5


def test_ps5_a_sequence_wraps_inside_a_batch() -> None:
    manager = new_manager()
    append(manager, data(0, INT_MAX - 1, count=4))
    (cached,) = manager.producers[PID].batch_metadata
    assert (cached.first_sequence, cached.last_sequence) == (INT_MAX - 1, 1)


def test_ps5_a_lower_epoch_that_is_replicated_forgets_the_batches_too() -> None:
    manager = new_manager()
    append(manager, data(0, 0, epoch=5))
    append(manager, data(1, 4, epoch=3), origin=REPLICATION)
    entry = manager.producers[PID]
    assert entry.producer_epoch == 3 and [cached.last_sequence for cached in entry.batch_metadata] == [4]


def test_ps6_a_transaction_begins_where_its_first_batch_begins() -> None:
    manager = new_manager()
    append(manager, data(10, 0, count=5, transactional=True))
    append(manager, data(15, 5, count=5, transactional=True))
    assert manager.producers[PID].transaction_first_offset == manager.first_undecided_offset == 10


def test_ps7_a_marker_keeps_the_batches_of_its_append_unless_it_has_another_epoch() -> None:
    for epoch, kept in ((0, 1), (1, 0)):
        info = new_manager().prepare_update(PID, REPLICATION)
        info.append(data(0, 0, transactional=True))
        info.append(marker(1, commit=True, epoch=epoch))
        assert len(info.updated.batches) == kept


def test_ps7_a_marker_of_an_old_epoch_is_refused() -> None:
    manager = new_manager()
    append(manager, data(0, 0, epoch=3, transactional=True))
    with pytest.raises(InvalidProducerEpoch):
        append(manager, marker(1, commit=True, epoch=2), origin=COORDINATOR)
    assert manager.first_undecided_offset == 0


def test_ps8_the_epoch_of_a_marker_begins_with_sequence_zero_in_the_same_append_too() -> None:
    manager = new_manager()
    append(manager, data(0, 0, transactional=True), marker(1, commit=True, epoch=1), origin=REPLICATION)
    entry = manager.producers[PID]
    assert (entry.producer_epoch, entry.is_empty, entry.last_sequence) == (1, True, -1)
    with pytest.raises(OutOfOrderSequence):
        append(manager, data(2, 1, epoch=1))
    append(manager, data(2, 0, epoch=1))


def test_ps9_every_field_of_the_copy_is_merged() -> None:
    manager = in_transaction()
    entry = manager.producers[PID]
    assert (entry.coordinator_epoch, entry.last_timestamp, entry.transaction_first_offset) == (4, NOW + 7, 2)
    assert [each.first_offset for each in manager.ongoing_transactions] == [2]
    append(
        manager, marker(3, commit=True, coordinator_epoch=6, epoch=2, timestamp=NOW + 9), origin=COORDINATOR
    )
    assert (entry.producer_epoch, entry.coordinator_epoch, entry.last_timestamp) == (2, 6, NOW + 9)
    assert entry.transaction_first_offset is None and entry.is_empty


def test_ps2_the_time_of_a_marker_is_its_records_and_not_its_headers() -> None:
    manager = in_transaction()
    content = bytearray(marker(3, commit=True, coordinator_epoch=4, timestamp=NOW + 9).buffer)
    struct.pack_into(">q", content, MAX_TIMESTAMP_AT, NOW + 50)
    append(manager, RecordBatch(bytes(content), 0, len(content)), origin=COORDINATOR)
    assert manager.producers[PID].last_timestamp == NOW + 9


def test_ps9_transactions_of_several_producers_are_known_by_their_first_offsets() -> None:
    manager = new_manager()
    append(manager, data(7, 0, pid=2, transactional=True))
    append(manager, data(8, 0, pid=1, transactional=True))
    assert [(each.producer_id, each.first_offset) for each in manager.ongoing_transactions] == [
        (2, 7),
        (1, 8),
    ]


def decided() -> ProducerStateManager:
    """Return the state of a transaction from 0 on with its marker at 5, above the high watermark."""
    manager = new_manager()
    append(manager, data(0, 0, count=5, transactional=True))
    append(manager, marker(5, commit=True), origin=COORDINATOR)
    assert manager.first_unstable_offset == 0
    return manager


def test_ps12_transactions_below_the_log_start_are_not_unstable() -> None:
    manager = decided()
    manager.on_log_start_offset_incremented(5)
    # The marker itself is not below it.
    assert manager.first_unstable_offset == 0
    manager.on_log_start_offset_incremented(6)
    assert manager.first_unstable_offset is None


def test_ps14_a_transaction_without_a_timestamp_is_not_late() -> None:
    manager = new_manager()
    append(manager, data(0, 0, transactional=True, timestamp=0))
    assert not manager.has_late_transaction(NOW)


def test_ps15_a_snapshot_is_on_the_disk_when_it_is_taken() -> None:
    disk, file_system = new_disk()
    manager = ProducerStateManager(file_system, "/log")
    append(manager, data(0, 0))
    path = manager.take_snapshot()
    # The caller must sync the directory for the name.
    file_system.sync_directory("/log")
    assert path is not None and disk.durable_bytes(path) == read_file(file_system, path) != b""


def test_ps15_a_snapshot_keeps_the_time_of_a_marker_and_not_that_of_the_last_data() -> None:
    _, file_system = new_disk()
    manager = ProducerStateManager(file_system, "/log")
    append(manager, data(0, 0, transactional=True))
    append(manager, marker(1, commit=True, timestamp=NOW + 9), origin=COORDINATOR)
    manager.take_snapshot()
    again = ProducerStateManager(file_system, "/log")
    again.truncate_and_reload(0, 3, NOW)
    assert again.producers[PID].last_timestamp == NOW + 9


def test_ps16_a_state_at_the_end_still_forgets_transactions_below_the_log_start() -> None:
    manager = decided()
    manager.truncate_and_reload(6, manager.map_end_offset, NOW)
    assert manager.first_unstable_offset is None and PID in manager.producers


def test_ps17_after_a_full_truncation_a_snapshot_may_be_taken_at_any_offset() -> None:
    manager = decided()
    manager.take_snapshot()
    manager.truncate_fully_and_start_at(3)
    assert (manager.map_end_offset, manager.last_snapshot_offset) == (3, 0)
    assert manager.first_unstable_offset is None and manager.is_empty
    assert manager.take_snapshot() == f"/log/{snapshot_name(3)}"


def test_ps18_the_last_snapshot_offset_is_that_of_the_newest_snapshot_or_the_start() -> None:
    manager = decided()
    manager.on_log_start_offset_incremented(2)
    assert manager.last_snapshot_offset == 2
    manager.take_snapshot()
    manager.on_log_start_offset_incremented(4)
    assert manager.last_snapshot_offset == 6


def test_ps18_a_transaction_whose_marker_is_at_the_start_stays() -> None:
    manager = decided()
    manager.on_log_start_offset_incremented(5)
    assert manager.first_unstable_offset == 0


def test_ps19_snapshots_made_since_the_start_are_considered() -> None:
    file_system = new_disk()[1]
    manager = ProducerStateManager(file_system, "/log")
    for offset in (1, 2, 5, 9):
        write_garbage(file_system, offset, b"")
    manager.snapshots.delete_strays([2, 4])
    assert names(file_system) == manager.snapshots.offsets == [2, 9]


def test_ps23_a_marker_takes_the_verification_away() -> None:
    manager = new_manager()
    append(manager, data(0, 0, transactional=True))
    manager.verifications.note(PID, sequence=1, producer_epoch=0, now_ms=NOW)
    append(manager, marker(1, commit=False), origin=COORDINATOR)
    assert manager.verifications.entry(PID) is None


# Rebuilds of a log's producers


def rebuilt(
    *batches: tuple[int, int], log_start_offset: int = 0, map_end: int = 0, clean: bool = False
) -> ProducerStateManager:
    """Return the producers of a log of (producer, sequence) batches, three a segment, rebuilt without a snapshot."""
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    for number, (pid, sequence) in enumerate(batches):
        log.append_as_leader(data(0, sequence, pid=pid).tobytes(), leader_epoch=0, now_ms=NOW_MS)
        assert log.log_end_offset == number + 1
    for offset in log.producers.snapshots.offsets:
        file_system.unlink(f"{DIRECTORY}/{snapshot_name(offset)}")
    manager = new_producers(file_system)
    manager.reached(map_end)
    rebuild_producer_state(
        manager,
        log.local.segments,
        log_start_offset=log_start_offset,
        last_offset=len(batches),
        now_ms=NOW_MS,
        is_clean=clean,
    )
    return manager


@pytest.mark.covers("LogLoaderTest.testSkipLoadingIfEmptyProducerStateBeforeTruncation")
def test_ps24_an_empty_state_that_was_at_the_end_already_is_not_filled() -> None:
    assert rebuilt((1, 0), (2, 0), map_end=9).producers == {}
    assert sorted(rebuilt((1, 0), (2, 0)).producers) == [1, 2]


def test_ps24_the_scan_begins_at_the_log_start() -> None:
    manager = rebuilt((1, 0), (2, 0), (3, 0), (4, 0), (5, 0), log_start_offset=2)
    assert sorted(manager.producers) == [3, 4, 5] and manager.map_end_offset == 5


def test_ps24_the_scan_continues_where_the_snapshot_ends() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    for sequence in range(3):
        log.append_as_leader(data(0, sequence, pid=1).tobytes(), leader_epoch=0, now_ms=NOW_MS)
    manager = new_producers(file_system)
    # This producer is known from the snapshot at 2 alone.
    append(manager, data(1, 9, pid=7))
    manager.take_snapshot()
    manager.reached(0)
    rebuild_producer_state(
        manager, log.local.segments, log_start_offset=0, last_offset=3, now_ms=NOW_MS, is_clean=False
    )
    assert manager.producers[7].last_sequence == 9
    assert [cached.last_sequence for cached in manager.producers[1].batch_metadata] == [2]
