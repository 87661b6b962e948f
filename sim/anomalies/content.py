"""Rules about what a log holds: one value at each offset, each value once, all that was answered, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.anomalies.key_log import Awaited, KeyLog, shown
from sim.anomalies.operations import NO_OFFSET, Value
from sim.anomalies.rules import Ended, Judge, Placed, Poll, Refused, Rule


@final
class InconsistentOffsets(Rule):
    """An offset of a log has one value, whoever saw it: answers and readers agree."""

    name = "inconsistent-offsets"

    def judges(self) -> Mapping[type, Judge]:
        return {Placed: self._on_placed}

    def _on_placed(self, log: KeyLog, placed: Placed) -> None:
        line = log.line_of(placed.offset)
        if line is not None:
            self.found(
                log,
                placed.operation.line,
                f"offset {placed.offset} holds {shown(placed.value)} by line {placed.operation.line} "
                f"({placed.operation.process}), and another value by line {line}",
            )


@final
class Duplicate(Rule):
    """A value is at one offset of its log only."""

    name = "duplicate"

    def judges(self) -> Mapping[type, Judge]:
        return {Placed: self._on_placed}

    def _on_placed(self, log: KeyLog, placed: Placed) -> None:
        if placed.before is not None:
            self.found(
                log,
                placed.operation.line,
                f"{shown(placed.value)} is at offset {placed.before} by line {log.line_of(placed.before)}, "
                f"and at offset {placed.offset} by line {placed.operation.line} ({placed.operation.process})",
            )


@final
class AbortedRead(Rule):
    """Nobody reads a value whose send has definitely failed."""

    name = "G1a"

    def judges(self) -> Mapping[type, Judge]:
        return {Placed: self._on_placed, Refused: self._on_refused}

    def _on_placed(self, log: KeyLog, placed: Placed) -> None:
        line = log.refused.get(placed.digest) if placed.is_read else None
        if line is not None:
            self._aborted(log, placed.operation.line, placed.value, placed.offset, line)

    def _on_refused(self, log: KeyLog, refused: Refused) -> None:
        offset = log.places.get(refused.digest)
        if offset is not None:
            line = log.line_of(offset)
            assert line is not None, offset
            self._aborted(log, line, refused.value, offset, refused.operation.line)

    def _aborted(self, log: KeyLog, line: int, value: Value, offset: int, refused_line: int) -> None:
        self.found(
            log, line,
            f"{shown(value)} was read at offset {offset} (line {line}); its send failed (line {refused_line})",
        )  # fmt: skip


@final
class PrecommittedRead(Rule):
    """No operation reads a value that it sends itself: its own records are not committed yet."""

    name = "precommitted-read"

    def judges(self) -> Mapping[type, Judge]:
        return {Poll: self._on_poll}

    def _on_poll(self, log: KeyLog, poll: Poll) -> None:
        if not poll.sent:
            return
        for offset, value in poll.polled.records:
            if value in poll.sent:
                line = poll.operation.line
                self.found(
                    log,
                    line,
                    f"line {line} ({poll.operation.process}) sends {shown(value)} and reads it at {offset}",
                )


def _is_below_read(log: KeyLog, awaited: Awaited) -> bool:
    return awaited.is_acknowledged and NO_OFFSET < awaited.offset < log.read_end


@final
class LostWrite(Rule):
    """A record that was answered at an offset below one that was read has been read by somebody."""

    name = "lost-write"

    def judges(self) -> Mapping[type, Judge]:
        return {Ended: self._on_ended}

    def _on_ended(self, log: KeyLog, ended: Ended) -> None:
        for awaited in log.awaited.values():
            if _is_below_read(log, awaited):
                self.found(
                    log,
                    awaited.line,
                    f"{shown(awaited.value)} of {awaited.process}, answered at offset {awaited.offset} "
                    f"(line {awaited.line}), was never read; offset {log.read_end - 1} was",
                )


@final
class Unseen(Rule):
    """Every record that was answered has been read by the end. Those that `lost-write` names are left out."""

    name = "unseen"

    def judges(self) -> Mapping[type, Judge]:
        return {Ended: self._on_ended}

    def _on_ended(self, log: KeyLog, ended: Ended) -> None:
        for awaited in log.awaited.values():
            if awaited.is_acknowledged and not _is_below_read(log, awaited):
                where = "without an offset" if awaited.offset == NO_OFFSET else f"at offset {awaited.offset}"
                self.found(
                    log,
                    awaited.line,
                    f"{shown(awaited.value)} of {awaited.process}, answered {where} (line {awaited.line}), "
                    f"was never read; the last offset that was is {log.read_end - 1}",
                )


@final
class UnsentRead(Rule):
    """Every value that was read has been sent. Jepsen's workload has no name for this."""

    name = "unsent-read"

    def judges(self) -> Mapping[type, Judge]:
        return {Ended: self._on_ended}

    def _on_ended(self, log: KeyLog, ended: Ended) -> None:
        for unsent in log.unsent.values():
            self.found(
                log,
                unsent.line,
                f"{unsent.process} read {shown(unsent.value)} at offset {unsent.offset} "
                f"(line {unsent.line}); nobody sent it",
            )
