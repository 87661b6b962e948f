"""A program of a user: it runs outside of the repository, where the wheel is installed, and imports only `replog`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from replog import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Compression,
    Consumer,
    DeliveryError,
    ErrorCode,
    LogConfig,
    OffsetReset,
    OsFileSystem,
    PartitionLog,
    Producer,
    ProducerConfig,
    Record,
    TopicPartition,
    Verdict,
    build_batch,
    iterate_batches,
    run_scenario,
)

SCENARIO = """\
scenario: mine
duration: 6s
topics:
  t: {partitions: 1, replicas: 3, config: {min.insync.replicas: 2}}
producers:
  - {topic: t, rate: 20/s, acks: all}
consumers:
  - {topic: t}
steps:
  - when: after-ack(t/0) >= 20
    kill: leader(t/0)
    down: 2s
"""


def blocking(servers: str) -> None:
    with Admin(servers) as admin:
        admin.create_topic("orders", partitions=2)
        assert admin.until_led("orders")
        assert admin.list_topics() == ["orders"]
    with Producer(servers, ProducerConfig(compression_type=Compression.ZSTD)) as producer:
        stored = producer.send("orders", b"one", key=b"a", partition=1, headers={"h": b"1"}).result()
        assert (stored.topic, stored.partition, stored.offset) == ("orders", 1, 0)
        try:
            producer.send("orders", b"x", partition=7).result()
        except DeliveryError as error:
            refused: ErrorCode = error.code
            print("refused", refused.name)
    with Consumer(servers) as consumer:
        consumer.assign({TopicPartition("orders", 1): OffsetReset.EARLIEST})
        for place, record in consumer:
            print("read", place, record.offset, record.key, record.value, record.headers)
            break


async def with_asyncio(servers: str) -> None:
    async with AsyncAdmin(servers) as admin:
        described = await admin.metadata(["orders"])
        assert [topic.name for topic in described.topics] == ["orders"]
    async with AsyncProducer(servers) as producer:
        stored = await producer.send_and_wait("orders", b"two", partition=1)
    async with AsyncConsumer(servers) as consumer:
        consumer.assign([(stored.topic_partition, stored.offset)])
        async for place, record in consumer.records():
            print("read", place, record.offset, record.value)
            return


def simulate(directory: Path) -> None:
    file = directory / "mine.yaml"
    file.write_text(SCENARIO)
    result = run_scenario(file, 7)
    assert result.verdict is Verdict.HELD
    kills = [line for line in result.story if "kill broker" in line]
    print("simulated", result.scenario, result.verdict.name, len(kills), len(result.trace_hash))


def store(directory: Path) -> None:
    log = PartitionLog.open(OsFileSystem(), str(directory / "t-0"), LogConfig(), clean=True, now_ms=1_000)
    batch = build_batch([Record(0, 1_000, None, b"v")], compression=Compression.LZ4)
    log.append_as_leader(batch, leader_epoch=0, now_ms=1_000)
    (found,) = iterate_batches(log.read(0, max_size=1 << 20).records)
    print("stored", found.base_offset, [record.value for record in found.records()], log.log_end_offset)
    log.close()


if __name__ == "__main__":
    blocking(sys.argv[1])
    asyncio.run(with_asyncio(sys.argv[1]))
    simulate(Path(sys.argv[2]))
    store(Path(sys.argv[2]))
