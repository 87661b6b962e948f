"""The limits of fetches that wait at a broker: its own longest wait, and the presence of the client."""

from __future__ import annotations

from typing import final

from sim.checkers.base import Jury

# A timer may fire late by the events that the node handles before it.
SLACK_US = 500_000


@final
class ParkedFetches:
    """Judges each answer to a fetch by how long the core has held the request, and for whom (C8).

    Fetches that wait too long, or for nobody, fill the room of those that wait: others must then ask without rest.
    """

    name = "parked-fetches"

    def __init__(self, jury: Jury, longest_wait_ms: int) -> None:
        self._jury, self._longest_wait_ms = jury, longest_wait_ms

    def on_answered(self, node: str, waited_us: int) -> None:
        """Receives the time from a fetch to its answer, without that of a pause or of a long step before it."""
        if waited_us > self._longest_wait_ms * 1_000 + SLACK_US:
            longest = f"{self._longest_wait_ms} ms are the longest wait"
            self._jury.report(self.name, f"{node} held a fetch for {waited_us // 1_000} ms; {longest}")

    def on_idle_answer(self, node: str) -> None:
        """Receives that a fetch was answered after the node was told that its client has left."""
        self._jury.report(self.name, f"{node} held a fetch whose client had left")
