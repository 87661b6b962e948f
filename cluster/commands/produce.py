"""Sends the lines of `replog produce`, one record per line, and counts their outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import final

from cluster.commands.record_lines import BadLine, Outgoing
from cluster.core.errors import ErrorCode
from cluster.shell.clients import AsyncProducer, DeliveryError, RecordMetadata

# The number of lines after which the loop gets a turn, for answers, timers and the progress.
_TURN_RECORDS = 256
# How long an interrupted command waits for the records that it has read.
LAST_SENDS_S = 5.0

ReadLine = Callable[[bytes, int], Outgoing]


@final
@dataclass(slots=True)
class Tally:
    """The outcomes of the records so far, and the first and last acknowledged offset of each partition.

    `failed` counts those that are not in the log, and `unknown` those that were given up without an answer. An offset
    is -1 where the leader reported none (acks=0).
    """

    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0
    errors: dict[ErrorCode, int] = field(default_factory=dict)
    first_message: str = ""
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def unanswered(self) -> int:
        """The number of records without an answer, given up or not: some of them may be in the log."""
        return self.sent - self.acknowledged - self.failed

    @property
    def ended(self) -> int:
        """The number of records that nobody waits for any more."""
        return self.acknowledged + self.failed + self.unknown

    def count(self, stored: RecordMetadata) -> None:
        """Counts a record that was acknowledged."""
        assert self.ended < self.sent, self
        self.acknowledged += 1
        partition, offset = stored.partition, stored.offset
        first, last = self.offsets.get(partition, (offset, offset))
        self.offsets[partition] = (min(first, offset), max(last, offset))

    def count_failure(self, error: DeliveryError) -> None:
        """Counts a record that failed, or that was given up while its outcome is unknown."""
        assert self.ended < self.sent, self
        if error.is_unknown:
            self.unknown += 1
        else:
            self.failed += 1
        times = self.errors[error.code] = self.errors.get(error.code, 0) + 1
        assert times <= self.failed + self.unknown, (error.code, times, self)
        self.first_message = self.first_message or error.detail

    def __str__(self) -> str:
        text = f"{self.acknowledged} records acknowledged, {self.failed} failed"
        return f"{text}, {self.unanswered} without an answer" if self.unanswered else text

    def to_json(self) -> dict[str, object]:
        """Returns the counts as `--json` prints them; `unanswered` only where there are any."""
        unanswered = {"unanswered": self.unanswered} if self.unanswered else {}
        return {
            **unanswered,
            "acknowledged": self.acknowledged,
            "failed": self.failed,
            "partitions": [
                {"partition": partition, "first_offset": first, "last_offset": last}
                for partition, (first, last) in sorted(self.offsets.items())
            ],
        }


def no_such_partition(topic: str, partition: int, known: Collection[int]) -> str:
    """Returns the message for a partition that is not one of `known`, which begin at 0."""
    return f"topic {topic} has no partition {partition}: its partitions are 0 to {max(known, default=0)}"


def reader_for(read: ReadLine, topic: str, partition: int | None, partitions: Collection[int]) -> ReadLine:
    """Returns `read` with the partition that the user fixed; a line's own must be one of `partitions`."""

    def read_placed(line: bytes, number: int) -> Outgoing:
        record = read(line, number)
        if partition is not None:
            return record._replace(partition=partition)
        if record.partition is not None and record.partition not in partitions:
            raise BadLine(number, no_such_partition(topic, record.partition, partitions))
        return record

    return read_placed


async def produce_lines(
    producer: AsyncProducer,
    topic: str,
    lines: AsyncIterator[list[bytes]],
    tally: Tally,
    *,
    read: ReadLine,
    progress: Callable[[Tally], None] | None = None,
) -> None:
    """Sends each line as the record that `read` makes of it and of its number, while the buffer has room.

    Returns once every record has its outcome. Raises BadLine, or OSError if the input cannot be read, but not before
    the records of all earlier lines have theirs. Who cancels this waits for them, too, but for LAST_SENDS_S at most:
    Kafka's producer sends what it has taken when its process is told to end. `tally` is up to date at any moment, also
    after an exception.
    """

    def on_end(future: asyncio.Future[RecordMetadata]) -> None:
        error = future.exception()
        if isinstance(error, DeliveryError):
            tally.count_failure(error)
        else:
            tally.count(future.result())

    async def send(line: bytes) -> None:
        record = read(line, tally.sent + 1)
        future = await producer.send(
            topic,
            record.value,
            key=record.key,
            partition=record.partition,
            headers=record.headers,
            timestamp_ms=record.timestamp_ms,
        )
        future.add_done_callback(on_end)
        tally.sent += 1
        # The loop calls `on_end` in a later turn.
        assert tally.ended < tally.sent, tally

    async def finish() -> None:
        await producer.flush()
        # The callbacks of the last futures run in the next turn of the loop.
        await asyncio.sleep(0)

    try:
        async for several in lines:
            for start in range(0, len(several), _TURN_RECORDS):
                for line in several[start : start + _TURN_RECORDS]:
                    await send(line)
                await asyncio.sleep(0)
                if progress is not None:
                    progress(tally)
    except (BadLine, OSError):
        await finish()
        raise
    except asyncio.CancelledError:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SENDS_S):
                await finish()
        raise
    await finish()
    assert tally.ended == tally.sent, tally
