"""A segment's rules one step to either side: an index entry's content, when one is due, restarts (LS1 to LS13)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.disk import SimFileSystem
from storage.batch import Record, build_batch
from storage.config import LogConfig
from storage.disk.filesystem import OpenMode
from storage.draws import Draws
from storage.recovery.walk import recover_segment
from storage.segment import LogSegment, log_path
from storage.segment.kept_timestamps import KeptTimestamps
from storage.segment.lookups import read_next_offset
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    SIZE,
    SMALL,
    append_batch,
    batch,
    filled_segment,
    new_disk,
    new_epochs,
    new_file_system,
    new_producers,
    open_segment,
)
from tests.storage.producers.producers import marker

TWO = LogConfig(index_interval_bytes=2 * SIZE, segment_index_bytes=1200)
EACH = LogConfig(index_interval_bytes=0, segment_index_bytes=1200)


def offset_entries(segment: LogSegment) -> list[tuple[int, int]]:
    entries = map(segment.offset_index.entry, range(segment.offset_index.entries))
    return [(entry.offset, entry.position) for entry in entries]


def time_entries(segment: LogSegment) -> list[tuple[int, int]]:
    entries = map(segment.time_index.entry, range(segment.time_index.entries))
    return [(entry.timestamp, entry.offset) for entry in entries]


def recover(segment: LogSegment, file_system: SimFileSystem) -> int:
    return recover_segment(segment, new_producers(file_system), new_epochs(file_system))


# Append


def test_ls1_an_empty_set_is_not_looked_at() -> None:
    disk = new_disk()
    segment = open_segment(new_file_system(disk))
    before = disk.operations
    # The offset would not fit.
    segment.append(2**40, b"")
    assert disk.operations == before


def test_ls1_an_entry_is_due_strictly_above_the_interval() -> None:
    segment = open_segment(new_file_system(), config=TWO)
    for offset in range(7):
        append_batch(segment, batch(offset))
    assert offset_entries(segment) == [(3, 3 * SIZE), (6, 6 * SIZE)]


def test_ls1_the_interval_runs_on_from_batch_to_batch_within_a_set() -> None:
    segment = open_segment(new_file_system(), config=TWO)
    segment.append(8, b"".join(batch(offset) for offset in range(9)))
    assert offset_entries(segment) == [(3, 3 * SIZE), (6, 6 * SIZE)]
    append_batch(segment, batch(9))
    # The bytes after the last entry count.
    assert offset_entries(segment)[2:] == [(9, 9 * SIZE)]


def test_ls1_bytes_of_sets_without_an_entry_add_up() -> None:
    segment = open_segment(new_file_system(), config=LogConfig(index_interval_bytes=6 * SIZE))
    for first in (0, 2, 4):
        segment.append(first + 1, batch(first) + batch(first + 1))
    segment.append(8, batch(6) + batch(7) + batch(8))
    assert offset_entries(segment) == [(7, 7 * SIZE)]


def test_ls1_an_entry_is_the_last_offset_of_its_batch_and_where_that_starts() -> None:
    segment = open_segment(new_file_system(), config=EACH)
    segment.append(9, batch(0, 3) + batch(3, 4) + batch(7, 3))
    sizes = [len(batch(0, 3)), len(batch(3, 4))]
    assert offset_entries(segment) == [(6, sizes[0]), (9, sum(sizes))]


def test_ls1_an_entrys_time_is_the_greatest_up_to_the_end_of_its_batch() -> None:
    segment = open_segment(new_file_system(), config=TWO)
    times = [5, 9, 7, 12, 11, 3, 10, 40]
    segment.append(7, b"".join(batch(each, timestamp=NOW_MS + at) for each, at in enumerate(times)))
    # At 3 its own time is the greatest. At 6 that is still so, so there is no new entry. The 40 after it has
    # none yet.
    assert offset_entries(segment) == [(3, 3 * SIZE), (6, 6 * SIZE)]
    assert time_entries(segment) == [(NOW_MS + 12, 3)]
    assert tuple(segment.max_timestamp) == (NOW_MS + 40, 7)


def test_ls1_of_equal_timestamps_the_first_batch_is_remembered() -> None:
    segment = open_segment(new_file_system(), config=EACH)
    segment.append(2, batch(0) + batch(1) + batch(2))
    append_batch(segment, batch(3))
    assert tuple(segment.max_timestamp) == (NOW_MS, 0)
    segment.append(6, batch(4, timestamp=NOW_MS + 9) + batch(5, timestamp=NOW_MS + 9) + batch(6))
    assert tuple(segment.max_timestamp) == (NOW_MS + 9, 4)


def test_ls2_the_counter_starts_at_0_after_opening_recovery_and_truncation() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system, config=TWO)
    for offset in range(3):
        append_batch(segment, batch(offset))
    segment.close()
    segment = open_segment(file_system, config=TWO, file_already_exists=True)
    segment.resize_indexes()
    # There are 3 * SIZE before it, which this object has not appended.
    append_batch(segment, batch(3))
    append_batch(segment, batch(4))
    assert offset_entries(segment) == []
    recover(segment, file_system)
    entries = offset_entries(segment)
    segment.resize_indexes()
    append_batch(segment, batch(5))
    append_batch(segment, batch(6))
    assert offset_entries(segment) == entries == [(3, 3 * SIZE)]
    segment.truncate_to(6, NOW_MS)
    for offset in (6, 7, 8):
        append_batch(segment, batch(offset))
    assert offset_entries(segment) == entries
    append_batch(segment, batch(9))
    assert offset_entries(segment) == [*entries, (9, 9 * SIZE)]


# Roll


def roll_by(segment: LogSegment, *, timestamp: int = NOW_MS, now_ms: int = NOW_MS, most_ms: int = 10) -> bool:
    return segment.should_roll(
        messages_size=1,
        max_timestamp=timestamp,
        max_offset=50,
        now_ms=now_ms,
        max_segment_bytes=1 << 20,
        max_segment_ms=most_ms,
    )


def test_ls4_the_jitter_makes_the_time_shorter() -> None:
    config = replace(SMALL, segment_jitter_ms=900, segment_ms=1000)
    segment = LogSegment.open(new_file_system(), DIRECTORY, 0, config, NOW_MS, draws=Draws(3))
    jitter_ms = segment.roll_jitter_ms
    assert jitter_ms > 0
    append_batch(segment, batch(0))
    assert not roll_by(segment, timestamp=NOW_MS + 1000 - jitter_ms, most_ms=1000)
    assert roll_by(segment, timestamp=NOW_MS + 1001 - jitter_ms, most_ms=1000)


def test_ls4_either_full_index_is_a_reason() -> None:
    # There is room for 4 offset entries, or for 2 time entries and the last one.
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=36)
    untimed = open_segment(new_file_system(), config=config)
    for offset in range(5):
        assert not roll_by(untimed)
        append_batch(untimed, batch(offset, timestamp=-1))
    assert untimed.offset_index.is_full and not untimed.time_index.is_full and roll_by(untimed)
    timed = open_segment(new_file_system(), config=config)
    for offset in range(3):
        assert not roll_by(timed)
        append_batch(timed, batch(offset, timestamp=NOW_MS + offset))
    assert timed.time_index.is_full and not timed.offset_index.is_full and roll_by(timed)


@pytest.mark.parametrize("is_a_set", [False, True])
def test_ls4_the_append_that_fills_an_index_leaves_no_room(is_a_set: bool) -> None:
    # There is room for 2 time entries and the last one.
    segment = open_segment(
        new_file_system(), config=LogConfig(index_interval_bytes=0, segment_index_bytes=36)
    )
    append_batch(segment, batch(0))
    for offset, has_room in ((1, True), (2, False)):
        assert not roll_by(segment)
        data = batch(offset, timestamp=NOW_MS + offset)
        if is_a_set:
            segment.append(offset, data)
        else:
            segment.append(offset, data, max_timestamp=NOW_MS + offset)
        assert segment.has_room_for(1, 9, NOW_MS, 1 << 20, 10) == has_room
    assert roll_by(segment)


def test_ls4_a_segment_whose_indexes_were_trimmed_for_a_roll_has_no_room_if_that_roll_failed() -> None:
    segment = open_segment(new_file_system())
    append_batch(segment, batch(0))
    assert not roll_by(segment)
    assert segment.has_room_for(1, 1, NOW_MS, 1 << 20, 10)
    segment.on_become_inactive()
    assert not segment.has_room_for(1, 1, NOW_MS, 1 << 20, 10)
    assert roll_by(segment)


def test_ls5_the_first_batchs_greatest_timestamp_counts_from_0_on() -> None:
    segment = open_segment(new_file_system())
    # The times are 0, 1 and 2.
    append_batch(segment, batch(0, 3, timestamp=-2 + 2))
    assert segment.time_waited_for_roll(NOW_MS, 30) == 28
    zero = open_segment(new_file_system())
    append_batch(zero, batch(0, timestamp=0))
    assert zero.time_waited_for_roll(NOW_MS + 7, 30) == 30


def test_ls5_without_timestamps_the_objects_age_counts_not_the_files() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system)
    append_batch(segment, batch(0, timestamp=-1))
    segment.set_modified(NOW_MS - 5000)
    assert segment.time_waited_for_roll(NOW_MS + 7, -1) == 7


def test_ls5_only_the_batch_that_is_the_first_one_counts() -> None:
    segment = open_segment(new_file_system())
    assert segment.first_batch_timestamp is None
    segment.append(1, batch(0, timestamp=NOW_MS + 5) + batch(1, timestamp=NOW_MS + 9))
    append_batch(segment, batch(2, timestamp=NOW_MS + 7))
    assert segment.first_batch_timestamp == NOW_MS + 5
    # After the segment was emptied another batch is the first.
    segment.truncate_to(0, NOW_MS)
    append_batch(segment, batch(0, timestamp=NOW_MS + 1))
    assert segment.first_batch_timestamp == NOW_MS + 1


def test_ls5_a_truncation_to_nothing_restarts_both_clocks() -> None:
    segment = open_segment(new_file_system())
    append_batch(segment, batch(0))
    assert segment.time_waited_for_roll(NOW_MS, NOW_MS + 30) == 30
    segment.truncate_to(0, NOW_MS + 500)
    assert segment.time_waited_for_roll(NOW_MS + 600, NOW_MS + 30) == 100
    append_batch(segment, batch(0, timestamp=NOW_MS + 20))
    assert segment.time_waited_for_roll(NOW_MS, NOW_MS + 30) == 10


def test_ls6_the_bound_is_the_smaller_of_jitter_and_segment_ms() -> None:
    file_system, none = new_file_system(), replace(SMALL, segment_jitter_ms=0)
    wide = replace(SMALL, segment_jitter_ms=1 << 40, segment_ms=1000)
    for base in range(20):
        drawn = LogSegment.open(file_system, DIRECTORY, base, wide, NOW_MS, draws=Draws(5))
        assert 0 <= drawn.roll_jitter_ms < 1000
        plain = LogSegment.open(file_system, DIRECTORY, 100 + base, none, NOW_MS, draws=Draws(5))
        assert plain.roll_jitter_ms == 0


# Read


def test_ls7_a_lookup_begins_at_the_index_entry_and_at_the_start_given() -> None:
    file_system = new_file_system()
    segment = filled_segment(file_system, range(20))
    entry = segment.offset_index.lookup(12)
    assert 0 < entry.position <= 12 * SIZE
    # A walk from 0 finds damage.
    file_system.open(segment.path, OpenMode.WRITE).write_at(8, bytes(4))
    found = segment.translate_offset(12)
    assert found is not None and (found.offset, found.position) == (12, 12 * SIZE)
    found = segment.translate_offset(12, 15 * SIZE)
    assert found is not None and (found.offset, found.position) == (15, 15 * SIZE)


def test_ls8_a_batch_that_the_bound_cuts_is_not_called_incomplete() -> None:
    """Only the size asked for is compared, as in Kafka."""
    segment = filled_segment(new_file_system(), range(3))
    data = segment.read(0, 10 * SIZE, SIZE - 10)
    assert data is not None and len(data.records) == SIZE - 10 and not data.first_entry_incomplete
    data = segment.read(0, SIZE - 10, 3 * SIZE)
    assert data is not None and data.first_entry_incomplete


def test_ls9_the_last_batch_may_have_the_last_index_entry() -> None:
    segment = open_segment(new_file_system(), config=EACH)
    for offset in range(4):
        append_batch(segment, batch(offset))
    assert segment.offset_index.last_offset == 3
    assert read_next_offset(segment) == 4
    append_batch(segment, batch(4, 5))
    segment.offset_index.truncate_to(4)
    assert read_next_offset(segment) == 9


# Recover


def recovered(
    content: list[bytes], config: LogConfig = EACH
) -> tuple[LogSegment, int, list[tuple[int, int]], SimFileSystem]:
    """Return the segment, the number of bytes cut, and the epochs, with the file system."""
    file_system = new_file_system()
    segment = open_segment(file_system, config=config)
    segment.records.append(b"".join(content))
    epochs = new_epochs(file_system)
    removed = recover_segment(segment, new_producers(file_system), epochs)
    return segment, removed, [(entry.epoch, entry.start_offset) for entry in epochs.entries], file_system


def test_ls10_an_entry_is_due_strictly_above_the_interval_and_holds_the_last_offset() -> None:
    content = [batch(offset) for offset in range(7)]
    assert offset_entries(recovered(content, TWO)[0]) == [(3, 3 * SIZE), (6, 6 * SIZE)]
    content = [batch(0, 3), batch(3, 4), batch(7, 3)]
    sizes = [len(each) for each in content]
    assert offset_entries(recovered(content)[0]) == [(6, sizes[0]), (9, sizes[0] + sizes[1])]


def test_ls10_epochs_are_assigned_as_they_rise() -> None:
    content = [batch(0, epoch=1), batch(1, epoch=1), batch(2, epoch=4), batch(3, epoch=2), batch(4, epoch=4)]
    assert recovered(content)[2] == [(1, 0), (4, 2)]


def test_ls10_a_marker_that_cannot_be_read_is_the_last_batch() -> None:
    """The marker's checksum is right, so it counts as sound. The walk ends after it, as in Kafka."""
    control = build_batch(
        [Record(1, NOW_MS, b"\x00", None)],
        base_offset=1,
        producer_id=7,
        producer_epoch=0,
        partition_leader_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    segment, removed, _, _ = recovered([batch(0), control, batch(2)])
    assert (segment.size_bytes, removed) == (SIZE + len(control), SIZE)


def test_ls10_a_marker_completes_its_transaction() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system, config=EACH)
    data = batch(0, 2, producer_id=1, producer_epoch=0, sequence=0, is_transactional=True)
    segment.records.append(data + marker(2, commit=False).tobytes() + batch(3))
    producers = new_producers(file_system)
    recover_segment(segment, producers, new_epochs(file_system))
    assert producers.ongoing_transactions == [] and producers.map_end_offset == 4
    unstable = producers.first_unstable_transaction
    assert unstable is not None and (unstable.first_offset, unstable.last_offset) == (0, 2)
    aborted = list(segment.transaction_index.entries())
    assert [(each.first_offset, each.last_offset) for each in aborted] == [(0, 2)]


