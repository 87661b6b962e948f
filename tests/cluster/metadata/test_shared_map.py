"""The mapping that images share: it is as a dict in the order of its keys, and never changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cluster.core.metadata.shared_map as module
from cluster.core.metadata.shared_map import SharedMap

CHANGES = st.lists(
    st.tuples(st.dictionaries(st.integers(0, 60), st.integers(), max_size=20), st.sets(st.integers(0, 60))),
    max_size=8,
)


@settings(max_examples=25, deadline=None)
@given(CHANGES)
def test_it_is_as_a_dict_after_every_change_and_the_ones_before_stay(
    changes: list[tuple[dict[int, int], set[int]]],
) -> None:
    shared: SharedMap[int, int] = SharedMap()
    model: dict[int, int] = {}
    seen: list[tuple[SharedMap[int, int], dict[int, int]]] = []
    for number, (changed, removed) in enumerate(changes):
        removed -= set(changed)
        shared = shared.changed_by(changed, dict.fromkeys(removed))
        model = {key: value for key, value in {**model, **changed}.items() if key not in removed}
        seen.append((shared, model))
        for key in range(61):
            assert shared.get(key) == model.get(key)
        if number % 3 == 0:
            assert list(shared.items()) == sorted(model.items())
    for one, expected in seen:
        assert list(one) == sorted(expected) and len(one) == len(expected)
        assert dict(one) == expected and one == SharedMap(expected)


def test_without_a_change_it_is_the_same() -> None:
    shared = SharedMap({"b": 1, "a": 2})
    assert shared.changed_by({}) is shared and list(shared) == ["a", "b"]


def test_a_missing_key_raises() -> None:
    shared = SharedMap({1: "a"}).changed_by({}, {1: None})
    with pytest.raises(KeyError):
        shared[1]


BEFORE = {1: "a", 3: "c", 4: "new"}


def changed_map() -> SharedMap[int, str]:
    """Return a map that has changed and removed keys beside its dict."""
    return SharedMap({1: "a", 2: "b", 3: "x"}).changed_by({3: "c", 4: "new"}, {2: None})


def run_with_another_at_line(work: Callable[[], object], another: Callable[[], object], at: int) -> bool:
    """Do `work`, and do `another` before the line of the map's module that is number `at` on the way there.

    Returns whether it came to so many lines: what another thread may do in between is so done in each place.
    """
    seen = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line":
            seen += 1
            if seen == at:
                sys.settrace(None)
                another()
        return trace

    known = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(known)
    return seen >= at


@pytest.mark.parametrize("kind", ["change", "iterate", "look up"])
def test_a_job_that_reads_the_map_at_the_same_time_changes_nothing(kind: str) -> None:
    places = 0
    while True:
        shared = changed_map()
        after: list[dict[int, str]] = []

        def work(shared: SharedMap[int, str] = shared, after: list[dict[int, str]] = after) -> None:
            if kind == "change":
                after.append(dict(shared.changed_by({5: "e"})))
            elif kind == "iterate":
                after.append(dict(shared.items()))
            else:
                after.append({key: shared[key] for key in range(6) if key in shared})

        met = run_with_another_at_line(work, lambda shared=shared: list(shared.items()), places + 1)  # type: ignore[misc]
        expected = {**BEFORE, 5: "e"} if kind == "change" else BEFORE
        assert after == [expected], (kind, places, after)
        assert dict(shared) == BEFORE, (kind, places, dict(shared))
        if not met:
            break
        places += 1
    assert places > 2, (kind, places)


def test_a_look_at_its_twin_leaves_a_map_as_it_is() -> None:
    """A look from outside that puts a map in order would hide what a change makes of one that is not."""
    shared = SharedMap({"a": 1, "b": 2}).changed_by({"c": 3}, {"a": None})
    before = shared._state
    assert list(shared.twin().items()) == [("b", 2), ("c", 3)] and len(shared.twin()) == 2
    assert shared._state is before
    assert list(shared) == ["b", "c"] and shared._state is not before
