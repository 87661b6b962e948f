"""The clients: producer, consumer and admin, for blocking programs and for asyncio ones, on the same cores.

with Producer("127.0.0.1:19092") as producer:
    stored = producer.send("orders", b"hello").result()

async with AsyncProducer("127.0.0.1:19092") as producer:
    stored = await producer.send_and_wait("orders", b"hello")
"""

from cluster.shell.clients.async_admin import AsyncAdmin
from cluster.shell.clients.async_consumer import AsyncConsumer, ConsumerEvent
from cluster.shell.clients.async_producer import AsyncProducer
from cluster.shell.clients.base import DEFAULT_BOOTSTRAP, parse_bootstrap
from cluster.shell.clients.blocking_admin import Admin
from cluster.shell.clients.blocking_consumer import Consumer
from cluster.shell.clients.blocking_producer import Producer
from cluster.shell.clients.delivery import DeliveryError, RecordMetadata

__all__ = [
    "DEFAULT_BOOTSTRAP",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "ConsumerEvent",
    "DeliveryError",
    "Producer",
    "RecordMetadata",
    "parse_bootstrap",
]
