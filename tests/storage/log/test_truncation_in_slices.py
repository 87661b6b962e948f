"""A cut of a log that was loaded looks for the greatest timestamp that stays in slices, before it cuts (LS13, RT9)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from sim.disk.handles import SimFileSystem
from storage.config import LogConfig
from storage.disk.filesystem import OpenMode
from storage.errors import CorruptBatch
from storage.log import PartitionLog
from tests.storage.lines import lines_of
from tests.storage.logs import (
    NOW_MS,
    SIZE,
    append_each,
    batch,
    new_file_system,
    open_log,
    produced,
    read_offsets,
)
from tests.storage.producers.reloads import prepare_all

CONFIG = LogConfig(segment_index_bytes=24_000, index_interval_bytes=2 * SIZE)
SLICE = 3


def loaded(batches: int, file_system: SimFileSystem | None = None) -> PartitionLog:
    """A log of level timestamps after an orderly stop, which truncates in slices of three batches."""
    file_system = file_system or new_file_system()
    log = open_log(file_system, CONFIG)
    append_each(log, batches)
    log.close()
    log = open_log(file_system, CONFIG, clean=True)
    log.truncation.batches_a_slice = SLICE
    return log


def sparse(batches: int) -> PartitionLog:
    """A log whose index has no entry, which truncates in slices of three batches."""
    log = open_log(new_file_system(), replace(CONFIG, index_interval_bytes=1 << 20))
    append_each(log, batches)
    log.truncation.batches_a_slice = SLICE
    return log


def lines_of_slices(log: PartitionLog, offset: int) -> list[int]:
    """The lines that each slice of the preparation runs, the look-up before the first one included."""
    lines, done = list[int](), list[bool]()
    while not any(done):
        lines.append(lines_of(lambda: done.append(log.truncation.prepare(offset, now_ms=NOW_MS))))
    return lines


def test_rt9_no_slice_and_no_cut_looks_at_more_batches_in_a_longer_log() -> None:
    few, many = loaded(12), loaded(48)
    short, long = lines_of_slices(few, 11), lines_of_slices(many, 47)
    assert (len(short), len(long)) == (4, 16)
    # A search in a longer index takes a step more; a look at one batch takes 47 lines.
    assert max(long) <= max(short) + 40
    few_lines, many_lines = (
        lines_of(partial(log.truncate_to, log.log_end_offset - 1, now_ms=NOW_MS)) for log in (few, many)
    )
    assert many_lines <= few_lines + 40


@pytest.mark.parametrize("timestamps", [[5] * 12, [5, 5, 5, 9, 9, 1, 1, 9, 9, 9, 12, 12], [9, 1] * 6])
def test_ls13_the_slices_find_the_greatest_timestamp_that_a_cut_in_one_step_finds(
    timestamps: list[int],
) -> None:
    for offset in range(4, 12):
        found = []
        for in_slices in (False, True):
            file_system = new_file_system()
            log = open_log(file_system, CONFIG)
            data = (batch(number, timestamp=NOW_MS + each) for number, each in enumerate(timestamps))
            log.append_as_follower(b"".join(data), leader_epoch=0, now_ms=NOW_MS)
            log.close()
            log = open_log(file_system, CONFIG, clean=True)
            log.truncation.batches_a_slice = SLICE
            if in_slices:
                prepare_all(log, offset)
            log.truncate_to(offset, now_ms=NOW_MS)
            active = log.local.segments.active
            found.append((tuple(active.max_timestamp), active.kept_until_ms, active.size_bytes))
        assert found[0] == found[1], offset


def test_rt9_a_preparation_changes_nothing_and_an_append_changes_nothing_of_it() -> None:
    log = loaded(12)
    before = log.local.segments.active.size_bytes
    count = prepare_all(log, 10)
    assert (count, log.local.segments.active.size_bytes) == (3, before)
    assert log.truncation.is_preparing
    log.append_as_leader(produced(timestamp=NOW_MS + 7), leader_epoch=0, now_ms=NOW_MS)
    assert log.truncation.prepare(10, now_ms=NOW_MS)
    log.truncate_to(10, now_ms=NOW_MS)
    assert not log.truncation.is_preparing
    assert tuple(log.local.segments.active.max_timestamp) == (NOW_MS, 0)


@pytest.mark.parametrize("other", ["offset", "cut", "forget"])
def test_rt9_what_was_seen_for_another_cut_is_not_used(other: str) -> None:
    log = loaded(12)
    count = prepare_all(log, 10)
    if other == "cut":
        log.truncate_to(11, now_ms=NOW_MS)
        append_each(log, 1)
        assert not log.truncation.is_preparing
        assert prepare_all(log, 10) == count
    elif other == "forget":
        log.truncation.forget_prepared()
        assert prepare_all(log, 10) == count
    else:
        assert prepare_all(log, 9) == count - 1
    assert log.log_end_offset == 12


def test_rt9_a_short_cut_reads_nothing_before() -> None:
    log = loaded(12)
    assert log.truncation.prepare(SLICE, now_ms=NOW_MS)
    assert not log.truncation.is_preparing


def test_rt9_at_or_beyond_the_end_nothing_is_prepared() -> None:
    log = loaded(12)
    assert not log.truncation.prepare(11, now_ms=NOW_MS)
    assert log.truncation.prepare(12, now_ms=NOW_MS)
    assert not log.truncation.is_preparing


def test_rt9_the_place_of_a_cut_is_looked_for_in_slices_where_the_index_has_no_entry() -> None:
    log = sparse(40)
    log.local.searched_a_step = 5
    prepared = [log.truncation.prepare(33, now_ms=NOW_MS) for _ in range(8)]
    assert prepared == [False] * 6 + [True] * 2
    assert (log.online.reason, log.log_end_offset) == (None, 40)
    log.truncate_to(33, now_ms=NOW_MS)
    assert read_offsets(log) == list(range(33))


def test_ap16_damage_that_a_slice_meets_changes_nothing_and_takes_no_log_offline() -> None:
    for log in (loaded(12), sparse(40)):
        file = log.local.file_system.open(log.local.segments.active.path, OpenMode.WRITE)
        # The size field of the third batch.
        file.write_at(2 * SIZE + 8, bytes(4))
        file.close()
        end = log.log_end_offset
        with pytest.raises(CorruptBatch):
            prepare_all(log, end - 1)
        assert (log.online.reason, log.log_end_offset) == (None, end)


def test_ap16_a_cut_whose_place_is_not_found_deletes_no_segment_and_takes_no_log_offline() -> None:
    log = open_log(new_file_system(), replace(CONFIG, index_interval_bytes=1 << 20))
    append_each(log, 5)
    path = log.local.segments.active.path
    log.flushes.roll(now_ms=NOW_MS)
    append_each(log, 2)
    file = log.local.file_system.open(path, OpenMode.WRITE)
    file.write_at(2 * SIZE + 8, bytes(4))
    file.close()
    with pytest.raises(CorruptBatch):
        log.truncate_to(4, now_ms=NOW_MS)
    assert (log.online.reason, log.log_end_offset, log.local.segments.base_offsets) == (None, 7, [0, 5])
    # A cut that does not look at the damaged batch is as good as before.
    log.truncate_to(5, now_ms=NOW_MS)
    assert (log.online.reason, log.log_end_offset) == (None, 5)


@pytest.mark.parametrize("damaged", [1, 3])
def test_ap16_a_short_cut_reads_what_stays_before_it_changes_anything(damaged: int) -> None:
    """What it needs of the batches that stay: the producers of them, and the greatest timestamp of a loaded segment."""
    file_system = new_file_system()
    log = open_log(file_system, CONFIG)
    for number in range(9):
        data = produced(producer_id=7, producer_epoch=0, sequence=number)
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
        if number in (1, 5):
            log.flushes.roll(now_ms=NOW_MS)
    log.close()
    log = open_log(file_system, CONFIG, clean=True)
    segment = log.local.segments.floor(damaged)
    assert segment is not None and log.local.segments.base_offsets == [0, 2, 6]
    file = file_system.open(segment.path, OpenMode.WRITE)
    file.write_at((damaged - segment.base_offset) * SIZE + 8, bytes(4))
    file.close()
    log.producers.snapshots.delete_all()
    with pytest.raises(CorruptBatch):
        log.truncate_to(5, now_ms=NOW_MS)
    assert (log.online.reason, log.log_end_offset, log.local.segments.base_offsets) == (None, 9, [0, 2, 6])
    assert log.producers.producers[7].last_sequence == 8
