"""The limits of requests that wait at a broker: its own longest wait of a fetch, and the presence of the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from cluster.core.messages import FetchResponse, InitProducerIdResponse, ProduceResponse, ResponseBody
from sim.checkers.base import Jury

# A timer may fire late by the events that the node handles before it.
SLACK_US = 500_000
# What waits in a broker's core, by the kind of its answer.
_HELD: Mapping[type, str] = {
    FetchResponse: "a fetch",
    ProduceResponse: "a produce",
    InitProducerIdResponse: "a request for a producer's id",
}


@final
class ParkedFetches:
    """Judges each answer to a fetch by how long the core has held the request, and each answer by for whom (C8).

    Requests that wait too long, or for nobody, fill the room of those that wait: other fetches must then ask without
    rest, and what others produce is refused.
    """

    name = "parked-fetches"

    def __init__(self, jury: Jury, longest_wait_ms: int) -> None:
        self._jury, self._longest_wait_ms = jury, longest_wait_ms

    def on_answered(self, node: str, waited_us: int) -> None:
        """Receives the time from a fetch to its answer, without that of a pause or of a long step before it."""
        if waited_us > self._longest_wait_ms * 1_000 + SLACK_US:
            longest = f"{self._longest_wait_ms} ms are the longest wait"
            self._jury.report(self.name, f"{node} held a fetch for {waited_us // 1_000} ms; {longest}")

    def on_idle_answer(self, node: str, body: ResponseBody) -> None:
        """Receives an answer to a request after the node was told that its client has left.

        An answer that a job or another node brings may come for nobody.
        """
        what = _HELD.get(type(body))
        if what is not None:
            self._jury.report(self.name, f"{node} held {what} whose client had left")
