"""Dumps a `.log`, and reports its damage where Kafka's tool stops (DumpLogSegments.dumpLog)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from storage.batch import CURRENT_MAGIC, RecordBatch
from storage.batch.control_records import ControlRecord, ControlType, read_control_record
from storage.batch.cut_record import CutRecord, cut_record
from storage.batch.legacy.messages import CutMessage, LegacyMessage
from storage.batch.pieces import DECODED_HELD, HEADS_HELD, MESSAGES_HELD, Held
from storage.batch.record import Record
from storage.disk.filesystem import basename
from storage.errors import (
    CorruptBatch,
    InvalidRecord,
    UnsupportedCompression,
    UnsupportedForMessageFormat,
)
from storage.inspection.dump.decoders import ClassDecoder, RecordDecoder
from storage.inspection.dump.large import Decoders, LargeRecords
from storage.inspection.dump.writers import DumpWriter, ShownRecord
from storage.inspection.messages.decode import MessageReader, json_text, read_message
from storage.inspection.messages.layouts import CONTROL
from storage.inspection.messages.schema import Unreadable, schemas_of
from storage.segment.file_records import FileRecords


@dataclass(frozen=True, slots=True, kw_only=True)
class LogScope:
    """The extent of a log dump. If `max_bytes` is None all of the log is shown, and the bytes after the last whole
    batch are reported.
    """

    deep: bool
    # Whether a node is writing the log: then zeros up to its end are room that it has not come to yet.
    is_written: Callable[[], bool]
    # None: keys and values are not shown.
    decoder: RecordDecoder | None
    shows_control: bool
    max_bytes: int | None


@dataclass(slots=True, kw_only=True)
class LogFindings:
    """The findings of one log's dump. `damage` is one line; `is_unsupported` if another reader could read the log."""

    damage: str | None = None
    is_unsupported: bool = False
    non_consecutive: list[tuple[int, int]] = field(default_factory=list)


def dump_log(log: FileRecords, scope: LogScope, writer: DumpWriter) -> LogFindings:
    """Dump every whole batch until one cannot be read; the batches after that one are counted, not shown."""
    return _LogDump(log, scope, writer).run()


