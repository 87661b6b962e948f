"""A map of integers in two arrays, for what is kept of each record of a long history."""

from __future__ import annotations

from array import array
from typing import final

_FIRST_ROOM = 64
# An odd number of 64 bits with its ones spread out, so that neighbours get places far from each other.
_SPREAD = 0x9E3779B97F4A7C15


@final
class PackedMap:
    """Maps integers of 1 to 2^64 - 1 to integers of 64 bits with a sign; 24 to 48 bytes an entry, and no removal.

    A dict takes about 140 bytes for the same, because each of its integers is an object.
    """

    __slots__ = ("_count", "_keys", "_mask", "_values")

    def __init__(self) -> None:
        self._count = 0
        self._make_room(_FIRST_ROOM)

    def _make_room(self, room: int) -> None:
        assert room & (room - 1) == 0, room
        # No key is 0: that marks a free place.
        self._keys = array("Q", bytes(8 * room))
        self._values = array("q", bytes(8 * room))
        self._mask = room - 1

    def __len__(self) -> int:
        return self._count

    def get(self, key: int) -> int | None:
        """Returns the value under the key, None without one."""
        place = self._place_of(key)
        return self._values[place] if self._keys[place] else None

    def add(self, key: int, value: int) -> int:
        """Add the value unless the key has one; returns the value that it has then."""
        place = self._place_of(key)
        if self._keys[place]:
            return self._values[place]
        self._keys[place], self._values[place] = key, value
        self._count += 1
        if 3 * self._count > 2 * self._mask:
            self._grow()
        assert 3 * self._count <= 2 * (self._mask + 1), (self._count, self._mask)
        return value

    def _place_of(self, key: int) -> int:
        """Returns the place that has the key, or the free one where it belongs."""
        assert key > 0, key
        keys, mask = self._keys, self._mask
        place = (key * _SPREAD >> 24) & mask
        while keys[place] and keys[place] != key:
            place = (place + 1) & mask
        return place

    def _grow(self) -> None:
        keys, values, count = self._keys, self._values, self._count
        self._make_room(2 * len(keys))
        for key, value in zip(keys, values, strict=True):
            if key:
                place = self._place_of(key)
                self._keys[place], self._values[place] = key, value
        assert self._count == count, (self._count, count)
