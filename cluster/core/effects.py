"""The effects: what a core asks its shell to do, in the order of the list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cluster.core.messages import RequestBody, ResponseBody
from storage.values import quickly_made


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Sends a request. The shell feeds back exactly one `Response` with this `call`, after `timeout_ms` at the latest.

    `call` is unique within one life of the core. `to` is a node id, or `BOOTSTRAP` for any address that the client
    was configured with.
    """

    to: int
    call: int
    body: RequestBody
    timeout_ms: int
    # False for acks=0: the shell feeds back a Response only if sending fails.
    expects_reply: bool = True


BOOTSTRAP = -1


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to the `Request` with the same `call`."""

    call: int
    body: ResponseBody


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Asks for `TimerFired(key)` at `at_ms` or soon after; replaces a pending timer of the same key."""

    key: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTimer:
    """Cancels the timer of that key, if one is pending."""

    key: str


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class RunJob:
    """Runs work that may wait for the disk, off the step thread; `JobDone(job)` reports its end.

    Jobs run in order, one at a time. `work` touches only what it got when it was made (pinned handles, bytes);
    `kind` names it in traces (`flush`, `checkpoint`, `delete` …).
    """

    job: int
    kind: str
    work: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnEndpoint:
    """Sets the address of node `node_id` from now on."""

    node_id: int
    host: str
    port: int


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Observe:
    """Reports what happened to traces, stories, tables, logs and checkers; the core does not depend on it.

    `kind` is a dotted word (`replica.became_leader`, `log.truncated`, `isr.expanded`, `log.recovered` …);
    `fields` are ints and strings in a fixed order. `metadata_offset` is that of the image which a broker acted on: the
    metadata below it, and nothing else; -1 if it has no image. It says what a decision rests on, and is no part of it.
    """

    kind: str
    fields: tuple[tuple[str, int | str], ...] = ()
    metadata_offset: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Reports that the core has ended: `reason` is `shutdown` after an orderly stop, else what broke."""

    reason: str


Effect = Send | Reply | SetTimer | CancelTimer | RunJob | LearnEndpoint | Observe | Stop
