"""A reloaded log knows again the batches that its producers may send a second time."""

from __future__ import annotations

from functools import partial

import pytest

import storage.producers.recall
from sim.disk import SimDisk
from sim.disk.life import Life
from storage.batch.record import MAX_INT32
from storage.config import LogConfig
from storage.directory.manager import LogManager
from storage.disk.filesystem import OpenMode
from storage.draws import Draws
from storage.errors import OutOfOrderSequence
from storage.log import AppendInfo, PartitionLog
from storage.producers.recall import RECALLED_BATCHES, RECALLED_ENTRIES
from tests.storage.logs import NOW_MS, SMALL, batch, new_disk, new_file_system, produced
from tests.storage.logs import open_log as open_plain_log

# Each batch but the first has an index entry.
DENSE = LogConfig(index_interval_bytes=0, segment_bytes=1 << 20)

open_log = partial(open_plain_log, recalls_batches=True)


def send(log: PartitionLog, sequence: int, *, producer_id: int = 7, producer_epoch: int = 0) -> AppendInfo:
    records = produced(producer_id=producer_id, producer_epoch=producer_epoch, sequence=sequence)
    return log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)


def offsets_of_retries(log: PartitionLog, sequences: range, *, producer_id: int = 7) -> list[int]:
    retries = [send(log, sequence, producer_id=producer_id) for sequence in sequences]
    assert all(retry.is_duplicate for retry in retries)
    return [retry.first_offset for retry in retries]


@pytest.mark.parametrize("clean", [True, False])
def test_each_of_the_last_five_batches_is_known_after_each_of_two_restarts(clean: bool) -> None:
    file_system = new_file_system()
    log = open_log(file_system)
    for sequence in range(8):
        send(log, sequence)
    for _ in range(2):
        log.close() if clean else log.close_handles()
        log = open_log(file_system, clean=clean)
        assert offsets_of_retries(log, range(3, 8)) == [3, 4, 5, 6, 7]
        with pytest.raises(OutOfOrderSequence):
            send(log, 2)
    assert log.log_end_offset == 8


def test_batches_of_segments_below_the_snapshot_are_known() -> None:
    file_system = new_file_system()
    log = open_log(file_system)
    for sequence in range(5):
        send(log, sequence)
        log.flushes.roll(now_ms=NOW_MS)
    log.close_handles()
    assert offsets_of_retries(open_log(file_system), range(5)) == [0, 1, 2, 3, 4]


def test_batches_are_known_after_a_truncation_and_those_that_were_cut_are_not() -> None:
    log = open_log(new_file_system())
    for offset in range(6):
        records = batch(offset, producer_id=7, producer_epoch=0, sequence=offset)
        log.append_as_follower(records, leader_epoch=0, now_ms=NOW_MS)
        log.flushes.roll(now_ms=NOW_MS)
    log.truncate_to(4, now_ms=NOW_MS)
    assert offsets_of_retries(log, range(4)) == [0, 1, 2, 3]
    assert not send(log, 4).is_duplicate


def test_producers_that_take_turns_each_have_their_own() -> None:
    file_system = new_file_system()
    log = open_log(file_system)
    for sequence in range(4):
        send(log, sequence)
        send(log, sequence, producer_id=8)
    log.close()
    log = open_log(file_system, clean=True)
    assert offsets_of_retries(log, range(4)) == [0, 2, 4, 6]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("before", [1, 2, 3, 4])
def test_ps25_batches_from_before_the_sequence_went_back_to_0_are_known(before: int, clean: bool) -> None:
    file_system = new_file_system()
    log = open_log(file_system)
    sequences = [(MAX_INT32 + 1 - before + number) & MAX_INT32 for number in range(5)]
    for sequence in sequences:
        send(log, sequence)
        log.flushes.roll(now_ms=NOW_MS)
    log.close() if clean else log.close_handles()
    log = open_log(file_system, clean=clean)
    retries = [send(log, sequence) for sequence in sequences]
    assert [(each.first_offset, each.is_duplicate) for each in retries] == [(at, True) for at in range(5)]


def test_ps25_a_batch_that_ends_below_the_greatest_sequence_does_not_precede_sequence_0() -> None:
    """A follower may have such sequences after its leader lost some."""
    file_system = new_file_system()
    log = open_log(file_system)
    for offset, sequence in enumerate((MAX_INT32 - 1, 0, 1)):
        records = batch(offset, producer_id=7, producer_epoch=0, sequence=sequence)
        log.append_as_follower(records, leader_epoch=0, now_ms=NOW_MS)
    log.close()
    entry = open_log(file_system, clean=True).producers.producers[7]
    assert [each.last_sequence for each in entry.batch_metadata] == [0, 1]


