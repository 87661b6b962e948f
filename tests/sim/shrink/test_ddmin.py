"""Delta debugging finds a part that fails and of which nothing can be left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.shrink.ddmin import complements, ddmin


def one_by_one(fails: Callable[[Sequence[int]], bool]) -> Callable[[Sequence[Sequence[int]]], int | None]:
    def first_failing(candidates: Sequence[Sequence[int]]) -> int | None:
        return next((index for index, each in enumerate(candidates) if fails(each)), None)

    return first_failing


@settings(max_examples=25)
@given(st.integers(0, 40), st.sets(st.integers(0, 39)))
def test_all_that_a_failure_needs_is_found(length: int, needed: set[int]) -> None:
    items = list(range(length))
    needed &= set(items)
    found = ddmin(items, one_by_one(lambda kept: needed <= set(kept)))
    assert found == sorted(needed)


@settings(max_examples=25)
@given(st.integers(1, 16), st.lists(st.sets(st.integers(0, 15), min_size=1), min_size=1, max_size=6))
def test_the_result_fails_and_is_1_minimal_for_any_failure(length: int, causes: list[set[int]]) -> None:
    def fails(kept: Sequence[int]) -> bool:
        """Whether any of the causes is whole, or a number of the items is odd, which no monotone rule has."""
        return any(cause <= set(kept) for cause in causes) or len(kept) % 5 == 3 or len(kept) == length

    found = ddmin(range(length), one_by_one(fails))
    assert fails(found)
    assert not any(fails([each for each in found if each != left_out]) for left_out in found)


def test_nothing_is_needed_of_an_empty_list_and_no_run_is_made() -> None:
    def never(candidates: Sequence[Sequence[int]]) -> int | None:
        raise AssertionError(candidates)

    assert ddmin([], never) == []


@settings(max_examples=25)
@given(st.lists(st.integers(), min_size=2, max_size=30), st.data())
def test_each_complement_lacks_one_chunk_and_the_chunks_are_everything(
    items: list[int], data: st.DataObject
) -> None:
    count = data.draw(st.integers(2, len(items)))
    lengths = [len(items) - len(each) for each in complements(items, count)]
    assert len(lengths) == count and sum(lengths) == len(items) and min(lengths) >= 1
