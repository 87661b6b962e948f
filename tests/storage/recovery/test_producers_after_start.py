"""Producers and transactions that a start knows: Kafka's LogLoaderTest, and bugs of its history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.disk import SimFileSystem
from storage.batch import Record, build_batch
from storage.config import LogConfig
from storage.disk.filesystem import join
from storage.errors import OutOfOrderSequence
from storage.log import PartitionLog
from storage.producers.snapshot import snapshot_name
from tests.storage.log.appends import end_transaction
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    ROOMY,
    THREE,
    append_each,
    new_file_system,
    open_log,
    produced,
)
from tests.storage.producers.producer_logs import last_sequences, send
from tests.storage.producers.reloads import prepare_all
from tests.storage.recovery.stopped_logs import file_of, names

WIDE = LogConfig(segment_bytes=5_000, segment_index_bytes=1200, index_interval_bytes=50)
# Producer, first and last offset, last stable offset.
ABORTED = [(1, 0, 29, 8), (2, 8, 74, 36)]


def transactional(log: PartitionLog, pid: int, count: int, sequences: dict[int, int]) -> None:
    sequence = sequences.get(pid, 0)
    sequences[pid] = sequence + count
    data = build_batch(
        [Record(each, NOW_MS, b"k", b"v" * 20) for each in range(count)],
        producer_id=pid,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)


def four_producers(file_system: SimFileSystem, config: LogConfig) -> PartitionLog:
    """Write interleaved transactions up to offset 90. Those that end at 29 and 74 are aborted.

    The number beside each call is its first offset.
    """
    log, sequences = open_log(file_system, config), dict[int, int]()
    transactional(log, 1, 5, sequences)  # 0
    append_each(log, 3)  # 5
    transactional(log, 2, 2, sequences)  # 8
    transactional(log, 1, 19, sequences)  # 10
    end_transaction(log, 1, is_commit=False)  # 29
    append_each(log, 6)  # 30
    transactional(log, 3, 6, sequences)  # 36
    append_each(log, 3)  # 42
    transactional(log, 2, 29, sequences)  # 45
    end_transaction(log, 2, is_commit=False)  # 74
    transactional(log, 3, 8, sequences)  # 75
    end_transaction(log, 3, is_commit=True)  # 83
    append_each(log, 6)  # 84
    assert log.log_end_offset == 90
    return log


def aborted_of(log: PartitionLog) -> list[tuple[int, ...]]:
    return [tuple(entry) for segment in log.local.segments for entry in segment.transaction_index.entries()]


def remove(file_system: SimFileSystem, *endings: str, base_offset: int | None = None) -> None:
    for name in file_system.list(DIRECTORY):
        if name.endswith(endings) and (base_offset is None or int(name[:20]) >= base_offset):
            file_system.unlink(join(DIRECTORY, name))


@pytest.mark.covers(
    "LogLoaderTest.testFullTransactionIndexRecovery",
    "LogLoaderTest.testRecoverOnlyLastSegment",
    "LogLoaderTest.testRecoverLastSegmentWithNoSnapshots",
)
@pytest.mark.parametrize("only_last", [False, True])
@pytest.mark.parametrize("with_snapshots", [False, True])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 1024])
def test_ll11_transaction_indexes_that_are_lost_are_rebuilt(
    only_last: bool, with_snapshots: bool, segment_bytes: int
) -> None:
    file_system, config = new_file_system(), replace(WIDE, segment_bytes=segment_bytes)
    log = four_producers(file_system, config)
    expected, base = aborted_of(log), log.local.segments.active.base_offset
    assert expected == ABORTED
    log.close()
    remove(file_system, "index", base_offset=base if only_last else None)
    if not with_snapshots:
        remove(file_system, ".snapshot")
    log = open_log(file_system, config, recovery_point=base if only_last else 0)
    assert aborted_of(log) == expected and log.log_end_offset == 90


def of_two_producers(file_system: SimFileSystem) -> PartitionLog:
    log = open_log(file_system, THREE)
    for pid in (1, 2):
        log.append_as_leader(
            produced(producer_id=pid, producer_epoch=0, sequence=0), leader_epoch=0, now_ms=NOW_MS
        )
        if pid == 1:
            continue
    log.marks.update_high_watermark(2)
    return log


@pytest.mark.covers("LogLoaderTest.testLoadProducersAfterDeleteRecordsMidSegment")
def test_ll25_producers_below_a_log_start_within_a_segment_are_still_known() -> None:
    """A producer that was known before the stop is known after it, from a snapshot or from the whole segment."""
    file_system = new_file_system()
    log = of_two_producers(file_system)
    log.marks.maybe_increment_log_start_offset(1)
    assert sorted(log.producers.producers) == [1, 2]
    log.close()
    log = open_log(file_system, THREE, log_start_offset=1, recovery_point=1)
    assert sorted(log.producers.producers) == [1, 2]


@pytest.mark.covers("LogLoaderTest.testLoadProducersAfterDeleteRecordsOnSegment")
def test_ll25_producers_of_a_segment_that_is_missing_are_not_known_after_a_crash() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    for pid in (1, 2):
        log.append_as_leader(
            produced(producer_id=pid, producer_epoch=0, sequence=0), leader_epoch=0, now_ms=NOW_MS
        )
        log.flushes.roll(now_ms=NOW_MS)
    log.marks.update_high_watermark(2)
    log.marks.maybe_increment_log_start_offset(1)
    assert sorted(log.producers.producers) == [1, 2]
    log.close_handles()
    for suffix in ("log", "index", "timeindex"):
        file_system.unlink(file_of(0, suffix))
    log = open_log(file_system, THREE, log_start_offset=1, recovery_point=1)
    assert sorted(log.producers.producers) == [2]


@pytest.mark.covers("LogLoaderTest.testRecoverAfterNonMonotonicCoordinatorEpochWrite")
def test_ps25_a_marker_of_a_lower_coordinator_epoch_that_is_in_the_log_is_taken_as_it_is() -> None:
    file_system = new_file_system()
    log, sequences = open_log(file_system, WIDE), dict[int, int]()
    transactional(log, 1, 1, sequences)
    end_transaction(log, 1, is_commit=False, coordinator_epoch=5)
    log.producers.remove_expired(NOW_MS + 10 * 86_400_000)
    assert log.producers.producers == {}
    end_transaction(log, 1, is_commit=False, coordinator_epoch=4)
    log.close_handles()
    remove(file_system, ".snapshot")
    log = open_log(file_system, WIDE)
    assert log.producers.producers[1].coordinator_epoch == 4


def test_ps25_transactions_that_a_scan_completes_are_open_no_more() -> None:
    file_system = new_file_system()
    log, sequences = open_log(file_system, WIDE), dict[int, int]()
    transactional(log, 1, 3, sequences)
    end_transaction(log, 1, is_commit=True)
    append_each(log, 2)
    # The truncation rebuilds them from the records.
    log.truncate_to(5, now_ms=NOW_MS)
    assert log.producers.ongoing_transactions == []
    log.close_handles()
    remove(file_system, ".snapshot")
    log = open_log(file_system, WIDE, recovery_point=5)
    assert log.producers.ongoing_transactions == []
    assert log.producers.first_undecided_offset is None


@pytest.mark.covers("LogLoaderTest.testProducerSnapshotsRecoveryAfterUncleanShutdownCurrentMessageFormat")
@pytest.mark.parametrize("behind", [0, 1])
def test_kafka_5829_snapshots_between_the_recovery_point_and_the_end_are_there_after_a_crash(
    behind: int,
) -> None:
    """The recovery point is in the fourth segment from the end: the last four bases have one, and the end."""
    for kept in (True, False):
        file_system = new_file_system()
        log = open_log(file_system, THREE)
        append_each(log, 20)
        bases = log.local.segments.base_offsets
        log.close_handles()
        if not kept:
            remove(file_system, ".snapshot")
        log = open_log(file_system, THREE, recovery_point=bases[-4] + behind)
        found = [int(name[:20]) for name in names(file_system, ".snapshot")]
        assert {*bases[-4:], 20} <= set(found) and max(found) == 20
        assert log.producers.map_end_offset == 20


def test_kafka_5249_a_snapshot_is_named_for_the_end_of_batches_that_have_no_producer() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 2)
    log.append_as_leader(produced(producer_id=1, producer_epoch=0, sequence=0), leader_epoch=0, now_ms=NOW_MS)
    append_each(log, 2)
    assert log.producers.map_end_offset == 5
    log.close_handles()
    log = open_log(file_system, THREE)
    assert log.producers.map_end_offset == 5
    log.close()
    assert snapshot_name(5) in file_system.list(DIRECTORY)


@pytest.mark.parametrize("way", ["recovery", "orderly", "truncation", "slices", "roll"])
@pytest.mark.parametrize("pid", [0, 1, 2**63 - 1])
def test_ps25_the_producer_with_the_least_and_the_greatest_id_is_known_whichever_way_it_is_learned(
    way: str, pid: int
) -> None:
    """A retry of its last batch is then recognized, and a gap in its sequences refused."""
    file_system = new_file_system()
    log = open_log(file_system, ROOMY)
    for sequence in range(4):
        send(log, sequence, pid=pid, is_transactional=sequence == 3)
    if way in ("recovery", "orderly"):
        log.close() if way == "orderly" else log.close_handles()
        log = open_log(file_system, ROOMY, clean=way == "orderly")
    elif way == "roll":
        log.flushes.roll(now_ms=NOW_MS)
    else:
        log.truncation.batches_a_slice = 1 if way == "slices" else 1000
        send(log, 4, pid=pid, is_transactional=True)
        if way == "slices":
            assert prepare_all(log, 4) > 1
        log.truncate_to(4, now_ms=NOW_MS)
    assert last_sequences(log) == {pid: 3}
    assert log.producers.first_unstable_offset == 3
    assert send(log, 3, pid=pid, is_transactional=True).is_duplicate
    with pytest.raises(OutOfOrderSequence):
        send(log, 5, pid=pid, is_transactional=True)
    assert log.log_end_offset == 4


def test_a_follower_learns_of_the_producer_with_id_0_from_a_set_of_several_batches() -> None:
    leader, follower = open_log(new_file_system(), ROOMY), open_log(new_file_system(), ROOMY)
    assert not send(leader, 0, pid=0).is_empty
    send(leader, 1, pid=0)
    records = leader.read(0, max_size=10_000).records
    assert not follower.append_as_follower(records, leader_epoch=0, now_ms=NOW_MS).is_empty
    assert last_sequences(follower) == last_sequences(leader) == {0: 1}
