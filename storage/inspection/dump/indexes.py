"""Dumps the indexes and producer snapshots of a log, and finds index entries that contradict the log.

Kafka: DumpLogSegments.dumpIndex, TimeIndexDumpErrors, dumpTimeIndex, dumpTxnIndex, dumpProducerIdSnapshot.
"""

from __future__ import annotations

import struct
from contextlib import ExitStack
from dataclasses import dataclass, field

from storage.batch import RecordBatch
from storage.batch.pieces import HEADS_HELD
from storage.disk.filesystem import File, FileSystem, OpenMode
from storage.errors import CorruptBatch, CorruptIndex, StorageError
from storage.index.offset_index import OffsetIndex
from storage.inspection.dump.entries import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    TimeEntry,
    read_aborted_transactions,
    read_offset_entries,
    read_producer_entries,
    read_time_entries,
)
from storage.inspection.dump.writers import DumpWriter
from storage.producers.snapshot import read_content
from storage.segment.file_records import FileRecords


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexScope:
    """The extent of an index dump: only a sanity check, only the comparison with the log, or also every entry."""

    sanity_only: bool
    verify_only: bool
    max_message_size: int


@dataclass(slots=True, kw_only=True)
class IndexFindings:
    """The entries of an index that contradict its log, in the order found. `damage` is one line."""

    damage: str | None = None
    # Offset in the index, offset in the log.
    mismatches: list[tuple[int, int]] = field(default_factory=list)
    # Timestamp in the index, timestamp in the log.
    timestamp_mismatches: list[tuple[int, int]] = field(default_factory=list)
    # Timestamp, the timestamp before it.
    out_of_order: list[tuple[int, int]] = field(default_factory=list)
    # Offset in the index, offset found or -1.
    offsets_not_found: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPaths:
    """The paths and the base offset of a segment, derived from the path of one of its files."""

    log: str
    offset_index: str
    base_offset: int


def dump_offset_index(
    file_system: FileSystem, path: str, segment: SegmentPaths, scope: IndexScope, writer: DumpWriter
) -> IndexFindings:
    """Dump each entry and look it up in the log; stop at the first entry that does not point to a batch."""
    findings = IndexFindings()
    log = FileRecords(file_system, segment.log, read_only=True)
    index = file_system.open(path, OpenMode.READ)
    try:
        if index.size() < OFFSET_ENTRY.size:
            writer.index_is_empty(path)
        elif scope.sanity_only:
            _check_sane(index, OFFSET_ENTRY)
            writer.index_is_sane(path)
        else:
            _compare_offsets(index, log, segment.base_offset, scope, writer, findings)
    finally:
        index.close()
        log.close()
    return findings


def _compare_offsets(
    index: File,
    log: FileRecords,
    base_offset: int,
    scope: IndexScope,
    writer: DumpWriter,
    findings: IndexFindings,
) -> None:
    assert findings.damage is None, findings.damage
    for entry in read_offset_entries(index, base_offset):
        batch = _batch_at(log, entry.position, scope.max_message_size)
        if batch is None:
            left = (index.size() - entry.position_in_index) // OFFSET_ENTRY.size - 1
            findings.damage = (
                f"{index.path} at byte {entry.position_in_index}: offset {entry.offset} points to byte "
                f"{entry.position} of the log, where no whole batch is; {left} entries follow"
            )
            return
        if batch.last_offset != entry.offset:
            findings.mismatches.append((entry.offset, batch.last_offset))
        if not scope.verify_only:
            writer.offset_entry(entry.offset, entry.position)


def _batch_at(log: FileRecords, position: int, max_size: int) -> RecordBatch | None:
    """Returns the batch at `position` if it is whole within `max_size` bytes of the log, else None."""
    if not 0 <= position <= log.size_bytes:
        return None
    try:
        return next(log.batches(position, min(position + max_size, log.size_bytes)), None)
    except CorruptBatch:
        return None


