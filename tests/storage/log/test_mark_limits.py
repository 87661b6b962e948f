"""Reads, marks, retention, truncation and the end, one step to either side of their rules (RD1 to RT16)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.batch import Record, build_batch
from storage.config import LogConfig
from storage.disk.filesystem import read_file
from storage.log import LogOffsetMetadata, PartitionLog
from storage.segment.fetch_data import Isolation
from storage.segment.file_records import TimestampAndOffset
from tests.storage.log.appends import end_transaction, follow
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    SIZE,
    append_each,
    batch,
    disk_and_log,
    new_file_system,
    offsets_in,
    open_log,
    produced,
    read_offsets,
)

THREE = LogConfig(segment_bytes=3 * SIZE, segment_index_bytes=1200)
ROOMY = LogConfig(segment_index_bytes=1200, index_interval_bytes=0)
EPOCHS = f"{DIRECTORY}/leader-epoch-checkpoint"


def log_of(count: int, config: LogConfig = THREE, *, high_watermark: int | None = None) -> PartitionLog:
    """Return a log of one record a batch and three batches a segment."""
    log = disk_and_log(config)[1]
    append_each(log, count)
    log.marks.update_high_watermark(count if high_watermark is None else high_watermark)
    return log


def send(log: PartitionLog, producer_id: int, sequence: int = 0) -> int:
    data = batch(
        0, epoch=-1, producer_id=producer_id, producer_epoch=0, sequence=sequence, is_transactional=True
    )
    return log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS).first_offset


def end(log: PartitionLog, producer_id: int, *, commit: bool = False) -> int:
    return end_transaction(log, producer_id, is_commit=commit).first_offset


def offsets(log: PartitionLog, start: int, isolation: Isolation) -> list[int]:
    return offsets_in(log.read(start, max_size=1 << 20, isolation=isolation).records)


# Reads


def test_rd1_each_isolation_has_its_own_bound() -> None:
    log = log_of(0, ROOMY)
    append_each(log, 1)
    send(log, 7)
    append_each(log, 3)
    log.marks.update_high_watermark(4)
    assert offsets(log, 0, Isolation.LOG_END) == [0, 1, 2, 3, 4]
    assert offsets(log, 0, Isolation.HIGH_WATERMARK) == [0, 1, 2, 3]
    assert offsets(log, 0, Isolation.TXN_COMMITTED) == [0]


def test_rd2_a_segment_without_the_offset_is_followed_by_the_next_and_the_next() -> None:
    log = log_of(0, ROOMY)
    for offset in (0, 20, 40):
        follow(log, batch(offset))
        log.flushes.roll(offset + 10, now_ms=NOW_MS)
    follow(log, batch(60))
    log.truncate_to(50, now_ms=NOW_MS)
    follow(log, batch(60))
    assert offsets(log, 1, Isolation.LOG_END) == [20]
    assert offsets(log, 21, Isolation.LOG_END) == [40]
    assert offsets(log, 41, Isolation.LOG_END) == [60]


def test_rd4_the_reported_place_is_the_log_end_not_the_bound() -> None:
    log = log_of(0, ROOMY)
    append_each(log, 5)
    log.append_as_leader(produced(5), leader_epoch=0, now_ms=NOW_MS)
    # The batch 5 to 9 is deleted.
    log.truncate_to(8, now_ms=NOW_MS)
    log.marks.update_high_watermark(8)
    # It is below the log end, but above the last batch.
    log.marks.set_high_watermark(LogOffsetMetadata(7, 0, 5 * SIZE))
    data = log.read(6, max_size=100, isolation=Isolation.HIGH_WATERMARK)
    assert data.records == b"" and data.offset_metadata == log.local.log_end


def test_rd5_a_whole_segment_reaches_up_to_the_next_ones_base() -> None:
    log = log_of(0, replace(ROOMY, index_interval_bytes=1 << 20))
    send(log, 1)
    end(log, 1)
    append_each(log, 1)
    log.flushes.roll(now_ms=NOW_MS)
    send(log, 2)
    end(log, 2)
    log.marks.update_high_watermark(log.log_end_offset)
    assert len(log.local.segments) == 2
    data = log.read(0, max_size=1 << 20, isolation=Isolation.TXN_COMMITTED)
    assert offsets_in(data.records) == [0, 1, 2]
    assert [each.producer_id for each in data.aborted_transactions or ()] == [1]


def test_rd7_an_open_transaction_above_the_high_watermark_is_not_its_place() -> None:
    log = log_of(0, ROOMY)
    append_each(log, 4)
    send(log, 7)
    log.marks.update_high_watermark(2)
    assert log.marks.last_stable_offset == log.marks.last_stable_metadata.offset == 2
    assert offsets(log, 0, Isolation.TXN_COMMITTED) == [0, 1]


def test_rd8_minus_4_asks_for_the_local_log_start_and_minus_5_for_what_is_on_another_storage() -> None:
    log = log_of(0, ROOMY)
    for epoch in (3, 5):
        append_each(log, 4, epoch=epoch)
    log.marks.update_high_watermark(8)
    assert log.reads.offset_for_timestamp(-4) == TimestampAndOffset(timestamp=-1, offset=0, leader_epoch=3)
    log.marks.maybe_increment_log_start_offset(6)
    assert log.reads.offset_for_timestamp(-4) == TimestampAndOffset(timestamp=-1, offset=6, leader_epoch=5)
    assert log.reads.offset_for_timestamp(-5) == TimestampAndOffset(timestamp=-1, offset=-1, leader_epoch=-1)
    # Any other negative number is a time before all records.
    found = log.reads.offset_for_timestamp(-6)
    assert found is not None and found.offset == 6


def test_rd8_the_earliest_is_the_log_start_with_the_epoch_that_holds_there() -> None:
    log = log_of(0, ROOMY)
    append_each(log, 3, epoch=2)
    append_each(log, 3, epoch=5)
    log.marks.update_high_watermark(6)
    log.marks.maybe_increment_log_start_offset(2)
    found = log.reads.offset_for_timestamp(-2)
    assert found is not None and (found.timestamp, found.offset, found.leader_epoch) == (-1, 2, 2)
    log.epochs.clear()
    # The epoch begins above the log start: the records at the start have none.
    log.epochs.assign(9, 4)
    found = log.reads.offset_for_timestamp(-2)
    assert found is not None and (found.offset, found.leader_epoch) == (2, None)


def test_rd8_of_several_segments_with_the_greatest_timestamp_the_first_counts() -> None:
    log = log_of(0, ROOMY)
    records = [Record(index, NOW_MS + at, None, None) for index, at in enumerate((5, 9, 7, 9, 1))]
    for base in (0, 5):
        moved = [record._replace(offset=record.offset + base) for record in records]
        follow(log, build_batch(moved, base_offset=base, partition_leader_epoch=0))
        log.flushes.roll(now_ms=NOW_MS)
    found = log.reads.offset_for_timestamp(-3)
    assert found is not None and (found.timestamp, found.offset) == (NOW_MS + 9, 1)


def test_rd8_a_segment_without_timestamps_has_its_files_and_ends_the_search() -> None:
    log = log_of(0, ROOMY)
    follow(log, batch(0, timestamp=-1))
    log.flushes.roll(now_ms=NOW_MS)
    follow(log, batch(1, timestamp=NOW_MS))
    first = log.local.segments.first
    assert first is not None
    first.set_modified(NOW_MS - 10)
    found = log.reads.offset_for_timestamp(NOW_MS - 5)
    assert found is not None and found.offset == 1
    assert log.reads.offset_for_timestamp(NOW_MS - 20) is None


# Marks


def test_rd11_a_log_that_is_opened_has_it_at_its_start() -> None:
    file_system = new_file_system()
    log = open_log(file_system, ROOMY)
    append_each(log, 5)
    log.close()
    again = open_log(file_system, ROOMY, clean=True, log_start_offset=3, recovery_point=5)
    assert (again.log_start_offset, again.high_watermark) == (3, 3)


def test_rt1_the_log_start_may_reach_the_high_watermark() -> None:
    log = log_of(5, ROOMY, high_watermark=3)
    assert log.marks.maybe_increment_log_start_offset(3) and log.log_start_offset == 3
    assert (log.local.recovery_point, log.high_watermark) == (3, 3)


def test_rt1_epochs_below_it_are_deleted_on_disk_too() -> None:
    file_system = new_file_system()
    log = open_log(file_system, ROOMY)
    append_each(log, 3, epoch=1)
    append_each(log, 3, epoch=4)
    log.marks.update_high_watermark(6)
    log.marks.maybe_increment_log_start_offset(4)
    assert [tuple(entry) for entry in log.epochs.entries] == [(4, 4)]
    assert read_file(file_system, EPOCHS) == b"0\n1\n4 4\n"


def test_rt1_decided_transactions_below_it_hold_nothing_back() -> None:
    log = log_of(0, ROOMY)
    send(log, 7)
    end(log, 7)
    append_each(log, 4)
    # A follower gets this error before the producers are asked.
    log.marks.high_watermark, log.marks._high_watermark_place = log.log_end_offset, log.local.log_end
    assert log.producers.first_unstable_transaction is not None
    log.marks.maybe_increment_log_start_offset(4)
    assert log.producers.first_unstable_transaction is None
    log.producers.reached(2)
    log.marks.maybe_increment_log_start_offset(5)
    assert log.producers.map_end_offset == 5


# Retention


def test_rt2_only_the_last_segment_stays_for_being_empty() -> None:
    log = log_of(0, ROOMY)
    log.flushes.roll(10, now_ms=NOW_MS)
    follow(log, batch(10))
    log.marks.update_high_watermark(11)
    assert log.local.segments.base_offsets == [0, 10]
    found = log.retention.deletable(lambda segment, following: True)
    assert [segment.base_offset for segment in found] == [0, 10]


def test_rt3_an_empty_active_segment_that_is_to_be_deleted_starts_again() -> None:
    log = log_of(3)
    log.flushes.roll(now_ms=NOW_MS)
    assert log.local.segments.base_offsets == [0, 3] and log.local.segments.active.size_bytes == 0
    log.retention.delete(list(log.local.segments), NOW_MS)
    assert log.local.segments.base_offsets == [3] and log.log_start_offset == 3
    append_each(log, 1)
    assert read_offsets(log) == [3]


@pytest.mark.parametrize("policy", ["compact", "delete", "compact,delete"])
def test_rt4_what_is_below_the_log_start_is_deleted_whatever_the_policy(policy: str) -> None:
    log = disk_and_log(replace(THREE, cleanup_policy=policy))[1]
    for offset in range(8):
        follow(log, batch(offset))
    log.marks.update_high_watermark(8)
    log.marks.maybe_increment_log_start_offset(4)
    assert log.retention.delete_old(NOW_MS) == 1
    assert log.local.segments.base_offsets == [3, 6] and log.log_start_offset == 4


def test_rt5_retention_of_0_ms_takes_what_is_a_millisecond_old() -> None:
    log = log_of(6, replace(THREE, retention_ms=0))
    assert log.retention.delete_old(NOW_MS) == 0
    assert log.retention.delete_old(NOW_MS + 1) == 2


def test_rt7_the_last_segment_is_never_deleted_for_the_log_start() -> None:
    log = log_of(5, replace(THREE, retention_ms=-1))
    log.marks.maybe_increment_log_start_offset(5)
    assert log.retention.delete_old(NOW_MS) == 1
    assert log.local.segments.base_offsets == [3] and log.local.segments.active.size_bytes == 2 * SIZE


# Truncation


def test_rt9_segments_are_deleted_from_the_end_each_durably_before_the_next() -> None:
    disk, log = disk_and_log(THREE)
    append_each(log, 12)
    disk.call_log = []
    log.truncate_to(4, now_ms=NOW_MS)
    deleted = [call for call in disk.call_log if call.endswith(".log") or call.startswith("sync_directory")]
    assert deleted[:4] == [
        f"unlink {DIRECTORY}/{9:020d}.log",
        f"sync_directory {DIRECTORY}",
        f"unlink {DIRECTORY}/{6:020d}.log",
        f"sync_directory {DIRECTORY}",
    ]


def test_rt9_the_snapshots_of_what_was_cut_are_deleted() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 12)
    log.truncate_to(4, now_ms=NOW_MS)
    snapshots = [name for name in file_system.list(DIRECTORY) if name.endswith(".snapshot")]
    assert all(int(name.split(".")[0]) <= 4 for name in snapshots), snapshots


def test_rt9_a_flush_that_was_prepared_promises_nothing_above_it() -> None:
    log = log_of(5, ROOMY)
    prepared = log.flushes.prepare()
    log.truncate_to(2, now_ms=NOW_MS)
    append_each(log, 4)
    prepared()
    log.flushes.done(prepared.offset)
    assert log.local.recovery_point == 2


def test_rt12_nothing_of_before_is_left() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 7, epoch=3)
    log.append_as_leader(produced(producer_id=5, producer_epoch=0, sequence=0), leader_epoch=3, now_ms=NOW_MS)
    log.flushes.flush()
    log.truncation.truncate_fully_and_start_at(2, now_ms=NOW_MS)
    assert (log.log_end_offset, log.local.recovery_point, log.high_watermark) == (2, 2, 2)
    assert log.producers.last_entry(5) is None and log.producers.map_end_offset == 2
    assert len(log.epochs) == 0 and read_file(file_system, EPOCHS) == b"0\n0\n"
    assert [name for name in file_system.list(DIRECTORY) if name.endswith(".snapshot")] == []
    log.truncation.truncate_fully_and_start_at(9, 4, now_ms=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.local.recovery_point) == (4, 9, 2)
    names = file_system.list(DIRECTORY)
    assert [name for name in names if name.endswith(".snapshot")] == [f"{9:020d}.snapshot"]


def test_rt12_no_snapshot_of_before_is_loaded() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    log.append_as_leader(produced(producer_id=5, producer_epoch=0, sequence=0), leader_epoch=3, now_ms=NOW_MS)
    append_each(log, 6)
    # The snapshot is between the new start and the new end.
    assert log.producers.snapshots.latest_offset == 6
    log.truncation.truncate_fully_and_start_at(9, 4, now_ms=NOW_MS)
    assert log.producers.last_entry(5) is None
    names = file_system.list(DIRECTORY)
    assert [name for name in names if name.endswith(".snapshot")] == [f"{9:020d}.snapshot"]


def test_rt12_a_flush_that_was_prepared_promises_nothing_any_more() -> None:
    log = log_of(5, ROOMY)
    prepared = log.flushes.prepare()
    log.truncation.truncate_fully_and_start_at(2, now_ms=NOW_MS)
    append_each(log, 4)
    log.flushes.done(prepared.offset)
    assert log.local.recovery_point == 0


# The end


def test_rt14_the_snapshot_is_taken_before_the_segments_close_and_its_name_is_synced_last() -> None:
    disk, log = disk_and_log(THREE)
    append_each(log, 2)
    disk.call_log = []
    log.close()
    calls = disk.call_log
    snapshot = next(at for at, call in enumerate(calls) if f"{2:020d}.snapshot" in call)
    last_of_log = max(at for at, call in enumerate(calls) if f"{0:020d}." in call)
    assert snapshot < last_of_log and calls[-1] == f"sync_directory {DIRECTORY}"
    assert log.local.recovery_point == 2


def test_rt15_both_directories_are_synced_after_the_rename() -> None:
    disk, log = disk_and_log(THREE)
    append_each(log, 1)
    disk.call_log = []
    assert log.rename_directory("topic-0.x-delete")
    assert disk.call_log == [
        f"rename {DIRECTORY} logs/topic-0.x-delete",
        "sync_directory logs",
        "sync_directory logs/topic-0.x-delete",
    ]


def test_rt16_an_append_writes_the_checkpoint_only_where_the_recovery_point_was_lowered() -> None:
    told: list[int] = []
    log = PartitionLog.open(
        new_file_system(),
        DIRECTORY,
        ROOMY,
        clean=True,
        now_ms=NOW_MS,
        write_lowered_offsets=lambda: told.append(log.local.recovery_point),
    )
    append_each(log, 6)
    log.flushes.flush(3)
    log.truncate_to(5, now_ms=NOW_MS)
    log.truncate_to(3, now_ms=NOW_MS)
    append_each(log, 1)
    assert told == []
    log.truncate_to(2, now_ms=NOW_MS)
    assert told == []
    append_each(log, 2)
    assert told == [2]
