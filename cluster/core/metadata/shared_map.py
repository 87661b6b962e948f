"""An immutable mapping that shares what did not change with the mapping that it was made from."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from math import isqrt
from typing import TypeVar, final

K = TypeVar("K", str, int)
V = TypeVar("V")

_LEAST_CHANGES = 32


@final
class SharedMap(Mapping[K, V]):
    """A mapping in the order of its keys, whose content never changes.

    A large dict is shared by many of them; each has the few changes since the dict was made. These are copied for every
    change, the dict once for about twice the square root of its size: a change of one of 10,000 keys costs about 200
    copied places instead of 10,000.
    """

    __slots__ = ("_base", "_changed", "_removed")

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        self._base: dict[K, V] = {} if items is None else _in_order(items)
        self._changed: dict[K, V] = {}
        # A key is in at most one of the two.
        self._removed: dict[K, None] = {}

    def changed_by(self, changed: Mapping[K, V], removed: Mapping[K, None] | None = None) -> SharedMap[K, V]:
        """Returns the mapping with other values, or new keys, and without the keys in `removed`."""
        if not changed and not removed:
            return self
        made: SharedMap[K, V] = SharedMap()
        made._base = self._base
        made._changed, made._removed = dict(self._changed), dict(self._removed)
        for key in removed or ():
            assert key not in changed, key
            made._changed.pop(key, None)
            made._removed[key] = None
        for key, value in changed.items():
            made._removed.pop(key, None)
            made._changed[key] = value
        if len(made._changed) + len(made._removed) > max(_LEAST_CHANGES, 2 * isqrt(len(self._base))):
            made._settle()
        return made

    def _settle(self) -> None:
        """Makes a dict of all of it. The content stays the same, so another thread may read meanwhile."""
        if not self._changed and not self._removed:
            return
        whole = {key: value for key, value in self._base.items() if key not in self._removed}
        whole.update(self._changed)
        # A reader looks at the dict last.
        self._base = _in_order(whole)
        self._changed, self._removed = {}, {}

    def __getitem__(self, key: K) -> V:
        changed, removed = self._changed, self._removed
        if key in changed:
            return changed[key]
        if key in removed:
            raise KeyError(key)
        return self._base[key]

    def __iter__(self) -> Iterator[K]:
        self._settle()
        return iter(self._base)

    def __len__(self) -> int:
        self._settle()
        return len(self._base)

    def keys(self) -> KeysView[K]:
        self._settle()
        return self._base.keys()

    def values(self) -> ValuesView[V]:
        self._settle()
        return self._base.values()

    def items(self) -> ItemsView[K, V]:
        self._settle()
        return self._base.items()

    def __repr__(self) -> str:
        return f"SharedMap({dict(self.items())!r})"


def _in_order(items: Mapping[K, V]) -> dict[K, V]:
    """Returns a dict whose order depends on the keys alone; nearly sorted ones cost little."""
    return {key: items[key] for key in sorted(items)}
