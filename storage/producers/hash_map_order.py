"""The order in which Kafka's broker iterates over its producers: that of a Java HashMap with Long keys.

A producer snapshot lists its entries in this order, so equal bytes need it; no reader relies on it (T10). A bin lists
its keys in the order of insertion. With more than eight keys it is a red-black tree by hash, whose order has each new
key after its parent and the root first; while the table has fewer than 64 bins it doubles instead. Removals never
shrink the table. Kafka: ProducerStateManager.producers, a java.util.HashMap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import final

LEAST_TABLE_SIZE = 16
_LEAST_TREE_TABLE_SIZE = 64
_GREATEST_LIST = 8
_GREATEST_UNTREED = 6

_LEFT, _RIGHT = 0, 1


@final
class HashMapOrder:
    """A set of 64-bit keys in the order of a HashMap that has seen the same calls."""

    __slots__ = ("_size", "_table")

    def __init__(self) -> None:
        self._table: list[list[int] | _TreeBin | None] = [None] * LEAST_TABLE_SIZE
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        for each in self._table:
            if each is not None:
                yield from each

    @property
    def table_size(self) -> int:
        return len(self._table)

    def add(self, key: int) -> None:
        """Add a key that is not in the set."""
        self._put(key, in_front=False, greatest_list=_GREATEST_LIST)
        if self._size > len(self._table) * 3 // 4:
            self._double()

    def add_in_front(self, key: int) -> None:
        """Add a key as computeIfAbsent does: before the others of its list, and the table doubles one key later."""
        if self._size > len(self._table) * 3 // 4:
            self._double()
        self._put(key, in_front=True, greatest_list=_GREATEST_LIST - 1)

    def _put(self, key: int, *, in_front: bool, greatest_list: int) -> None:
        slot = _spread(key) & (len(self._table) - 1)
        found = self._table[slot]
        if found is None:
            self._table[slot] = [key]
        elif isinstance(found, _TreeBin):
            found.add(key)
        else:
            assert key not in found, key
            found.insert(0 if in_front else len(found), key)
            if len(found) > greatest_list:
                self._relieve(slot, found)
        self._size += 1

    def remove(self, key: int) -> None:
        """Remove a key that is in the set."""
        slot = _spread(key) & (len(self._table) - 1)
        found = self._table[slot]
        assert found is not None, key
        found.remove(key)
        if not len(found):
            self._table[slot] = None
        self._size -= 1

    def clear(self) -> None:
        """Remove all keys; the table keeps its size."""
        self._table = [None] * len(self._table)
        self._size = 0

    def _relieve(self, slot: int, crowded: list[int]) -> None:
        if len(self._table) < _LEAST_TREE_TABLE_SIZE:
            self._double()
        else:
            self._table[slot] = _TreeBin(crowded)

    def _double(self) -> None:
        bit = len(self._table)
        doubled: list[list[int] | _TreeBin | None] = [None] * (2 * bit)
        for slot, old in enumerate(self._table):
            if old is None:
                continue
            parts: tuple[list[int], list[int]] = ([], [])
            for key in old:
                parts[bool(_spread(key) & bit)].append(key)
            for part, at in zip(parts, (slot, slot + bit), strict=True):
                if part:
                    doubled[at] = _half(old, part)
        self._table = doubled


def order_of_first_uses(keys: Iterable[int]) -> list[int]:
    """Distinct keys in the order of a HashMap to which computeIfAbsent added them one after the other."""
    order = HashMapOrder()
    for key in keys:
        order.add_in_front(key)
    return list(order)


def _half(old: list[int] | _TreeBin, part: list[int]) -> list[int] | _TreeBin:
    """The new bin of those keys of one bin that stay together: a tree of few becomes a list again."""
    if not isinstance(old, _TreeBin) or len(part) <= _GREATEST_UNTREED:
        return part
    return old if len(part) == len(old) else _TreeBin(part)


def _spread(key: int) -> int:
    """The 32 bits that choose the bin: Long.hashCode, with its upper half mixed into the lower."""
    bits = key & 0xFFFF_FFFF_FFFF_FFFF
    hashed = (bits ^ (bits >> 32)) & 0xFFFF_FFFF
    return hashed ^ (hashed >> 16)


@final
class _Node:
    __slots__ = ("children", "is_red", "key", "parent", "rank")

    def __init__(self, key: int) -> None:
        spread = _spread(key)
        self.key = key
        # Hashes compare as signed numbers.
        self.rank = (spread - (1 << 32) if spread >> 31 else spread, key)
        self.parent: _Node | None = None
        self.children: list[_Node | None] = [None, None]
        self.is_red = False


@final
class _TreeBin:
    """A red-black tree, and beside it the order of its keys."""

    __slots__ = ("_keys", "_nodes", "_root")

    def __init__(self, keys: list[int]) -> None:
        self._keys = list(keys)
        self._nodes: dict[int, _Node] = {}
        self._root: _Node | None = None
        for key in keys:
            self._insert(key)
        self._root_to_front()

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: int) -> None:
        assert key not in self._nodes, key
        parent = self._insert(key)
        place = 0 if parent is None else self._keys.index(parent.key) + 1
        self._keys.insert(place, key)
        self._root_to_front()

    def remove(self, key: int) -> None:
        """Remove a key; neither the order of the others nor the place of the root changes."""
        self._keys.remove(key)
        self._cut_out(self._nodes.pop(key))

    def _root_to_front(self) -> None:
        assert self._root is not None
        self._keys.remove(self._root.key)
        self._keys.insert(0, self._root.key)

    def _insert(self, key: int) -> _Node | None:
        """Insert a key before the tree is balanced. Returns the parent that it has now."""
        node = self._nodes[key] = _Node(key)
        parent, side, at = None, _LEFT, self._root
        while at is not None:
            parent, side = at, _RIGHT if node.rank > at.rank else _LEFT
            at = at.children[side]
        node.parent = parent
        if parent is None:
            self._root = node
            return None
        parent.children[side] = node
        self._balance_insertion(node)
        return parent

    def _balance_insertion(self, node: _Node) -> None:
        node.is_red = True
        while (parent := node.parent) is not None and parent.is_red:
            above = parent.parent
            assert above is not None, "the root is black"
            side = _side_of(parent, above)
            uncle = above.children[1 - side]
            if _is_red(uncle):
                assert uncle is not None
                uncle.is_red = parent.is_red = False
                above.is_red = True
                node = above
                continue
            if node is parent.children[1 - side]:
                self._rotate(parent, side)
                parent = node
            parent.is_red, above.is_red = False, True
            self._rotate(above, 1 - side)
            break
        assert self._root is not None
        self._root.is_red = False

    def _rotate(self, node: _Node, side: int) -> None:
        """Move `node` down to `side` and its child of the other side up to its place."""
        riser = node.children[1 - side]
        assert riser is not None, node.key
        moved = riser.children[side]
        node.children[1 - side] = moved
        if moved is not None:
            moved.parent = node
        self._replace(node, riser)
        riser.children[side] = node
        node.parent = riser

    def _replace(self, node: _Node, by: _Node | None) -> None:
        """Put `by` in the place of `node` under its parent."""
        parent = node.parent
        if by is not None:
            by.parent = parent
        if parent is None:
            self._root = by
        else:
            parent.children[_side_of(node, parent)] = by

    def _cut_out(self, node: _Node) -> None:
        left, right = node.children
        if left is not None and right is not None:
            self._swap_with_successor(node, right)
        child = node.children[_LEFT] or node.children[_RIGHT]
        if child is not None:
            self._replace(node, child)
            if not node.is_red:
                self._balance_deletion(child)
        else:
            if not node.is_red:
                self._balance_deletion(node)
            self._replace(node, None)
        if self._root is not None:
            self._root.is_red = False

    def _swap_with_successor(self, node: _Node, successor: _Node) -> None:
        """Swap place and colour, so that `node` has at most one child."""
        while (lower := successor.children[_LEFT]) is not None:
            successor = lower
        node.is_red, successor.is_red = successor.is_red, node.is_red
        left, right = node.children
        below, beneath = successor.children[_RIGHT], successor.parent
        self._replace(node, successor)
        successor.children[_LEFT] = left
        if left is not None:
            left.parent = successor
        if beneath is node:
            successor.children[_RIGHT], node.parent = node, successor
        else:
            successor.children[_RIGHT] = right
            assert right is not None and beneath is not None, node.key
            right.parent = successor
            beneath.children[_LEFT], node.parent = node, beneath
        node.children = [None, below]
        if below is not None:
            below.parent = node

    def _balance_deletion(self, node: _Node) -> None:
        while (parent := node.parent) is not None and not node.is_red:
            side = _side_of(node, parent)
            sibling = parent.children[1 - side]
            if _is_red(sibling):
                assert sibling is not None
                sibling.is_red, parent.is_red = False, True
                self._rotate(parent, side)
                sibling = parent.children[1 - side]
            if sibling is None or not (_is_red(sibling.children[0]) or _is_red(sibling.children[1])):
                if sibling is not None:
                    sibling.is_red = True
                node = parent
                continue
            if not _is_red(sibling.children[1 - side]):
                near = sibling.children[side]
                assert near is not None
                near.is_red, sibling.is_red = False, True
                self._rotate(sibling, 1 - side)
                sibling = near
            far = sibling.children[1 - side]
            assert far is not None
            sibling.is_red, parent.is_red, far.is_red = parent.is_red, False, False
            self._rotate(parent, side)
            return
        node.is_red = False


def _side_of(node: _Node, parent: _Node) -> int:
    return _LEFT if parent.children[_LEFT] is node else _RIGHT


def _is_red(node: _Node | None) -> bool:
    return node is not None and node.is_red
