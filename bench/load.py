"""The process that loads a cluster as one producer: `python -P bench/load.py HOST:PORT --batch-bytes N`.

It obeys the orders on its standard input, one JSON object a line: `{"do": "rate", "seconds": S}` answers how many
batches were acknowledged in how many seconds, `{"do": "latency", "per_s": N, "seconds": S}` the milliseconds from each
send to its acknowledgement. It imports the product alone and no other file of `bench`, so that it also runs with the
code of an older commit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from concurrent.futures import Future
from functools import partial
from typing import Any

from cluster.local.tuning import keep_freed_memory, loop_factory
from replog import Admin, AsyncProducer, Producer, ProducerConfig

# More than the header of a batch and the framing of its record.
OVERHEAD_BYTES = 100
LATENCY_WARM_UP_S = 1.0


def create_topic(bootstrap: str, topic: str) -> None:
    """Creates the topic with three replicas and waits until it has a leader, if the cluster does not have it."""
    with Admin(bootstrap) as admin:
        if topic not in admin.list_topics():
            admin.create_topic(topic, replication_factor=3, configs={"min.insync.replicas": "2"})
        assert admin.until_led(topic), topic


def config_for(batch_bytes: int) -> ProducerConfig:
    """Returns the configuration of a producer whose batches hold one record each, 64 batches of room."""
    return ProducerConfig(linger_ms=0, batch_size=batch_bytes, buffer_memory=64 * batch_bytes)


async def rate(producer: AsyncProducer, topic: str, value: bytes, seconds: float) -> dict[str, float]:
    """Produces for `seconds` as fast as the producer takes records; returns the batches and the time they took."""
    started = time.perf_counter()
    sent = []
    while time.perf_counter() < started + seconds:
        sent.append(await producer.send(topic, value))
        await asyncio.sleep(0)
    await producer.flush()
    elapsed_s = time.perf_counter() - started
    failed = [future.exception() for future in sent if future.exception() is not None]
    assert not failed, failed[0]
    return {"batches": len(sent), "seconds": elapsed_s}


async def latencies_ms(
    producer: AsyncProducer, topic: str, value: bytes, per_s: int, seconds: float
) -> list[float]:
    """Produces at a steady rate; returns the time of each batch from its turn in the schedule to its answer."""
    found: list[float] = []
    futures = []
    started = time.perf_counter()
    for number in range(int(per_s * (seconds + LATENCY_WARM_UP_S))):
        due = started + number / per_s
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        future = await producer.send(topic, value)
        future.add_done_callback(partial(_note, found, due))
        futures.append(future)
    await asyncio.gather(*futures)
    return found[int(per_s * LATENCY_WARM_UP_S) :]


def _note(found: list[float], due: float, _: object) -> None:
    found.append(1000 * (time.perf_counter() - due))


async def serve_asyncio(bootstrap: str, topic: str, batch_bytes: int) -> None:
    """Obeys orders with the producer for asyncio."""
    loop = asyncio.get_running_loop()
    value = os.urandom(batch_bytes - OVERHEAD_BYTES)
    async with AsyncProducer(bootstrap, config_for(batch_bytes)) as producer:
        await producer.send_and_wait(topic, value)
        answer({"ready": True})
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            order = json.loads(line)
            if order["do"] == "rate":
                answer(await rate(producer, topic, value, order["seconds"]))
            else:
                answer(await latencies_ms(producer, topic, value, order["per_s"], order["seconds"]))


def serve_blocking(bootstrap: str, topic: str, batch_bytes: int) -> None:
    """Obeys orders with the blocking producer, which has no other order than `rate`."""
    value = os.urandom(batch_bytes - OVERHEAD_BYTES)
    with Producer(bootstrap, config_for(batch_bytes)) as producer:
        producer.send(topic, value).result()
        answer({"ready": True})
        for line in sys.stdin:
            seconds = json.loads(line)["seconds"]
            started = time.perf_counter()
            sent: list[Future[Any]] = []
            while time.perf_counter() < started + seconds:
                sent.append(producer.send(topic, value))
            producer.flush()
            elapsed_s = time.perf_counter() - started
            for future in sent:
                future.result()
            answer({"batches": len(sent), "seconds": elapsed_s})


def answer(value: object) -> None:
    print(json.dumps(value), flush=True)


def main() -> int:
    """Makes the topic, then obeys orders until the standard input closes; returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("--batch-bytes", type=int, required=True)
    parser.add_argument("--blocking", action="store_true")
    given = parser.parse_args()
    keep_freed_memory()
    topic = f"bench-{given.batch_bytes}"
    create_topic(given.bootstrap, topic)
    if given.blocking:
        serve_blocking(given.bootstrap, topic, given.batch_bytes)
        return 0
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve_asyncio(given.bootstrap, topic, given.batch_bytes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
