"""Searches by offset where the index has no entry for long: slices in steps, and places to go on from (FR12, LS7)."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import storage.segment.file_records
import storage.segment.waypoints
from storage.errors import ReadGoesOn
from storage.segment.file_records import FileRecords, LogOffsetPosition
from storage.segment.waypoints import Waypoints
from tests.storage.lines import lines_of
from tests.storage.segment.log_files import batch_of, holding

STEP = 3


def of_offsets(*offsets: int) -> FileRecords:
    return holding(b"".join(batch_of(offset) for offset in offsets))


def steps_to(records: FileRecords, target: int, start: int = 0) -> tuple[LogOffsetPosition | None, int]:
    """Return what the search finds, and in how many steps."""
    steps = 1
    while True:
        try:
            return records.search_for_offset_with_size(target, start, STEP, in_step=True), steps
        except ReadGoesOn:
            steps += 1
            assert steps < 100


def test_fr12_a_search_over_many_batches_takes_steps_of_the_same_length() -> None:
    records = of_offsets(*range(20))
    found, steps = steps_to(records, 17)
    assert found is not None and found.offset == 17
    assert steps == 6
    # Each goes on where the last one stopped; near a place that is known, one step is enough.
    assert [steps_to(records, target)[1] for target in (17, 16, 5, 3)] == [1] * 4


def test_fr12_a_search_in_shorter_steps_goes_on_between_the_waypoints_of_longer_ones() -> None:
    records = of_offsets(*range(40))
    assert records.search_for_offset_with_size(39, 0, 10) is not None
    found, steps = steps_to(records, 28)
    assert found is not None and found.offset == 28
    assert 1 < steps < 10


def test_fr12_a_search_that_may_take_long_leaves_its_waypoints_to_steps() -> None:
    records = of_offsets(*range(20))
    assert records.search_for_offset_with_size(19, 0, STEP) is not None
    assert steps_to(records, 19)[1] == 1


def test_fr12_a_second_search_passes_no_more_batches_in_a_longer_file() -> None:
    def lines(batches: int) -> int:
        records = of_offsets(*range(batches))
        records.search_for_offset_with_size(batches - 1, 0, STEP)
        return lines_of(lambda: records.search_for_offset_with_size(batches - 1, 0, STEP))

    assert lines(16 * STEP + 2) <= lines(4 * STEP + 2) + 8


def test_fr12_after_a_cut_nothing_of_the_bytes_before_is_known() -> None:
    records = of_offsets(*range(20))
    records.search_for_offset_with_size(19, 0, STEP)
    size_bytes = len(batch_of(0))
    records.truncate_to(2 * size_bytes)
    records.append(b"".join(batch_of(offset) for offset in range(100, 110)))
    found, _ = steps_to(records, 105)
    assert found is not None and (found.offset, found.position) == (105, 7 * size_bytes)
    found, _ = steps_to(records, 50)
    assert found is not None and found.offset == 100


@settings(max_examples=150)
@given(
    offsets=st.lists(st.integers(0, 30), min_size=1, max_size=24),
    searches=st.lists(st.tuples(st.integers(0, 31), st.integers(0, 3)), min_size=1, max_size=8),
)
# Offsets without gaps, and a first step that ends at a batch below those before it.
@example(offsets=[0, 1, 2, 0], searches=[(31, 0), (2, 0)])
@example(offsets=[0, 1, 2, 3, 4, 5, 0, 1], searches=[(31, 0), (5, 0), (3, 0)])
def test_fr12_waypoints_change_no_answer_even_where_offsets_go_back(
    offsets: list[int], searches: list[tuple[int, int]]
) -> None:
    known, size_bytes = of_offsets(*offsets), len(batch_of(0))
    for target, first in searches:
        start = min(first, len(offsets)) * size_bytes
        assert steps_to(known, target, start)[0] == of_offsets(*offsets).search_for_offset_with_size(
            target, start
        )


def test_the_number_of_waypoints_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.segment.waypoints, "MOST_WAYPOINTS", 4)
    ways = Waypoints()
    for number in range(1, 11):
        ways.note(0, number, 10 * number)
        assert 0 < len(ways) <= 4
        assert ways.last_before(0, number + 1) == (number, 10 * number)
    # One that another thread has noted is known already; one that is behind takes its place.
    before = len(ways)
    ways.note(0, 10, 100)
    assert len(ways) == before
    ways.note(0, 5, 50)
    assert ways.last_before(0, 100) == (10, 100) and ways.last_before(0, 6) == (5, 50)
    # Those before were dropped for others, and of another start nothing is known.
    assert (ways.last_before(0, 5), ways.last_before(7, 100)) == ((-1, 0), (-1, 7))
