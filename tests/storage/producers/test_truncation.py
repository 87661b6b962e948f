"""Producers and transactions of a log that is truncated, or whose start moves: rules PS13 to PS18."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.config import LogConfig
from tests.storage.log.appends import end_transaction
from tests.storage.logs import NOW_MS, ROOMY, append_each, new_file_system, open_log
from tests.storage.producers.producer_logs import (
    last_sequences,
    remove_snapshots,
    segmented,
    send,
    snapshots,
)

DAY_MS = 86_400_000


@pytest.mark.covers("UnifiedLogTest.testProducerIdMapTruncateTo")
def test_ps16_a_truncation_deletes_the_snapshots_after_it() -> None:
    file_system = new_file_system()
    log = open_log(file_system, ROOMY)
    for number in range(3):
        send(log, number)
        log.producers.take_snapshot()
    assert snapshots(file_system) == [1, 2, 3]
    for offset, expected in ((2, [1, 2]), (1, [1]), (0, [])):
        log.truncate_to(offset, now_ms=NOW_MS)
        assert (snapshots(file_system), log.producers.map_end_offset) == (expected, offset)
        assert last_sequences(log) == ({1: offset - 1} if offset else {})


def test_ps13_a_truncation_loads_no_producer_that_has_expired_by_then() -> None:
    log = open_log(new_file_system(), ROOMY)
    send(log, timestamp=NOW_MS)
    send(log, pid=2, timestamp=NOW_MS + 1)
    log.producers.take_snapshot()
    append_each(log, 1)
    log.truncate_to(2, now_ms=NOW_MS + DAY_MS)
    assert last_sequences(log) == {2: 0}


@pytest.mark.covers("UnifiedLogTest.testProducerIdMapTruncateToWithNoSnapshots")
def test_ps16_without_snapshots_a_truncation_reads_the_log() -> None:
    file_system = new_file_system()
    log = open_log(file_system, ROOMY)
    send(log, 0)
    send(log, 1)
    remove_snapshots(file_system)
    log.producers.snapshots.reload()
    log.truncate_to(1, now_ms=NOW_MS)
    assert last_sequences(log) == {1: 0}


@pytest.mark.covers("UnifiedLogTest.testProducerIdMapTruncateFullyAndStartAt")
def test_ps17_a_full_truncation_takes_producers_and_snapshots() -> None:
    file_system = new_file_system()
    log = segmented(file_system, 3)
    assert snapshots(file_system) == [1, 2]
    log.truncation.truncate_fully_and_start_at(29, now_ms=NOW_MS)
    assert (last_sequences(log), log.producers.map_end_offset) == ({}, 29)
    assert [offset for offset in snapshots(file_system) if offset != 29] == []


@pytest.mark.covers(
    "UnifiedLogTest.testTruncateBelowFirstUnstableOffset",
    "UnifiedLogTest.testTruncateFullyAndStartBelowFirstUnstableOffset",
    "UnifiedLogTest.testTruncateFullyAndStart",
)
@pytest.mark.parametrize("fully", [False, True])
def test_kafka_12153_a_truncation_below_an_open_transaction_forgets_it(fully: bool) -> None:
    file_system = new_file_system()
    log = open_log(file_system, ROOMY)
    append_each(log, 3)
    send(log, 0, 2, is_transactional=True)
    log.close_handles()
    log = open_log(file_system, ROOMY)
    assert log.producers.first_unstable_offset == 3
    if fully:
        log.truncation.truncate_fully_and_start_at(2, 1, now_ms=NOW_MS)
        assert (log.log_start_offset, log.log_end_offset) == (1, 2)
    else:
        log.truncate_to(0, now_ms=NOW_MS)
    assert log.producers.first_unstable_offset is None and last_sequences(log) == {}
    assert log.marks.last_stable_offset == log.high_watermark


@pytest.mark.covers("ProducerStateManagerTest.testFirstUnstableOffsetAfterTruncation")
@pytest.mark.parametrize(("offset", "expected"), [(106, None), (100, 99)])
def test_ps16_a_transaction_cut_by_a_truncation_is_open(offset: int, expected: int | None) -> None:
    log = open_log(new_file_system(), ROOMY, log_start_offset=99)
    send(log, 0, is_transactional=True)
    for _ in range(5):
        append_each(log, 1)
    end_transaction(log, 1, is_commit=True)
    append_each(log, 2)
    log.marks.update_high_watermark(106)
    assert log.producers.first_unstable_offset is None
    log.truncate_to(offset, now_ms=NOW_MS)
    assert log.producers.first_unstable_offset == expected


@pytest.mark.covers("ProducerStateManagerTest.testHasLateTransactionUpdatedAfterPartialTruncation")
def test_ps14_a_truncation_takes_a_late_transaction_or_brings_it_back() -> None:
    log = open_log(new_file_system(), ROOMY)
    append_each(log, 1)
    send(log, 0, is_transactional=True)
    end_transaction(log, 1, is_commit=True)
    late = NOW_MS + 900_000 + 300_001
    assert not log.producers.has_late_transaction(late)
    log.truncate_to(2, now_ms=NOW_MS)
    assert log.producers.has_late_transaction(late)
    assert not log.producers.has_late_transaction(late - 1)
    log.truncate_to(0, now_ms=NOW_MS)
    assert not log.producers.has_late_transaction(late)


@pytest.mark.covers("UnifiedLogTest.testDeleteSnapshotsOnIncrementLogStartOffset")
def test_ps18_a_moved_log_start_keeps_producers_whose_records_are_deleted() -> None:
    file_system = new_file_system()
    log = open_log(file_system, ROOMY)
    send(log, 0, pid=1)
    log.flushes.roll(now_ms=NOW_MS)
    send(log, 0, pid=2)
    log.flushes.roll(now_ms=NOW_MS)
    log.marks.update_high_watermark(2)
    log.marks.maybe_increment_log_start_offset(2)
    log.retention.delete_old(NOW_MS)
    assert snapshots(file_system) == [2]
    assert last_sequences(log) == {1: 0, 2: 0}
    assert send(log, 0, pid=2).is_duplicate


@pytest.mark.covers("UnifiedLogTest.testProducerIdExpirationOnSegmentDeletion")
def test_ps13_a_producer_whose_records_retention_deleted_stays_known() -> None:
    config = LogConfig(segment_index_bytes=1200, retention_ms=1000)
    log = open_log(new_file_system(), config)
    send(log, 0, pid=1, timestamp=NOW_MS - 10_000)
    log.flushes.roll(now_ms=NOW_MS)
    send(log, 0, pid=2)
    log.marks.update_high_watermark(2)
    assert log.retention.delete_old(NOW_MS) == 1
    assert sorted(log.producers.producers) == [1, 2]


@pytest.mark.covers(
    "UnifiedLogTest.testPeriodicProducerIdExpiration", "UnifiedLogTest.testProducerExpireCheckAfterDelete"
)
def test_ps13_a_log_forgets_idle_producers_when_asked_to() -> None:
    log = open_log(new_file_system(), LogConfig(segment_index_bytes=1200, producer_id_expiration_ms=200))
    send(log)
    log.appends.remove_expired_producers(NOW_MS + 199)
    assert sorted(log.producers.producers) == [1]
    log.appends.remove_expired_producers(NOW_MS + 200)
    assert not log.producers.producers


def test_ps13_a_time_that_was_altered_counts_from_now_on() -> None:
    log = open_log(new_file_system(), LogConfig(segment_index_bytes=1200))
    send(log)
    log.update_config(replace(log.config, producer_id_expiration_ms=200))
    log.appends.remove_expired_producers(NOW_MS + 199)
    assert sorted(log.producers.producers) == [1]
    log.appends.remove_expired_producers(NOW_MS + 200)
    assert not log.producers.producers
