"""The history of a run as the clients saw it: each send with its outcome, and each record read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum
from operator import attrgetter
from typing import Any, final

from sim.world.packed import PackedList, Packing, Row
from sim.world.pool import Pool
from storage.batch import Record
from storage.values import quickly_made

# What fills a record's value up to its size.
FILL = "."
# The header of a tombstone that says which record it is: its value cannot.
TOMBSTONE_HEADER = "text"


class Outcome(Enum):
    """The outcome of a send, as its producer knows it."""

    # The send has not ended yet.
    OPEN = "open"
    OK = "ok"
    # The send was refused: the record is in no log.
    FAIL = "fail"
    # The outcome is unknown: the record may be in the log, now or later.
    INFO = "info"


def shown(value: str) -> str:
    """Returns a record's value in quotes as a message shows it: without the dots that fill it up to its size."""
    return repr(value.rstrip(FILL))


def text_of(record: Record) -> str:
    """Returns the text by which a record is recognised: its value, or a header of a tombstone."""
    if record.value is not None:
        return record.value.decode(errors="backslashreplace")
    texts = [value or b"" for name, value in record.headers if name == TOMBSTONE_HEADER]
    return b"".join(texts).decode(errors="backslashreplace")


def stamp_of(key: bytes | None, header_count: int, timestamp_ms: int | None) -> str:
    """Returns what a record has beside its value as a text; the time is None where its leader has set it."""
    name = "" if key is None else key.decode(errors="backslashreplace")
    return f"{name}+{header_count}@{'' if timestamp_ms is None else timestamp_ms}"


def differs(sent: str, read: str) -> bool:
    """Whether a record was read with another stamp than it was sent with, where both are known."""
    if not sent or not read or sent == read:
        return False
    return not (read.endswith("@") and sent.startswith(read))


@dataclass(slots=True, kw_only=True)
class SendOperation:
    """One record sent. `partition` and `offset` are known with outcome OK; -1 if the broker named no offset."""

    producer: str
    value: str
    acks: int
    is_idempotent: bool
    invoked_us: int
    # The life of the producer that sent it: order holds within a life.
    life: int = 1
    # Whether the producer has one request in flight at a time, so that its acknowledged records keep their order.
    is_one_at_a_time: bool = False
    # What was sent beside the value, as `stamp_of` writes it; empty where that is not known.
    stamp: str = ""
    # The time after `invoked_us` by which the producer must know the outcome; 0: no promise.
    within_us: int = 0
    outcome: Outcome = Outcome.OPEN
    completed_us: int = -1
    partition: str = ""
    offset: int = -1
    error: str = ""


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOperation:
    """One record read; `high_watermark` (exclusive) is that of the answer with the record.

    `after` is the offset that the consumer had passed before: the one of the record before it, or that before its
    position.
    """

    consumer: str
    partition: str
    offset: int
    value: str
    high_watermark: int
    at_us: int
    after: int = -1
    # What came beside the value, as `stamp_of` writes it; empty where that is not known.
    stamp: str = ""


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A consumer's new position in a partition, which its last record does not lead to."""

    consumer: str
    partition: str
    at_us: int


_SEND_FIELDS = tuple(each.name for each in fields(SendOperation))
_READ_FIELDS = tuple(each.name for each in fields(ReadOperation))
# A row has the name of an outcome.
_send_row: Any = attrgetter(*(each if each != "outcome" else "outcome.value" for each in _SEND_FIELDS))
_read_row: Any = attrgetter(*_READ_FIELDS)


def _send_of(row: Row) -> SendOperation:
    values = dict(zip(_SEND_FIELDS, row, strict=True))
    values["outcome"] = Outcome(values["outcome"])
    return SendOperation(**values)


def _read_of(row: Row) -> ReadOperation:
    return ReadOperation(**dict(zip(_READ_FIELDS, row, strict=True)))


def _has_ended(send: SendOperation) -> bool:
    return send.outcome is not Outcome.OPEN


_SENDS = Packing(_send_row, _send_of, _has_ended)
_READS = Packing(_read_row, _read_of)


@final
class History:
    """All sends and reads of one run, in order, and the moves of its consumers."""

    def __init__(self, sends: Iterable[SendOperation] = (), reads: Iterable[ReadOperation] = ()) -> None:
        self.sends = PackedList(_SENDS, sends)
        self.reads = PackedList(_READS, reads)
        self.moves: list[Move] = []
        # The offset that a consumer will read next, by consumer and partition.
        self.positions: dict[tuple[str, str], int] = {}
        # The values that producers with acks=0 have put into requests.
        self.handed_over: set[str] = set()
        # Values, and names of partitions: what is sent is read soon, by several consumers.
        self.texts = Pool[str]()
        self.ok_count = 0
        # The number of acknowledged sends, by partition.
        self.acknowledged: dict[str, int] = {}

    def finish(
        self,
        operation: SendOperation,
        outcome: Outcome,
        *,
        at_us: int,
        partition: str,
        offset: int,
        error: str,
    ) -> None:
        """Set the outcome of a send that was open until now."""
        assert operation.outcome is Outcome.OPEN, f"{operation.value} ended twice"
        assert outcome is not Outcome.OPEN, operation.value
        operation.outcome, operation.completed_us, operation.error = outcome, at_us, error
        operation.partition, operation.offset = self.texts.shared(partition), offset
        if outcome is Outcome.OK:
            self.ok_count += 1
            self.acknowledged[partition] = self.acknowledged.get(partition, 0) + 1

    def counts(self) -> dict[str, int]:
        """Returns the number of sends by outcome, also of outcomes that none had."""
        counts = {outcome.value: 0 for outcome in Outcome}
        for operation in self.sends:
            counts[operation.outcome.value] += 1
        return counts
