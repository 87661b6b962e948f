"""The order of a Java HashMap, held against what Java's own said (trap T10).

A line of `hash_map_orders.txt` is calls (`KEY` added, `-KEY` removed by an iterator, `clear`), then `|`, then the
keys as a java.util.HashMap of JDK 17 iterates after them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.hash_map_order import HashMapOrder, order_of_first_uses

CASES = (Path(__file__).parent / "hash_map_orders.txt").read_text(encoding="ascii").splitlines()


FIRST_USES = (Path(__file__).parent / "hash_map_first_uses.txt").read_text(encoding="ascii").splitlines()


@pytest.mark.parametrize("number", range(len(FIRST_USES)))
def test_t10_keys_that_compute_if_absent_added_stand_as_java_has_them(number: int) -> None:
    """A line of `hash_map_first_uses.txt` is the keys as they came, then `|`, then as Java iterates over them."""
    came, _, order = FIRST_USES[number].partition("|")
    assert order_of_first_uses(map(int, came.split())) == list(map(int, order.split()))


def after(calls: str) -> HashMapOrder:
    order = HashMapOrder()
    for call in calls.split():
        if call == "clear":
            order.clear()
        elif call.startswith("-"):
            order.remove(int(call[1:]))
        else:
            order.add(int(call))
    return order


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_t10_keys_stand_as_java_has_them(case: str) -> None:
    calls, _, expected = case.partition(" | ")
    order = after(calls)
    assert list(order) == [int(key) for key in expected.split()]
    assert len(order) == len(expected.split())


def test_t10_entries_stand_in_the_order_of_a_java_hash_map() -> None:
    assert list(after("1000 1001 2000 5 17 33 4000")) == [2000, 4000, 17, 33, 5, 1000, 1001]


def test_t10_the_table_doubles_above_three_quarters_and_never_shrinks() -> None:
    order = HashMapOrder()
    sizes = []
    for key in range(49):
        order.add(key)
        sizes.append(order.table_size)
    assert sizes == [16] * 12 + [32] * 12 + [64] * 24 + [128]
    order.clear()
    assert order.table_size == 128 and not len(order)


def test_t10_high_bits_of_an_id_reach_the_bin() -> None:
    # hashCode folds the upper half of the long in, the map its upper 16 bits: both land in bin 1.
    assert list(after(f"2 {1 << 32} {1 << 16} 0")) == [0, 1 << 32, 1 << 16, 2]


def test_t10_a_small_table_doubles_for_one_crowded_bin_and_a_large_one_grows_a_tree() -> None:
    crowded = [16 * 64 * index for index in range(11)]
    order = HashMapOrder()
    for key in crowded[:8]:
        order.add(key)
    assert order.table_size == 16 and list(order) == crowded[:8]
    order.add(crowded[8])
    assert order.table_size == 32
    order.add(crowded[9])
    assert order.table_size == 64 and list(order) == crowded[:10]
    order.add(crowded[10])
    assert order.table_size == 64
    assert list(order) != crowded and sorted(order) == crowded, "the root of the tree stands in front"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=120), st.sampled_from([1, 64, 1 << 20])
)
def test_t10_any_calls_leave_a_set(calls: list[tuple[int, bool]], step: int) -> None:
    order, expected = HashMapOrder(), set[int]()
    for number, removes in calls:
        key = number * step
        if removes and key in expected:
            expected.remove(key)
            order.remove(key)
        elif not removes and key not in expected:
            expected.add(key)
            order.add(key)
    assert sorted(order) == sorted(expected) and len(order) == len(expected)
