"""Judges the history of a whole run, once everything is healed and at rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, final

from sim.checkers.ghost import Excuse, Ghost
from sim.hosts.history import History, Outcome, ReadOperation, SendOperation, shown


class Lives(Protocol):
    """Says whether a promise was made by the topic that exists, or by a deleted one of its name."""

    def was_acknowledged_by_present(self, partition: str, value: str) -> bool: ...

    def was_read_from_present(self, partition: str, offset: int, value: str) -> bool: ...

    def was_deleted(self, partition: str) -> bool: ...


@final
class OneLife:
    """The lives of topics that no step deletes."""

    def was_acknowledged_by_present(self, partition: str, value: str) -> bool:
        return True

    def was_read_from_present(self, partition: str, offset: int, value: str) -> bool:
        return True

    def was_deleted(self, partition: str) -> bool:
        return False


ONE_LIFE = OneLife()
# The reasons that need no fault: an acknowledged record may be lost for them in every run.
RETENTION = "retention has deleted it"
LEADER_ALONE = "acks=1: acknowledged by its leader alone, never committed"
# The values of a log, by offset.
FinalLog = Mapping[int, str]


@final
class HistoryCheck:
    """Five rules over the whole history.

    No acknowledged record is lost, except the excused ones (see the ghost). None was read at or above the high
    watermark. None of an idempotent producer is at two offsets, unless a log began between them. None was invented. A
    record that was read stays at its offset. What Jepsen's Kafka workload has a name for begins with that name.
    `excused` counts the lost and excused records, by reason.
    """

    name = "history"

    def __init__(
        self, history: History, ghost: Ghost, final_logs: Mapping[str, FinalLog], lives: Lives = ONE_LIFE,
        *, log_starts: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        self._history, self._ghost, self._logs, self._lives = history, ghost, final_logs, lives
        # Where the final logs begin, because retention has deleted what was before.
        self._log_starts = log_starts or {}
        self.excused: dict[str, int] = {}
        self._read = frozenset((read.partition, read.offset, read.value) for read in history.reads)

    def findings(self) -> Iterator[str]:
        yield from self._lost()
        yield from self._doubled()
        yield from self._misread()

    def _excuse(self, partition: str, offset: int) -> Excuse | None:
        for excuse in self._ghost.excuses:
            if (
                excuse.partition == self._ghost.partition(partition).name
                and excuse.start <= offset < excuse.end
            ):
                return excuse
        return None

    def _lost(self) -> Iterator[str]:
        for send in self._history.sends:
            if send.outcome is not Outcome.OK or send.acks == 0 or send.offset < 0:
                continue
            if self._logs.get(send.partition, {}).get(send.offset) == send.value:
                continue
            if not self._lives.was_acknowledged_by_present(send.partition, send.value):
                continue
            reason = self._reason(send)
            if reason is None:
                found = self._logs.get(send.partition, {}).get(send.offset)
                instead = "nothing" if found is None else shown(found)
                yield (
                    f"lost-write: {send.partition}: {shown(send.value)}, acknowledged with acks={_acks(send)} "
                    f"at offset {send.offset} ({send.completed_us / 1e6:.3f} s), is lost: {instead} is there"
                )
            else:
                self.excused[reason] = self.excused.get(reason, 0) + 1

    def _reason(self, send: SendOperation) -> str | None:
        """Returns the reason why this record may be lost, or None if it may not."""
        if self._was_deleted(send.partition, send.offset):
            return RETENTION
        excuse = self._excuse(send.partition, send.offset)
        if excuse is not None:
            return excuse.reason
        if send.acks == 1 and not self._was_exposed(send):
            return LEADER_ALONE
        return None

    def _was_deleted(self, partition: str, offset: int) -> bool:
        """Whether retention has deleted the record, of the log at the end or of a leader's log that is lost since."""
        start = max(self._log_starts.get(partition, 0), self._ghost.partition(partition).leader_log_start)
        return offset < start

    def _was_exposed(self, send: SendOperation) -> bool:
        """Whether a consumer read the record: then it must stay, even with acks=1 (D4)."""
        return (send.partition, send.offset, send.value) in self._read

    def _doubled(self) -> Iterator[str]:
        by_value = {send.value: send for send in self._history.sends}
        first_at: dict[str, tuple[str, int]] = {}
        for partition, log in self._logs.items():
            for offset, value in log.items():
                sent = by_value.get(value)
                if sent is None:
                    yield f"{partition}: offset {offset} holds {shown(value)}, which nobody sent"
                elif sent.outcome is Outcome.FAIL:
                    yield f"{partition}: offset {offset} holds {shown(value)}, whose send was refused"
                elif (
                    value in first_at
                    and sent.is_idempotent
                    and not self._is_forgotten(first_at[value], offset)
                ):
                    places = f"{first_at[value]} and at {(partition, offset)}"
                    yield f"duplicate: {shown(value)} of an idempotent producer is at {places}"
                first_at.setdefault(value, (partition, offset))

    def _is_forgotten(self, place: tuple[str, int], offset: int) -> bool:
        return self._ghost.partition(place[0]).may_forget(place[1], offset)

    def _misread(self) -> Iterator[str]:
        for read in self._history.reads:
            if not self._lives.was_read_from_present(read.partition, read.offset, read.value):
                continue
            if read.offset >= read.high_watermark:
                yield f"{_described(read)} at high watermark {read.high_watermark}"
            elif self._logs.get(read.partition, {}).get(read.offset) != read.value:
                if self._was_deleted(read.partition, read.offset):
                    continue
                if self._excuse(read.partition, read.offset) is None:
                    yield self._unstable(read)

    def _unstable(self, read: ReadOperation) -> str:
        found = self._logs.get(read.partition, {}).get(read.offset)
        if found is None:
            return f"{_described(read)}; at the end that offset holds nothing"
        return f"inconsistent-offsets: {_described(read)}; at the end that offset holds {shown(found)}"


def _acks(send: SendOperation) -> str:
    return "all" if send.acks == -1 else str(send.acks)


def _described(read: ReadOperation) -> str:
    return f"{read.partition}: {read.consumer} read {shown(read.value)} at offset {read.offset}"
