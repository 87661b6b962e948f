"""How many entries recovery needs of indexes, and when Kafka's would not have the room: LL16, IX20."""

from __future__ import annotations

import pytest

from storage.config import LogConfig
from storage.index.offset_index import ENTRY as OFFSET_ENTRY
from storage.index.time_index import ENTRY as TIME_ENTRY
from storage.recovery.misfits import find_misfit, has_full_index, overfills_indexes
from storage.segment import LogSegment
from tests.storage.logs import NOW_MS, SIZE, batch, new_file_system, open_segment

BATCHES = 10


def filled(*, step_ms: int, interval_bytes: int = 1) -> LogSegment:
    """A segment of ten batches, each `step_ms` later than the one before."""
    segment = open_segment(new_file_system(), config=LogConfig(index_interval_bytes=interval_bytes))
    for offset in range(BATCHES):
        segment.append(offset, batch(offset, timestamp=NOW_MS + step_ms * offset))
    return segment


@pytest.mark.parametrize(
    ("interval_bytes", "entries"), [(1, 9), (SIZE - 1, 9), (SIZE, 4), (2 * SIZE, 3), (10**6, 0)]
)
def test_ix20_an_offset_index_of_just_the_entries_that_recovery_needs_has_room(
    interval_bytes: int, entries: int
) -> None:
    """Batches of one time need one time entry."""
    segment = filled(step_ms=0, interval_bytes=interval_bytes)
    size_bytes = max(entries * OFFSET_ENTRY.size, 3 * TIME_ENTRY.size)
    assert not overfills_indexes(segment, size_bytes)
    if entries * OFFSET_ENTRY.size == size_bytes:
        assert overfills_indexes(segment, size_bytes - 1)


def test_ix20_a_time_index_keeps_one_entry_free() -> None:
    segment = filled(step_ms=1)
    assert not overfills_indexes(segment, (BATCHES - 1 + 1) * TIME_ENTRY.size)
    assert overfills_indexes(segment, (BATCHES - 1 + 1) * TIME_ENTRY.size - 1)


def test_ix20_a_full_time_index_counts_even_where_no_time_entry_is_due() -> None:
    """Only the first entry has a new time, but each needs the room for one."""
    assert overfills_indexes(filled(step_ms=-1), 2 * TIME_ENTRY.size)
    assert not overfills_indexes(filled(step_ms=-1), BATCHES * OFFSET_ENTRY.size)


def test_ll16_offsets_that_go_back_end_the_count() -> None:
    segment = filled(step_ms=0)
    first = segment.records.read_slice(0, SIZE)
    segment.records.append(first * 30)
    assert not overfills_indexes(segment, BATCHES * OFFSET_ENTRY.size)


def test_ll16_damage_ends_the_count() -> None:
    segment = filled(step_ms=0)
    segment.records.append(b"\xff" * 30 * SIZE)
    assert not overfills_indexes(segment, BATCHES * OFFSET_ENTRY.size)


def test_ix20_an_index_is_full_with_as_many_entries_as_fit() -> None:
    """The one has nine offset entries and one of time, the other nine of both, of which a tenth stays free."""
    by_offsets, by_times = filled(step_ms=0), filled(step_ms=1)
    for segment, full_bytes in ((by_offsets, 9 * OFFSET_ENTRY.size), (by_times, 10 * TIME_ENTRY.size)):
        assert has_full_index(segment, full_bytes)
    assert not has_full_index(by_offsets, 10 * OFFSET_ENTRY.size)
    assert not has_full_index(by_times, 11 * TIME_ENTRY.size)


def test_ll16_nothing_misfits_in_a_sound_segment() -> None:
    assert find_misfit(filled(step_ms=0)) is None
    assert find_misfit(open_segment(new_file_system())) is None


def test_ix20_a_time_entry_is_due_for_the_greatest_time_so_far_not_for_that_of_its_batch() -> None:
    """Each second batch gets an entry, for the time of the batch before it."""
    segment = open_segment(new_file_system(), config=LogConfig(index_interval_bytes=SIZE))
    for offset in range(BATCHES):
        time = NOW_MS + (10 * offset if offset % 2 else 0)
        segment.append(offset, batch(offset, timestamp=time))
    # Recovery needs four entries of each.
    assert overfills_indexes(segment, 5 * TIME_ENTRY.size - 1)
    assert not overfills_indexes(segment, 5 * TIME_ENTRY.size)
