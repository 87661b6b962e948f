"""Checks before recovery that the damaged part of the metadata log was never committed, so that it may be cut.

The first record of each decision has a header with the committed offset at the time of its append. If a sound batch
after the damage states a committed offset above the damage, committed decisions are lost. Cutting the log there would
take back topics and epochs that brokers have acted on, and there is no other replica to repair the log from.
"""

from __future__ import annotations

from collections.abc import Iterator

from storage.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, RecordBatch
from storage.batch.format import FIELD_BASE_OFFSET, FIELD_LAST_OFFSET_DELTA, FIELD_SIZE
from storage.batch.record import Header
from storage.disk.filesystem import FileSystem, join, read_file
from storage.errors import CorruptBatch, InvalidRecord, StorageError
from storage.segment.file_records import FileRecords

COMMITTED_HEADER = "committed"
_MAGIC_AT = 16
# Those of the greatest offset.
MOST_DIGITS = 19
# The checksums of what only looks like a batch may cover the file so many times. Behind damage there are few such
# places, unless somebody made them.
_MOST_TIMES = 16
_LEAST_CHECKED_BYTES = 1 << 20


class DamagedMetadataLog(StorageError):
    """Damage in committed decisions of the metadata log. Nothing was cut: the files are unchanged."""


def committed_header(committed_offset: int) -> Header:
    return COMMITTED_HEADER, str(committed_offset).encode()


def check_nothing_committed_is_damaged(file_system: FileSystem, directory: str) -> None:
    """Raises DamagedMetadataLog, with file, byte and reason, if committed decisions are damaged. Writes nothing."""
    if not file_system.exists(directory):
        return
    damage: CorruptBatch | None = None
    sound_end = 0
    for name in file_system.list(directory):
        if not name.endswith(".log"):
            continue
        path = join(directory, name)
        start = 0
        if damage is None:
            sound_end, damage = _sound_part(file_system, path, sound_end)
            if damage is None:
                continue
            start = damage.position + 1
        for committed_offset in _committed_after(read_file(file_system, path), start):
            if committed_offset is None:
                raise DamagedMetadataLog(
                    f"{damage}; too much behind it in {path} looks like batches to find what was committed: the "
                    "controller's log is damaged, and nothing of it was cut"
                )
            if committed_offset > sound_end:
                raise DamagedMetadataLog(
                    f"{damage}; sound batches behind it show that offsets up to {committed_offset} were committed: "
                    "the controller's log is damaged, and nothing of it was cut"
                )


def _sound_part(file_system: FileSystem, path: str, end_offset: int) -> tuple[int, CorruptBatch | None]:
    """Returns the end offset of the sound batches (exclusive), and the damage after them; None if the file is sound."""
    records = FileRecords(file_system, path, read_only=True)
    position = 0
    try:
        for _, _, position_now, header in records.scan_headers():
            end_offset = header[FIELD_BASE_OFFSET] + header[FIELD_LAST_OFFSET_DELTA] + 1
            position = position_now + LOG_OVERHEAD + header[FIELD_SIZE]
    except CorruptBatch as error:
        return end_offset, error
    finally:
        records.close_handlers()
    if position < records.size_bytes:
        return end_offset, CorruptBatch(path, position, "the bytes that follow are no whole batch")
    return end_offset, None


def _committed_after(data: bytes, start: int) -> Iterator[int | None]:
    """Yields the committed offset stated by each sound batch from byte `start` on; finds their starts by a search.

    Yields None last if the search is given up: it has checked too many bytes that are no sound batch.
    """
    left_bytes = max(_MOST_TIMES * len(data), _LEAST_CHECKED_BYTES)
    at = data.find(b"\x02", start + _MAGIC_AT)
    while at >= 0:
        batch = _whole_batch(data, at - _MAGIC_AT)
        if batch is not None:
            if batch.is_valid():
                yield _committed_offset(batch)
                at += batch.size_bytes - 1
            else:
                left_bytes -= batch.size_bytes
        if left_bytes < 0:
            yield None
            return
        at = data.find(b"\x02", at + 1)


def _whole_batch(data: bytes, position: int) -> RecordBatch | None:
    """Returns the batch at `position`, whose checksum is not checked; None if it would end behind the data."""
    if position + HEADER_SIZE > len(data):
        return None
    size_bytes = LOG_OVERHEAD + HEADER.unpack_from(data, position)[1]
    if not HEADER_SIZE <= size_bytes <= len(data) - position:
        return None
    return RecordBatch(data, position, size_bytes, position)


def _committed_offset(batch: RecordBatch) -> int:
    try:
        headers = next(iter(batch.records())).headers
    except (InvalidRecord, StopIteration):
        return 0
    value = next((value for key, value in headers if key == COMMITTED_HEADER), None)
    return int(value) if value is not None and value.isdigit() and len(value) <= MOST_DIGITS else 0