def test_ls10_of_equal_timestamps_the_first_batch_is_remembered() -> None:
    segment = recovered([batch(0), batch(1), batch(2)])[0]
    assert tuple(segment.max_timestamp) == (NOW_MS, 0) and time_entries(segment) == [(NOW_MS, 0)]


def test_ls10_both_indexes_end_with_their_last_entry() -> None:
    segment, _, _, file_system = recovered([batch(each, timestamp=NOW_MS + each) for each in range(6)])
    assert (
        segment.offset_index.length_bytes == file_system.stat(segment.offset_index_path).size_bytes == 5 * 8
    )
    assert segment.time_index.length_bytes == file_system.stat(segment.time_index_path).size_bytes == 5 * 12


def test_ls10_a_cut_is_on_disk() -> None:
    disk = new_disk()
    file_system = new_file_system(disk)
    segment = filled_segment(file_system, range(3))
    segment.records.append(b"torn")
    disk.sync_all()
    assert recover(segment, file_system) == 4
    assert len(disk.durable_bytes(log_path(DIRECTORY, 0))) == 3 * SIZE


def test_ls10_the_last_slot_of_the_time_index_is_for_the_greatest_timestamp() -> None:
    config = replace(EACH, segment_index_bytes=36)
    segment = recovered([batch(each, timestamp=NOW_MS + each) for each in range(8)], config)[0]
    assert time_entries(segment) == [(NOW_MS + 1, 1), (NOW_MS + 2, 2), (NOW_MS + 7, 7)]


