"""Judges whether a leader has stored the records that a producer sent: every key, value, header and time of theirs."""

from __future__ import annotations

from storage.batch import HEADER, HEADER_SIZE, Record, RecordBatch
from storage.batch.format import LOG_APPEND_TIME_FLAG
from storage.codec.buffer import Buffer

NAME = "stored-as-sent"


def crc_of(batch: Buffer) -> int:
    """Returns the checksum in the header of a batch, which covers all that its sender decides; -1 without a header."""
    return int(HEADER.unpack_from(batch, 0)[4]) if len(batch) >= HEADER_SIZE else -1


def difference(sent: Buffer, stored: Buffer) -> str:
    """Returns how the records of a stored batch differ from those that were sent; empty if they do not.

    A leader may compress them in another way, and set the time of all of them to that of its append (AP6).
    """
    asked = list(RecordBatch(sent, 0, len(sent)).records())
    batch = RecordBatch(stored, 0, len(stored))
    kept = list(batch.records())
    if len(kept) != len(asked):
        return f"{len(asked)} records were sent, and {len(kept)} are stored"
    for number, (one, other) in enumerate(zip(asked, kept, strict=True)):
        if what := _record_difference(one, other, keeps_time=not batch.attributes & LOG_APPEND_TIME_FLAG):
            return f"record {number} was sent with {what}"
    return ""


def _record_difference(sent: Record, stored: Record, *, keeps_time: bool) -> str:
    if sent.key != stored.key:
        return f"the key {sent.key!r}, and {stored.key!r} is stored"
    if sent.value != stored.value:
        return f"the value {sent.value!r}, and {stored.value!r} is stored"
    if sent.headers != stored.headers:
        return f"the headers {sent.headers!r}, and {stored.headers!r} are stored"
    if keeps_time and sent.timestamp != stored.timestamp:
        return f"the time {sent.timestamp}, and {stored.timestamp} is stored"
    return ""
