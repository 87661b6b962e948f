"""Rules of recovery's walk that appends have too, and that it states in its own code."""

from __future__ import annotations

import pytest

from storage.batch import Record, RecordBatch
from storage.batch.legacy.builder import build_message_set
from storage.errors import StorageError
from storage.log import PartitionLog
from storage.recovery.walk import recover_segment
from tests.storage.log.appends import INT_MAX, PRODUCER_ID, end_transaction, follow, lead, sequenced
from tests.storage.logs import (
    NOW_MS,
    SIZE,
    append_batch,
    batch,
    marker,
    new_disk,
    new_epochs,
    new_file_system,
    new_producers,
    open_log,
    open_segment,
)
from tests.storage.recovery.stopped_logs import file_of, poke, reopen, stopped


def recovered(*sets: bytes) -> PartitionLog:
    """Return a log that took these sets, crashed and recovered."""
    file_system = new_file_system()
    log = open_log(file_system)
    for data in sets:
        follow(log, data)
    log.close_handles()
    return open_log(file_system)


def of_producer(
    offset: int, sequence: int, count: int = 1, *, epoch: int = 0, is_transactional: bool = False
) -> bytes:
    return batch(
        offset,
        count,
        producer_id=PRODUCER_ID,
        producer_epoch=epoch,
        sequence=sequence,
        is_transactional=is_transactional,
    )


@pytest.mark.parametrize("magic", [0, 1])
def test_ls10_magic_0_and_1_do_not_move_the_end_of_the_producers(magic: int) -> None:
    segment = open_segment(new_file_system())
    append_batch(segment, batch(0, 2))
    append_batch(segment, build_message_set([Record(2, 2, b"k", b"v")], magic=magic, base_offset=2))
    producers = new_producers(new_file_system())
    assert recover_segment(segment, producers, new_epochs(new_file_system())) == 0
    assert producers.map_end_offset == 2
    append_batch(segment, batch(3, 2))
    recover_segment(segment, producers, new_epochs(new_file_system()))
    assert producers.map_end_offset == 5


def test_ps5_recovery_forgets_the_batches_of_the_epoch_before() -> None:
    """Sequence 1 of the new epoch is no retry of sequence 1 of the old one."""
    segment = open_segment(new_file_system())
    for data in (of_producer(0, 0), of_producer(1, 1), of_producer(2, 0, epoch=1)):
        append_batch(segment, data)
    producers = new_producers(new_file_system())
    recover_segment(segment, producers, new_epochs(new_file_system()))
    entry, again = producers.producers[PRODUCER_ID], sequenced(1, epoch=1)
    assert (entry.producer_epoch, [each[:2] for each in entry.batches]) == (1, [(0, 2)])
    assert producers.find_duplicate(RecordBatch(again, 0, len(again))) is None


def test_ps5_recovery_takes_the_time_of_the_last_batch() -> None:
    log = recovered(of_producer(0, 0), of_producer(1, 1, 3))
    # This is the greatest time of the batch.
    assert log.producers.producers[PRODUCER_ID].last_timestamp == NOW_MS + 2


def test_ps5_recovery_wraps_a_sequence_inside_a_batch() -> None:
    log = recovered(of_producer(0, INT_MAX - 1, 4))
    assert log.producers.producers[PRODUCER_ID].last_sequence == 1
    assert lead(log, sequenced(2)).last_offset == 4


def test_ps6_recovery_has_a_transaction_begin_once() -> None:
    """A transaction begins with its first batch, and the marker ends all of it."""
    segment = open_segment(new_file_system())
    for offset in (0, 1):
        append_batch(segment, of_producer(offset, offset, is_transactional=True))
    append_batch(segment, marker(PRODUCER_ID, is_commit=False, offset=2))
    producers = new_producers(new_file_system())
    recover_segment(segment, producers, new_epochs(new_file_system()))
    assert producers.ongoing_transactions == []
    assert [(each.first_offset, each.last_offset) for each in segment.transaction_index.entries()] == [(0, 2)]


def test_ps9_a_producer_is_as_before_when_its_bytes_cannot_be_written() -> None:
    disk = new_disk()
    log = open_log(new_file_system(disk))
    lead(log, sequenced(0))
    disk.fail(1, verbs={"write_at"}, path_suffix=".log")
    with pytest.raises(StorageError):
        lead(log, sequenced(1))
    entry = log.producers.producers[PRODUCER_ID]
    assert (entry.last_sequence, entry.last_offset, len(entry.batches)) == (0, 0, 1)


def test_ps12_a_marker_that_is_appended_ends_the_transaction() -> None:
    log = open_log(new_file_system())
    lead(log, sequenced(0, is_transactional=True))
    end_transaction(log, is_commit=True)
    assert log.producers.ongoing_transactions == []
    log.marks.update_high_watermark(1)
    assert log.marks.last_stable_offset == 0, "the marker is not replicated yet"
    log.marks.update_high_watermark(2)
    assert log.marks.last_stable_offset == 2


@pytest.mark.parametrize("tail_bytes", [0, 1])
def test_ll14_a_cut_of_a_single_byte_deletes_the_later_segments_and_none_deletes_none(
    tail_bytes: int,
) -> None:
    file_system = new_file_system()
    stopped(file_system)
    poke(file_system, file_of(0), 3 * SIZE, bytes(tail_bytes))
    log, _ = reopen(file_system)
    assert log.log_end_offset == (3 if tail_bytes else 12)