def test_ls11_entries_are_counted_from_the_position_of_the_last_one() -> None:
    config = replace(TWO, index_interval_bytes=2 * SIZE - 20)
    file_system = new_file_system()
    segment = open_segment(file_system, config=config)
    for offset in range(12):
        append_batch(segment, batch(offset))
    appended = offset_entries(segment)
    assert [offset for offset, _ in appended] == [2, 4, 6, 8, 10]
    recover(segment, file_system)
    assert offset_entries(segment) == appended


# Truncate


def test_ls13_a_truncated_segment_keeps_its_age() -> None:
    segment = filled_segment(new_file_system(), range(5))
    assert segment.first_batch_timestamp == NOW_MS
    segment.truncate_to(3, NOW_MS + 500)
    assert (segment.created_ms, segment.first_batch_timestamp) == (NOW_MS, NOW_MS)


def test_ls13_an_emptied_segment_forgets_the_timestamp_of_its_first_batch() -> None:
    segment = filled_segment(new_file_system(), range(5))
    assert segment.first_batch_timestamp == NOW_MS
    segment.truncate_to(0, NOW_MS + 500)
    assert segment.first_batch_timestamp is None and segment.max_timestamp.timestamp == -1


def test_ls13_the_cut_is_on_disk() -> None:
    disk = new_disk()
    file_system = new_file_system(disk)
    segment = filled_segment(file_system, range(5))
    disk.sync_all()
    segment.truncate_to(3, NOW_MS)
    assert len(disk.durable_bytes(log_path(DIRECTORY, 0))) == 3 * SIZE


