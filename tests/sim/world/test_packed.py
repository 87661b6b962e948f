"""A packed list is a list: its blocks cannot be told from what was put into it."""

from __future__ import annotations

import sys

import pytest

from sim.world.packed import BLOCK_ITEMS, KEPT_ITEMS, PackedList, Packing

Item = tuple[int, str]
PACKING: Packing[Item] = Packing(lambda item: item, lambda row: (row[0], row[1]))
COUNT = KEPT_ITEMS + 2 * BLOCK_ITEMS + 7


def items(count: int) -> list[Item]:
    return [(number, f"producer-1/{number}".ljust(90, ".")) for number in range(count)]


def test_a_packed_list_has_the_items_that_were_appended_in_their_order() -> None:
    for count in (0, 1, KEPT_ITEMS, KEPT_ITEMS + BLOCK_ITEMS - 1, KEPT_ITEMS + BLOCK_ITEMS, COUNT):
        packed = PackedList(PACKING, items(count))
        assert len(packed) == count
        assert list(packed) == items(count)


@pytest.mark.parametrize("start", [0, 5, BLOCK_ITEMS - 1, BLOCK_ITEMS, 2 * BLOCK_ITEMS + 3, COUNT - 1])
@pytest.mark.parametrize("end", [0, 6, BLOCK_ITEMS, BLOCK_ITEMS + 1, COUNT, COUNT + 9])
def test_a_slice_may_lie_in_blocks_and_outside(start: int, end: int) -> None:
    packed = PackedList(PACKING, items(COUNT))
    assert packed[start:end] == items(COUNT)[start:end]
    assert packed[start] == items(COUNT)[start]
    assert packed[-1] == items(COUNT)[-1]


def test_an_index_beyond_the_end_is_refused() -> None:
    with pytest.raises(IndexError):
        PackedList(PACKING, items(3))[3]


def test_equal_items_have_equal_blocks() -> None:
    shared = "t-0"
    one = [(number, shared) for number in range(BLOCK_ITEMS)]
    other = [(number, "-".join(("t", "0"))) for number in range(BLOCK_ITEMS)]
    assert PACKING.packed(one) == PACKING.packed(other)


def test_items_that_may_change_stay_as_they_are() -> None:
    def settled(item: list[int]) -> bool:
        return item[0] > 0

    open_packing: Packing[list[int]] = Packing(lambda item: (item[0],), lambda row: [row[0]], settled)
    packed = PackedList(open_packing, ([number] for number in range(COUNT)))
    first = packed[0]
    first[0] = 9
    assert packed[0] is first
    packed.extend([number] for number in range(1, COUNT))
    assert packed[0] is not first
    assert packed[0] == [9]
    assert [each[0] for each in packed] == [9, *range(1, COUNT), *range(1, COUNT)]


def test_a_copy_grows_alone() -> None:
    packed = PackedList(PACKING, items(COUNT))
    twin = packed.copy()
    twin.append((-1, ""))
    packed.clear()
    assert len(packed) == 0
    assert list(twin) == [*items(COUNT), (-1, "")]


def test_a_packed_block_takes_a_tenth_of_its_items() -> None:
    found = items(BLOCK_ITEMS)
    loose = sum(sys.getsizeof(each) + sys.getsizeof(each[1]) for each in found)
    assert 10 * len(PACKING.packed(found)) < loose


@pytest.mark.parametrize("length", [0, 1, BLOCK_ITEMS, BLOCK_ITEMS + 5, COUNT - 1, COUNT])
def test_a_list_is_cut_at_either_end(length: int) -> None:
    whole = items(COUNT)
    packed = PackedList(PACKING, whole)
    assert packed.truncate(length) == whole[length:]
    assert list(packed) == whole[:length]
    packed.extend(whole[length:])
    assert packed.drop_first(length) == whole[:length]
    assert list(packed) == whole[length:]


@pytest.mark.parametrize("target", [-1, 0, 1, 2 * BLOCK_ITEMS, 2 * COUNT - 3, 2 * COUNT])
def test_an_item_is_found_by_a_number_in_it_that_rises(target: int) -> None:
    packed = PackedList(PACKING, [(2 * number, text) for number, text in items(COUNT)])
    assert packed.index_of(target, lambda item: item[0]) == min((target + 1) // 2, COUNT)


def test_equal_blocks_are_known_at_a_glance() -> None:
    whole = items(COUNT)
    differs = [*whole[:BLOCK_ITEMS], (-1, ""), *whole[BLOCK_ITEMS + 1 :]]
    packed = PackedList(PACKING, whole)
    assert packed.equal_items(PackedList(PACKING, whole)) == 2 * BLOCK_ITEMS
    assert packed.equal_items(PackedList(PACKING, differs)) == BLOCK_ITEMS
