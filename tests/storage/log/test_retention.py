"""Old segments are deleted by time, size and log start offset. Rules RT2 to RT8."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.disk import PowerLoss, SimFileSystem
from storage.config import LogConfig
from storage.disk.filesystem import FileSystem
from storage.errors import OffsetOutOfRange, StorageError
from storage.log import PartitionLog
from storage.segment import LogSegment
from storage.segment.lookups import read_next_offset
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    SIZE,
    append_each,
    bases,
    batch,
    new_disk,
    new_file_system,
    open_log,
    produced,
    read_offsets,
)


def log_of(
    count: int,
    *,
    file_system: SimFileSystem | None = None,
    high_watermark: int | None = None,
    **config: int | str,
) -> PartitionLog:
    """Return a log of segments of five batches of one record each, all as old as NOW_MS."""
    shape = LogConfig(segment_bytes=5 * SIZE, segment_index_bytes=1200, **config)  # type: ignore[arg-type]
    log = open_log(new_file_system() if file_system is None else file_system, shape)
    append_each(log, count)
    log.marks.update_high_watermark(count if high_watermark is None else high_watermark)
    return log


def suffixed(file_system: FileSystem, suffix: str) -> list[str]:
    return [name for name in file_system.list(DIRECTORY) if name.endswith(suffix)]


# What may be deleted


@pytest.mark.covers(
    "UnifiedLogTest.testSegmentDeletionWithHighWatermarkInitialization",
    "UnifiedLogTest.testCannotDeleteSegmentsAtOrAboveHighWatermark",
)
def test_rt2_nothing_that_reaches_above_the_high_watermark_is_deleted() -> None:
    for high_watermark in range(18):
        log = log_of(17, high_watermark=high_watermark, retention_ms=0)
        log.retention.delete_old(NOW_MS + 1000)
        assert log.log_start_offset <= high_watermark and bases(log)[0] <= high_watermark
        assert all(base > high_watermark for base in bases(log)[1:])
        assert log.log_start_offset == bases(log)[0]
    assert bases(log) == [17] and log.log_start_offset == 17


def test_kafka_5634_the_log_start_never_passes_the_high_watermark() -> None:
    log = log_of(17, high_watermark=9, retention_ms=0)
    assert log.retention.delete_old(NOW_MS + 1000) == 1
    assert log.log_start_offset == 5 and bases(log) == [5, 10, 15]


@pytest.mark.covers("UnifiedLogTest.testDeletableSegmentsFilter")
def test_rt2_up_to_the_first_that_may_not_and_never_an_empty_active_one() -> None:
    log = log_of(15)
    log.flushes.roll(now_ms=NOW_MS)
    assert bases(log) == [0, 5, 10, 15]
    assert [each.base_offset for each in log.retention.deletable(lambda each, _: each.base_offset != 5)] == [
        0
    ]
    assert len(log.retention.deletable(lambda *_: True)) == 3
    append_each(log, 1)
    log.marks.update_high_watermark(16)
    assert len(log.retention.deletable(lambda *_: True)) == 4


@pytest.mark.covers("UnifiedLogTest.testDeletableSegmentsIteration")
def test_rt2_each_is_judged_with_the_next_one() -> None:
    log, seen = log_of(15), list[tuple[LogSegment, LogSegment | None]]()

    def noting(segment: LogSegment, following: LogSegment | None) -> bool:
        seen.append((segment, following))
        return True

    log.retention.deletable(noting)
    segments = list(log.local.segments)
    assert seen == list(zip(segments, [*segments[1:], None], strict=True))


# By time


@pytest.mark.covers("UnifiedLogTest.shouldDeleteTimeBasedSegmentsReadyToBeDeleted")
@pytest.mark.parametrize(("age_ms", "left"), [(1000, 3), (1001, 1)])
def test_rt5_older_than_retention_ms_strictly(age_ms: int, left: int) -> None:
    log = log_of(15, retention_ms=1000)
    log.retention.delete_old(NOW_MS + age_ms)
    assert len(log.local.segments) == left


@pytest.mark.covers("UnifiedLogTest.shouldNotDeleteTimeBasedSegmentsWhenNoneReadyToBeDeleted")
def test_rt5_without_retention_ms_nothing_is_too_old() -> None:
    log = log_of(15, retention_ms=-1)
    assert log.retention.delete_old(NOW_MS + 10**12) == 0 and len(log.local.segments) == 3


def test_rt5_a_time_in_the_future_keeps_its_segment_and_all_after_it() -> None:
    log = open_log(
        new_file_system(), LogConfig(segment_bytes=SIZE, segment_index_bytes=1200, retention_ms=10)
    )
    for timestamp in (0, 5000, 0):
        log.append_as_leader(produced(timestamp=NOW_MS + timestamp), leader_epoch=0, now_ms=NOW_MS)
    log.marks.update_high_watermark(3)
    assert log.retention.delete_old(NOW_MS + 4000) == 1 and bases(log) == [1, 2]


def test_rt5_without_timestamps_the_files_are_as_old_as_they_were_modified() -> None:
    log = open_log(
        new_file_system(), LogConfig(segment_bytes=SIZE, segment_index_bytes=1200, retention_ms=10)
    )
    for _ in range(3):
        log.append_as_leader(produced(timestamp=-1), leader_epoch=0, now_ms=NOW_MS)
    log.marks.update_high_watermark(3)
    for segment, modified_ms in zip(log.local.segments, (0, 0, 100), strict=True):
        segment.set_modified(NOW_MS + modified_ms)
    assert log.retention.delete_old(NOW_MS + 11) == 2 and bases(log) == [2]


# By size


@pytest.mark.covers(
    "UnifiedLogTest.shouldDeleteSizeBasedSegments",
    "UnifiedLogTest.shouldNotDeleteSizeBasedSegmentsWhenUnderRetentionSize",
)
@pytest.mark.parametrize(("retention_batches", "left"), [(10, 2), (9, 2), (15, 3), (16, 3), (0, 1)])
def test_rt6_never_below_retention_bytes(retention_batches: int, left: int) -> None:
    log = log_of(15, retention_bytes=retention_batches * SIZE)
    log.retention.delete_old(NOW_MS)
    assert (
        len(log.local.segments) == left and log.local.segments.size_bytes >= min(retention_batches, 15) * SIZE
    )


def test_rt6_no_limit_is_no_limit() -> None:
    assert log_of(15, retention_bytes=-1).retention.delete_old(NOW_MS) == 0


def test_rt6_one_byte_short_of_a_segment_keeps_it() -> None:
    log = log_of(15, retention_bytes=10 * SIZE + 1)
    assert log.retention.delete_old(NOW_MS) == 0
    log.update_config(LogConfig(segment_bytes=5 * SIZE, segment_index_bytes=1200, retention_bytes=10 * SIZE))
    assert log.retention.delete_old(NOW_MS) == 1


def test_rt6_an_empty_segment_goes_where_the_rest_has_just_retention_bytes() -> None:
    """A compaction may leave one. Kafka deletes as long as no less than the limit is left."""
    log = open_log(new_file_system(), LogConfig(segment_index_bytes=1200, retention_bytes=3 * SIZE))
    log.flushes.roll(5, now_ms=NOW_MS)
    log.append_as_follower(b"".join(map(batch, (5, 6, 7))), leader_epoch=0, now_ms=NOW_MS)
    log.marks.update_high_watermark(8)
    assert bases(log) == [0, 5]
    assert log.retention.delete_old(NOW_MS) == 1
    assert bases(log) == [5] and log.log_start_offset == 5


# By log start offset


@pytest.mark.covers(
    "UnifiedLogTest.testLogDeletionAfterDeleteRecords",
    "UnifiedLogTest.testNoOpWhenRemoteLogStorageIsDisabled",
)
@pytest.mark.parametrize(("log_start", "left"), [(1, 3), (5, 2), (6, 2), (15, 1)])
def test_rt7_what_is_below_the_log_start_offset_is_deleted(log_start: int, left: int) -> None:
    log = log_of(15)
    if log_start == 15:
        log.flushes.roll(now_ms=NOW_MS)
    log.marks.maybe_increment_log_start_offset(log_start)
    log.retention.delete_old(NOW_MS)
    assert len(log.local.segments) == left and log.log_start_offset == log_start


@pytest.mark.covers(
    "UnifiedLogTest.shouldDeleteStartOffsetBreachedSegmentsWhenPolicyDoesNotIncludeDelete",
    "UnifiedLogTest.shouldNotDeleteSegmentsWhenPolicyDoesNotIncludeDelete",
)
def test_kafka_7400_rt4_a_compacted_log_loses_only_segments_below_its_start() -> None:
    log = open_log(
        new_file_system(),
        LogConfig(
            segment_bytes=5 * SIZE,
            segment_index_bytes=1200,
            cleanup_policy="compact",
            retention_ms=0,
            retention_bytes=0,
        ),
    )
    for offset in range(15):
        log.append_as_follower(batch(offset), leader_epoch=0, now_ms=NOW_MS)
    log.marks.update_high_watermark(15)
    assert log.retention.delete_old(NOW_MS + 10_000) == 0
    log.marks.maybe_increment_log_start_offset(5)
    assert log.retention.delete_old(NOW_MS + 10_000) == 1 and bases(log) == [5, 10]


@pytest.mark.parametrize("limit", [{"retention_ms": 0}, {"retention_bytes": 0}])
def test_rt4_without_delete_in_the_policy_age_and_size_do_not_count(limit: dict[str, int]) -> None:
    log = log_of(15)
    shape = LogConfig(segment_bytes=5 * SIZE, segment_index_bytes=1200)
    log.update_config(replace(shape, cleanup_policy="compact", **limit))  # type: ignore[arg-type]
    assert log.retention.delete_old(NOW_MS + 10_000) == 0
    log.update_config(replace(shape, cleanup_policy="delete", **limit))  # type: ignore[arg-type]
    assert log.retention.delete_old(NOW_MS + 10_000) == 3


@pytest.mark.covers("UnifiedLogTest.shouldDeleteSegmentsReadyToBeDeletedWhenCleanupPolicyIsCompactAndDelete")
def test_rt4_with_both_policies_all_three_rules_hold() -> None:
    log = log_of(15, retention_ms=100)
    log.update_config(
        LogConfig(
            segment_bytes=5 * SIZE,
            segment_index_bytes=1200,
            cleanup_policy="compact,delete",
            retention_ms=100,
        )
    )
    log.retention.delete_old(NOW_MS + 101)
    assert len(log.local.segments) == 1


@pytest.mark.covers("UnifiedLogTest.testRetentionIdempotency")
def test_kafka_12177_the_start_offset_frees_the_way_for_the_other_rules() -> None:
    log = open_log(
        new_file_system(), LogConfig(segment_bytes=SIZE, segment_index_bytes=1200, retention_ms=900)
    )
    for timestamp in (100, 0, 100):
        log.append_as_leader(produced(timestamp=NOW_MS + timestamp), leader_epoch=0, now_ms=NOW_MS)
    log.marks.update_high_watermark(3)
    log.marks.maybe_increment_log_start_offset(1)
    assert log.retention.delete_old(NOW_MS + 901) == 2
    assert log.retention.delete_old(NOW_MS + 901) == 0


# All of it


@pytest.mark.covers("UnifiedLogTest.testThatGarbageCollectingSegmentsDoesntChangeOffset")
@pytest.mark.parametrize("count", [0, 1, 25])
def test_rt8_the_active_segment_rolls_and_is_deleted_and_the_end_stays(count: int) -> None:
    file_system = new_file_system()
    log = log_of(count, file_system=file_system, retention_ms=0)
    log.retention.delete_old(NOW_MS + 1)
    assert bases(log) == [count] and log.log_start_offset == log.log_end_offset == count
    assert log.retention.delete_old(NOW_MS + 1) == 0
    append_each(log, 1)
    assert read_offsets(log) == [count]


def test_rt3_the_log_starts_after_the_last_deleted_segment_and_snapshots_are_deleted_too() -> None:
    file_system = new_file_system()
    log = log_of(15, file_system=file_system, retention_bytes=5 * SIZE)
    assert log.producers.snapshots.offsets == [5, 10]
    assert log.retention.delete_old(NOW_MS) == 2
    assert log.log_start_offset == 10 and read_offsets(log) == list(range(10, 15))
    assert log.producers.snapshots.offsets == [10]
    assert suffixed(file_system, ".snapshot") == [f"{10:020d}.snapshot"]
    with pytest.raises(OffsetOutOfRange):
        log.read(9, max_size=100)


@pytest.mark.covers(
    "UnifiedLogTest.testRetentionDeletesProducerStateSnapshots",
    "UnifiedLogTest.testLogStartOffsetMovementDeletesSnapshots",
    "UnifiedLogTest.testDeleteSnapshotsOnIncrementLogStartOffset",
)
def test_kafka_9105_snapshots_below_a_moved_log_start_are_deleted_with_their_segments() -> None:
    log = open_log(new_file_system(), LogConfig(segment_bytes=SIZE * 2, segment_index_bytes=1200))
    for sequence in range(6):
        data = produced(producer_id=7, producer_epoch=0, sequence=sequence)
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    log.marks.update_high_watermark(6)
    assert log.producers.snapshots.offsets == [2, 4]
    log.marks.maybe_increment_log_start_offset(4)
    log.retention.delete_old(NOW_MS)
    assert log.producers.snapshots.offsets == [4]
    # The producer is still known.
    assert log.producers.producers[7].last_sequence == 5


@pytest.mark.covers("UnifiedLogTest.testProducerIdExpirationOnSegmentDeletion")
def test_rt3_a_producer_whose_batches_are_deleted_is_still_known() -> None:
    log = log_of(0, retention_ms=0)
    log.append_as_leader(produced(producer_id=7, producer_epoch=0, sequence=0), leader_epoch=0, now_ms=NOW_MS)
    log.marks.update_high_watermark(1)
    log.retention.delete_old(NOW_MS + 1)
    assert log.log_start_offset == 1 and 7 in log.producers.producers


@pytest.mark.covers(
    "UnifiedLogTest.shouldTruncateLeaderEpochsWhenDeletingSegments",
    "UnifiedLogTest.shouldUpdateOffsetForLeaderEpochsWhenDeletingSegments",
)
@pytest.mark.parametrize(
    ("starts", "left"), [([0, 5, 10], [(1, 5), (2, 10)]), ([0, 7, 10], [(0, 5), (1, 7), (2, 10)])]
)
def test_rt1_epochs_below_the_new_start_are_forgotten(starts: list[int], left: list[tuple[int, int]]) -> None:
    log = log_of(0, retention_bytes=10 * SIZE)
    for offset in range(15):
        epoch = sum(offset >= start for start in starts) - 1
        log.append_as_follower(batch(offset, epoch=epoch), leader_epoch=epoch, now_ms=NOW_MS)
    log.marks.update_high_watermark(15)
    log.retention.delete_old(NOW_MS)
    assert [tuple(entry) for entry in log.epochs.entries] == left


@pytest.mark.covers("UnifiedLogTest.testDeleteOldSegments")
def test_rt3_once_all_is_committed_and_expired_one_empty_segment_and_the_last_epoch_are_left() -> None:
    log = log_of(0, retention_ms=0)
    for offset in range(100):
        log.append_as_follower(batch(offset, epoch=offset // 50), leader_epoch=1, now_ms=NOW_MS)
    # The high watermark is not known yet.
    assert log.retention.delete_old(NOW_MS + 1) == 0
    for high_watermark in range(25, 31):
        log.marks.update_high_watermark(high_watermark)
        log.retention.delete_old(NOW_MS + 1)
        assert log.log_start_offset <= high_watermark
        assert all(read_next_offset(segment) > high_watermark for segment in log.local.segments)
    log.marks.update_high_watermark(100)
    log.retention.delete_old(NOW_MS + 1)
    assert bases(log) == [100] and [tuple(entry) for entry in log.epochs.entries] == [(1, 100)]


# The files


@pytest.mark.covers(
    "UnifiedLogTest.testAsyncDelete",
    "LocalLogTest.testRemoveAndDeleteSegmentsAsync",
    "LocalLogTest.testDeleteSegmentFilesAsync",
)
def test_rt3_the_files_are_renamed_first_and_removed_when_it_is_time() -> None:
    file_system = new_file_system()
    log = log_of(15, file_system=file_system, retention_bytes=5 * SIZE)
    waiting: list[LogSegment] = []
    log.retention.delete_files_with(waiting.append)
    log.retention.delete_old(NOW_MS)
    assert [segment.base_offset for segment in waiting] == [0, 5]
    assert [f"{base:020d}.log.deleted" for base in (0, 5)] == suffixed(file_system, ".log.deleted")
    assert suffixed(file_system, ".log") == [f"{10:020d}.log"]
    data = waiting[1].read(7, 1000, waiting[1].size_bytes)
    # A reader that began before may finish.
    assert data is not None and data.records
    for segment in waiting:
        segment.delete()
    assert suffixed(file_system, ".deleted") == []


@pytest.mark.covers("LocalLogTest.testRemoveAndDeleteSegmentsSync", "LocalLogTest.testDeleteSegmentFilesSync")
def test_rt3_without_a_keeper_the_files_are_deleted_at_once() -> None:
    file_system = new_file_system()
    log_of(15, file_system=file_system, retention_bytes=5 * SIZE).retention.delete_old(NOW_MS)
    assert suffixed(file_system, ".deleted") == []
    assert suffixed(file_system, ".log") == [f"{10:020d}.log"]


def test_kafka_16073_the_log_start_moves_before_the_segments_leave() -> None:
    log = log_of(15, retention_bytes=5 * SIZE)
    seen: list[int] = []
    log.retention.delete_files_with(lambda segment: seen.append(log.log_start_offset))
    log.retention.delete_old(NOW_MS)
    assert seen == [10, 10]


MODES: list[PowerLoss] = ["none", "prefix", "subset", "torn"]


@pytest.mark.parametrize("mode", MODES)
def test_rt3_a_power_loss_leaves_no_hole_between_segments(mode: PowerLoss) -> None:
    for seed in range(10):
        disk = new_disk(seed)
        file_system = new_file_system(disk)
        file_system.sync_directory("")
        file_system.sync_directory("logs")
        log = log_of(15, file_system=file_system, retention_bytes=5 * SIZE)
        log.flushes.flush()
        log.retention.delete_files_with(lambda segment: None)
        log.retention.delete_old(NOW_MS)
        disk.lose_power(mode)
        again = open_log(new_file_system(disk), log.config)
        assert again.log_end_offset == 15
        assert read_offsets(again) == list(range(again.log_start_offset, 15))


@pytest.mark.covers("UnifiedLogTest.testBackgroundDeletionWithIOException")
def test_ap16_retention_on_a_failing_disk_takes_the_log_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    file_system = new_file_system()
    log = log_of(15, file_system=file_system, retention_bytes=5 * SIZE)

    def failing(old: str, new: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file_system, "rename", failing)
    with pytest.raises(StorageError, match="flush epochs failed"):
        log.retention.delete_old(NOW_MS)
    with pytest.raises(StorageError, match="offline"):
        log.read(14, max_size=10)
