"""An immutable mapping that shares what did not change with the mapping that it was made from."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from math import isqrt
from typing import TypeVar, final

K = TypeVar("K", str, int)
V = TypeVar("V")
_State = tuple[dict[K, V], dict[K, V], dict[K, None]]

_LEAST_CHANGES = 32


@final
class SharedMap(Mapping[K, V]):
    """A mapping in the order of its keys, whose content never changes.

    A large dict is shared by many of them; each has the few changes since the dict was made. These are copied for every
    change, the dict once for about twice the square root of its size: a change of one of 10,000 keys costs about 200
    copied places instead of 10,000.
    """

    __slots__ = ("_state",)

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        # The dict, the values that changed since it was made, and the keys that were removed since; a key is in at most
        # one of the last two. They are read and replaced together: a job may read the map while a step does, and half
        # of a new state with half of an old one would be another content.
        self._state: _State[K, V] = ({} if items is None else _in_order(items), {}, {})

    def changed_by(self, changed: Mapping[K, V], removed: Mapping[K, None] | None = None) -> SharedMap[K, V]:
        """Returns the mapping with other values, or new keys, and without the keys in `removed`."""
        if not changed and not removed:
            return self
        base, known_changed, known_removed = self._state
        all_changed, all_removed = dict(known_changed), dict(known_removed)
        for key in removed or ():
            assert key not in changed, key
            all_changed.pop(key, None)
            all_removed[key] = None
        for key, value in changed.items():
            all_removed.pop(key, None)
            all_changed[key] = value
        made: SharedMap[K, V] = SharedMap()
        made._state = (base, all_changed, all_removed)
        if len(all_changed) + len(all_removed) > max(_LEAST_CHANGES, 2 * isqrt(len(base))):
            made._settled()
        return made

    def twin(self) -> SharedMap[K, V]:
        """Returns a map of the same content: a look at all of it leaves this one as it is."""
        made: SharedMap[K, V] = SharedMap()
        made._state = self._state
        return made

    def _settled(self) -> dict[K, V]:
        """Returns a dict of all of it, which the map has from now on. The content stays the same."""
        base, changed, removed = self._state
        if not changed and not removed:
            return base
        whole = {key: value for key, value in base.items() if key not in removed}
        whole.update(changed)
        settled = _in_order(whole)
        self._state = (settled, {}, {})
        return settled

    def __getitem__(self, key: K) -> V:
        base, changed, removed = self._state
        if key in changed:
            return changed[key]
        if key in removed:
            raise KeyError(key)
        return base[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._settled())

    def __len__(self) -> int:
        return len(self._settled())

    def keys(self) -> KeysView[K]:
        return self._settled().keys()

    def values(self) -> ValuesView[V]:
        return self._settled().values()

    def items(self) -> ItemsView[K, V]:
        return self._settled().items()

    def __repr__(self) -> str:
        return f"SharedMap({dict(self.items())!r})"


def _in_order(items: Mapping[K, V]) -> dict[K, V]:
    """Returns a dict whose order depends on the keys alone; nearly sorted ones cost little."""
    return {key: items[key] for key in sorted(items)}
