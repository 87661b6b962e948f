"""The operations of a client history, as its checker gets them."""

from __future__ import annotations

from typing import NamedTuple

from sim.hosts.history import Outcome

# The offset of a record whose broker named none.
NO_OFFSET = -1
# The number 5 and the text "5" are two values.
Value = str | int


class Sent(NamedTuple):
    """One record sent to the log `key`; `offset` is the one that the answer named, or NO_OFFSET."""

    key: str
    value: Value
    offset: int = NO_OFFSET


class Polled(NamedTuple):
    """The records of the log `key` that one poll returned, in their order: pairs of an offset and a value."""

    key: str
    records: tuple[tuple[int, Value], ...]


class Operation(NamedTuple):
    """What a client did at once; several parts are one transaction, or one poll of several logs.

    `line` is the operation's line in the history, from 1. An outcome OPEN is the beginning of an operation, whose end
    comes later or never.
    """

    line: int
    process: str
    outcome: Outcome
    parts: tuple[Sent | Polled, ...]


class Assigned(NamedTuple):
    """A client's new logs: it goes on where it was in those of `keys` that it had, and anywhere in all others.

    With `is_subscription` the logs are chosen for it, from now on and at any time.
    """

    line: int
    process: str
    keys: tuple[str, ...]
    is_subscription: bool = False


class Sought(NamedTuple):
    """A client's new positions: it may go on anywhere in the logs `keys`, and goes on where it was in all others."""

    line: int
    process: str
    keys: tuple[str, ...]


Moved = Assigned | Sought