def test_ls13_batches_of_equal_timestamps_are_not_read_again_at_a_cut() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system, config=EACH)
    for offset in range(6):
        append_batch(segment, batch(offset, timestamp=NOW_MS))
    file = file_system.open(log_path(DIRECTORY, 0), OpenMode.WRITE)
    # Whoever walks over the batches stops at the size field of this one.
    file.write_at(2 * SIZE + 8, bytes(4))
    file.close()
    segment.truncate_to(5, NOW_MS)
    assert segment.max_timestamp.timestamp == NOW_MS
    assert segment.records.size_bytes == 5 * SIZE


def test_ls13_a_time_index_that_lacks_the_greatest_timestamp_is_not_believed_at_a_cut() -> None:
    """A crash leaves such an index to a segment that recovery does not look at."""
    file_system = new_file_system()
    segment = open_segment(file_system, config=LogConfig(index_interval_bytes=1 << 20))
    for offset, timestamp in enumerate((NOW_MS, NOW_MS + 5, NOW_MS - 5, NOW_MS - 5)):
        append_batch(segment, batch(offset, timestamp=timestamp))
    segment.time_index.maybe_append(NOW_MS, 0)
    segment.offset_index.append(2, 2 * SIZE)
    for index in (segment.time_index, segment.offset_index):
        index.trim_to_valid_size()
    segment.close_handlers()
    again = open_segment(file_system, config=EACH, file_already_exists=True)
    assert again.max_timestamp == (NOW_MS, 0)
    for end in (3, 2):
        again.truncate_to(end, NOW_MS)
        assert again.max_timestamp == (NOW_MS + 5, 1)


