"""Equal values as one object, for as long as they are asked for again and again."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar, final

T = TypeVar("T", bound=Hashable)
# The most values of a generation. What comes again comes soon: replicas copy a batch, and consumers read a record.
_MOST = 512


@final
class Pool(Generic[T]):
    """The values that were asked for lately: at least the last 512 different ones, at most twice as many."""

    __slots__ = ("_newer", "_older")

    def __init__(self) -> None:
        self._newer: dict[T, T] = {}
        self._older: dict[T, T] = {}

    def shared(self, value: T) -> T:
        """Returns the value itself, or the equal one that came before it."""
        found = self._newer.get(value)
        if found is not None:
            return found
        found = self._older.get(value, value)
        self._newer[found] = found
        if len(self._newer) >= _MOST:
            self._older, self._newer = self._newer, {}
        assert len(self._newer) < _MOST, len(self._newer)
        return found
