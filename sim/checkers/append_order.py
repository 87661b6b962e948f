"""The order in which a leader appends what one sender asks: that in which the requests came."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, final

from cluster.core.errors import ErrorCode
from cluster.core.messages import ProduceRequest, ProduceResponse
from sim.checkers.base import Jury
from sim.world.packets import Exchange
from storage.batch import RecordBatch

# So many of the latest appends of a sender are compared with each other.
MOST_COMPARED = 16
# And so many requests of a broker are known that have no answer; far fewer ever wait.
MOST_WAITING = 2_000
# Who appends what of whom: the broker and its life, the partition and its topic's id, the sender and its life.
Line = tuple[int, int, str, str, str, int]
# A producer's id and epoch, and a sequence of its.
Place = tuple[int, int, int]


class Arrival(NamedTuple):
    """A request that a leader has, and has not answered: its number in the order of arrival, and who sent it."""

    number: int
    sender: str
    sender_life: int
    # The partitions of which it brings a batch that some broker has got before: it may be in the log already.
    repeated: frozenset[str]


@final
class AppendOrder:
    """Judges whether a leader appends the sets of one sender in the order in which it got them.

    A set whose checks take long is not overtaken by the next one of its partition. That of an idempotent producer would
    be refused then, as out of sequence, although what it follows is appended.
    """

    name = "append-order"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        self._last_number = 0
        # By broker: its requests without an answer.
        self._arrivals: dict[int, dict[Exchange, Arrival]] = {}
        # The last sequence that any broker has got, by partition, topic id and producer.
        self._last_sequences: dict[tuple[str, str, int, int], int] = {}
        # The number and the base offset of the latest sets of each sender, by leader epoch too.
        self._appended: dict[tuple[Line, int], deque[tuple[int, int]]] = {}
        # The number of the latest sets that were refused as out of sequence, and what each should follow.
        self._refused: dict[Line, deque[tuple[int, Place]]] = {}

    def on_accepted(self, broker: int, exchange: Exchange, request: ProduceRequest) -> None:
        """Receives a produce request as it reaches its broker."""
        self._last_number += 1
        source, waiting = exchange.source, self._arrivals.setdefault(broker, {})
        waiting[exchange] = Arrival(
            self._last_number, source.name, source.life_number, frozenset(self._repeated(request))
        )
        if len(waiting) > MOST_WAITING:
            # One whose sender left before the core had it is never answered.
            del waiting[next(iter(waiting))]

    def _repeated(self, request: ProduceRequest) -> Iterator[str]:
        for asked in request.partitions:
            batch, partition = RecordBatch(asked.records, 0, len(asked.records)), str(asked.topic_partition)
            if not batch.has_producer_id:
                continue
            key = (partition, asked.topic_id, batch.producer_id, batch.producer_epoch)
            if self._last_sequences.get(key, -1) >= batch.last_sequence:
                yield partition
            else:
                self._last_sequences[key] = batch.last_sequence

    def on_left(self, broker: int, exchange: Exchange) -> None:
        """Forget a request whose sender has left: it gets no answer."""
        self._arrivals.get(broker, {}).pop(exchange, None)

    def on_reply(
        self, broker: int, life: int, exchange: Exchange, request: ProduceRequest, body: ProduceResponse
    ) -> None:
        """Receives the answer to a produce request."""
        arrival = self._arrivals.get(broker, {}).pop(exchange, None)
        if arrival is None:
            return
        number, sender, sender_life, repeated = arrival
        for asked, answer in zip(request.partitions, body.partitions, strict=False):
            line = (broker, life, str(answer.topic_partition), asked.topic_id, sender, sender_life)
            batch = RecordBatch(asked.records, 0, len(asked.records))
            if answer.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                before: Place = (batch.producer_id, batch.producer_epoch, batch.base_sequence - 1)
                self._refused.setdefault(line, deque(maxlen=MOST_COMPARED)).append((number, before))
            elif answer.error is ErrorCode.NONE and batch.has_producer_id:
                if line[2] not in repeated:
                    self._judge_refused(line, number, batch)
            elif answer.error is ErrorCode.NONE and answer.base_offset >= 0:
                self._judge_places(line, answer.leader_epoch, number, answer.base_offset)

    def _judge_refused(self, line: Line, number: int, batch: RecordBatch) -> None:
        """Judge whether a set was refused that came after this one, and follows it."""
        place: Place = (batch.producer_id, batch.producer_epoch, batch.last_sequence)
        for later, before in self._refused.get(line, ()):
            if later > number and before == place:
                self._jury.report(
                    self.name,
                    f"{line[2]}: broker {line[0]} refused a set of {line[4]} as out of sequence, and appended the one "
                    f"that came before it and ends at sequence {batch.last_sequence}",
                )

    def _judge_places(self, line: Line, leader_epoch: int, number: int, base_offset: int) -> None:
        others = self._appended.setdefault((line, leader_epoch), deque(maxlen=MOST_COMPARED))
        for other, offset in others:
            if other != number and (other < number) != (offset < base_offset):
                earlier, later = sorted(((other, offset), (number, base_offset)))
                self._jury.report(
                    self.name,
                    f"{line[2]}: broker {line[0]} got a set of {line[4]} that it appended at {earlier[1]}, "
                    f"and after it one that it appended at {later[1]}",
                )
        others.append((number, base_offset))

    def on_end(self, broker: int) -> None:
        """Forget what a broker has that ends: its next life begins with nothing."""
        self._arrivals.pop(broker, None)
        self._appended = {key: each for key, each in self._appended.items() if key[0][0] != broker}
        self._refused = {key: each for key, each in self._refused.items() if key[0] != broker}
