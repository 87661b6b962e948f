"""The quick check of the batch that nearly every client sends.

A set is plain if it is exactly one batch of magic 2, without codec, transaction or any other attribute, for a topic of
create time that stores it as it is, and if no rule refuses any of it. One look at the header and one scan of the
records decide that. Every other set is left to `analysis.py` and `batch.py`, which hold the rules and refuse what is
wrong; for a plain set they return the same as this check, byte for byte.
"""

from __future__ import annotations

import struct
from typing import Final, final

from storage.batch import RecordBatch, set_max_timestamp
from storage.batch.format import CRC_COVERS_FROM, CURRENT_MAGIC, HEADER_SIZE, LOG_OVERHEAD, TimestampType
from storage.batch.record import MAX_INT64, NO_TIMESTAMP
from storage.batch.scan import RecordScanner
from storage.codec.buffer import Buffer
from storage.codec.compression import Compression
from storage.codec.crc32c import crc32c
from storage.validation.checked import CheckedSet
from storage.validation.rules import ValidationRules
from storage.validation.work import STEP_RECORDS

# Base offset, size field, magic, CRC, attributes, last offset delta, base timestamp, max timestamp, producer id, base
# sequence, record count.
_FIELDS = struct.Struct(">qi4xbIhiqqq2xii").unpack_from
# Base offset, size field, leader epoch.
_STAMP = struct.Struct(">qii").pack_into
# Up to this size a copy for the checksum costs less than a view.
_COPIED_BYTES: Final = 1 << 12


@final
class PlainBatches:
    """The quick check of one topic's sets; what its rules ask of every batch is read from them once."""

    __slots__ = ("_after_max_ms", "_before_max_ms", "_is_compacted", "_largest_bytes", "_scanner")

    def __init__(self, rules: ValidationRules) -> None:
        takes_plain = (
            rules.target_codec in (None, Compression.NONE)
            and rules.target_magic == CURRENT_MAGIC
            and not rules.is_log_append
        )
        self._largest_bytes = rules.max_message_bytes if takes_plain else 0
        self._is_compacted = rules.is_compacted
        self._scanner = RecordScanner(HEADER_SIZE)
        self._before_max_ms, self._after_max_ms = rules.before_max_ms, rules.after_max_ms

    def check(self, records: Buffer, base_offset: int, leader_epoch: int, now_ms: int) -> CheckedSet | None:
        """Check a client's set and stamp it, if it is plain: its offsets begin at `base_offset`.

        Returns what `validate_and_assign` returns for it. Returns None, with nothing changed, for any other set: the
        rules have to be asked then. A bytearray is stamped in place, other buffers are copied first.
        """
        size_bytes = len(records)
        if not HEADER_SIZE <= size_bytes <= self._largest_bytes:
            return None
        (
            produced,
            size_field,
            magic,
            crc,
            attributes,
            last_delta,
            base_time,
            max_time,
            producer_id,
            sequence,
            count,
        ) = _FIELDS(records)
        is_short = size_bytes <= _COPIED_BYTES
        if (
            magic != CURRENT_MAGIC
            or size_field != size_bytes - LOG_OVERHEAD
            or attributes
            or produced
            or not 0 < count <= STEP_RECORDS
            or count != last_delta + 1
            or (producer_id >= 0 and sequence < 0)
            or crc32c(records[CRC_COVERS_FROM:] if is_short else memoryview(records)[CRC_COVERS_FROM:]) != crc
        ):
            return None
        # Slices of bytes cost less than slices of a bytearray.
        if type(records) is bytes:
            buffer, scan = bytearray(records), self._scanner.scan(records, count)
        else:
            buffer = records if type(records) is bytearray else bytearray(records)
            scan = self._scanner.scan(buffer, count)
        if scan is None:
            return None
        if self._is_compacted and scan.has_null_key:
            return None
        least, greatest = base_time + scan.least_timestamp_delta, base_time + scan.greatest_timestamp_delta
        # A negative one may stand for no timestamp.
        if (
            least < 0
            or greatest > MAX_INT64
            or now_ms - least > self._before_max_ms
            or greatest - now_ms > self._after_max_ms
        ):
            return None
        _STAMP(buffer, 0, base_offset, size_field, leader_epoch)
        if max_time != greatest:
            set_max_timestamp(buffer, 0, timestamp_type=TimestampType.CREATE, max_timestamp=greatest)
        last_offset = base_offset + last_delta
        return CheckedSet(
            buffer,
            base_offset,
            last_offset,
            greatest,
            last_offset,
            leader_epoch,
            (RecordBatch(buffer, 0, size_bytes),) if producer_id >= 0 else (),
            NO_TIMESTAMP,
        )