def test_batches_of_an_older_producer_epoch_are_not_recalled() -> None:
    file_system = new_file_system()
    log = open_log(file_system)
    for sequence in range(3):
        send(log, sequence)
    for sequence in range(2):
        send(log, sequence, producer_epoch=1)
    log.close()
    entry = open_log(file_system, clean=True).producers.producers[7]
    assert [each.last_offset for each in entry.batch_metadata] == [3, 4]


def test_ps5_a_batch_of_an_older_epoch_is_not_recalled_though_the_sequence_follows() -> None:
    """Compaction has removed the batches of the new epoch in between."""
    file_system = new_file_system()
    log = open_log(file_system)
    for offset, (epoch, sequence) in enumerate([(0, 2), (1, 3)]):
        records = batch(offset, producer_id=7, producer_epoch=epoch, sequence=sequence)
        log.append_as_follower(records, leader_epoch=0, now_ms=NOW_MS)
    log.close()
    entry = open_log(file_system, clean=True).producers.last_entry(7)
    assert entry is not None and [each.last_sequence for each in entry.batch_metadata] == [3]


def test_ps5_a_new_epoch_after_a_restart_begins_its_sequences_where_the_recalled_ones_of_the_old_did() -> (
    None
):
    """A batch that counted as a retry of the old epoch would be answered and never written."""
    file_system = new_file_system()
    log = open_log(file_system)
    for sequence in range(5):
        send(log, sequence)
    log.close()
    log = open_log(file_system, clean=True)
    assert len(log.producers.producers[7].batch_metadata) == 5
    sent = [send(log, sequence, producer_epoch=1) for sequence in range(5)]
    assert [(each.first_offset, each.is_duplicate) for each in sent] == [
        (5 + number, False) for number in range(5)
    ]
    assert offsets_of_retries_in_epoch(log, 1, range(5)) == [5, 6, 7, 8, 9]


def offsets_of_retries_in_epoch(log: PartitionLog, producer_epoch: int, sequences: range) -> list[int]:
    retries = [send(log, sequence, producer_epoch=producer_epoch) for sequence in sequences]
    assert all(retry.is_duplicate for retry in retries)
    return [retry.first_offset for retry in retries]


def test_batches_before_a_gap_in_the_sequences_are_not_recalled() -> None:
    file_system = new_file_system()
    log = open_log(file_system)
    # A follower may have such sequences after its leader lost some.
    for offset, sequence in enumerate((0, 1, 5, 6)):
        records = batch(offset, producer_id=7, producer_epoch=0, sequence=sequence)
        log.append_as_follower(records, leader_epoch=0, now_ms=NOW_MS)
    log.close()
    entry = open_log(file_system, clean=True).producers.producers[7]
    assert [each.last_sequence for each in entry.batch_metadata] == [5, 6]


def test_batches_below_the_log_start_are_not_recalled() -> None:
    file_system = new_file_system()
    log = open_log(file_system)
    for sequence in range(4):
        send(log, sequence)
    log.close()
    log = open_log(file_system, clean=True, log_start_offset=2)
    entry = log.producers.producers[7]
    assert [each.last_offset for each in entry.batch_metadata] == [2, 3]


def test_the_look_back_is_bounded() -> None:
    file_system = new_file_system()
    log = open_log(file_system, DENSE)
    send(log, 0)
    send(log, 1)
    for sequence in range(2 * RECALLED_ENTRIES):
        send(log, sequence, producer_id=8)
    log.close()
    log = open_log(file_system, DENSE, clean=True)
    assert send(log, 1).is_duplicate
    with pytest.raises(OutOfOrderSequence):
        send(log, 0)
    # As far as it goes it finds batches, although it does not begin at the start of the segment.
    end = 2 * RECALLED_ENTRIES
    assert offsets_of_retries(log, range(end - 5, end), producer_id=8) == list(range(end - 3, end + 2))