def dump_time_index(
    file_system: FileSystem, path: str, segment: SegmentPaths, scope: IndexScope, writer: DumpWriter
) -> IndexFindings:
    """Dump each entry and look it up in the log through the offset index."""
    findings = IndexFindings()
    with ExitStack() as stack:
        log = FileRecords(file_system, segment.log, read_only=True)
        stack.callback(log.close)
        offsets = OffsetIndex(file_system, segment.offset_index, segment.base_offset, read_only=True)
        stack.callback(offsets.close_handler)
        index = file_system.open(path, OpenMode.READ)
        stack.callback(index.close)
        if scope.sanity_only:
            _check_sane(index, TIME_ENTRY)
            writer.index_is_sane(path)
        else:
            _compare_times(index, log, offsets, scope, writer, findings)
    return findings


def _compare_times(
    index: File,
    log: FileRecords,
    offsets: OffsetIndex,
    scope: IndexScope,
    writer: DumpWriter,
    findings: IndexFindings,
) -> None:
    assert findings.damage is None, findings.damage
    previous_timestamp = -1
    for entry in read_time_entries(index, offsets.base_offset):
        position = offsets.lookup(entry.offset).position
        try:
            _compare_time(entry, previous_timestamp, log, position, findings)
        except (StorageError, ValueError) as error:
            reason = str(error) if isinstance(error, StorageError) else f"{log.path} has no byte {position}"
            left = (index.size() - entry.position_in_index) // TIME_ENTRY.size - 1
            findings.damage = (
                f"{index.path} at byte {entry.position_in_index}: offset {entry.offset} cannot be looked up: "
                f"{reason}; {left} entries follow"
            )
            return
        if not scope.verify_only:
            writer.time_entry(entry.timestamp, entry.offset)
        previous_timestamp = entry.timestamp


def _compare_time(
    entry: TimeEntry, previous_timestamp: int, log: FileRecords, position: int, findings: IndexFindings
) -> None:
    if not 0 <= position <= log.size_bytes:
        raise ValueError(position)
    found = next((batch for batch in log.batches(position) if batch.last_offset >= entry.offset), None)
    if found is None or found.last_offset != entry.offset:
        findings.offsets_not_found.append((entry.offset, -1 if found is None else found.last_offset))
        return
    largest = max((record.timestamp for record in found.records(held=HEADS_HELD)), default=-1)
    if largest != entry.timestamp:
        findings.timestamp_mismatches.append((entry.timestamp, largest))
    if previous_timestamp >= entry.timestamp:
        findings.out_of_order.append((entry.timestamp, previous_timestamp))


def _check_sane(index: File, layout: struct.Struct) -> None:
    """Raise CorruptIndex for an index that Kafka refuses (OffsetIndex.sanityCheck, TimeIndex.sanityCheck)."""
    size = index.size()
    if size % layout.size:
        raise CorruptIndex(index.path, f"{size} bytes are no multiple of an entry's {layout.size}")
    if not size:
        return
    first = layout.unpack(index.read_at(0, layout.size))
    last = layout.unpack(index.read_at(size - layout.size, layout.size))
    if layout is TIME_ENTRY:
        if last[0] < first[0]:
            raise CorruptIndex(
                index.path, f"the last timestamp {last[0]} is below the first timestamp {first[0]}"
            )
        last = last[1:]
    if last[0] < 0:
        raise CorruptIndex(index.path, f"the last offset is {-last[0]} below the base offset")


def dump_transaction_index(file_system: FileSystem, path: str, writer: DumpWriter) -> None:
    """Dump each entry. Raises CorruptIndex at an entry of an unknown version, and at one of zeros alone."""
    index = file_system.open(path, OpenMode.READ)
    try:
        for entry in read_aborted_transactions(index):
            writer.aborted_transaction(entry)
    finally:
        index.close()


def dump_producer_snapshot(file_system: FileSystem, path: str, writer: DumpWriter) -> None:
    """Dump each producer. Raises CorruptSnapshot for damage, before it writes a line."""
    for entry in read_producer_entries(path, read_content(file_system, path)):
        writer.producer(entry)
