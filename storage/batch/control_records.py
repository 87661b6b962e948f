"""The contents of a control record (Kafka: ControlRecordType, EndTransactionMarker).

| part | layout |
| --- | --- |
| key | version int16 (0), type int16; more may follow |
| value of ABORT and COMMIT | version int16 (0), coordinator epoch int32; more may follow |
| value of the others | a message of Kafka's generic format (`control_batches.py`) |
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from storage.batch.record import Record
from storage.errors import InvalidRecord

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")


class ControlType(IntEnum):
    """The types of control records; UNKNOWN is for types that a reader does not know."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRecord:
    """The content of a control record. `type_id` is the stored number, known or not; `coordinator_epoch` is -1 unless
    the record ends a transaction.
    """

    control_type: ControlType
    type_id: int
    coordinator_epoch: int = -1


def read_control_record(record: Record) -> ControlRecord:
    """Decode a control record; a later version is read as version 0.

    Raises InvalidRecord for a short key or value and for a negative version.
    """
    type_id = _unpack(_KEY, record.key, "key")
    known = type_id in ControlType.__members__.values()
    control_type = ControlType(type_id) if known else ControlType.UNKNOWN
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return ControlRecord(control_type=control_type, type_id=type_id)
    coordinator_epoch = _unpack(_MARKER, record.value, "value")
    return ControlRecord(control_type=control_type, type_id=type_id, coordinator_epoch=coordinator_epoch)


def encode_end_transaction_marker(*, is_commit: bool, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Returns the key and the value of a COMMIT or ABORT marker."""
    control_type = ControlType.COMMIT if is_commit else ControlType.ABORT
    return encode_control_key(control_type), _MARKER.pack(0, coordinator_epoch)


def encode_control_key(control_type: ControlType) -> bytes:
    """Returns the key of a control record. Raises ValueError for UNKNOWN, which is not a type to write."""
    if control_type is ControlType.UNKNOWN:
        raise ValueError("a control record of an unknown type cannot be written")
    return _KEY.pack(0, control_type)


def _unpack(layout: struct.Struct, data: bytes | None, part: str) -> int:
    if data is None or len(data) < layout.size:
        raise InvalidRecord(f"a control record's {part} is shorter than {layout.size} bytes")
    version, content = layout.unpack_from(data)
    if version < 0:
        raise InvalidRecord(f"a control record's {part} has the impossible version {version}")
    return int(content)
