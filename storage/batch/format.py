"""The layout of a record batch, the framed, checksummed unit that is written, fetched and stored whole.

| byte | size | field of magic 2 | |
| --- | --- | --- | --- |
| 0 | 8 | base offset | |
| 8 | 4 | size of what follows this field | at least 14 |
| 12 | 4 | partition leader epoch | -1 until a leader stamps it |
| 16 | 1 | magic | 2 |
| 17 | 4 | CRC-32C of the bytes from 21 to the end | |
| 21 | 2 | attributes | bits 0-2 codec, 3 log append time, 4 transactional, 5 control, 6 delete horizon |
| 23 | 4 | last offset delta | |
| 27 | 8 | base timestamp | the delete horizon when bit 6 is set |
| 35 | 8 | max timestamp | |
| 43 | 8 | producer id | -1 none |
| 51 | 2 | producer epoch | -1 none |
| 53 | 4 | base sequence | -1 none |
| 57 | 4 | record count | |
| 61 | | records, or their compressed form | |

The CRC leaves out base offset, size, epoch and magic: a leader stamps those in place. Magic 0 and 1 hold one
message: offset, size, CRC-32 at 12, magic at 16, attributes at 17, in magic 1 a timestamp at 18.
Kafka: DefaultRecordBatch, LegacyRecord.
"""

from __future__ import annotations

import struct
from enum import IntEnum

# Offset and size, which every magic has.
LOG_OVERHEAD = 12
HEADER_SIZE = 61
HEADER_SIZE_UP_TO_MAGIC = 17
# The size field of a magic-0 message with null key and null value.
MIN_SIZE_FIELD = 14
# All fields of magic 2 in field order; each FIELD_… is a field's index in the unpacked tuple.
HEADER = struct.Struct(">qiibIhiqqqhii")
assert HEADER.size == HEADER_SIZE
FIELD_BASE_OFFSET = 0
FIELD_SIZE = 1
FIELD_MAGIC = 3
FIELD_CRC = 4
FIELD_LAST_OFFSET_DELTA = 6
FIELD_MAX_TIMESTAMP = 8
SIZE_FIELD = struct.Struct(">i")
SIZE_FIELD_AT = 8
EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
CRC_COVERS_FROM = 21
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_PARTITION_LEADER_EPOCH = -1
CURRENT_MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40
KNOWN_ATTRIBUTES = 0x7F


class TimestampType(IntEnum):
    """The meaning of a batch's timestamps: in magic 0 there are none, else the time of creation or of the append."""

    NO = -1
    CREATE = 0
    LOG_APPEND = 1

    @property
    def label(self) -> str:
        """Kafka's name of the type, in configurations and dumps."""
        return _TIMESTAMP_LABELS[self]


_TIMESTAMP_LABELS = {
    TimestampType.NO: "NoTimestampType",
    TimestampType.CREATE: "CreateTime",
    TimestampType.LOG_APPEND: "LogAppendTime",
}
