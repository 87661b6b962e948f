"""Steps of a start that show only on the disk, or under one odd condition: rules LL2 to LL25, PS25, T10."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.disk import SimFileSystem
from sim.disk.life import Life
from storage.batch import Record, TimestampType, build_batch, set_max_timestamp
from storage.disk.filesystem import join, read_file
from storage.errors import CorruptBatch
from storage.producers.rebuild import rebuild_producer_state
from storage.producers.rows import decode_snapshot
from storage.recovery.cut import RecoveryCut
from storage.segment.lookups import read_next_offset
from tests.storage.directory.directories import DIRECTORY as LOGS
from tests.storage.directory.directories import manager, started
from tests.storage.log.appends import end_transaction
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    ROOMY,
    SIZE,
    THREE,
    append_each,
    batch,
    new_disk,
    new_file_system,
    new_producers,
    open_log,
    produced,
    read_offsets,
)
from tests.storage.recovery.stopped_logs import batches, file_of, names, put, raw_segment, stopped

# The indexes of a segment (LL10).


@pytest.mark.parametrize(("clean", "recovery_point"), [(True, 0), (False, 9)])
def test_ll10_a_missing_time_index_is_made_at_once_and_without_a_byte(
    clean: bool, recovery_point: int
) -> None:
    """Zeros of a new index would count as entries at the next start."""
    file_system = new_file_system()
    stopped(file_system, clean=True)
    file_system.unlink(file_of(3, "timeindex"))
    log = open_log(file_system, THREE, clean=clean, recovery_point=recovery_point)
    assert read_file(file_system, file_of(3, "timeindex")) == b""
    segment = log.local.segments.get(3)
    assert segment is not None and segment.time_index.entries == 0


@pytest.mark.parametrize("last", [3, 100 + (1 << 31)], ids=["below", "above"])
def test_ll10_a_log_that_kafka_cannot_split_ends_before_its_first_misplaced_batch(last: int) -> None:
    """A step back between two index entries stays if Kafka starts; here it does not start, as it splits a sound end."""
    file_system = new_file_system()
    data = batches(100, 101, 103, 102, 104, last, 105)
    raw_segment(file_system, 100, data)
    cuts: list[RecoveryCut] = []
    log = open_log(file_system, ROOMY, cuts=cuts)
    assert read_offsets(log, 100) == [100, 101, 103] and log.log_end_offset == 104
    assert [cut.position for cut in cuts] == [5 * SIZE, 3 * SIZE]


@pytest.mark.parametrize(("count", "base_offset"), [(12, 3), (0, 0)])
def test_ll10_rebuilt_indexes_are_whole_on_the_disk_before_the_offset_index_has_its_name(
    count: int, base_offset: int
) -> None:
    """An empty segment has no records whose walk would sync anything on the way."""
    disk = new_disk()
    file_system = new_file_system(disk)
    stopped(file_system, count, clean=True)
    expected = []
    for suffix in ("index", "timeindex"):
        path = file_of(base_offset, suffix)
        expected.append(read_file(file_system, path) if file_system.exists(path) else b"")
        if file_system.exists(path):
            file_system.unlink(path)
    disk.sync_all()
    before: list[list[bytes]] = []

    def look(verb: str, path: str) -> None:
        if verb == "rename" and path == file_of(base_offset, "index.cleaned"):
            before.append([disk.durable_bytes(each) for each in (path, file_of(base_offset, "timeindex"))])

    disk.observer = look
    open_log(file_system, THREE, clean=True)
    (durable,) = before
    assert all(found.startswith(entries) for found, entries in zip(durable, expected, strict=True))


# Producers at a start (LL11, LL25).


def of_four_producers(file_system: SimFileSystem) -> None:
    """Write offset 0 by producer 1, 1 by 2, the next two by 3 and the rest by 4; then delete all snapshots."""
    log = open_log(file_system, THREE)
    for offset, producer_id in enumerate((1, 2, 3, 3, 4, 4, 4, 4, 4)):
        sequence = offset - {1: 0, 2: 1, 3: 2, 4: 4}[producer_id]
        data = produced(producer_id=producer_id, producer_epoch=0, sequence=sequence)
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    log.close()
    for name in names(file_system, ".snapshot"):
        file_system.unlink(join(DIRECTORY, name))


def test_ll11_a_segment_recovered_at_once_knows_no_producers_below_the_log_start() -> None:
    file_system = new_file_system()
    of_four_producers(file_system)
    file_system.unlink(file_of(3, "index"))
    open_log(file_system, THREE, clean=True, log_start_offset=1)
    snapshot = decode_snapshot(read_file(file_system, file_of(6, "snapshot")))
    assert sorted(entry.producer_id for entry in snapshot) == [2, 3, 4]


def test_ll25_a_snapshot_at_the_log_start_of_the_checkpoint_is_not_loaded() -> None:
    """What it knows is below the start. The records from there on decide who is known (PS16)."""
    file_system = new_file_system()
    of_four_producers(file_system)
    put(file_system, file_of(3, "snapshot"), snapshot_of_first_segment())
    log = open_log(file_system, THREE, clean=True, log_start_offset=4)
    assert sorted(log.producers.producers) == [4]


def test_ll25_nor_is_one_at_the_first_base_where_that_is_above_the_checkpoint() -> None:
    file_system = new_file_system()
    of_four_producers(file_system)
    for suffix in ("log", "index", "timeindex"):
        file_system.unlink(file_of(0, suffix))
    put(file_system, file_of(3, "snapshot"), snapshot_of_first_segment())
    log = open_log(file_system, THREE, clean=True)
    assert (log.log_start_offset, sorted(log.producers.producers)) == (3, [3, 4])


def snapshot_of_first_segment() -> bytes:
    """Return a snapshot at offset 3 of producers 1, 2 and 3."""
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    for producer_id in (1, 2, 3):
        data = produced(producer_id=producer_id, producer_epoch=0, sequence=0)
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    log.close()
    return read_file(file_system, file_of(3, "snapshot"))


# The walk ends at the first cut (LL14).


def test_ll14_after_the_first_cut_nothing_is_walked_and_its_snapshots_are_deleted() -> None:
    cuts: list[RecoveryCut] = []
    file_system = new_file_system()
    stopped(file_system)
    for base_offset in (3, 9):
        content = read_file(file_system, file_of(base_offset))
        put(file_system, file_of(base_offset), content[:-1] + bytes([content[-1] ^ 0xFF]))
    log = open_log(file_system, THREE, cuts=cuts)
    assert [(cut.path, cut.position, cut.removed_bytes) for cut in cuts] == [
        (file_of(3), 2 * SIZE, SIZE),
        (file_of(9), 0, 3 * SIZE),
        (file_of(6), 0, 3 * SIZE),
    ]
    assert log.local.segments.base_offsets == [0, 3] and log.log_end_offset == 5
    append_each(log, 1)
    assert log.log_end_offset == 6


def with_torn_swap(file_system: SimFileSystem) -> None:
    """Stop a log and add a swap of its second segment, without an index and with a torn last record."""
    stopped(file_system)
    put(file_system, file_of(3, "log.swap"), read_file(file_system, file_of(3))[:-5])


@pytest.mark.parametrize("recovery_point", [0, 3, 5])
def test_ll14_a_cut_in_a_swap_without_an_index_ends_the_log_too(recovery_point: int) -> None:
    file_system = new_file_system()
    with_torn_swap(file_system)
    cuts: list[RecoveryCut] = []
    log = open_log(file_system, THREE, cuts=cuts, recovery_point=recovery_point)
    assert log.local.segments.base_offsets == [0, 3] and read_offsets(log) == [0, 1, 2, 3, 4]
    assert [(cut.path, cut.removed_bytes) for cut in cuts] == [
        (file_of(3), SIZE - 5),
        (file_of(9), 3 * SIZE),
        (file_of(6), 3 * SIZE),
    ]
    append_each(log, 1)
    assert log.log_end_offset == 6


def test_ll10_a_swap_without_an_index_that_was_flushed_gets_one_at_once() -> None:
    file_system = new_file_system()
    with_torn_swap(file_system)
    log = open_log(file_system, THREE, recovery_point=9)
    assert log.local.segments.base_offsets == [0, 3, 6, 9] and log.log_end_offset == 12
    segment = log.local.segments.get(3)
    assert segment is not None and read_next_offset(segment) == 5
    assert file_system.exists(segment.offset_index_path)


@pytest.mark.parametrize(("was_there", "batches_known"), [(True, 4), (False, 1)])
def test_ll14_the_snapshot_where_the_log_now_ends_is_deleted_if_a_deleted_segment_had_it(
    was_there: bool, batches_known: int
) -> None:
    """The producers are then read from the snapshot before it and the records after that, as in Kafka.

    A snapshot that the cut itself took there belongs to no segment and stays: then a batch or two less is known.
    """
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    for sequence in range(12):
        data = produced(producer_id=3, producer_epoch=0, sequence=sequence)
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    log.close_handles()
    put(file_system, file_of(3), read_file(file_system, file_of(3)) + b"torn")
    if not was_there:
        file_system.unlink(file_of(6, "snapshot"))
    log = open_log(file_system, THREE, recovery_point=4)
    entry = log.producers.last_entry(3)
    assert log.log_end_offset == 6 and entry is not None
    assert (entry.last_sequence, len(entry.batch_metadata)) == (5, batches_known)


# What may be split (LL12).


@pytest.mark.parametrize(("policy", "clean"), [("delete", True), ("compact", False)])
def test_ll12_after_an_orderly_stop_and_of_a_compacted_log_a_last_batch_far_away_is_no_torn_header(
    policy: str, clean: bool
) -> None:
    """The base offset of the last batch crosses the end of a sector; only that batch does not fit."""
    far = 0x3F52_0000_0000_001C
    file_system = new_file_system()
    content = batch(0) + batch(1) + batch(2, value_bytes=8 + 505 - 3 * SIZE) + batch(far)
    assert len(content) == 505 + SIZE
    put(file_system, file_of(0), content)
    cuts: list[RecoveryCut] = []
    log = open_log(file_system, replace(THREE, cleanup_policy=policy), clean=clean, cuts=cuts)
    assert log.local.segments.base_offsets == [0, far] and cuts == []


# The mark of a clean stop (LL2).


def test_ll2_a_mark_that_a_dying_process_removed_does_not_come_back_with_the_power() -> None:
    """The start finds no mark, but its name may still be on the disk: a power loss would bring it back."""
    disk = new_disk()
    started(disk).shutdown()
    disk.sync_all()
    disk.file_system(Life()).unlink(join(LOGS, ".kafka_cleanshutdown"))
    assert not manager(disk).was_clean
    disk.lose_power("none")
    assert not manager(disk).was_clean


# Replay from the records (PS25).


def test_ps25_an_error_of_the_replay_names_file_and_byte() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 1)
    marker = build_batch(
        [Record(1, NOW_MS, b"\xff\xff\x00\x00", bytes(6))],
        base_offset=1,
        partition_leader_epoch=0,
        producer_id=1,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    log.local.segments.active.append(1, marker)
    with pytest.raises(CorruptBatch, match="control record") as raised:
        rebuild_producer_state(
            new_producers(file_system),
            log.local.segments,
            log_start_offset=0,
            last_offset=2,
            now_ms=NOW_MS,
            is_clean=False,
        )
    assert (raised.value.path, raised.value.position) == (file_of(0), SIZE)


def test_ps25_a_replay_leaves_the_transaction_index_alone() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    data = batch(epoch=-1, producer_id=1, producer_epoch=0, sequence=0, is_transactional=True)
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    end_transaction(log, 1, is_commit=False)
    before = read_file(file_system, file_of(0, "txnindex"))
    assert len(before) == 34
    producers = new_producers(file_system)
    rebuild_producer_state(
        producers, log.local.segments, log_start_offset=0, last_offset=2, now_ms=NOW_MS, is_clean=False
    )
    assert producers.ongoing_transactions == [] and producers.first_unstable_transaction is not None
    assert read_file(file_system, file_of(0, "txnindex")) == before


# Producers whose time makes no sense (PS13).


@pytest.mark.parametrize(
    ("timestamp", "is_known"), [(-(1 << 63), True), (-1, False), (1, False), (NOW_MS, True)]
)
def test_ps13_the_idle_time_is_counted_in_64_bits(timestamp: int, is_known: bool) -> None:
    """A damaged header with the right checksum may hold any time.

    Kafka's difference overflows and forgets no producer.
    """
    file_system = new_file_system()
    content = bytearray(batch(0, producer_id=3, producer_epoch=0, sequence=0, timestamp=NOW_MS))
    set_max_timestamp(content, 0, timestamp_type=TimestampType.CREATE, max_timestamp=timestamp)
    put(file_system, file_of(0), bytes(content))
    log = open_log(file_system, THREE)
    assert (log.producers.last_entry(3) is not None) == is_known
    log.producers.remove_expired(NOW_MS)
    assert (log.producers.last_entry(3) is not None) == is_known


# The order of a snapshot's entries (T10).


def test_t10_producers_that_a_replay_finds_are_saved_by_id_as_those_of_appends_are() -> None:
    file_system = new_file_system()
    log = open_log(file_system, ROOMY)
    for producer_id in (2000, 16, 2001, 32, 2016):
        data = batch(log.log_end_offset, producer_id=producer_id, producer_epoch=0, sequence=0)
        log.append_as_follower(data, leader_epoch=0, now_ms=NOW_MS)
    log.close()
    appended = read_file(file_system, file_of(5, "snapshot"))
    assert [entry.producer_id for entry in decode_snapshot(appended)] == [16, 32, 2000, 2001, 2016]
    # It is beyond the end, so it is not loaded.
    file_system.rename(file_of(5, "snapshot"), file_of(7, "snapshot"))
    open_log(file_system, ROOMY, clean=True)
    assert read_file(file_system, file_of(5, "snapshot")) == appended


def test_t10_producers_new_in_one_set_are_saved_by_id() -> None:
    file_system = new_file_system()
    log = open_log(file_system, ROOMY)
    data = b"".join(
        batch(offset, producer_id=producer_id, producer_epoch=0, sequence=0)
        for offset, producer_id in enumerate((2000, 16, 2001, 32))
    )
    log.append_as_follower(data, leader_epoch=0, now_ms=NOW_MS)
    log.close()
    appended = decode_snapshot(read_file(file_system, file_of(4, "snapshot")))
    assert [entry.producer_id for entry in appended] == [16, 32, 2000, 2001]
