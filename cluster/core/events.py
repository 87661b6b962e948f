"""The events: what a shell feeds to a core (broker, controller, producer, consumer, admin).

A core has one entry, `step(now_ms, event) -> list[Effect]`. The commands of a client are events too; the client's
module defines them.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.core.messages import RequestBody, ResponseBody
from storage.values import quickly_made


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request from outside. The shell numbers the `call`; one `Reply(call=…)` answers it (none for acks=0)."""

    call: int
    body: RequestBody


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportError:
    """A missing answer: refused, cut off or timed out. The outcome of the request is unknown."""

    reason: str
    # The peer does not serve such requests, because it is no node, or one of another kind. Of a request for BOOTSTRAP:
    # none of the addresses serves them, as each has answered last.
    is_unserved: bool = False


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The answer to the `Send` with the same `call`; each Send gets exactly one, body or TransportError."""

    call: int
    body: ResponseBody | TransportError


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """The timer that the core set under `key` is due."""

    key: str


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class JobDone:
    """The end of a job; `error` is what the job raised (StorageError or OSError), if anything."""

    job: int
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """Begins an orderly stop, which the core ends with the effect `Stop`."""


Event = Request | Response | TimerFired | JobDone | Shutdown
