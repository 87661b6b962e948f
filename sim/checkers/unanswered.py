"""The answer that every request gets in time: nobody leaves without one unless the node could not act."""

from __future__ import annotations

from typing import final

from cluster.core.messages import (
    FetchMetadataRequest,
    FetchRequest,
    MetadataRequest,
    ProduceRequest,
    RequestBody,
)
from sim.checkers.base import Jury
from sim.checkers.forwarding import FORWARDED

# A timer may fire late by the events that the node handles before it, and the answer may wait for a busy process.
SLACK_US = 500_000


@final
class UnansweredCalls:
    """Judges each request whose sender has given up: had the node more time for it than the request allows?

    A produce is answered within its time-out, a fetch within its longest wait, and a question about metadata at once
    (PRO-5, PRO-8). What it forwards it answers once the controller has, or after `forward_ms` without an answer. An
    answer that is lost on its way is none of this: it has left the node.
    """

    name = "unanswered-calls"

    def __init__(self, jury: Jury, forward_ms: int | None = None) -> None:
        self._jury, self._forward_ms = jury, forward_ms
        # The call by which each broker asks for ids, and when it learned last what became of one.
        self._asking: dict[str, int] = {}
        self._told_us: dict[str, int] = {}

    def on_asking(self, node: str, call: int) -> None:
        """Receives that a broker asks the controller for producer ids: who wants one waits for that."""
        self._asking[node] = call

    def on_answered(self, node: str, call: int, now_us: int) -> None:
        """Receives the outcome of any call of a node."""
        if self._asking.get(node) == call:
            del self._asking[node]
            self._told_us[node] = now_us

    def on_end(self, node: str) -> None:
        """Receives the end of a node's process."""
        self._asking.pop(node, None)

    def on_id_left(self, node: str, now_us: int, waited_us: int) -> None:
        """Receives a request for a producer's id without an answer: none waits once nobody is asked for ids."""
        idle_us = min(waited_us, now_us - self._told_us.get(node, 0))
        if node not in self._asking and idle_us > SLACK_US:
            what = f"has not answered InitProducerIdRequest in {waited_us // 1_000} ms"
            self._jury.report(self.name, f"{node} {what}, and asks nobody for ids")

    def on_left(self, node: str, body: RequestBody, waited_us: int, *, is_held_up: bool = False) -> None:
        """Receives a request without an answer, and how long the node has had it and could act.

        `is_held_up` says whether produced sets wait for checks there: one whose time is over is refused when its turn
        comes, and not before.
        """
        if is_held_up and isinstance(body, ProduceRequest):
            return
        allowed_ms = self._forward_ms if isinstance(body, FORWARDED) else allowed_wait_ms(body)
        if allowed_ms is not None and waited_us > allowed_ms * 1_000 + SLACK_US:
            what = f"has not answered {type(body).__name__} in {waited_us // 1_000} ms"
            self._jury.report(self.name, f"{node} {what}; it had {allowed_ms} ms")


def allowed_wait_ms(body: RequestBody) -> int | None:
    """Returns how long a request may wait at a node; None for one that a job or another node may hold up."""
    if isinstance(body, ProduceRequest):
        return body.timeout_ms
    if isinstance(body, FetchRequest | FetchMetadataRequest):
        return body.max_wait_ms
    return 0 if isinstance(body, MetadataRequest) else None
