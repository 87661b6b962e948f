"""The entries of an offset index lead to batches, or the run is violated."""

from __future__ import annotations

import struct

from sim.checkers.chain import Mark
from sim.checkers.index_entries import Indexed, Timed, index_findings, time_findings

# Batches of two records each, 100 bytes long, from offset 10 on.
BATCHES = [Indexed(100 * place, Mark(10 + 2 * place, 12 + 2 * place, 0, 0, 2)) for place in range(3)]


def found(*entries: tuple[int, int]) -> list[str]:
    data = b"".join(struct.pack(">ii", *entry) for entry in entries)
    return list(index_findings("b", 10, BATCHES, data))


def test_entries_lead_to_the_batch_or_to_one_before_it() -> None:
    assert not found((1, 0), (3, 100), (5, 200))
    assert not found((5, 100))
    assert not found()


def test_zeros_after_the_entries_are_no_entries() -> None:
    assert not found((3, 100), (0, 0), (0, 0))
    assert not found((0, 0))


def test_entry_that_leads_elsewhere_is_found() -> None:
    assert found((3, 99)) == ["b: the index leads from offset 13 to byte 99, where no batch for it begins"]
    assert found((1, 100)) == ["b: the index leads from offset 11 to byte 100, where no batch for it begins"]


def test_offset_at_which_no_batch_ends_is_found() -> None:
    assert found((2, 100)) == ["b: the index has offset 12, at which no batch ends"]
    assert found((7, 200)) == ["b: the index has offset 17, at which no batch ends"]


def test_index_that_goes_back_is_found() -> None:
    assert found((3, 100), (1, 0)) == ["b: the index goes from offset 13 back to 11"]


def found_of_times(*entries: tuple[int, int]) -> list[str]:
    data = b"".join(struct.pack(">qi", *entry) for entry in entries)
    return list(time_findings("b", 10, [Timed(10, 50), Timed(12, 40), Timed(14, 60)], data))


def test_time_is_the_latest_of_all_batches_up_to_its_offset() -> None:
    assert not found_of_times((50, 1), (60, 5), (0, 0))
    assert not found_of_times((60, 5))


def test_a_sealed_segment_has_its_latest_time_in_its_index() -> None:
    """Without it, retention takes the segment for older than it is once its log was loaded."""
    what = "b: the index of a sealed segment at 10 ends with time {}; the latest is 60"
    assert found_of_times((50, 1)) == found_of_times((50, 1), (0, 0)) == [what.format(50)]
    assert found_of_times() == [what.format(0)]
    assert not list(time_findings("b", 10, [], b"")) and not list(
        time_findings("b", 10, [Timed(10, -1)], b"")
    )


def test_time_of_records_that_are_not_there_is_found() -> None:
    assert found_of_times((50, 1), (70, 5)) == [
        "b: the index has time 70 at offset 15; the latest is 60 there, 50 before"
    ]
    assert found_of_times((60, 1)) and found_of_times((50, 5))


def test_time_that_an_earlier_batch_has_too_is_found() -> None:
    # The second batch is older than the first: a look-up that began there would miss the first.
    assert found_of_times((50, 3))
