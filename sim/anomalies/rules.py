"""The base of the rules, and the events that they judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sim.anomalies.key_log import KeyLog
from sim.anomalies.operations import Moved, Operation, Polled, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One anomaly of a history: its name, the log, the line that showed it, and the evidence.

    One that is allowed is no mistake: Kafka does not promise its absence.
    """

    name: str
    key: str
    line: int
    evidence: str
    is_allowed: bool = False


class Placed(NamedTuple):
    """A value seen at an offset for the first time there: by its answer, or by a reader if `is_read`."""

    operation: Operation
    value: Value
    digest: int
    offset: int
    # The offset at which the same value was first seen; None if this is the first time.
    before: int | None
    is_read: bool


class Refused(NamedTuple):
    """A send that ended with a definite failure."""

    operation: Operation
    value: Value
    digest: int


class Answered(NamedTuple):
    """A send that was answered. Its offset is the answer's, else the one at which it was read, else NO_OFFSET."""

    operation: Operation
    digest: int
    offset: int


class Poll(NamedTuple):
    """The records of one log in one poll; `sent` are the values that the same operation has sent to that log."""

    operation: Operation
    polled: Polled
    sent: tuple[Value, ...]


class Ended(NamedTuple):
    """The end of the history, with its last line."""

    line: int


# Moved concerns no single log.
Event = Placed | Refused | Answered | Poll | Ended
Judge = Callable[..., None]
Report = Callable[[Anomaly], None]


class Rule:
    """One rule; `judges` maps a class of events to a method `(log, event)`, which reports what is wrong.

    The method sees the log as it was before the event.
    """

    name: ClassVar[str]

    def __init__(self, report: Report) -> None:
        self._report = report

    def judges(self) -> Mapping[type, Judge]:
        raise NotImplementedError

    def on_moved(self, moved: Moved) -> None:
        """Forget where the client was; most rules do not know that."""

    def found(
        self, log: KeyLog, line: int, evidence: str, *, name: str = "", is_allowed: bool = False
    ) -> None:
        """Report an anomaly, under the rule's own name by default."""
        self._report(
            Anomaly(name=name or self.name, key=log.key, line=line, evidence=evidence, is_allowed=is_allowed)
        )
