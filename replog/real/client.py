"""The process of one client: a producer or a consumer of `replog`, which writes down what it does.

`python -m replog.real.client ORDER` prints the lines that `replog.real.orders` lists. It ends in order on SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import final

from cluster.core.client.config import ConsumerConfig, OffsetReset, ProducerConfig
from cluster.core.client.effects import Fetched, PositionLost, PositionReset, Truncated
from cluster.core.messages import TopicPartition
from cluster.local.layout import HOST
from cluster.shell.clients import AsyncConsumer, AsyncProducer
from cluster.shell.clients.async_producer import OutgoingRecord
from cluster.shell.clients.base import AsyncClient
from cluster.shell.clients.delivery import DeliveryError, Outcome
from replog.real.orders import FINISH, Order, parse_order
from sim.world.streams import Stream
from storage.draws import Draws

REQUEST_TIMEOUT_MS = 1_500
BACKOFF_MS = 100


def say(**fields: object) -> None:
    """Write one line; it is out of this process before the next step, so that a kill does not lose it."""
    at_us = int(asyncio.get_running_loop().time() * 1e6)
    left = json.dumps({"at": at_us, **fields}).encode() + b"\n"
    while left:
        left = left[os.write(sys.stdout.fileno(), left) :]


def bootstrap_of(order: Order) -> str:
    return ",".join(f"{HOST}:{port}" for port in order.routes.values())


async def begin(client: AsyncClient, order: Order) -> None:
    """Start the client, which reaches every broker by its route."""
    await client.start()
    client.runtime.peers.routes.update({broker: (HOST, port) for broker, port in order.routes.items()})


@final
class ProducerLife:
    """A producer that sends unique values at a steady rate with a drawn jitter."""

    def __init__(self, order: Order) -> None:
        self._order, self._left = order, order.left
        self._ticket = order.first_ticket - 1
        self._open: dict[int, None] = {}
        self._jitter = Stream(Draws(order.seed), "pace", order.name, order.first_ticket)
        self.producer = AsyncProducer(
            bootstrap_of(order),
            ProducerConfig(
                acks=order.acks,
                enable_idempotence=order.is_idempotent if order.acks == -1 else None,
                linger_ms=order.linger_ms,
                batch_size=order.batch_bytes,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                delivery_timeout_ms=order.delivery_timeout_ms,
                max_block_ms=order.delivery_timeout_ms,
                max_in_flight_requests_per_connection=order.in_flight,
                retry_backoff_ms=BACKOFF_MS,
            ),
        )

    async def work(self, finish: asyncio.Event) -> None:
        """Send until `finish`, or until all records of the order are sent; then wait for every outcome."""
        clock, order = asyncio.get_running_loop().time, self._order
        next_s = clock()
        while not finish.is_set() and self._left:
            half_us = 500_000 // order.rate
            next_s += (half_us + self._jitter.below(2 * half_us + 1)) / 1e6
            # After a pause the rate goes on; what was not sent meanwhile is not made up for.
            next_s = max(next_s, clock())
            try:
                async with asyncio.timeout_at(next_s):
                    await finish.wait()
            except TimeoutError:
                if order.unanswered < 0 or len(self._open) < order.unanswered:
                    self._send_one()
        await self.producer.flush()
        assert not self._open, len(self._open)
        say(finished=True)

    def _send_one(self) -> None:
        self._ticket += 1
        self._left -= 1
        ticket, order = self._ticket, self._order
        value = f"{order.name}/{ticket}".ljust(order.size_bytes, ".")
        key = f"k{ticket % order.keys}".encode() if order.keys else None
        record = OutgoingRecord(order.topic, value.encode(), key, None, (), None)
        say(sent=ticket, value=value)
        self._open[ticket] = None
        self.producer.send_now(record, lambda outcome: self._on_outcome(ticket, outcome))

    def _on_outcome(self, ticket: int, outcome: Outcome) -> None:
        del self._open[ticket]
        if isinstance(outcome, DeliveryError):
            kind = "info" if outcome.is_unknown else "fail"
            place = str(outcome.topic_partition)
            say(done=ticket, outcome=kind, partition=place, offset=-1, error=outcome.code.name)
        else:
            place = str(outcome.topic_partition)
            say(done=ticket, outcome="ok", partition=place, offset=outcome.offset, error="NONE")


async def produce(order: Order, finish: asyncio.Event, end: asyncio.Event) -> None:
    """Produce until told to finish; then stay until the end, so that acks=0 is still carried."""
    life = ProducerLife(order)
    await begin(life.producer, order)
    await life.work(finish)
    await end.wait()
    await life.producer.close()


async def consume(order: Order, end: asyncio.Event) -> None:
    """Read every partition of the order until the end."""
    assert order.positions is not None, order
    config = ConsumerConfig(
        auto_offset_reset=OffsetReset.EARLIEST,
        fetch_max_wait_ms=200,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        retry_backoff_ms=BACKOFF_MS,
        metadata_max_age_ms=10_000,
    )
    consumer = AsyncConsumer(bootstrap_of(order), config)
    await begin(consumer, order)
    consumer.assign(
        {
            TopicPartition(order.topic, partition): offset if offset >= 0 else OffsetReset.EARLIEST
            for partition, offset in order.positions.items()
        }
    )
    reading = asyncio.get_running_loop().create_task(read(consumer))
    ending = asyncio.get_running_loop().create_task(end.wait())
    await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
    if reading.done():
        # It never returns: what it raised is why this process ends.
        reading.result()
    reading.cancel()
    await consumer.close()


async def read(consumer: AsyncConsumer) -> None:
    """Write down every event of the consumer. Raises ClusterError when its core has stopped."""
    while True:
        match await consumer.next_event():
            case Fetched() as fetched:
                records = [[each.offset, (each.value or b"").decode()] for each in fetched.records]
                say(
                    read=str(fetched.topic_partition),
                    records=records,
                    next=fetched.next_offset,
                    high_watermark=fetched.high_watermark,
                )
            case PositionReset() as reset:
                say(position=str(reset.topic_partition), offset=reset.offset)
            case Truncated() as truncated:
                say(position=str(truncated.topic_partition), offset=truncated.to_offset)
            case PositionLost() as lost:
                say(lost=str(lost.topic_partition), error=lost.error.name)
            case _:
                pass


async def live(order: Order) -> None:
    """Do the work of the order until SIGTERM."""
    loop = asyncio.get_running_loop()
    finish, end = asyncio.Event(), asyncio.Event()

    def stop() -> None:
        finish.set()
        end.set()

    def on_input() -> None:
        told = os.read(sys.stdin.fileno(), 64)
        if FINISH in told:
            finish.set()
        if not told:
            loop.remove_reader(sys.stdin.fileno())
            stop()

    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_reader(sys.stdin.fileno(), on_input)
    await (produce(order, finish, end) if order.positions is None else consume(order, end))


if __name__ == "__main__":
    asyncio.run(live(parse_order(sys.argv[1])))
