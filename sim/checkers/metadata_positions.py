"""Fetches of metadata after a damaged answer: they begin where the changes end that the broker has adopted."""

from __future__ import annotations

from typing import final

from sim.checkers.base import Jury

# A life of a broker.
_Life = tuple[int, int]


@final
class MetadataPositions:
    """Judges where a broker reads on after an answer whose bytes are damaged.

    Nothing of such an answer counts, also what came before its damage: who read on behind that would never apply it,
    and take every later change for the next one.
    """

    name = "metadata-positions"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        self._damaged: set[_Life] = set()

    @property
    def are_watched(self) -> bool:
        """Whether any broker has to read on after a damaged answer."""
        return bool(self._damaged)

    def on_damaged(self, life: _Life) -> None:
        """Receives that a broker refuses an answer, whose bytes are damaged."""
        self._damaged.add(life)

    def on_sent(self, life: _Life, offset: int, adopted_end: int) -> None:
        """Receives a fetch of metadata from `offset` on, of a broker that has adopted all below `adopted_end`."""
        if life in self._damaged and offset != adopted_end:
            what = f"asks for metadata from {offset} on after a damaged answer; it has adopted what is below"
            self._jury.report(self.name, f"broker {life[0]} {what} {adopted_end}")
        self._damaged.discard(life)
