"""Sends the lines of `replog produce`, one record per line, and counts their outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import final

from cluster.core.errors import ErrorCode
from cluster.shell.clients import AsyncProducer, DeliveryError, RecordMetadata

# The number of lines after which the loop gets a turn, for answers, timers and the progress.
_TURN_RECORDS = 256


@final
@dataclass(slots=True)
class Tally:
    """The outcomes of the records so far, and the first and last acknowledged offset of each partition.

    An offset is -1 where the leader reported none (acks=0).
    """

    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    errors: dict[ErrorCode, int] = field(default_factory=dict)
    first_message: str = ""
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def unanswered(self) -> int:
        """The number of records without an outcome; after an interruption some of them may be in the log."""
        return self.sent - self.acknowledged - self.failed

    def count(self, stored: RecordMetadata) -> None:
        """Counts a record that was acknowledged."""
        assert self.acknowledged + self.failed < self.sent, (self.acknowledged, self.failed, self.sent)
        self.acknowledged += 1
        partition, offset = stored.partition, stored.offset
        first, last = self.offsets.get(partition, (offset, offset))
        self.offsets[partition] = (min(first, offset), max(last, offset))

    def count_failure(self, error: DeliveryError) -> None:
        """Counts a record that failed."""
        assert self.acknowledged + self.failed < self.sent, (self.acknowledged, self.failed, self.sent)
        self.failed += 1
        times = self.errors[error.code] = self.errors.get(error.code, 0) + 1
        assert times <= self.failed, (error.code, times, self.failed)
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


def split_key(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    """Splits a line at its first separator into key and value (Kafka: parse.key); None: no key.

    Raises ValueError for a line without the separator.
    """
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    if not found:
        raise ValueError(f"the line {line[:60]!r} does not contain the key separator {separator!r}")
    return key, value


async def produce_lines(
    producer: AsyncProducer,
    topic: str,
    lines: AsyncIterator[list[bytes]],
    tally: Tally,
    *,
    key_separator: bytes | None = None,
    progress: Callable[[Tally], None] | None = None,
) -> None:
    """Sends each line as a record while the buffer has room; returns once every record has its outcome.

    `tally` is up to date at any moment, also after an exception.
    """

    def on_end(future: asyncio.Future[RecordMetadata]) -> None:
        error = future.exception()
        if isinstance(error, DeliveryError):
            tally.count_failure(error)
        else:
            tally.count(future.result())

    async for several in lines:
        for start in range(0, len(several), _TURN_RECORDS):
            for line in several[start : start + _TURN_RECORDS]:
                key, value = split_key(line, key_separator)
                (await producer.send(topic, value, key=key)).add_done_callback(on_end)
                tally.sent += 1
            await asyncio.sleep(0)
            if progress is not None:
                progress(tally)
    await producer.flush()
    # The callbacks of the last futures run in the next turn of the loop.
    await asyncio.sleep(0)
    assert tally.unanswered == 0, (tally.sent, tally.acknowledged, tally.failed)
