"""A truncation with many batches of producers replays them in slices, before it cuts anything: PS15, PS16, PS24."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.disk.handles import SimFileSystem
from storage.disk.filesystem import OpenMode
from storage.errors import CorruptBatch
from storage.log import PartitionLog
from storage.producers.reload import ProducerReload
from storage.producers.snapshot import read_content, snapshot_name
from tests.storage.log.appends import end_transaction
from tests.storage.logs import DIRECTORY, NOW_MS, ROOMY, new_file_system, open_log
from tests.storage.producers.producer_logs import last_sequences, remove_snapshots, segmented, send, snapshots
from tests.storage.producers.reloads import prepare_all, state_of

SLICE = 3


def filled(
    file_system: SimFileSystem | None = None, *, batches: int = 14, most_in_a_roll: int = 100
) -> PartitionLog:
    """A log without a snapshot, of a batch of each producer in turn, which truncates in slices of three batches."""
    log = open_log(file_system or new_file_system(), ROOMY, recalls_batches=True)
    log.truncation.batches_a_slice = SLICE
    log.flushes.most_in_a_roll = most_in_a_roll
    for number in range(batches):
        send(log, number // 4, pid=number % 4, is_transactional=number % 4 == 1)
    return log


@pytest.mark.parametrize("offset", [4, 9, 13])
def test_ps24_the_state_of_a_reload_in_slices_is_that_of_a_reload_in_one_step(offset: int) -> None:
    in_step, in_slices = new_file_system(), new_file_system()
    expected, log = filled(in_step), filled(in_slices)
    assert prepare_all(log, offset) > 1
    for each in (expected, log):
        each.truncate_to(offset, now_ms=NOW_MS)
    assert state_of(log) == state_of(expected)
    assert snapshots(in_slices) == snapshots(in_step) == [offset]
    path = f"{DIRECTORY}/{snapshot_name(offset)}"
    assert read_content(in_slices, path) == read_content(in_step, path)


def test_ps24_each_step_replays_a_slice_and_nothing_changes_before_the_truncation() -> None:
    log = filled()
    before = state_of(log)
    # The load of the snapshot, then 3, 3, 3 and 2 batches; after the last one there is nothing left to do.
    assert [log.truncation.prepare(11, now_ms=NOW_MS) for _ in range(7)] == [False] * 5 + [True] * 2
    assert (state_of(log), log.log_end_offset) == (before, 14)


@pytest.mark.parametrize(("rows_a_slice", "slices"), [(4, 2), (3, 3)])
def test_ps24_a_large_snapshot_is_read_in_one_slice_and_loaded_in_the_next(
    rows_a_slice: int, slices: int
) -> None:
    log = filled()
    log.producers.take_snapshot()
    for number in range(3):
        send(log, number, pid=9)
    reload = ProducerReload(
        log.producers, log.local.segments,
        log_start_offset=0, offset=16, log_end_offset=17, rows_a_slice=rows_a_slice,
    )  # fmt: skip
    taken = 0
    while not reload.is_done:
        reload.advance(NOW_MS)
        taken += 1
    log.truncate_to(16, now_ms=NOW_MS)
    assert taken == slices
    expected = {pid: repr(entry.copy_without_batches()) for pid, entry in log.producers.producers.items()}
    assert {
        pid: repr(entry.copy_without_batches()) for pid, entry in reload.state.producers.items()
    } == expected
    assert reload.state.map_end_offset == 16 and len(expected) == 5


def test_ps16_producers_that_expire_between_the_two_slices_of_a_snapshot_are_not_loaded() -> None:
    log = filled()
    log.producers.take_snapshot()
    send(log, 0, pid=9)
    reload = ProducerReload(
        log.producers, log.local.segments, log_start_offset=0, offset=14, log_end_offset=15, rows_a_slice=1
    )
    reload.advance(NOW_MS)
    assert reload.state.is_empty
    reload.advance(NOW_MS + 10 * 86_400_000)
    # The one with an open transaction never expires.
    assert set(reload.state.producers) == {1}


def test_ps24_the_truncation_after_the_slices_replays_nothing() -> None:
    log = filled()
    prepare_all(log, 11)
    assert log.truncation.is_preparing
    before = log.producers.producers
    log.truncate_to(11, now_ms=NOW_MS)
    # A replay fills the table that is there.
    assert log.producers.producers is not before
    assert not log.truncation.is_preparing


def test_ps24_a_cut_below_the_log_start_is_prepared_for_the_log_start_that_it_leaves() -> None:
    log, expected = filled(most_in_a_roll=3), filled(most_in_a_roll=3)
    for each in (log, expected):
        each.marks.update_high_watermark(14)
        each.marks.maybe_increment_log_start_offset(10)
    assert prepare_all(log, 6) > 0
    before = log.producers.producers
    for each in (log, expected):
        each.truncate_to(6, now_ms=NOW_MS)
    assert log.producers.producers is not before
    assert (state_of(log), log.log_start_offset) == (state_of(expected), 6)


def test_ps24_few_batches_are_replayed_within_the_truncation() -> None:
    log = filled()
    log.producers.take_snapshot()
    for number in range(SLICE + 1):
        send(log, number, pid=9)
    assert log.truncation.prepare(14 + SLICE, now_ms=NOW_MS)
    assert log.truncation.prepare(SLICE, now_ms=NOW_MS)
    assert log.truncation.prepare(log.log_end_offset, now_ms=NOW_MS)
    # One more batch below the cut is too many.
    assert not log.truncation.prepare(SLICE + 1, now_ms=NOW_MS)


def test_ps24_few_batches_above_the_log_start_are_replayed_within_the_truncation() -> None:
    log = filled()
    log.marks.update_high_watermark(14)
    log.marks.maybe_increment_log_start_offset(6)
    assert log.truncation.prepare(6 + SLICE, now_ms=NOW_MS)
    assert not log.truncation.prepare(6 + SLICE + 1, now_ms=NOW_MS)


@pytest.mark.parametrize("in_slices", [True, False])
def test_ap16_damage_that_a_replay_meets_changes_nothing_and_takes_no_log_offline(in_slices: bool) -> None:
    log = open_log(new_file_system(), replace(ROOMY, index_interval_bytes=0))
    log.truncation.batches_a_slice = SLICE
    for number in range(14):
        send(log, number)
    active = log.local.segments.active
    file = log.local.file_system.open(active.path, OpenMode.WRITE)
    # The size field of the third batch: the index leads the search for the cut past it.
    file.write_at(active.offset_index.lookup(2).position + 8, bytes(4))
    file.close()
    if in_slices:
        assert not log.truncation.prepare(11, now_ms=NOW_MS)
    with pytest.raises(CorruptBatch):
        prepare_all(log, 11) if in_slices else log.truncate_to(11, now_ms=NOW_MS)
    assert (log.online.reason, log.log_end_offset) == (None, 14)
    # A cut that needs none of the damaged batch is as good as before.
    log.truncate_to(1, now_ms=NOW_MS)
    assert (log.online.reason, log.log_end_offset, sorted(log.producers.producers)) == (None, 1, [1])


def test_ps24_with_many_producers_even_few_batches_are_replayed_before() -> None:
    log = filled(most_in_a_roll=3)
    assert not log.truncation.prepare(1, now_ms=NOW_MS)


@pytest.mark.parametrize("change", ["append", "truncate", "forget", "other offset"])
def test_ps24_what_was_prepared_for_another_log_is_never_taken_over(change: str) -> None:
    log, expected = filled(), filled()
    prepare_all(log, 11)
    for each in (log, expected):
        if change == "append":
            send(each, 0, pid=7)
        elif change == "truncate":
            each.truncate_to(12, now_ms=NOW_MS)
            # The same end, with other batches.
            send(each, 0, pid=7)
            send(each, 1, pid=7)
    if change == "forget":
        log.truncation.forget_prepared()
    offset = 10 if change == "other offset" else 11
    for each in (log, expected):
        each.truncate_to(offset, now_ms=NOW_MS)
    assert state_of(log) == state_of(expected)


def test_ps24_after_an_append_the_slices_begin_again() -> None:
    log = filled()
    count = prepare_all(log, 11)
    send(log, 0, pid=7)
    assert prepare_all(log, 11) == count


def test_ps16_a_snapshot_that_does_not_load_is_replaced_by_the_batches() -> None:
    file_system = new_file_system()
    log, expected = filled(file_system), filled()
    log.producers.take_snapshot()
    send(log, 0, pid=9)
    send(expected, 0, pid=9)
    file = file_system.open(f"{DIRECTORY}/{snapshot_name(14)}", OpenMode.CREATE)
    file.write_at(8, b"damage")
    file.close()
    # The list says that there is little to replay.
    log.flushes.most_in_a_roll = 3
    assert prepare_all(log, 14) > 2
    for each in (log, expected):
        each.truncate_to(14, now_ms=NOW_MS)
    assert last_sequences(log) == last_sequences(expected)
    job = log.flushes.begin_snapshot()
    assert job is not None
    job()
    log.flushes.snapshot_done()
    assert state_of(log) == state_of(expected)


def test_ps15_the_snapshot_of_a_truncation_with_many_producers_is_left_to_a_job() -> None:
    file_system = new_file_system()
    log = filled(file_system, most_in_a_roll=3)
    prepare_all(log, 11)
    log.truncate_to(11, now_ms=NOW_MS)
    assert snapshots(file_system) == []
    job = log.flushes.begin_snapshot()
    assert job is not None
    send(log, 0, pid=9)
    job()
    log.flushes.snapshot_done()
    assert (snapshots(file_system), log.producers.snapshots.offsets) == ([11], [11])


@pytest.mark.parametrize("change", ["roll", "truncate"])
def test_ps15_a_roll_or_a_truncation_meanwhile_makes_the_snapshot_of_a_truncation_unwanted(
    change: str,
) -> None:
    file_system = new_file_system()
    log = filled(file_system, most_in_a_roll=3)
    log.truncate_to(11, now_ms=NOW_MS)
    job = log.flushes.begin_snapshot()
    assert job is not None
    job()
    if change == "roll":
        log.flushes.roll(now_ms=NOW_MS)
        send(log, 0, pid=9)
        log.flushes.roll(now_ms=NOW_MS)
        expected = [12]
    else:
        log.truncate_to(10, now_ms=NOW_MS)
        expected = []
    log.flushes.snapshot_done()
    assert (
        snapshots(file_system) == log.producers.snapshots.offsets == [*([11] if expected else []), *expected]
    )


def test_ps16_an_open_transaction_and_its_end_are_followed_in_slices() -> None:
    log, expected = filled(), filled()
    for each in (log, expected):
        end_transaction(each, 1, is_commit=False)
        for number in range(5):
            send(each, number, pid=8, is_transactional=True)
        each.marks.update_high_watermark(12)
    for offset in (18, 15, 14, 12):
        prepare_all(log, offset)
        for each in (log, expected):
            each.truncate_to(offset, now_ms=NOW_MS)
        assert state_of(log) == state_of(expected), offset
        assert log.marks.last_stable_offset == expected.marks.last_stable_offset


def test_ps16_a_log_start_that_moves_between_two_slices_makes_the_next_one_begin_again() -> None:
    log = filled()
    for _ in range(3):
        assert not log.truncation.prepare(11, now_ms=NOW_MS)
    log.marks.update_high_watermark(11)
    log.marks.maybe_increment_log_start_offset(2)
    # The load, then 3, 3 and 3 of the batches from 2 on, after which one finds that none is left.
    assert prepare_all(log, 11) == 5
    log.truncate_to(11, now_ms=NOW_MS)
    expected = filled()
    expected.marks.update_high_watermark(11)
    expected.marks.maybe_increment_log_start_offset(2)
    expected.truncate_to(11, now_ms=NOW_MS)
    assert state_of(log) == state_of(expected)


def test_rt12_a_log_that_is_emptied_forgets_the_truncation_that_was_prepared() -> None:
    log = filled()
    prepare_all(log, 11)
    log.truncation.truncate_fully_and_start_at(3, now_ms=NOW_MS)
    assert not log.truncation.is_preparing


@pytest.mark.parametrize(("batches_a_slice", "ends"), [(51, [1, 2, 3, 4, 5, 6, 7]), (52, [2, 4, 6, 7])])
def test_ps24_a_slice_ends_after_few_segments_however_few_batches_they_have(
    batches_a_slice: int, ends: list[int]
) -> None:
    """To begin a segment counts as 50 batches. Each segment has one batch here."""
    file_system = new_file_system()
    log = segmented(file_system, 8)
    remove_snapshots(file_system)
    log.producers.snapshots.reload()
    reload = ProducerReload(
        log.producers,
        log.local.segments,
        log_start_offset=0,
        offset=7,
        log_end_offset=8,
        batches_a_slice=batches_a_slice,
    )
    reload.advance(NOW_MS)
    found = []
    while not reload.is_done:
        reload.advance(NOW_MS)
        found.append(reload.state.map_end_offset)
    assert found == ends
