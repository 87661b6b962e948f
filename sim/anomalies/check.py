"""Judges a client history in one pass, each operation as it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import final

from sim.anomalies.content import (
    AbortedRead,
    Duplicate,
    InconsistentOffsets,
    LostWrite,
    PrecommittedRead,
    Unseen,
    UnsentRead,
)
from sim.anomalies.key_log import Awaited, KeyLog, Unsent, digest_of
from sim.anomalies.operations import NO_OFFSET, Moved, Operation, Polled, Sent, Value
from sim.anomalies.order import (
    IntNonmonotonicPoll,
    IntNonmonotonicSend,
    IntPollSkip,
    IntSendSkip,
    NonmonotonicPoll,
    NonmonotonicSend,
    PollSkip,
)
from sim.anomalies.rules import Anomaly, Answered, Ended, Event, Judge, Placed, Poll, Refused, Rule
from sim.hosts.history import Outcome

RULES: tuple[type[Rule], ...] = (
    InconsistentOffsets,
    Duplicate,
    AbortedRead,
    PrecommittedRead,
    LostWrite,
    Unseen,
    UnsentRead,
    PollSkip,
    IntPollSkip,
    NonmonotonicPoll,
    IntNonmonotonicPoll,
    NonmonotonicSend,
    IntNonmonotonicSend,
    IntSendSkip,
)
NAMES = tuple(rule.name for rule in RULES)


@final
class AnomalyCheck:
    """Shows each operation to the rules, then remembers what later ones need.

    `on_anomaly` is called with each anomaly when it is found; `finish` finds those that only the end shows. What is
    kept of a record that was sent and read is about 64 bytes; of one that was answered without an offset, about 200
    more until it and its neighbours are read.
    """

    def __init__(self, on_anomaly: Callable[[Anomaly], None], rules: Iterable[type[Rule]] = RULES) -> None:
        self._logs: dict[str, KeyLog] = {}
        self._rules = [rule(on_anomaly) for rule in rules]
        self._judges: dict[type, list[Judge]] = {}
        for rule in self._rules:
            for kind, judge in rule.judges().items():
                self._judges.setdefault(kind, []).append(judge)
        self.operations = self.records_read = self._line = 0

    def take(self, operation: Operation) -> None:
        """Judge one operation."""
        assert operation.line >= self._line, (operation.line, self._line)
        self._line = operation.line
        self.operations += operation.outcome is not Outcome.OPEN
        for part in operation.parts:
            if type(part) is Sent:
                self._on_sent(operation, part)
            else:
                assert type(part) is Polled, part
                # What the answer of an operation of unknown outcome has shown was read.
                if operation.outcome is Outcome.OK or operation.outcome is Outcome.INFO:
                    self._on_polled(operation, part)

    def move(self, moved: Moved) -> None:
        """Judge the client's next polls of the logs in which it may go on anywhere without its last ones."""
        assert moved.line >= self._line, (moved.line, self._line)
        self._line = moved.line
        for rule in self._rules:
            rule.on_moved(moved)

    def finish(self) -> None:
        """Judge what is still open now that the history has ended."""
        for log in self._logs.values():
            self._show(log, Ended(self._line))

    def _log(self, key: str) -> KeyLog:
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = KeyLog(key)
        return log

    def _show(self, log: KeyLog, event: Event) -> None:
        for judge in self._judges.get(type(event), ()):
            judge(log, event)

    def _on_sent(self, operation: Operation, sent: Sent) -> None:
        log, digest = self._log(sent.key), digest_of(sent.value)
        log.unsent.pop(digest, None)
        if operation.outcome is Outcome.FAIL:
            self._show(log, Refused(operation, sent.value, digest))
            log.refused.add(digest, operation.line)
            log.awaited.pop(digest, None)
            return
        known = log.places.get(digest)
        is_answered = operation.outcome is Outcome.OK
        if is_answered:
            was_read_at = NO_OFFSET if known is None else known
            at = was_read_at if sent.offset == NO_OFFSET else sent.offset
            self._show(log, Answered(operation, digest, at))
            if sent.offset != NO_OFFSET:
                self._place(log, operation, sent.value, digest, sent.offset, is_read=False)
        if known is None:
            log.awaited[digest] = Awaited(
                sent.value, sent.offset, is_answered, operation.process, operation.line
            )

    def _on_polled(self, operation: Operation, polled: Polled) -> None:
        log = self._log(polled.key)
        others = operation.parts if len(operation.parts) > 1 else ()
        sent = tuple([part.value for part in others if type(part) is Sent and part.key == log.key])
        for offset, value in polled.records:
            self._on_record(log, operation, offset, value)
        # After its records are placed: what it has passed over may be among them.
        self._show(log, Poll(operation, polled, sent))
        self.records_read += len(polled.records)

    def _on_record(self, log: KeyLog, operation: Operation, offset: int, value: Value) -> None:
        digest = digest_of(value)
        known = log.places.get(digest)
        if known is None and digest not in log.awaited and log.refused.get(digest) is None:
            log.unsent[digest] = Unsent(value, offset, operation.process, operation.line)
        if known != offset:
            self._place(log, operation, value, digest, offset, is_read=True)
        log.awaited.pop(digest, None)
        log.read_end = max(log.read_end, offset + 1)

    def _place(
        self, log: KeyLog, operation: Operation, value: Value, digest: int, offset: int, *, is_read: bool
    ) -> None:
        """Judge and remember that the value is at the offset, unless that is known."""
        before = log.places.get(digest)
        if before != offset and (digest, offset) not in log.doubles:
            self._show(log, Placed(operation, value, digest, offset, before, is_read))
            log.place(digest, offset, operation.line)