def test_ls13_batches_of_equal_timestamps_before_a_later_one_are_not_read_again_at_a_cut() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system, config=EACH)
    for offset in range(9):
        append_batch(segment, batch(offset, timestamp=NOW_MS + max(0, offset - 6)))
    file = file_system.open(log_path(DIRECTORY, 0), OpenMode.WRITE)
    # Whoever walks over the batches from the only entry of that timestamp on stops here.
    file.write_at(3 * SIZE + 8, bytes(4))
    file.close()
    for end, greatest in ((8, (1, 7)), (7, (0, 0)), (5, (0, 0))):
        segment.truncate_to(end, NOW_MS)
        assert segment.max_timestamp == (NOW_MS + greatest[0], greatest[1])


@pytest.mark.parametrize("is_a_set", [False, True])
def test_ls13_a_time_index_that_was_full_is_not_believed_at_a_cut(is_a_set: bool) -> None:
    # There is room for 12 offsets and 8 times.
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=96)
    segment = open_segment(new_file_system(), config=config)
    batches = [batch(offset, timestamp=NOW_MS + min(offset, 9)) for offset in range(14)]
    if is_a_set:
        segment.append(13, b"".join(batches))
    else:
        for data in batches:
            append_batch(segment, data)
    assert segment.time_index.entries < segment.offset_index.entries
    segment.truncate_to(12, NOW_MS)
    assert segment.max_timestamp == (NOW_MS + 9, 9)


