"""Append, roll and flush one step to either side of their rules (AP1 to AP16, RO1 to RO3, FL1 to FL6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storage.batch import Record, TimestampType
from storage.batch.legacy.builder import build_message_set
from storage.codec.crc32c import crc32c
from storage.config import LogConfig
from storage.disk.checkpoints import LeaderEpochCheckpoint
from storage.errors import (
    CorruptBatch,
    OffsetsOutOfOrder,
    OutOfOrderSequence,
    RecordBatchTooLarge,
    RecordTooLarge,
    StorageError,
)
from storage.log import AppendInfo, AppendOrigin, LogOffsetMetadata, PartitionLog
from storage.producers.snapshot import snapshot_name
from storage.segment import LogSegment
from storage.segment.file_records import FileRecords
from storage.segment.segments import LogSegments
from tests.storage.log.appends import INT_MAX, follow, lead, sequenced
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    ROOMY,
    SIZE,
    append_each,
    batch,
    disk_and_log,
    epochs,
    new_file_system,
    open_log,
    open_segment,
    produced,
    read_offsets,
)

LOG = f"{0:020d}.log"


def message(offset: int, timestamp: int = NOW_MS) -> bytes:
    return build_message_set(
        [Record(offset, timestamp, b"k", b"v")],
        magic=1,
        base_offset=offset,
        timestamp_type=TimestampType.CREATE,
    )


# Append


def test_ap1_the_epoch_comes_before_the_size_and_the_roll_before_the_producer() -> None:
    _, log = disk_and_log(LogConfig(segment_bytes=2 * SIZE, segment_index_bytes=1200))
    lead(log, sequenced(0))
    with pytest.raises(RecordBatchTooLarge):
        lead(log, produced(value_bytes=3 * SIZE), epoch=4)
    assert epochs(log) == [(0, 0), (4, 1)]
    lead(log, sequenced(1), epoch=4)
    with pytest.raises(OutOfOrderSequence):
        lead(log, sequenced(7), epoch=4)
    assert log.local.segments.base_offsets == [0, 2]


def test_ap1_producers_transactions_and_marks_follow_the_bytes() -> None:
    disk, log = disk_and_log()
    lead(log, produced(3))
    lead(log, sequenced(0, is_transactional=True))
    lead(log, produced(2))
    assert log.producers.map_end_offset == log.log_end_offset == 6
    log.marks.update_high_watermark(6)
    assert log.marks.last_stable_offset == 3
    disk.fail(1, path_suffix=LOG)
    with pytest.raises(StorageError):
        lead(log, sequenced(1, is_transactional=True))
    entry = log.producers.last_entry(9)
    assert entry is not None and entry.last_sequence == 0


def test_ap2_only_a_clients_batch_must_begin_at_0() -> None:
    _, log = disk_and_log()
    info = log.append_as_leader(
        batch(7, epoch=-1), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR
    )
    assert (info.first_offset, info.last_offset) == (0, 0)


def test_ap2_a_followers_old_message_is_checked_too() -> None:
    _, log = disk_and_log()
    damaged = bytearray(message(0))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch):
        follow(log, bytes(damaged))
    assert log.log_end_offset == 0


def test_ap2_each_batch_of_a_raft_leader_is_checked_against_the_limit() -> None:
    _, log = disk_and_log(replace(ROOMY, max_message_bytes=SIZE))
    data = batch(0, epoch=3) + batch(1, epoch=3)
    raft = AppendOrigin.RAFT_LEADER
    assert log.append_as_leader(data, leader_epoch=3, now_ms=NOW_MS, origin=raft).last_offset == 1
    with pytest.raises(RecordTooLarge):
        log.append_as_leader(
            batch(2, epoch=3) + batch(3, epoch=3, value_bytes=11), leader_epoch=3, now_ms=NOW_MS, origin=raft
        )


def test_ap3_the_first_offset_is_that_of_the_first_batch_whatever_epochs_follow() -> None:
    _, log = disk_and_log()
    info = follow(log, batch(5, 2, epoch=1) + batch(7, epoch=2) + batch(8, epoch=3))
    assert (info.first_offset, info.last_offset) == (5, 8)


def test_ap4_equal_last_offsets_are_out_of_order() -> None:
    _, log = disk_and_log()
    with pytest.raises(OffsetsOutOfOrder):
        follow(log, batch(0, 2) + batch(1))
    with pytest.raises(OffsetsOutOfOrder):
        follow(log, message(-1))
    assert follow(log, batch(0, 2) + batch(2)).last_offset == 2


def lead_raft(log: PartitionLog, data: bytes) -> AppendInfo:
    return lead(log, data, origin=AppendOrigin.RAFT_LEADER)


@pytest.mark.parametrize("gap", [0, 5])
@pytest.mark.parametrize("append", [follow, lead_raft], ids=["follower", "raft"])
def test_ap4_a_batch_that_ends_below_its_begin_is_refused_and_the_log_stays_online(
    append: Callable[[PartitionLog, bytes], AppendInfo], gap: int
) -> None:
    """The length of a batch in offsets is a field of its own, which a broken leader may have made negative."""
    _, log = disk_and_log()
    append_each(log, 3)
    data = bytearray(batch(3 + gap, 2, epoch=0))
    data[23:27] = (-2).to_bytes(4, "big", signed=True)
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    before = log.local.segments.active.size_bytes
    with pytest.raises(OffsetsOutOfOrder, match="ends below it"):
        append(log, bytes(data))
    assert (log.log_end_offset, log.local.segments.active.size_bytes) == (3, before)
    assert follow(log, batch(3)).last_offset == 3


def test_ap5_the_largest_timestamp_and_its_offset_are_reported() -> None:
    _, log = disk_and_log()
    info = follow(
        log, batch(0, timestamp=9) + batch(1, timestamp=20) + batch(2, timestamp=20) + batch(3, timestamp=4)
    )
    assert (info.max_timestamp, info.offset_of_max_timestamp) == (20, 1)
    info = follow(log, batch(4, timestamp=-1) + message(5, timestamp=-1))
    assert (info.max_timestamp, info.offset_of_max_timestamp) == (-1, -1)


def test_ap7_a_leader_reports_the_records_as_they_are_stored() -> None:
    _, log = disk_and_log(replace(ROOMY, message_timestamp_type="LogAppendTime"))
    lead(log, produced(2))
    info = log.append_as_leader(produced(3, timestamp=5), leader_epoch=6, now_ms=NOW_MS + 40)
    assert (info.first_offset, info.last_offset, info.last_leader_epoch) == (2, 4, 6)
    assert (info.max_timestamp, info.log_append_time_ms) == (NOW_MS + 40, NOW_MS + 40)
    assert 2 <= info.offset_of_max_timestamp <= 4
    _, log = disk_and_log()
    info = lead(log, produced(3, timestamp=NOW_MS))
    assert (info.max_timestamp, info.offset_of_max_timestamp) == (NOW_MS + 2, 2)
    assert info.log_append_time_ms == -1


def test_ap9_old_messages_without_known_epochs_write_no_checkpoint() -> None:
    disk, log = disk_and_log()
    follow(log, message(0))
    disk.call_log = []
    follow(log, message(1))
    assert [call for call in disk.call_log if "epoch" in call] == []


def test_ap10_the_epoch_is_noted_though_the_set_is_too_large() -> None:
    _, log = disk_and_log(LogConfig(segment_bytes=2 * SIZE, segment_index_bytes=1200))
    follow(log, batch(0, epoch=5) + batch(1, epoch=5))
    with pytest.raises(RecordBatchTooLarge):
        lead(log, produced(value_bytes=3 * SIZE), epoch=6)
    assert epochs(log) == [(5, 0), (6, 2)] and log.log_end_offset == 2


def test_ap9_an_epoch_of_a_refused_set_above_a_gap_begins_where_the_leader_then_writes() -> None:
    _, log = disk_and_log(LogConfig(segment_bytes=2 * SIZE, segment_index_bytes=1200))
    follow(log, batch(0, epoch=1))
    with pytest.raises(RecordBatchTooLarge):
        follow(log, batch(10, epoch=4, value_bytes=3 * SIZE))
    assert epochs(log) == [(1, 0), (4, 10)]
    lead(log, produced(), epoch=4)
    assert epochs(log) == [(1, 0), (4, 1)]


def test_ap11_a_roll_never_begins_below_the_log_end() -> None:
    _, log = disk_and_log(LogConfig(segment_bytes=2 * len(message(0)), segment_index_bytes=1200))
    for offset in range(3):
        # The set may begin as low as `offset - (2^31 - 1)`: its first offset is unknown.
        follow(log, message(offset))
    assert log.local.segments.base_offsets == [0, 2]


FAILING: list[tuple[type, str, Callable[[PartitionLog], object]]] = [
    (FileRecords, "read_slice", lambda log: log.read(0, max_size=10)),
    (FileRecords, "flush", lambda log: log.flushes.flush()),
    (FileRecords, "flush", lambda log: log.flushes.roll(now_ms=NOW_MS)),
    (LogSegment, "change_file_suffixes", lambda log: log.retention.delete_old(NOW_MS + 1000)),
    (FileRecords, "truncate_to", lambda log: log.truncate_to(1, now_ms=NOW_MS)),
    (FileRecords, "close", lambda log: log.close()),
    (FileRecords, "append", lambda log: follow(log, batch(4))),
    (LeaderEpochCheckpoint, "write", lambda log: log.appends.assign_epoch(7)),
    (LeaderEpochCheckpoint, "write", lambda log: log.marks.maybe_increment_log_start_offset(1)),
]


@pytest.mark.parametrize(
    ("owner", "name", "act"),
    FAILING,
    ids=["read", "flush", "roll", "delete", "truncate", "close", "append", "assign epoch", "log start"],
)
def test_ap16_a_verb_that_meets_a_failing_disk_says_so_and_ends_the_log(
    owner: type, name: str, act: Callable[[PartitionLog], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk_and_log(replace(ROOMY, retention_ms=10))[1]
    append_each(log, 2)
    log.flushes.roll(now_ms=NOW_MS)
    append_each(log, 2)
    log.marks.update_high_watermark(4)

    def failing(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(owner, name, failing)
    with pytest.raises(StorageError, match="Input/output error"):
        act(log)
    monkeypatch.undo()
    with pytest.raises(StorageError, match="is offline"):
        log.read(0, max_size=10)


# Roll


def test_ro1_the_last_offset_of_the_set_must_fit() -> None:
    _, log = disk_and_log()
    follow(log, batch(0))
    assert not follow(log, batch(INT_MAX - 1, 2)).has_rolled
    _, log = disk_and_log()
    follow(log, batch(0))
    assert follow(log, batch(INT_MAX, 2)).has_rolled and log.local.segments.base_offsets == [0, INT_MAX]


def test_ro1_a_compacted_topic_rolls_after_its_compaction_lag() -> None:
    config = replace(ROOMY, cleanup_policy="compact", max_compaction_lag_ms=1000)
    _, log = disk_and_log(config)
    follow(log, batch(0))
    assert not follow(log, batch(1, timestamp=NOW_MS + 1000)).has_rolled
    assert follow(log, batch(2, timestamp=NOW_MS + 1001)).has_rolled


def test_ro2_a_base_that_has_records_cannot_be_begun_again() -> None:
    _, log = disk_and_log()
    append_each(log, 3)
    # Only a mistake makes the log end so low.
    log.local.update_log_end(0)
    with pytest.raises(StorageError, match="a segment begins there already"):
        log.flushes.roll(now_ms=NOW_MS)
    assert log.local.segments.active.size_bytes == 3 * SIZE


def test_ro2_an_empty_segment_starts_again_with_its_age_and_its_indexes() -> None:
    _, log = disk_and_log()
    active = log.local.segments.active
    active.time_index.maybe_append(5, 0)
    active.offset_index.append(3, 0)
    active.offset_index.trim_to_valid_size()
    log.flushes.roll(now_ms=NOW_MS + 500)
    active = log.local.segments.active
    assert (active.created_ms, active.base_offset) == (NOW_MS + 500, 0)
    assert (active.offset_index.entries, active.time_index.entries) == (0, 0)
    assert active.offset_index.length_bytes == active.time_index.length_bytes == 1200


def test_ro2_the_segment_before_gets_its_last_time_entry_and_loses_its_tails() -> None:
    _, log = disk_and_log()
    append_each(log, 3)
    before = log.local.segments.active
    log.flushes.roll(now_ms=NOW_MS)
    assert before.time_index.last_entry == (NOW_MS, 0)
    assert (before.offset_index.length_bytes, before.time_index.length_bytes) == (0, 12)


def test_ro3_producers_and_the_high_watermark_follow_to_the_new_base() -> None:
    _, log = disk_and_log()
    append_each(log, 3)
    log.marks.update_high_watermark(3)
    log.flushes.roll(10, now_ms=NOW_MS)
    assert log.producers.map_end_offset == 10
    assert log.producers.snapshots.latest_offset == 10
    assert log.marks.high_watermark_metadata == LogOffsetMetadata(3, 10, 0)


def test_ro3_records_before_a_roll_survive_a_power_loss() -> None:
    disk, log = disk_and_log()
    disk.sync_all()
    append_each(log, 3)
    log.flushes.roll(now_ms=NOW_MS)
    disk.lose_power("none")
    log = open_log(new_file_system(disk), ROOMY, recovery_point=3)
    assert read_offsets(log) == [0, 1, 2]


def test_ro3_without_its_snapshot_the_recovery_point_stays() -> None:
    disk, log = disk_and_log()
    append_each(log, 3)
    disk.fail(1, path_suffix=snapshot_name(3))
    with pytest.raises(StorageError):
        log.flushes.roll(now_ms=NOW_MS)
    assert log.local.recovery_point == 0


# Flush


def test_fl1_the_recovery_point_moves_to_the_offset_and_never_back() -> None:
    _, log = disk_and_log()
    append_each(log, 5)
    log.flushes.flush(3)
    assert log.local.recovery_point == 3
    log.flushes.flush(1)
    assert log.local.recovery_point == 3
    log.flushes.done(2)
    assert log.local.recovery_point == 3
    log.flushes.flush()
    assert log.local.recovery_point == 5


def test_fl1_a_flush_overtaken_by_a_truncation_covers_only_the_kept_records() -> None:
    _, log = disk_and_log()
    append_each(log, 5)
    prepared = log.flushes.prepare()
    log.truncate_to(2, now_ms=NOW_MS)
    append_each(log, 3)
    prepared()
    log.flushes.done(prepared.offset)
    assert log.local.recovery_point == 2


def test_fl1_a_flush_of_everything_takes_an_empty_active_segment_in_and_one_up_to_the_end_does_not() -> None:
    disk, log = disk_and_log()
    append_each(log, 3)
    log.flushes.roll(now_ms=NOW_MS)
    active = f"{DIRECTORY}/{3:020d}.log"
    disk.call_log = []
    log.flushes.flush(3)
    assert f"sync {active}" not in disk.call_log
    log.flushes.flush()
    assert f"sync {active}" in disk.call_log


def test_fl2_below_the_recovery_point_there_is_nothing_to_flush() -> None:
    disk, log = disk_and_log()
    append_each(log, 5)
    log.flushes.flush()
    disk.call_log = []
    for offset in (0, 3, 5):
        log.flushes.flush(offset)
    assert disk.call_log == [] and log.local.recovery_point == 5


def test_fl3_a_range_begins_with_the_segment_that_holds_its_start() -> None:
    file_system, segments = new_file_system(), LogSegments()
    for base in (10, 20, 30):
        segments.add(open_segment(file_system, base))

    def bases(start: int, end: int) -> list[int]:
        return [segment.base_offset for segment in segments.values(start, end)]

    assert bases(20, 30) == [20] and bases(19, 30) == [10, 20] and bases(20, 31) == [20, 30]
    assert bases(0, 20) == [10] and bases(0, 21) == [10, 20] and bases(35, 90) == [30] and bases(0, 10) == []
    assert bases(20, 20) == []
    with pytest.raises(ValueError, match="the end is below the start"):
        bases(21, 20)


def test_fl4_an_orderly_stop_syncs_an_empty_active_segment_and_makes_it_no_index() -> None:
    disk, log = disk_and_log()
    append_each(log, 3)
    log.flushes.roll(now_ms=NOW_MS)
    append_each(log, 1)
    log.flushes.roll(now_ms=NOW_MS)
    disk.call_log = []
    log.close()
    synced = [call.split(" ")[1] for call in disk.call_log if call.startswith("sync ")]
    assert [path for path in synced if f"{4:020d}." in path and "snapshot" not in path] == [
        f"{DIRECTORY}/{4:020d}.log"
    ]
    _, log = disk_and_log()
    append_each(log, 3)
    log.close()
    assert log.local.recovery_point == 3


def test_fl5_a_new_log_start_raises_it_and_a_lower_end_lowers_it() -> None:
    _, log = disk_and_log()
    append_each(log, 6)
    log.marks.update_high_watermark(6)
    assert log.local.recovery_point == 0
    log.marks.maybe_increment_log_start_offset(4)
    assert log.local.recovery_point == 4
    log.flushes.flush()
    log.truncate_to(5, now_ms=NOW_MS)
    assert log.local.recovery_point == 5


def test_fl6_a_flush_is_due_from_flush_messages_unflushed_records_on() -> None:
    _, log = disk_and_log(replace(ROOMY, flush_messages=3))
    append_each(log, 2)
    assert log.flushes.wanted is None
    append_each(log, 1)
    assert log.flushes.wanted == 3
    log.flushes.flush()
    append_each(log, 2)
    assert (log.local.unflushed_messages, log.flushes.wanted) == (2, None)
    append_each(log, 1)
    assert log.flushes.wanted == 6
