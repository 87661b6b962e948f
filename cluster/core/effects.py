"""What a core asks of its shell. Effects are carried out in the order of the list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cluster.core.messages import RequestBody, ResponseBody


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Ask node `to`. The shell feeds back exactly one `Response` with this `call`, at the latest after `timeout_ms`.

    `call` is unique within one life of the core. `to` is a node id; `BOOTSTRAP` means any address the client was given.
    """

    to: int
    call: int
    body: RequestBody
    timeout_ms: int
    # False for acks=0: the shell feeds back a Response only if sending fails.
    expects_reply: bool = True


BOOTSTRAP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to the `Request` with the same `call`."""

    call: int
    body: ResponseBody


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """`TimerFired(key)` at `at_ms` or soon after; replaces a pending timer of the same key."""

    key: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTimer:
    """Forget the timer of that key, if one is pending."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJob:
    """Work that may wait on the disk, done off the step thread, in order, one at a time; `JobDone(job)` comes back.

    `work` touches only what it was given when it was made (pinned handles, bytes); `kind` names it in traces
    (`flush`, `checkpoint`, `delete` …).
    """

    job: int
    kind: str
    work: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnEndpoint:
    """Node `node_id` can be reached there from now on."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observe:
    """Something worth telling happened: traces, stories, tables, logs and checkers read it; nothing depends on it.

    `kind` is a dotted word (`replica.became_leader`, `log.truncated`, `isr.expanded`, `log.recovered` …);
    `fields` are ints and strings in a fixed order.
    """

    kind: str
    fields: tuple[tuple[str, int | str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The core has ended: `reason` is `shutdown` after an orderly stop, else what broke."""

    reason: str


Effect = Send | Reply | SetTimer | CancelTimer | RunJob | LearnEndpoint | Observe | Stop
