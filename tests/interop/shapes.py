"""Topics of every shape that the golden data has, written by this project as the leader of their one partition.

Each shape drives a `PartitionLog` and notes what a consumer is to find: every record, and which of them a consumer that
reads only committed transactions does not see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, final

from storage.batch import Record, build_batch
from storage.cleaner.plan import CleanerConfig
from storage.codec.compression import Compression
from storage.config import LogConfig
from storage.draws import Draws
from storage.log import AppendOrigin, PartitionLog
from tests.storage.logs import marker

START_MS: Final = 1_700_000_000_000
CODECS: Final = tuple(Compression)

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A record as a consumer finds it. `is_committed` is False if its transaction was aborted or is open."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    is_committed: bool


@dataclass(slots=True, kw_only=True)
class _Transaction:
    offsets: list[int] = field(default_factory=list)


@final
class Writer:
    """A leader's appends to `log`, in epoch 0, with a clock of its own. `found` is what a consumer will find."""

    def __init__(self, log: PartitionLog, *, is_log_append_time: bool = False) -> None:
        self.log, self.now_ms = log, START_MS
        self._is_log_append_time = is_log_append_time
        self._sequences: dict[int, int] = {}
        self._open: dict[int, _Transaction] = {}
        self._hidden: set[int] = set()
        self._written: list[tuple[Record, int]] = []

    def append(
        self,
        records: Iterable[tuple[bytes | None, bytes | None]],
        *,
        codec: Compression = Compression.NONE,
        timestamps: Iterable[int] | None = None,
        headers: tuple[Header, ...] = (),
        producer_id: int = -1,
        is_transactional: bool = False,
    ) -> None:
        """Append one batch of keys and values, each at the clock's time or at the given one."""
        pairs = list(records)
        times = [self.now_ms] * len(pairs) if timestamps is None else list(timestamps)
        built = [
            Record(index, time, key, value, headers)
            for index, ((key, value), time) in enumerate(zip(pairs, times, strict=True))
        ]
        sequence = self._sequences.get(producer_id, 0) if producer_id >= 0 else -1
        batch = build_batch(
            built,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        first = self.log.append_as_leader(batch, leader_epoch=0, now_ms=self.now_ms).first_offset
        if producer_id >= 0:
            self._sequences[producer_id] = sequence + len(built)
        if self._is_log_append_time:
            built = [record._replace(timestamp=self.now_ms) for record in built]
        self._written += [(record, first + index) for index, record in enumerate(built)]
        if is_transactional:
            transaction = self._open.setdefault(producer_id, _Transaction())
            transaction.offsets += range(first, first + len(built))
        self.now_ms += 10

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Append the marker that ends the producer's transaction."""
        batch = marker(producer_id, is_commit=is_commit, timestamp=self.now_ms)
        self.log.append_as_leader(batch, leader_epoch=0, now_ms=self.now_ms, origin=AppendOrigin.COORDINATOR)
        transaction = self._open.pop(producer_id)
        if not is_commit:
            self._hidden.update(transaction.offsets)
        self.now_ms += 10

    def commit_all(self) -> None:
        """Move the high watermark to the log end."""
        self.log.marks.update_high_watermark(self.log.log_end_offset)

    def compact(self) -> None:
        """Compact all but the active segment.

        The last record of each key stays, tombstones too. Aborted records are removed.
        """
        self.commit_all()
        cleanable = self.log.compactions.cleanable_offsets(None, self.now_ms)
        for work in self.log.compactions.prepare(cleanable, CleanerConfig(), self.now_ms):
            work()
        end_offset = self.log.local.segments.active.base_offset
        in_range = [
            (record, offset)
            for record, offset in self._written
            if offset < end_offset and offset not in self._hidden
        ]
        last = {record.key: offset for record, offset in in_range}
        kept = [(record, offset) for record, offset in in_range if last[record.key] == offset]
        self._written = kept + [each for each in self._written if each[1] >= end_offset]

    @property
    def last_stable_offset(self) -> int:
        """The offset at which a consumer of committed transactions stops."""
        first_open = [each.offsets[0] for each in self._open.values()]
        return min(first_open, default=self.log.log_end_offset)

    @property
    def found(self) -> list[Written]:
        """The records that a consumer finds, in the order of their offsets."""
        stable, start = self.last_stable_offset, self.log.log_start_offset
        return [
            Written(
                offset=offset,
                timestamp=record.timestamp,
                key=record.key,
                value=record.value,
                headers=record.headers,
                is_committed=offset not in self._hidden and offset < stable,
            )
            for record, offset in self._written
            if offset >= start
        ]


# The shapes


def _numbered(count: int, *, start: int = 0) -> list[tuple[bytes, bytes]]:
    return [
        (f"key-{number % 7}".encode(), f"value {number}".encode()) for number in range(start, start + count)
    ]


def _noise(size_bytes: int) -> bytes:
    draws = Draws(1)
    return b"".join(draws.bits("noise", number).to_bytes(8, "big") for number in range(size_bytes // 8))


def _every_kind_of_record(codec: Compression) -> Callable[[Writer], None]:
    def write(writer: Writer) -> None:
        writer.append(
            [(None, None), (b"", b""), (b"k", None), (None, b"v"), ("ключ".encode(), "値 😀".encode())],
            codec=codec,
        )
        twice = (("h", b"1"), ("h", None), ("überschrift", b""), ("", b"empty key"))
        writer.append(_numbered(3), codec=codec, headers=twice)
        back = [START_MS + 5_000, START_MS + 1, START_MS + 9_000, 0, START_MS]
        writer.append(_numbered(5), codec=codec, timestamps=back)
        writer.append([(b"large", _noise(200_000)), (b"plain", b"x" * 300_000)], codec=codec)
        writer.append([(None, _noise(64))], codec=codec)
        for number in range(30):
            writer.append(_numbered(1 + number % 4, start=number), codec=codec)

    return write


def _codec_changes(writer: Writer) -> None:
    for number in range(40):
        writer.append(_numbered(3, start=3 * number), codec=CODECS[number % len(CODECS)])


def _plain(writer: Writer) -> None:
    for number in range(60):
        writer.append(_numbered(4, start=4 * number))


def _idempotent(writer: Writer) -> None:
    for number in range(50):
        writer.append(_numbered(2, start=2 * number), producer_id=2000 + number % 3)


def _transactions(writer: Writer) -> None:
    """Write with two producers, commits and aborts interleaved with other records. One transaction stays open."""
    for number in range(24):
        for producer_id in (3000, 3001):
            writer.append(_numbered(2, start=number), producer_id=producer_id, is_transactional=True)
            if number % 3 == producer_id % 2:
                writer.end_transaction(producer_id, is_commit=number % 2 == 0)
        writer.append(_numbered(1, start=number))
        if number % 8 == 7:
            writer.log.flushes.roll(now_ms=writer.now_ms)
    for producer_id in (3000, 3001):
        writer.end_transaction(producer_id, is_commit=producer_id == 3001)
    writer.append(_numbered(2), producer_id=3002, is_transactional=True)
    writer.append(_numbered(2), producer_id=3000, is_transactional=True)
    writer.end_transaction(3000, is_commit=False)
    writer.append(_numbered(3))


def _over_days(writer: Writer) -> None:
    for number in range(30):
        writer.append(_numbered(2, start=number))
        writer.now_ms += 17_000


def _compacted(codec: Compression) -> Callable[[Writer], None]:
    def write(writer: Writer) -> None:
        for number in range(90):
            writer.append(_numbered(1 + number % 3, start=2 * number), codec=codec)
            if number % 25 == 24:
                writer.append([(b"key-3", None), (b"only once", b"stays")], codec=codec)
                writer.log.flushes.roll(now_ms=writer.now_ms)
        writer.compact()
        writer.append(_numbered(3), codec=codec)

    return write


def _compacted_transactions(writer: Writer) -> None:
    """Write markers, batches that lose all records, and a producer whose last record is superseded."""
    for number in range(30):
        for producer_id in (3000, 3001):
            writer.append(_numbered(2, start=number), producer_id=producer_id, is_transactional=True)
            writer.end_transaction(producer_id, is_commit=(number + producer_id) % 3 > 0)
        if number % 10 == 9:
            writer.log.flushes.roll(now_ms=writer.now_ms)
    writer.compact()
    writer.append(_numbered(3))


def _moved_start(writer: Writer) -> None:
    for number in range(40):
        writer.append(_numbered(2, start=number))
    writer.commit_all()
    writer.log.marks.maybe_increment_log_start_offset(17)


def _nothing(writer: Writer) -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One shape of a topic: its properties, and what writes its records."""

    name: str
    properties: dict[str, str]
    write: Callable[[Writer], None]

    @property
    def config(self) -> LogConfig:
        return LogConfig.from_properties({"retention.ms": "-1", **self.properties})


_COMPACTED = {"cleanup.policy": "compact", "segment.index.bytes": "128", "index.interval.bytes": "200"}
_SMALL = {"segment.index.bytes": "1024", "index.interval.bytes": "256"}

SHAPES: Final = (
    *(
        Shape(name=f"ours-{codec.name.lower()}", properties=_SMALL, write=_every_kind_of_record(codec))
        for codec in CODECS
    ),
    Shape(name="ours-codec-changes", properties=_SMALL, write=_codec_changes),
    Shape(name="ours-recompressed", properties={**_SMALL, "compression.type": "zstd"}, write=_codec_changes),
    Shape(
        name="ours-log-append-time",
        properties={**_SMALL, "message.timestamp.type": "LogAppendTime"},
        write=_plain,
    ),
    Shape(name="ours-idempotent", properties=_SMALL, write=_idempotent),
    Shape(
        name="ours-transactions",
        properties={"segment.index.bytes": "512", "index.interval.bytes": "128"},
        write=_transactions,
    ),
    Shape(
        name="ours-index-full-rolls",
        properties={"segment.index.bytes": "64", "index.interval.bytes": "200"},
        write=_plain,
    ),
    Shape(name="ours-time-rolls", properties={**_SMALL, "segment.ms": "60000"}, write=_over_days),
    Shape(
        name="ours-moved-start",
        properties={"segment.index.bytes": "64", "index.interval.bytes": "100"},
        write=_moved_start,
    ),
    Shape(name="ours-compacted-none", properties=_COMPACTED, write=_compacted(Compression.NONE)),
    Shape(name="ours-compacted-zstd", properties=_COMPACTED, write=_compacted(Compression.ZSTD)),
    Shape(name="ours-compacted-transactions", properties=_COMPACTED, write=_compacted_transactions),
    Shape(name="ours-empty", properties={}, write=_nothing),
)


def write_shape(shape: Shape, log: PartitionLog) -> Writer:
    """Write the shape to the log, all of it committed. Returns the writer."""
    is_log_append_time = shape.properties.get("message.timestamp.type") == "LogAppendTime"
    writer = Writer(log, is_log_append_time=is_log_append_time)
    shape.write(writer)
    writer.commit_all()
    return writer