@settings(max_examples=60, deadline=None)
@given(
    times=st.lists(st.integers(0, 4), min_size=1, max_size=25),
    cuts=st.lists(st.integers(0, 24), min_size=1, max_size=4),
    interval=st.sampled_from([0, SIZE, 3 * SIZE]),
    index_bytes=st.sampled_from([24, 48, 1200]),
    recovers=st.booleans(),
)
def test_ls13_the_greatest_timestamp_after_any_cuts_is_that_of_a_look_at_all_batches(
    times: list[int], cuts: list[int], interval: int, index_bytes: int, recovers: bool
) -> None:
    config = LogConfig(index_interval_bytes=interval, segment_index_bytes=index_bytes)
    file_system = new_file_system()
    segment = open_segment(file_system, config=config)
    for offset, at in enumerate(times):
        append_batch(segment, batch(offset, timestamp=NOW_MS + at))
    if recovers:
        recover(segment, file_system)
    for cut in sorted(cuts, reverse=True):
        segment.truncate_to(cut, NOW_MS)
        kept = times[:cut]
        expected = (NOW_MS + max(kept), kept.index(max(kept))) if kept else (-1, 0)
        assert tuple(segment.max_timestamp) == expected


@pytest.mark.parametrize("config", [EACH, TWO])
def test_ls13_the_greatest_timestamp_is_that_of_the_kept_batches(config: LogConfig) -> None:
    segment = open_segment(new_file_system(), config=config)
    times = [5, 9, 7, 12, 11, 3, 10, 40]
    for offset, at in enumerate(times):
        append_batch(segment, batch(offset, timestamp=NOW_MS + at))
    for end, greatest in ((8, (40, 7)), (7, (12, 3)), (4, (12, 3)), (3, (9, 1)), (1, (5, 0))):
        segment.truncate_to(end, NOW_MS)
        assert tuple(segment.max_timestamp) == (NOW_MS + greatest[0], greatest[1])


def test_ls1_a_time_index_that_is_ahead_of_the_log_is_emptied_by_the_next_set() -> None:
    """A damaged index, whose times would still be in order."""
    segment = open_segment(new_file_system(), config=EACH)
    segment.time_index.maybe_append(NOW_MS, 50)
    segment.append(3, b"".join(batch(offset, timestamp=NOW_MS + 1 + offset) for offset in range(4)))
    assert [offset for _, offset in time_entries(segment)] == [2, 3]


@pytest.mark.parametrize("most_batches", [1, 2, 9])
def test_ls13_of_equal_timestamps_in_several_slices_the_first_batch_is_found(most_batches: int) -> None:
    segment = open_segment(new_file_system(), config=EACH)
    for offset, at in enumerate((3, 7, 5, 7, 7, 9)):
        append_batch(segment, batch(offset, timestamp=NOW_MS + at))
    look = KeptTimestamps(segment, 5, 0)
    while not look.is_done:
        look.advance(most_batches)
    found = look.greatest(segment, 5)
    assert found is not None and (found.timestamp, found.offset) == (NOW_MS + 7, 1)
    segment.truncate_to(5, NOW_MS, found)
    assert segment.max_timestamp == (NOW_MS + 7, 1)
    assert look.greatest(segment, 5) is None
