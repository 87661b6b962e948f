"""What a segment does at the edges of its rules: no bytes below a bound, any set in an empty one, no epoch."""

from __future__ import annotations

import pytest

from storage.config import LogConfig
from storage.segment import LogSegment
from storage.segment.lookups import find_max_timestamp, find_offset_by_timestamp
from tests.storage.logs import NOW_MS, SIZE, batch, filled_segment, new_file_system, open_segment


@pytest.mark.parametrize("max_position", [0, 1, 2 * SIZE - 1, 2 * SIZE])
def test_ls8_a_bound_at_or_below_the_first_batch_returns_its_place_and_no_bytes(max_position: int) -> None:
    segment = filled_segment(new_file_system(), range(5))
    for with_one_message in (False, True):
        found = segment.read(2, 10 * SIZE, max_position, min_one_message=with_one_message)
        assert found is not None
        assert (found.records, found.offset_metadata.position) == (b"", 2 * SIZE)


def wants_roll(segment: LogSegment, **changed: int) -> bool:
    asked = {"messages_size": 1, "max_timestamp": NOW_MS, "max_offset": 1, "now_ms": NOW_MS}
    limits = {"max_segment_bytes": 10 * SIZE, "max_segment_ms": 1000}
    return segment.should_roll(**(asked | limits | changed))


@pytest.mark.parametrize("messages_size", [10 * SIZE, 10 * SIZE + 1, 1000 * SIZE])
def test_ls4_an_empty_segment_takes_a_set_of_any_size(messages_size: int) -> None:
    assert not wants_roll(open_segment(new_file_system()), messages_size=messages_size)


def test_ls4_a_segment_of_one_batch_rolls_for_a_set_that_does_not_fit_behind_it() -> None:
    segment = filled_segment(new_file_system(), [0])
    assert not wants_roll(segment, messages_size=9 * SIZE)
    assert wants_roll(segment, messages_size=9 * SIZE + 1)


@pytest.mark.parametrize(("epoch", "expected"), [(-1, None), (0, 0), (7, 7)])
def test_ls18_a_record_found_by_time_has_the_epoch_of_its_batch_if_that_has_one(
    epoch: int, expected: int | None
) -> None:
    segment = open_segment(new_file_system())
    segment.append(0, batch(0, timestamp=NOW_MS, epoch=epoch))
    found = find_offset_by_timestamp(segment, NOW_MS, 0)
    assert found is not None
    assert (found.offset, found.timestamp, found.leader_epoch) == (0, NOW_MS, expected)
    assert find_max_timestamp(segment) == segment.records.largest_timestamp_after() == found


@pytest.mark.parametrize("start_offset", [0, 1, 2, 3])
def test_ls18_of_equal_times_the_first_record_at_or_after_the_asked_offset_is_found(
    start_offset: int,
) -> None:
    segment = open_segment(new_file_system(), config=LogConfig(index_interval_bytes=0))
    for offset in range(3):
        segment.append(offset, batch(offset, timestamp=NOW_MS))
    found = find_offset_by_timestamp(segment, NOW_MS, start_offset)
    assert (found and found.offset) == (start_offset if start_offset < 3 else None)
