"""The answer that every request gets in time: nobody leaves without one unless the node could not act."""

from __future__ import annotations

from typing import final

from cluster.core.messages import FetchRequest, MetadataRequest, ProduceRequest, RequestBody
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

    def on_left(self, node: str, body: RequestBody, waited_us: int) -> None:
        """Receives a request without an answer, and how long the node has had it and could act."""
        allowed_ms = self._forward_ms if isinstance(body, FORWARDED) else allowed_wait_ms(body)
        if allowed_ms is not None and waited_us > allowed_ms * 1_000 + SLACK_US:
            what = f"has not answered {type(body).__name__} in {waited_us // 1_000} ms"
            self._jury.report(self.name, f"{node} {what}; it had {allowed_ms} ms")


def allowed_wait_ms(body: RequestBody) -> int | None:
    """Returns how long a request may wait at a node; None for one that a job or another node may hold up."""
    if isinstance(body, ProduceRequest):
        return body.timeout_ms
    if isinstance(body, FetchRequest):
        return body.max_wait_ms
    return 0 if isinstance(body, MetadataRequest) else None
