"""The choice of the log to clean next. Kafka: LogCleanerManagerTest; rules CL1 to CL6, CL28, RT16."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.directory.cleaners import CLEANER_CHECKPOINT
from storage.disk.filesystem import join, replace_file
from storage.errors import StorageError
from tests.storage.cleaner.compacted_logs import CleanedLog
from tests.storage.directory.dirty_logs import DIRTY, LOGS, Directory, filled, three_logs
from tests.storage.logs import NOW_MS

# Choosing


@pytest.mark.covers("LogCleanerManagerTest.testGrabFilthiestCompactedLogReturnsLogWithDirtiestRatio")
def test_cl4_the_log_with_the_greatest_share_of_dirty_bytes_is_next() -> None:
    assert three_logs().grab() == "tp2"


@pytest.mark.covers("LogCleanerManagerTest.testGrabFilthiestCompactedLogIgnoresUncleanablePartitions")
def test_cl6_an_uncleanable_log_is_passed_over() -> None:
    directory = three_logs()
    directory.manager.mark_uncleanable(("tp2", 0), ValueError("damaged"))
    assert directory.grab() == "tp1"
    assert directory.manager.uncleanable == {("tp2", 0)}
    directory.restart()
    # The log is passed over only until the next start.
    assert directory.grab() == "tp2"


@pytest.mark.covers("LogCleanerManagerTest.testGrabFilthiestCompactedLogIgnoresInProgressPartitions")
def test_cl1_a_log_that_is_being_cleaned_is_passed_over() -> None:
    directory = three_logs()
    assert [directory.grab() for _ in range(3)] == ["tp2", "tp1", "tp0"]
    assert directory.grab() is None


@pytest.mark.covers(
    "LogCleanerManagerTest.testGrabFilthiestCompactedLogIgnoresBothInProgressPartitionsAndUncleanablePartitions"
)
def test_cl1_nothing_is_left_where_all_are_busy_or_uncleanable() -> None:
    directory = three_logs()
    assert directory.grab() == "tp2"
    for topic in ("tp0", "tp1"):
        directory.manager.mark_uncleanable((topic, 0), ValueError("damaged"))
    assert directory.grab() is None


def test_cl1_a_log_without_compaction_is_passed_over() -> None:
    directory = Directory()
    directory.add("plain", 30, policy="delete")
    assert directory.grab() is None
    directory.add("both", 30, policy="compact,delete")
    assert directory.grab() == "both"


@pytest.mark.covers("LogCleanerManagerTest.testGrabFilthiestCompactedLogThrowsException")
def test_cl6_a_log_whose_state_cannot_be_read_is_uncleanable() -> None:
    directory = three_logs()
    broken = directory.logs["tp2-0"]

    class Untold:
        def cleanable_offsets(self, checkpoint: int | None, now_ms: int) -> None:
            raise StorageError("cannot be told")

    broken.compactions = Untold()  # type: ignore[assignment]
    assert directory.grab() == "tp1"
    assert directory.manager.uncleanable == {("tp2", 0)}


def test_t53_the_dirty_share_must_be_above_the_configured_one() -> None:
    directory = Directory()
    log = directory.add("t", 20)
    filth = log.compactions.log_to_clean(log.compactions.cleanable_offsets(10, NOW_MS), NOW_MS)
    assert 0 < filth.cleanable_ratio < 1
    directory.manager._update(("t", 0), 10)
    log.update_config(replace(DIRTY, min_cleanable_dirty_ratio=filth.cleanable_ratio))
    assert directory.grab() is None
    log.update_config(replace(DIRTY, min_cleanable_dirty_ratio=filth.cleanable_ratio - 0.001))
    assert directory.grab() == "t"


def test_cl4_an_empty_log_is_passed_over() -> None:
    directory = Directory()
    log = directory.add("t", 0)
    log.update_config(replace(DIRTY, min_cleanable_dirty_ratio=0))
    assert directory.grab() is None


# What may be cleaned


@pytest.mark.covers("LogCleanerManagerTest.testCleanableOffsetsForNone")
def test_kafka_13194_nothing_at_or_above_the_last_stable_offset_is_cleaned() -> None:
    log = filled(20)
    log.marks.update_high_watermark(7)
    found = log.compactions.cleanable_offsets(0, NOW_MS)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 7)
    # The segment with that offset stays whole.
    assert log.compactions.log_to_clean(found, NOW_MS).dirty.end_offset == 5


@pytest.mark.covers("LogCleanerManagerTest.testCleanableOffsetsActiveSegment")
def test_cl2_the_active_segment_is_not_cleaned() -> None:
    log = filled(12)
    log.marks.update_high_watermark(12)
    found = log.compactions.cleanable_offsets(None, NOW_MS)
    assert found.first_uncleanable_offset == log.local.segments.active.base_offset == 10


@pytest.mark.covers(
    "LogCleanerManagerTest.testCleanableOffsetsForTime",
    "LogCleanerManagerTest.testCleanableOffsetsForShortTime",
)
def test_cl2_segments_younger_than_the_lag_are_not_cleaned() -> None:
    log = CleanedLog(replace(DIRTY, min_compaction_lag_ms=1000))
    for _ in range(3):
        log.put_each(1, 2)
        log.roll()
        log.now_ms += 400
    log.now_ms = NOW_MS + 800
    assert log.log.compactions.cleanable_offsets(0, NOW_MS + 1000).first_uncleanable_offset == 2
    assert log.log.compactions.cleanable_offsets(0, NOW_MS + 999).first_uncleanable_offset == 0
    assert log.log.compactions.cleanable_offsets(0, NOW_MS + 1400).first_uncleanable_offset == 4
    assert log.log.compactions.cleanable_offsets(0, NOW_MS + 1800).first_uncleanable_offset == 6
    assert log.log.compactions.cleanable_offsets(4, NOW_MS).first_uncleanable_offset == 4
    log.log.update_config(replace(DIRTY, min_compaction_lag_ms=0))
    assert log.log.compactions.cleanable_offsets(0, 0).first_uncleanable_offset == 6


@pytest.mark.covers("LogCleanerManagerTest.testUndecidedTransactionalDataNotCleanable")
def test_cl25_an_undecided_transaction_is_not_cleaned() -> None:
    log = CleanedLog(DIRTY)
    log.put(9)
    log.in_transaction(1, 1, 2)
    log.roll()
    log.put(3)
    log.roll()
    assert log.log.compactions.cleanable_offsets(0, NOW_MS).first_uncleanable_offset == 1
    log.commit(1)
    log.roll()
    assert log.log.compactions.cleanable_offsets(0, NOW_MS).first_uncleanable_offset == 5


@pytest.mark.covers(
    "LogCleanerManagerTest.testDirtyOffsetResetIfSmallerThanStartOffset",
    "LogCleanerManagerTest.testDirtyOffsetResetIfLargerThanEndOffset",
    "LogCleanerManagerTest.testCleanableOffsetsNeedsCheckpointReset",
)
@pytest.mark.parametrize(("checkpoint", "expected"), [(5, 10), (9, 10), (15, 15), (21, 10), (200, 10)])
def test_kafka_3330_a_checkpoint_outside_the_log_counts_as_its_start(checkpoint: int, expected: int) -> None:
    log = filled(20)
    log.marks.update_high_watermark(20)
    log.marks.maybe_increment_log_start_offset(10)
    found = log.compactions.cleanable_offsets(checkpoint, NOW_MS)
    assert found.first_dirty_offset == expected
    assert found.is_checkpoint_invalid == (checkpoint != expected)


@pytest.mark.parametrize(("policy", "told"), [("compact", 1), ("compact,delete", 0)])
def test_cl1_a_checkpoint_passed_by_retention_is_reported_for_compact_alone(
    policy: str, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(20)
    log.update_config(replace(log.config, cleanup_policy=policy))
    log.marks.update_high_watermark(20)
    log.marks.maybe_increment_log_start_offset(10)
    caplog.clear()
    assert log.compactions.cleanable_offsets(5, NOW_MS).is_checkpoint_invalid
    assert [record.levelname for record in caplog.records].count("WARNING") == told


@pytest.mark.covers(
    "LogCleanerManagerTest.testLogStartOffsetLargerThanActiveSegmentBaseOffset",
    "LogCleanerManagerTest.testDirtyOffsetLargerThanActiveSegmentBaseOffset",
)
def test_kafka_9826_a_first_dirty_offset_in_the_active_segment_leaves_nothing_to_clean() -> None:
    directory = Directory()
    log = directory.add("t", 4)
    assert log.local.segments.active.base_offset == 0
    for checkpoint in (3, 4):
        found = log.compactions.cleanable_offsets(checkpoint, NOW_MS)
        assert (found.first_dirty_offset, found.first_uncleanable_offset) == (checkpoint, checkpoint)
        assert log.compactions.log_to_clean(found, NOW_MS).cleanable_bytes == 0
    log.marks.maybe_increment_log_start_offset(2)
    # A checkpoint in the active segment is no error, though the log start is below it (KAFKA-9133).
    assert directory.grab() is None


@pytest.mark.covers("LogCleanerTest.testLogToClean", "LogCleanerTest.testLogToCleanWithUncleanableSection")
def test_cl3_bytes_are_those_of_whole_segments() -> None:
    log = filled(30)
    log.marks.update_high_watermark(30)
    sizes = [segment.size_bytes for segment in log.local.segments]
    bases = log.local.segments.base_offsets
    found = log.compactions.log_to_clean(log.compactions.cleanable_offsets(bases[2], NOW_MS), NOW_MS)
    assert (found.clean_bytes, found.cleanable_bytes) == (sum(sizes[:2]), sum(sizes[2:-1]))
    assert found.total_bytes == sum(sizes[:-1])
    assert found.cleanable_ratio == sum(sizes[2:-1]) / sum(sizes[:-1])
    log.marks.update_high_watermark(bases[4] + 1)
    found = log.compactions.log_to_clean(log.compactions.cleanable_offsets(bases[2], NOW_MS), NOW_MS)
    assert found.cleanable_bytes == sum(sizes[2:4])
    assert found.dirty.end_offset == bases[4]


def test_cl5_dirty_records_older_than_the_greatest_lag_are_due_whatever_their_share() -> None:
    directory = Directory()
    log = directory.add("t", 20)
    directory.manager._update(("t", 0), 15)
    log.update_config(replace(DIRTY, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000))
    assert directory.manager.grab_filthiest(NOW_MS + 1000) is None
    found = directory.manager.grab_filthiest(NOW_MS + 1001)
    # The dirty part is in the active segment alone.
    assert found is None
    directory.manager._update(("t", 0), 5)
    found = directory.manager.grab_filthiest(NOW_MS + 1001)
    assert found is not None and found.filth.compaction_delay_ms == 1


@pytest.mark.covers(
    "LogCleanerManagerTest.testLogsWithSegmentsToDeleteShouldNotConsiderCleanupPolicyDeleteLogs",
    "LogCleanerManagerTest.testLogsWithSegmentsToDeleteShouldConsiderCleanupPolicyCompactDeleteLogs",
    "LogCleanerManagerTest.testLogsWithSegmentsToDeleteShouldConsiderCleanupPolicyCompactLogs",
    "LogCleanerManagerTest.testLogsWithSegmentsToDeleteShouldNotConsiderUncleanablePartitions",
)
def test_cl6_compacted_logs_are_shortened_by_the_cleaner() -> None:
    directory = Directory()
    directory.add("plain", 5, policy="delete")
    assert directory.manager.logs_to_shorten() == []
    both = directory.add("both", 5, policy="compact,delete")
    compact = directory.add("compact", 5)
    assert directory.manager.logs_to_shorten() == [both, compact]
    directory.manager.mark_uncleanable(("both", 0), ValueError("damaged"))
    assert directory.manager.logs_to_shorten() == [compact]


@pytest.mark.covers("LogCleanerManagerTest.testLogsUnderCleanupIneligibleForCompaction")
def test_cl6_a_log_that_is_being_cleaned_is_not_shortened() -> None:
    directory = three_logs()
    assert directory.grab() == "tp2"
    assert [log.topic for log in directory.manager.logs_to_shorten()] == ["tp0", "tp1"]
    directory.manager.done_cleaning(("tp2", 0), 30)
    assert len(directory.manager.logs_to_shorten()) == 3


# State


@pytest.mark.covers("LogCleanerManagerTest.testDoneCleaning")
def test_cl1_a_round_that_ended_moves_the_checkpoint() -> None:
    directory = three_logs()
    with pytest.raises(KeyError):
        directory.manager.done_cleaning(("tp2", 0), 20)
    assert directory.grab() == "tp2"
    assert directory.manager.done_cleaning(("tp2", 0), 20)
    assert (
        directory.manager.checkpoints
        == directory.stored()
        == {("tp0", 0): 15, ("tp1", 0): 15, ("tp2", 0): 20}
    )
    assert directory.grab() == "tp1"


def test_cl1_a_round_whose_checkpoint_cannot_be_written_has_not_ended() -> None:
    directory = three_logs()
    assert directory.grab() == "tp2"
    directory.disk.fail(1)
    with pytest.raises(OSError):
        directory.manager.done_cleaning(("tp2", 0), 20)
    directory.disk.disarm()
    assert directory.stored()["tp2", 0] == 15
    # It is still marked, so that a truncation aborts it.
    directory.manager.abort(("tp2", 0))
    assert directory.manager.is_aborted(("tp2", 0))
    assert not directory.manager.done_cleaning(("tp2", 0), 20)
    assert directory.stored()["tp2", 0] == 15


def test_cl23_a_round_that_failed_or_was_aborted_moves_nothing() -> None:
    directory = three_logs()
    key = ("tp2", 0)
    assert directory.grab() == "tp2"
    assert not directory.manager.done_cleaning(key, None)
    assert directory.grab() == "tp2"
    directory.manager.abort(key)
    assert directory.manager.is_aborted(key)
    assert not directory.manager.done_cleaning(key, 20)
    assert directory.stored()[key] == 15
    assert not directory.manager.is_aborted(key)
    assert directory.grab() == "tp2"


@pytest.mark.covers(
    "LogCleanerManagerTest.testConcurrentLogCleanupAndLogTruncation",
    "LogCleanerManagerTest.testConcurrentLogCleanupAndTopicDeletion",
    "LogCleanerManagerTest.testDoneDeleting",
)
def test_cl23_pauses_are_counted_and_outlast_the_round() -> None:
    directory = three_logs()
    manager, key = directory.manager, ("tp2", 0)
    assert directory.grab() == "tp2"
    manager.abort_and_pause(key)
    manager.abort_and_pause(key)
    assert manager.is_aborted(key)
    assert not manager.done_cleaning(key, 20)
    assert directory.grab() == "tp1"
    manager.resume(key)
    assert directory.grab() == "tp0"
    manager.resume(key)
    assert directory.grab() == "tp2"
    with pytest.raises(AssertionError, match="is not paused"):
        manager.resume(key)


def test_cl23_a_pause_that_ended_before_the_round_did_still_aborts_it() -> None:
    directory = three_logs()
    manager, key = directory.manager, ("tp2", 0)
    assert directory.grab() == "tp2"
    manager.abort_and_pause(key)
    manager.resume(key)
    assert directory.grab() == "tp1"
    assert not manager.done_cleaning(key, 20)


# The checkpoint


@pytest.mark.covers(
    "LogCleanerManagerTest.testUpdateCheckpointsShouldAddOffsetToPartition",
    "LogCleanerManagerTest.testUpdateCheckpointsShouldRemovePartitionData",
)
def test_cl28_the_checkpoint_holds_only_logs_that_are_there() -> None:
    directory = three_logs()
    del directory.logs["tp0-0"]
    directory.manager.truncate_checkpoint(("tp1", 0), 3)
    assert directory.stored() == {("tp1", 0): 3, ("tp2", 0): 15}
    directory.manager.forget(("tp1", 0))
    assert directory.stored() == {("tp2", 0): 15}
    assert directory.restart().checkpoints == {("tp2", 0): 15}


@pytest.mark.covers("LogCleanerManagerTest.testMaybeTruncateCheckpointShouldTruncateData")
def test_rt16_a_truncation_lowers_the_checkpoint_and_never_raises_it() -> None:
    directory = Directory()
    directory.add("t", 30, checkpoint=20)
    directory.manager.truncate_checkpoint(("t", 0), 21)
    assert directory.stored() == {("t", 0): 20}
    directory.manager.truncate_checkpoint(("t", 0), 7)
    assert directory.stored() == {("t", 0): 7}
    directory.manager.truncate_checkpoint(("unknown", 0), 7)
    assert directory.stored() == {("t", 0): 7}


@pytest.mark.covers(
    "LogCleanerManagerTest.testCheckpointUpdatedForInvalidOffsetNoCleaning",
    "LogCleanerManagerTest.testCheckpointUpdatedForInvalidOffsetNotSelected",
)
def test_kafka_6266_an_invalid_checkpoint_is_rewritten_though_its_log_is_not_chosen() -> None:
    directory = three_logs()
    directory.logs["tp0-0"].marks.maybe_increment_log_start_offset(18)
    directory.manager.grab_filthiest(NOW_MS)
    assert directory.stored()[("tp0", 0)] == 18


def test_cl6_a_log_that_is_offline_is_not_cleaned() -> None:
    directory = three_logs()
    directory.logs["tp2-0"].online.failed("flush", OSError(5, "gone"))
    assert directory.grab() == "tp1"


def test_a_checkpoint_that_cannot_be_read_counts_as_none() -> None:
    directory = Directory()
    replace_file(directory.file_system, join(LOGS, CLEANER_CHECKPOINT), b"9\nx\n")
    assert directory.restart().checkpoints == {}


def test_a_forgotten_log_is_aborted_and_cleanable_again() -> None:
    directory = three_logs()
    key = ("tp2", 0)
    directory.manager.mark_uncleanable(key, ValueError("damaged"))
    directory.manager.forget(key)
    assert directory.manager.uncleanable == frozenset()
    assert directory.grab() == "tp2"
    directory.manager.forget(key)
    assert directory.manager.is_aborted(key)