@pytest.mark.parametrize("batches", [2, 3, 4])
def test_the_look_back_is_bounded_in_bytes_of_the_log(batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many batches before the last one are known as fit the bound."""
    monkeypatch.setattr(storage.producers.recall, "RECALLED_BYTES", batches * len(batch(0)) + 1)
    file_system = new_file_system()
    log = open_log(file_system, DENSE)
    for sequence in range(12):
        send(log, sequence)
    log.close()
    entry = open_log(file_system, DENSE, clean=True).producers.producers[7]
    assert [each.last_sequence for each in entry.batch_metadata] == list(range(12 - batches, 12))


def test_a_damaged_index_stops_no_start() -> None:
    file_system = new_file_system()
    log = open_log(file_system, DENSE)
    for sequence in range(4):
        send(log, sequence)
    index = log.local.segments.active.offset_index_path
    log.close()
    file = file_system.open(index, OpenMode.WRITE)
    # The entry points into a batch.
    file.write_at(4, b"\x00\x00\x00\x07")
    file.close()
    assert open_log(file_system, DENSE, clean=True).producers.producers[7].last_sequence == 3


@pytest.mark.parametrize("position", [-1, -(1 << 31), (1 << 31) - 1])
def test_an_index_that_leads_out_of_the_file_stops_no_start(
    position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage.producers.recall, "RECALLED_ENTRIES", 4)
    file_system = new_file_system()
    log = open_log(file_system, DENSE)
    for sequence in range(12):
        send(log, sequence)
    path, entries = (
        log.local.segments.active.offset_index_path,
        log.local.segments.active.offset_index.entries,
    )
    log.close()
    file = file_system.open(path, OpenMode.WRITE)
    for slot in range(entries - 4, entries - 1):
        file.write_at(8 * slot + 4, position.to_bytes(4, "big", signed=True))
    file.close()
    assert open_log(file_system, DENSE, clean=True).producers.producers[7].last_sequence == 11


def test_where_an_index_has_no_entries_for_very_many_batches_the_look_back_ends() -> None:
    """A start and a truncation read them within a step: the batches beyond the limit are not recalled, as in Kafka."""
    sparse = LogConfig(index_interval_bytes=1 << 30, segment_bytes=1 << 30)
    file_system = new_file_system()
    log = open_log(file_system, sparse)
    count = RECALLED_BATCHES + 10
    parts = [
        batch(offset, producer_id=7, producer_epoch=0, sequence=offset, value_bytes=1)
        for offset in range(count)
    ]
    log.append_as_follower(b"".join(parts), leader_epoch=0, now_ms=NOW_MS)
    log.close()
    log = open_log(file_system, sparse, clean=True)
    assert offsets_of_retries(log, range(count - 1, count)) == [count - 1]
    with pytest.raises(OutOfOrderSequence):
        send(log, count - 2)


@pytest.mark.parametrize("interval_bytes", [4_096, 40_000])
def test_ps10_of_very_many_small_batches_between_index_entries_the_last_ones_are_known(
    interval_bytes: int,
) -> None:
    """Among the entries that a look back would take are more batches than it reads."""
    config = LogConfig(index_interval_bytes=interval_bytes, segment_bytes=1 << 30)
    file_system = new_file_system()
    log = open_log(file_system, config)
    count = 2 * RECALLED_BATCHES
    for offset in range(count):
        one = batch(offset, producer_id=7, producer_epoch=0, sequence=offset, value_bytes=1)
        log.append_as_follower(one, leader_epoch=0, now_ms=NOW_MS)
    entries = log.local.segments.active.offset_index.entries
    assert count // entries * RECALLED_ENTRIES > RECALLED_BATCHES
    log.close_handles()
    log = open_log(file_system, config)
    assert offsets_of_retries(log, range(count - 5, count)) == list(range(count - 5, count))


def test_nothing_is_recalled_where_no_producer_is_known() -> None:
    file_system = new_file_system()
    log = open_log(file_system, SMALL)
    log.append_as_leader(produced(), leader_epoch=0, now_ms=NOW_MS)
    log.close()
    assert dict(open_log(file_system, SMALL, clean=True).producers.producers) == {}


# Where it is on


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_opened_alone_knows_the_same_batches_as_kafkas(clean: bool) -> None:
    file_system = new_file_system()
    log = open_plain_log(file_system)
    for sequence in range(3):
        send(log, sequence)
    log.close()
    log = open_plain_log(file_system, clean=clean)
    assert offsets_of_retries(log, range(2, 3)) == [2]
    with pytest.raises(OutOfOrderSequence):
        send(log, 1)


def test_the_logs_of_a_node_recall_after_a_start_and_a_truncation() -> None:
    disk = new_disk()
    manager = loaded_manager(disk)
    log = manager.create("t", 0)
    for sequence in range(4):
        send(log, sequence)
        log.flushes.roll(now_ms=NOW_MS)
    manager.shutdown()
    log = loaded_manager(disk).logs["t-0"]
    assert offsets_of_retries(log, range(4)) == [0, 1, 2, 3]
    log.truncate_to(3, now_ms=NOW_MS)
    assert offsets_of_retries(log, range(3)) == [0, 1, 2]


def loaded_manager(disk: SimDisk) -> LogManager:
    manager = LogManager(disk.file_system(Life()), "data", SMALL, NOW_MS, Draws(1))
    manager.load(NOW_MS)
    return manager