class _LogDump:
    def __init__(self, log: FileRecords, scope: LogScope, writer: DumpWriter) -> None:
        self._log = log
        self._writer = writer
        self._scope = scope
        self._end = log.size_bytes if scope.max_bytes is None else min(scope.max_bytes, log.size_bytes)
        self._findings = LogFindings()
        # As in Kafka, an offset after -1 is never reported as not consecutive.
        self._last_offset = -1
        self._position = 0
        self._first_invalid: CorruptBatch | None = None
        self._invalid_count = 0

    def run(self) -> LogFindings:
        """Dump the log; to be called once."""
        assert self._position == 0, (self._log.path, self._position)
        try:
            for batch in self._log.batches(0, self._end):
                self._batch(batch)
                self._position = batch.position + batch.size_bytes
        except (CorruptBatch, InvalidRecord, UnsupportedCompression, UnsupportedForMessageFormat) as error:
            if not self._has_room():
                self._stopped(error)
                return self._findings
        left_bytes = self._log.size_bytes - self._position
        assert left_bytes >= 0, (self._log.path, self._position, self._log.size_bytes)
        if left_bytes > 0 and self._scope.max_bytes is None and not self._has_room():
            self._writer.invalid_bytes(left_bytes, basename(self._log.path))
            self._findings.damage = (
                f"{self._log.path} at byte {self._position}: the last {left_bytes} bytes are no whole batch"
            )
        if self._first_invalid is not None:
            more = self._invalid_count - 1
            self._findings.damage = f"{self._first_invalid}; {more} more batches are damaged"
        return self._findings

    def _has_room(self) -> bool:
        """Whether all that follows is room in a preallocated file, which a node is writing."""
        return self._log.has_only_zeros_from(self._position) and self._scope.is_written()

    def _batch(self, batch: RecordBatch) -> None:
        is_valid = batch.is_valid()
        self._writer.batch(batch, is_valid=is_valid)
        if not is_valid:
            self._note_invalid(batch)
        if not self._scope.deep:
            return
        held, large = self._held(batch), LargeRecords(batch)
        if batch.magic < CURRENT_MAGIC:
            for message in batch.messages(held=held):
                is_cut = isinstance(message, CutMessage)
                self._record(batch, message.record(), message, large=large if is_cut else None)
        else:
            for record in batch.records(held=held):
                self._record(batch, record, large=large if isinstance(record, CutRecord) else None)

    def _held(self, batch: RecordBatch) -> Held:
        """Returns how much of a large record is held: what is decoded of it as a whole."""
        if batch.is_control:
            return MESSAGES_HELD if self._scope.shows_control else HEADS_HELD
        return HEADS_HELD if isinstance(self._scope.decoder, ClassDecoder | None) else DECODED_HELD

    def _decoders(self, record: Record) -> Decoders | None:
        """Returns what decodes the fields of a large record; None if it is decoded whole. Raises InvalidRecord."""
        decoder = self._scope.decoder
        return decoder.for_large(record) if isinstance(decoder, ClassDecoder) else None

    def _note_invalid(self, batch: RecordBatch) -> None:
        assert (self._first_invalid is None) == (self._invalid_count == 0), (
            self._log.path,
            self._invalid_count,
        )
        self._invalid_count += 1
        if self._first_invalid is None:
            try:
                batch.check_valid(self._log.path)
            except CorruptBatch as error:
                self._first_invalid = error
        assert self._first_invalid is not None, (self._log.path, batch.position)

    def _record(
        self, batch: RecordBatch, record: Record, message: LegacyMessage | None = None,
        *, large: LargeRecords | None,
    ) -> None:  # fmt: skip
        if self._last_offset != -1 and record.offset != self._last_offset + 1:
            self._findings.non_consecutive.append((self._last_offset, record.offset))
        self._last_offset = record.offset
        try:
            told = self._interpreted(batch, record, message, large)
        except InvalidRecord:
            texts = None if large is None else large.next(None)
            self._writer.record(batch, replace(_plain(record, message), large=texts))
            raise
        self._writer.record(batch, told)

    def _interpreted(
        self, batch: RecordBatch, record: Record, legacy: LegacyMessage | None, large: LargeRecords | None
    ) -> ShownRecord:
        control = message = key = value = None
        if batch.is_control and self._scope.shows_control:
            control = read_control_record(record)
            message = _control_message(control, record)
        plain, decoders = _plain(record, legacy), None
        if self._scope.decoder is not None and not batch.is_control:
            if large is None:
                key, value = self._scope.decoder.show(record)
            elif (decoders := self._decoders(record)) is None:
                key, value = self._scope.decoder.show(cut_record(record, plain.key_size, plain.value_size))
        texts = None if large is None else large.next(decoders, (key, value))
        return replace(plain, control=control, control_message=message, key=key, value=value, large=texts)

    def _stopped(self, error: Exception) -> None:
        """Note the first damage, which may be before the batch that could not be read, and count what follows."""
        assert self._findings.damage is None, self._findings.damage
        assert self._position <= self._log.size_bytes, (self._log.path, self._position, self._log.size_bytes)
        self._findings.is_unsupported = isinstance(
            error, UnsupportedCompression | UnsupportedForMessageFormat
        )
        place = "" if isinstance(error, CorruptBatch) else f"{self._log.path} at byte {self._position}: "
        reason = f"{place}{error}"
        if self._first_invalid is not None:
            is_same_batch = self._first_invalid.position == self._position
            reason = f"{self._first_invalid}; then {error if is_same_batch else reason}"
        self._findings.damage = f"{reason}; {self._count_from(self._position)}"

    def _count_from(self, position: int) -> str:
        """Count the batches from `position` on, without the one at `position`; returns the counts as text."""
        assert 0 <= position <= self._end, (self._log.path, position, self._end)
        batch_count = record_count = 0
        try:
            for batch in self._log.batches(position, self._end):
                if batch.position != position:
                    batch_count += 1
                    record_count += max(batch.record_count, 0)
                self._position = batch.position + batch.size_bytes
        except CorruptBatch:
            # The rest is reported in bytes.
            pass
        left_bytes = self._end - self._position
        assert left_bytes >= 0, (self._log.path, self._position, self._end)
        told = f"{batch_count} batches with {record_count} records follow"
        return f"{told}, then {left_bytes} bytes that are no batch" if left_bytes else told


def _plain(record: Record, message: LegacyMessage | None) -> ShownRecord:
    if message is None:
        if isinstance(record, CutRecord):
            return ShownRecord(record=record, key_size=record.key_size, value_size=record.value_size)
        return ShownRecord(record=record, key_size=_size(record.key), value_size=_size(record.value))
    if isinstance(message, CutMessage):
        return ShownRecord(
            record=record,
            checksum=message.crc,
            is_valid=message.is_valid,
            key_size=message.key_size,
            value_size=message.value_size,
        )
    # Inside a wrapper every magic but 0 is read with the layout of 1.
    at = _LEGACY_KEY_SIZE_AT[message.magic != 0]
    (key_size,) = _SIZE.unpack_from(message.content, at)
    (value_size,) = _SIZE.unpack_from(message.content, at + _SIZE.size + max(key_size, 0))
    return ShownRecord(
        record=record,
        checksum=message.crc,
        is_valid=message.is_valid,
        key_size=key_size,
        value_size=value_size,
    )


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


_SIZE = struct.Struct(">i")
# Where the key size begins after the CRC: after magic and attributes in magic 0, also after a timestamp in magic 1.
_LEGACY_KEY_SIZE_AT = (6, 14)


_CONTROL_MESSAGES = {
    ControlType.LEADER_CHANGE: "LeaderChangeMessage",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeaderRecord",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooterRecord",
    ControlType.KRAFT_VERSION: "KRaftVersionRecord",
    ControlType.KRAFT_VOTERS: "VotersRecord",
}


def _control_message(control: ControlRecord, record: Record) -> str | None:
    """Returns the message of a quorum's control record as JSON; None for other types. Raises InvalidRecord if it does
    not decode.
    """
    name = _CONTROL_MESSAGES.get(control.control_type)
    if name is None:
        return None
    try:
        return json_text(read_message(MessageReader(record.value or b""), schemas_of(CONTROL)[name][0]))
    except Unreadable as error:
        raise InvalidRecord(f"the value of a {control.control_type.name} record: {error}") from error
