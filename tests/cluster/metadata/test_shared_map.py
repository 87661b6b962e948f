"""The mapping that images share: it is as a dict in the order of its keys, and never changes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
