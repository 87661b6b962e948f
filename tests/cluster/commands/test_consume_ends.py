"""What ends `replog consume`."""

from __future__ import annotations

import asyncio
import io

from cluster.commands.consume import Printer
from cluster.commands.output import Output
from cluster.commands.record_formats import Columns
from cluster.core.client.effects import EndOfPartition, PartitionDeleted
from cluster.core.messages import TopicPartition
from cluster.shell.clients import AsyncConsumer

LIMIT_S = 5.0


def test_until_end_does_not_wait_for_the_end_of_a_deleted_partition() -> None:
    async def required() -> None:
        """Find the topic there."""

    async def main() -> None:
        ends = {0, 1}
        printer = Printer(Output(io.BytesIO()), None, None, Columns().format(), require_topic=required)
        async with asyncio.timeout(LIMIT_S), AsyncConsumer("127.0.0.1:1") as consumer:
            consumer._on_notice(EndOfPartition(topic_partition=TopicPartition("t", 0), offset=0))
            consumer._on_notice(PartitionDeleted(topic_partition=TopicPartition("t", 1)))
            await printer.run(consumer, ends=ends)
        assert not ends

    asyncio.run(main())
