"""Writes a dump: in the lines of kafka-dump-log, or as one JSON object per line.

Kafka: DumpLogSegments.dumpLog, printBatchLevel; values are printed as Java prints them
(`OptionalLong[5]`, `true`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, final

from storage.batch import RecordBatch
from storage.batch.control_records import ControlRecord, ControlType
from storage.batch.format import CODEC_MASK
from storage.batch.record import Record
from storage.codec.compression import compression_of
from storage.errors import UnsupportedCompression
from storage.inspection.dump.entries import AbortedTransactionEntry, ProducerEntry
from storage.inspection.dump.large import LargeRecord, json_string

Write = Callable[[str], None]
# Writes one line, which may be long, from its pieces.
WritePieces = Callable[[Iterator[str]], None]
Json = str | int | bool | None | list[str] | Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRecord:
    """A record as a dump shows it. `key` and `value` are None if they are null or not shown; `checksum` is None in
    magic 2.
    """

    record: Record
    control: ControlRecord | None = None
    # The message of a quorum's control record, as JSON.
    control_message: str | None = None
    key: str | None = None
    value: str | None = None
    # The texts of a large record, which has neither key nor value nor headers here.
    large: LargeRecord | None = None
    checksum: int | None = None
    is_valid: bool = True
    # The sizes as stored: in damaged messages of magic 0 and 1 they may be any negative number.
    key_size: int
    value_size: int


class DumpWriter(Protocol):
    """Receives the contents of the files, in order."""

    def file(self, path: str) -> None: ...

    def log_start(self, base_offset: int) -> None: ...

    def snapshot_start(self, end_offset: int, leader_epoch: int) -> None: ...

    def bootstrap_start(self) -> None: ...

    def batch(self, batch: RecordBatch, *, is_valid: bool) -> None: ...

    def record(self, batch: RecordBatch, shown: ShownRecord) -> None: ...

    def invalid_bytes(self, size_bytes: int, name: str) -> None: ...

    def index_is_empty(self, path: str) -> None: ...

    def index_is_sane(self, path: str) -> None: ...

    def offset_entry(self, offset: int, position: int) -> None: ...

    def time_entry(self, timestamp: int, offset: int) -> None: ...

    def aborted_transaction(self, entry: AbortedTransactionEntry) -> None: ...

    def producer(self, entry: ProducerEntry) -> None: ...


def codec_label(batch: RecordBatch) -> str:
    """Returns Kafka's name of the batch's codec; the number of an unknown one."""
    try:
        return compression_of(batch.attributes & CODEC_MASK).label
    except UnsupportedCompression:
        return str(batch.attributes & CODEC_MASK)


@final
class TextWriter:
    """Writes the lines of kafka-dump-log, one in each call of `write`, without line feeds."""

    def __init__(self, write: Write, write_pieces: WritePieces, *, skip_record_metadata: bool) -> None:
        self._write, self._write_pieces = write, write_pieces
        self._skip_record_metadata = skip_record_metadata

    def file(self, path: str) -> None:
        self._write(f"Dumping {path}")

    def log_start(self, base_offset: int) -> None:
        self._write(f"Log starting offset: {base_offset}")

    def snapshot_start(self, end_offset: int, leader_epoch: int) -> None:
        self._write(f"Snapshot end offset: {end_offset}, epoch: {leader_epoch}")

    def bootstrap_start(self) -> None:
        self._write("KRaft bootstrap snapshot")

    def batch(self, batch: RecordBatch, *, is_valid: bool) -> None:
        """Write the line of a batch; magic 0 and 1 have a shorter one."""
        if batch.magic >= 2:
            start = (
                f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} "
                f"count: {batch.record_count} baseSequence: {batch.base_sequence} "
                f"lastSequence: {batch.last_sequence} producerId: {batch.producer_id} "
                f"producerEpoch: {batch.producer_epoch} "
                f"partitionLeaderEpoch: {batch.partition_leader_epoch} "
                f"isTransactional: {_java(batch.is_transactional)} isControl: {_java(batch.is_control)} "
                f"deleteHorizonMs: {_optional_long(batch.delete_horizon_ms)}"
            )
        else:
            start = f"offset: {batch.last_offset}"
        self._write(
            f"{start} position: {batch.position} {batch.timestamp_type.label}: {batch.max_timestamp} "
            f"size: {batch.size_bytes} magic: {batch.magic} compresscodec: {codec_label(batch)} "
            f"crc: {batch.crc} isvalid: {_java(is_valid)}"
        )

    def record(self, batch: RecordBatch, shown: ShownRecord) -> None:
        """Write the line of a record."""
        parts = self._parts(batch, shown)
        if shown.large is None:
            self._write("".join(parts))
        else:
            self._write_pieces(parts)

    def _parts(self, batch: RecordBatch, shown: ShownRecord) -> Iterator[str]:
        if not self._skip_record_metadata:
            yield from _record_metadata(batch, shown)
        key = _pieces(shown.key) if shown.large is None else shown.large.key()
        if key is not None:
            yield "| key: " if self._skip_record_metadata else " key: "
            yield from key
        value = _pieces(shown.value) if shown.large is None else shown.large.value()
        if value is not None:
            yield " payload: "
            yield from value

    def invalid_bytes(self, size_bytes: int, name: str) -> None:
        self._write(f"Found {size_bytes} invalid bytes at the end of {name}")

    def index_is_empty(self, path: str) -> None:
        self._write(f"{path} is empty.")

    def index_is_sane(self, path: str) -> None:
        self._write(f"{path} passed sanity check.")

    def offset_entry(self, offset: int, position: int) -> None:
        self._write(f"offset: {offset} position: {position}")

    def time_entry(self, timestamp: int, offset: int) -> None:
        self._write(f"timestamp: {timestamp} offset: {offset}")

    def aborted_transaction(self, entry: AbortedTransactionEntry) -> None:
        self._write(
            f"version: {entry.version} producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
            f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )

    def producer(self, entry: ProducerEntry) -> None:
        """Write the line of a producer in a snapshot."""
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
            f"coordinatorEpoch: {entry.coordinator_epoch} "
            f"currentTxnFirstOffset: {_optional_long(entry.transaction_first_offset)} "
            # The blank at the end is written even if no batch follows.
            f"lastTimestamp: {entry.timestamp} "
        )
        if entry.has_batch:
            line += (
                f"firstSequence: {entry.first_sequence} lastSequence: {entry.last_sequence} "
                f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} "
                f"timestamp: {entry.timestamp}"
            )
        self._write(line)


def _java(value: bool) -> str:
    return "true" if value else "false"


def _optional_long(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _pieces(text: str | None) -> Iterator[str] | None:
    return None if text is None else iter((text,))


def _joined(separator: str, texts: Iterable[Iterator[str]]) -> Iterator[str]:
    """Yields the texts, each given in pieces, with the separator between them."""
    before = ""
    for pieces in texts:
        yield before
        yield from pieces
        before = separator


def _record_metadata(batch: RecordBatch, shown: ShownRecord) -> Iterator[str]:
    record = shown.record
    yield (
        f"| offset: {record.offset} {batch.timestamp_type.label}: {record.timestamp} "
        f"keySize: {shown.key_size} valueSize: {shown.value_size}"
    )
    # The brace is in Kafka's line too (T55).
    if shown.checksum is not None:
        yield f" isValid: {_java(shown.is_valid)} crc: {shown.checksum}}}"
    else:
        yield f" sequence: {record.sequence} headerKeys: ["
        if shown.large is None:
            yield ",".join(key for key, _ in record.headers)
        else:
            yield from _joined(",", shown.large.header_keys())
        yield "]"
    if shown.control is not None:
        yield _control_text(shown.control, shown.control_message)


_CONTROL_MESSAGES = {
    ControlType.LEADER_CHANGE: "LeaderChange:",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlType.KRAFT_VERSION: "KRaftVersion",
    ControlType.KRAFT_VOTERS: "KRaftVoters",
}


def _control_text(control: ControlRecord, message: str | None) -> str:
    if control.control_type in (ControlType.ABORT, ControlType.COMMIT):
        return f" endTxnMarker: {control.control_type.name} coordinatorEpoch: {control.coordinator_epoch}"
    if message is not None:
        return f" {_CONTROL_MESSAGES[control.control_type]} {message}"
    return f" controlType: {control.control_type.name}({control.type_id})"


@final
class JsonWriter:
    """Writes one JSON object per line, whose `kind` names its content. Bytes that are not UTF-8 become
    `{"base64": …}`.
    """

    def __init__(
        self, write: Write, write_pieces: WritePieces, *, print_data: bool, is_decoded: bool,
        skip_record_metadata: bool,
    ) -> None:  # fmt: skip
        self._write, self._write_pieces = write, write_pieces
        self._print_data = print_data
        self._is_decoded = is_decoded
        self._skip_record_metadata = skip_record_metadata

    def _object(self, kind: str, **fields: Json) -> None:
        self._write(json.dumps({"kind": kind, **fields}, ensure_ascii=False))

    def file(self, path: str) -> None:
        self._object("file", path=path)

    def log_start(self, base_offset: int) -> None:
        self._object("log", base_offset=base_offset)

    def snapshot_start(self, end_offset: int, leader_epoch: int) -> None:
        self._object("snapshot", end_offset=end_offset, leader_epoch=leader_epoch)

    def bootstrap_start(self) -> None:
        self._object("bootstrap_snapshot")

    def batch(self, batch: RecordBatch, *, is_valid: bool) -> None:
        """Write the header of a batch."""
        self._object(
            "batch",
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
            record_count=batch.record_count,
            base_sequence=batch.base_sequence,
            last_sequence=batch.last_sequence,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            partition_leader_epoch=batch.partition_leader_epoch,
            is_transactional=batch.is_transactional,
            is_control=batch.is_control,
            delete_horizon_ms=batch.delete_horizon_ms,
            position=batch.position,
            timestamp_type=batch.timestamp_type.label,
            max_timestamp=batch.max_timestamp,
            size_bytes=batch.size_bytes,
            magic=batch.magic,
            compression=codec_label(batch),
            crc=batch.crc,
            is_valid=is_valid,
        )

    def record(self, batch: RecordBatch, shown: ShownRecord) -> None:
        """Write a record; a control record has its type in place of key and value."""
        fields = self._fields(shown)
        if shown.large is not None:
            self._write_pieces(self._large(batch, fields, shown.large))
            return
        if self._print_data and not batch.is_control:
            fields["key"] = self._text(shown.record.key, shown.key)
            fields["value"] = self._text(shown.record.value, shown.value)
        self._object("record", **fields)

    def _fields(self, shown: ShownRecord) -> dict[str, Json]:
        """Returns all but key and value; of a large record without its header keys, whose place is there."""
        record, control = shown.record, shown.control
        fields: dict[str, Json] = {"offset": record.offset}
        if not self._skip_record_metadata:
            fields["timestamp"] = record.timestamp
            fields["key_size_bytes"] = None if record.key is None else shown.key_size
            fields["value_size_bytes"] = None if record.value is None else shown.value_size
            fields["sequence"] = record.sequence
            fields["header_keys"] = [key for key, _ in record.headers]
            if shown.checksum is not None:
                fields["crc"], fields["is_valid"] = shown.checksum, shown.is_valid
            if control is not None:
                fields["control_type"] = control.control_type.name
                fields["coordinator_epoch"] = control.coordinator_epoch
                fields["control_message"] = shown.control_message
        return fields

    def _large(self, batch: RecordBatch, fields: Mapping[str, Json], large: LargeRecord) -> Iterator[str]:
        yield '{"kind": "record"'
        for name, value in fields.items():
            yield f', "{name}": '
            if name == "header_keys":
                yield "["
                yield from _joined(", ", map(json_string, large.header_keys()))
                yield "]"
            else:
                yield json.dumps(value, ensure_ascii=False)
        if self._print_data and not batch.is_control:
            key, text = large.json(is_decoded=self._is_decoded)
            yield ', "key": '
            yield from key
            yield ', "value": '
            yield from text
        yield "}"

    def _text(self, data: bytes | None, shown: str | None) -> str | Mapping[str, str] | None:
        """Returns the text that the decoder shows; without a decoder, bytes that are not UTF-8 as base64."""
        return shown if self._is_decoded else _json_text(data)

    def invalid_bytes(self, size_bytes: int, name: str) -> None:
        self._object("invalid_bytes", size_bytes=size_bytes, name=name)

    def index_is_empty(self, path: str) -> None:
        self._object("empty_index", path=path)

    def index_is_sane(self, path: str) -> None:
        self._object("sane_index", path=path)

    def offset_entry(self, offset: int, position: int) -> None:
        self._object("offset_entry", offset=offset, position=position)

    def time_entry(self, timestamp: int, offset: int) -> None:
        self._object("time_entry", timestamp=timestamp, offset=offset)

    def aborted_transaction(self, entry: AbortedTransactionEntry) -> None:
        """Write an entry of a transaction index."""
        self._object(
            "aborted_transaction",
            version=entry.version,
            producer_id=entry.producer_id,
            first_offset=entry.first_offset,
            last_offset=entry.last_offset,
            last_stable_offset=entry.last_stable_offset,
        )

    def producer(self, entry: ProducerEntry) -> None:
        """Write a producer of a snapshot; fields of its last batch are null without one."""
        self._object(
            "producer",
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            coordinator_epoch=entry.coordinator_epoch,
            transaction_first_offset=entry.transaction_first_offset,
            timestamp=entry.timestamp,
            first_sequence=entry.first_sequence if entry.has_batch else None,
            last_sequence=entry.last_sequence if entry.has_batch else None,
            last_offset=entry.last_offset if entry.has_batch else None,
            offset_delta=entry.offset_delta if entry.has_batch else None,
        )


def _json_text(data: bytes | None) -> str | Mapping[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
