"""What checkers take for the records of an answer."""

from __future__ import annotations

import pytest

from sim.checkers.chain import values_of
from storage.batch import Record, build_batch

BATCHES = [
    build_batch([Record(base, 0, None, value), Record(base + 1, 0, None, b"more")], base_offset=base)
    for base, value in ((0, b"one"), (2, b"two"))
]


def test_each_record_has_its_offset_and_value() -> None:
    assert list(values_of(b"".join(BATCHES))) == [(0, "one"), (1, "more"), (2, "two"), (3, "more")]


@pytest.mark.parametrize("place", [8, 16, len(BATCHES[1]) - 4])
def test_a_batch_that_a_disk_has_damaged_is_taken_by_nobody(place: int) -> None:
    """In its size, its magic, or its records, whose bytes may then be no text."""
    damaged = bytearray(BATCHES[1])
    damaged[place] = 0xFF
    assert list(values_of(BATCHES[0] + bytes(damaged))) == [(0, "one"), (1, "more")]
