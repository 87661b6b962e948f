"""A list whose older part is packed, for what a run keeps to its end and seldom looks at."""

from __future__ import annotations

import marshal
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Any, Generic, TypeVar, final, overload

T = TypeVar("T")
Row = tuple[Any, ...]

BLOCK_ITEMS = 512
# The fewest items that stay as they are: a short run packs nothing.
KEPT_ITEMS = 4 * BLOCK_ITEMS
_FASTEST = 1
# The last version in which equal values have equal bytes, whoever else refers to them.
_VERSION = 2


@final
class Packing(Generic[T]):
    """How items become rows of numbers, texts and bytes, and rows items again; and which items change no more."""

    __slots__ = ("is_settled", "made_of", "row_of")

    def __init__(
        self,
        row_of: Callable[[T], Row],
        made_of: Callable[[Row], T],
        is_settled: Callable[[T], bool] | None = None,
    ) -> None:
        """`is_settled` says whether an item changes no more; by default none ever changes."""
        self.row_of, self.made_of, self.is_settled = row_of, made_of, is_settled

    def packed(self, items: list[T]) -> bytes:
        """Returns a block of these items. Equal items have equal blocks."""
        # Column by column, what resembles each other is together.
        columns = list(zip(*map(self.row_of, items), strict=True))
        return zlib.compress(marshal.dumps(columns, _VERSION), _FASTEST)

    def unpacked(self, block: bytes) -> list[T]:
        """Returns the items of a block: others than those that were packed, but equal."""
        columns = marshal.loads(zlib.decompress(block))
        return [self.made_of(row) for row in zip(*columns, strict=True)]


@final
class PackedList(Generic[T]):
    """A list that keeps its newest items as they are, and those before them packed in whole blocks.

    A look at a packed item makes it again, so it is another object each time. Items that are not settled stay as they
    are, and all after them too.
    """

    __slots__ = ("_blocks", "_newest", "_packing")

    def __init__(self, packing: Packing[T], items: Iterable[T] = ()) -> None:
        self._packing = packing
        self._blocks: list[bytes] = []
        self._newest: list[T] = []
        self.extend(items)

    def __len__(self) -> int:
        return len(self._blocks) * BLOCK_ITEMS + len(self._newest)

    def __iter__(self) -> Iterator[T]:
        for block in self._blocks:
            yield from self._packing.unpacked(block)
        yield from self._newest

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if not self._blocks:
            return self._newest[index]
        if isinstance(index, slice):
            start, end, step = index.indices(len(self))
            assert step == 1, index
            return self._between(start, end)
        if -len(self._newest) <= index < 0:
            return self._newest[index]
        return self._at(range(len(self))[index])

    def _at(self, index: int) -> T:
        number, place = divmod(index, BLOCK_ITEMS)
        if number < len(self._blocks):
            return self._packing.unpacked(self._blocks[number])[place]
        return self._newest[index - len(self._blocks) * BLOCK_ITEMS]

    def _between(self, start: int, end: int) -> list[T]:
        packed_end = len(self._blocks) * BLOCK_ITEMS
        found: list[T] = []
        for number in range(start // BLOCK_ITEMS, len(self._blocks)):
            first = number * BLOCK_ITEMS
            if first < end:
                found += self._packing.unpacked(self._blocks[number])[max(start - first, 0) : end - first]
        return found + self._newest[max(start - packed_end, 0) : max(end - packed_end, 0)]

    def index_of(self, target: int, key: Callable[[T], int]) -> int:
        """Returns the first index whose item has a key of at least `target`, else the length; keys must not fall."""
        low, high = 0, len(self._blocks) * BLOCK_ITEMS
        if not self._blocks or (self._newest and key(self._newest[0]) < target):
            return high + bisect_left(self._newest, target, key=key)
        while low < high:
            middle = (low + high) // 2
            if key(self._at(middle)) < target:
                low = middle + 1
            else:
                high = middle
        return low

    def append(self, item: T) -> None:
        """Add an item at the end, and pack the oldest ones if there are enough."""
        newest = self._newest
        newest.append(item)
        if not len(newest) % BLOCK_ITEMS and len(newest) > KEPT_ITEMS:
            self._pack_oldest()

    def extend(self, items: Iterable[T]) -> None:
        """Add items at the end, in order."""
        for item in items:
            self.append(item)

    def _pack_oldest(self) -> None:
        """Pack the oldest items, block by block, up to the first that is not settled; KEPT_ITEMS stay."""
        is_settled, before = self._packing.is_settled, len(self)
        while len(self._newest) > KEPT_ITEMS:
            oldest = self._newest[:BLOCK_ITEMS]
            if is_settled is not None and not all(map(is_settled, oldest)):
                break
            self._blocks.append(self._packing.packed(oldest))
            del self._newest[:BLOCK_ITEMS]
        assert len(self) == before, (len(self), before)

    def truncate(self, length: int) -> list[T]:
        """Drop all items but the first `length`. Returns the dropped ones."""
        assert 0 <= length <= len(self), (length, len(self))
        number = length // BLOCK_ITEMS
        if number < len(self._blocks):
            self._newest[:0] = self._between(number * BLOCK_ITEMS, len(self._blocks) * BLOCK_ITEMS)
            del self._blocks[number:]
        kept = length - len(self._blocks) * BLOCK_ITEMS
        dropped = self._newest[kept:]
        del self._newest[kept:]
        assert len(self) == length, (len(self), length)
        return dropped

    def drop_first(self, count: int) -> list[T]:
        """Drop the first `count` items. Returns them."""
        dropped, left = self[:count], self[count:]
        self.clear()
        self.extend(left)
        assert len(self) == len(left), (len(self), len(left))
        return dropped

    def equal_items(self, other: PackedList[T]) -> int:
        """Returns the number of items at the beginning that are in equal blocks of both lists, at a glance."""
        pairs = zip(self._blocks, other._blocks, strict=False)
        return BLOCK_ITEMS * sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def clear(self) -> None:
        """Drop all items."""
        self._blocks.clear()
        self._newest.clear()

    def copy(self) -> PackedList[T]:
        """Returns a list of its own with the same items."""
        twin = PackedList(self._packing)
        twin._blocks, twin._newest = self._blocks.copy(), self._newest.copy()
        assert len(twin) == len(self), (len(twin), len(self))
        return twin
