"""Counts the faults that a run asked for and that never struck: one that waited in vain, or found nothing to strike."""

from __future__ import annotations

from typing import final


@final
class Misses:
    """The faults that wait for their moment, and those that had none. Each is told in words."""

    def __init__(self) -> None:
        self._waiting: dict[int, str] = {}
        self._missed: list[str] = []
        self._next = 0

    def wait(self, what: str) -> int:
        """Note a fault that waits. Returns its number, for `struck`."""
        self._next += 1
        self._waiting[self._next] = what
        return self._next

    def struck(self, number: int) -> None:
        """Note that a fault that waited has struck."""
        assert number in self._waiting, (number, sorted(self._waiting))
        del self._waiting[number]

    def missed(self, what: str) -> None:
        """Note a fault that found nothing to strike."""
        self._missed.append(what)

    def all(self) -> tuple[str, ...]:
        """Returns those that have not struck, in the order in which the run came to know it."""
        return (*self._missed, *self._waiting.values())
