"""A set of offsets answers as a plain set does, in whatever order it takes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.anomalies.offset_set import OffsetSet

# Near the ends of blocks, close to each other, and far away.
OFFSETS = st.one_of(
    st.integers(0, 40), st.integers(1_000, 1_050), st.integers(2_040, 2_060), st.integers(0, 1 << 62)
)


@given(members=st.lists(OFFSETS), asked=st.lists(st.tuples(OFFSETS, OFFSETS), min_size=1))
def test_a_set_of_offsets_answers_as_a_plain_set(members: list[int], asked: list[tuple[int, int]]) -> None:
    offsets, plain = OffsetSet(), set(members)
    for each in members:
        offsets.add(each)
    assert offsets.end == max(plain, default=-1) + 1
    for start, end in asked:
        assert (start in offsets) == (start in plain)
        assert offsets.first_in(start, end) == min(
            (each for each in plain if start <= each < end), default=None
        )
        assert offsets.last_before(start) == max((each for each in plain if each < start), default=None)


def test_a_set_knows_its_neighbours() -> None:
    offsets = OffsetSet()
    for offset in (5, 3, 9, 4, 4, 8, 10):
        offsets.add(offset)
    assert [each for each in range(12) if each in offsets] == [3, 4, 5, 8, 9, 10]
    assert (offsets.first_in(0, 3), offsets.first_in(0, 9), offsets.first_in(4, 9)) == (None, 3, 4)
    assert [offsets.last_before(each) for each in (3, 4, 5, 6, 9, 10, 50)] == [None, 3, 4, 5, 8, 9, 10]


@pytest.mark.parametrize("step", [1, 2, 3])
def test_the_records_of_clients_that_follow_each_other_take_few_blocks(step: int) -> None:
    """Each client has every third offset: between them there is a hole at every one."""
    offsets = OffsetSet()
    for first in range(step):
        for offset in range(first, 90_000, step):
            offsets.add(offset)
    assert len(offsets._numbers) <= 90_000 // 1_000 and offsets.end >= 89_998
    assert offsets.first_in(0, 90_000) == 0
