"""The clients of a run as it sees them: the order of each life, and the history that their lines add up to."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

from replog.real.orders import FINISH, Order
from replog.real.processes import Owner, Process
from sim.hosts.history import History, Outcome, ReadOperation, SendOperation
from sim.scenario.model import ConsumerModel, ProducerModel

# What a producer may take beyond its time-out. A machine that does much else lets processes wait.
DELIVERY_BOUND_MS = 10_000
Line = dict[str, Any]


def client_command(order: Order) -> list[str]:
    return [sys.executable, "-m", "replog.real.client", order.text()]


@final
class Producer:
    """A producer's process, and what it has sent."""

    def __init__(
        self, name: str, model: ProducerModel, history: History, owner: Owner, output: Path, *,
        routes: Mapping[int, int], seed: int, since_us: int,
    ) -> None:  # fmt: skip
        """Times of the history count from `since_us` of the monotonic clock."""
        self.name, self.model = name, model
        self._history, self._seed, self._since_us, self._routes = history, seed, since_us, dict(routes)
        self._acks = -1 if model.acks == "all" else model.acks
        self._open: dict[int, SendOperation] = {}
        self._sent = 0
        self._is_finished = self._has_finished = False
        self.process = Process(name, owner, output, lambda: client_command(self._order()))

    @property
    def is_done(self) -> bool:
        """Whether nothing is sent any more and every record has its outcome."""
        return not self._open and (self._has_finished or not self.process.is_up)

    def _order(self) -> Order:
        model, left = self.model, -1 if self.model.records is None else self.model.records - self._sent
        self._has_finished = False
        return Order(
            name=self.name, topic=model.topic, routes=self._routes, seed=self._seed, rate=model.rate,
            acks=self._acks, is_idempotent=model.idempotent, in_flight=model.in_flight,
            size_bytes=model.size, linger_ms=model.linger // 1000, batch_bytes=model.batch, keys=model.keys,
            delivery_timeout_ms=model.delivery_timeout // 1000, first_ticket=self._sent + 1,
            left=0 if self._is_finished else left,
            unanswered=-1 if model.unanswered is None else model.unanswered,
        )  # fmt: skip

    def finish(self) -> None:
        """Send nothing new, in this life and later ones; those sent already still get their outcome."""
        self._is_finished = True
        self.process.tell(FINISH)

    def on_line(self, line: Line) -> str:
        """Take a line of the process. Returns the partition of a record that it says is acknowledged, or nothing."""
        at_us = int(line["at"]) - self._since_us
        if "sent" in line:
            self._on_sent(int(line["sent"]), str(line["value"]), at_us)
        elif "done" in line:
            return self._on_done(line, at_us)
        elif "finished" in line:
            self._has_finished = True
        return ""

    def _on_sent(self, ticket: int, value: str, at_us: int) -> None:
        assert ticket == self._sent + 1, (self.name, ticket, self._sent)
        self._sent = ticket
        is_idempotent = self._acks == -1 and self.model.idempotent
        operation = SendOperation(
            producer=self.name, value=value, acks=self._acks, is_idempotent=is_idempotent, invoked_us=at_us,
            is_one_at_a_time=self.model.in_flight == 1, life=self.process.starts,
            within_us=self.model.delivery_timeout + 1_000 * DELIVERY_BOUND_MS,
        )  # fmt: skip
        self._history.sends.append(operation)
        self._open[ticket] = operation

    def _on_done(self, line: Line, at_us: int) -> str:
        operation, outcome = self._open.pop(int(line["done"])), Outcome(line["outcome"])
        partition = str(line["partition"])
        self._history.finish(
            operation, outcome, at_us=at_us, partition=partition, offset=int(line["offset"]),
            error=str(line["error"]),
        )  # fmt: skip
        if outcome is Outcome.OK and self._acks == 0:
            # No request of another process can be looked into: the word of the client is taken for it.
            self._history.handed_over.add(operation.value)
        return partition if outcome is Outcome.OK else ""

    def on_ended(self, at_us: int) -> None:
        """Note that nobody will ever learn the outcome of what was open."""
        for operation in self._open.values():
            self._history.finish(
                operation, Outcome.INFO, at_us=at_us, partition="", offset=-1, error="KILLED"
            )
        self._open.clear()
        assert self.is_done or self.process.is_up, self.name

    def on_resumed(self, paused_us: int) -> None:
        """Give what is open as much more time as the process stood still."""
        assert paused_us >= 0, paused_us
        for operation in self._open.values():
            operation.within_us += paused_us


@final
class Consumer:
    """A consumer's process, and what it has read. It goes on where it was, and begins again after a kill."""

    def __init__(
        self, name: str, model: ConsumerModel, history: History, owner: Owner, output: Path, *,
        routes: Mapping[int, int], partitions: int, since_us: int,
        on_lost: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.name, self.model = name, model
        self._history, self._since_us, self._routes = history, since_us, dict(routes)
        self._numbers = range(partitions)
        self._on_lost = on_lost
        # By partition, the offset of the next record.
        self.positions: dict[str, int] = {}
        self.process = Process(name, owner, output, lambda: client_command(self._order()))

    def _order(self) -> Order:
        topic = self.model.topic
        positions = {number: self.positions.get(f"{topic}-{number}", -1) for number in self._numbers}
        return Order(name=self.name, topic=topic, routes=self._routes, positions=positions)

    def on_line(self, line: Line) -> str:
        """Take a line of the process; returns nothing, as no record is acknowledged by it."""
        if "read" in line:
            self._on_read(line, int(line["at"]) - self._since_us)
        elif "position" in line:
            self._move_to(str(line["position"]), int(line["offset"]))
        elif "lost" in line:
            self._on_lost(f"{self.name} lost its position in {line['lost']}: {line['error']}")
        return ""

    def _on_read(self, line: Line, at_us: int) -> None:
        partition, high_watermark = str(line["read"]), int(line["high_watermark"])
        after = self.positions.get(partition, 0) - 1
        for offset, value in line["records"]:
            self._history.reads.append(
                ReadOperation(
                    consumer=self.name, partition=partition, offset=offset, value=value,
                    high_watermark=high_watermark, at_us=at_us, after=after,
                )
            )  # fmt: skip
            after = offset
        self._move_to(partition, int(line["next"]))

    def _move_to(self, partition: str, position: int) -> None:
        self.positions[partition] = self._history.positions[self.name, partition] = position

    def on_ended(self, at_us: int) -> None:
        """Forget where it was, unless it was asked to end in order."""
        if self.process.is_killed:
            self.positions.clear()

    def on_resumed(self, paused_us: int) -> None:
        """Do nothing: a reader has no deadline."""


Client = Producer | Consumer


def parse_line(line: bytes) -> Line:
    """Returns what a line of a client says. Raises ValueError for a line that is no JSON."""
    said: Line = json.loads(line)
    return said
