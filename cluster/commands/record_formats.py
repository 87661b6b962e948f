"""How `replog consume` prints a record: Kafka's DefaultMessageFormatter, and the format strings of kcat."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

from cluster.core.client.effects import FetchedBatch
from cluster.core.messages import TopicPartition
from storage.batch import TimestampType
from storage.batch.record import Record

Format = Callable[[TopicPartition, Record, FetchedBatch], bytes]

_INT32 = struct.Struct(">i")
_TOKEN = re.compile(r"%(?P<field>.?)|\\(?P<escape>x[0-9a-fA-F]{1,2}|.?)|[^%\\]+", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The properties of Kafka's DefaultMessageFormatter, with its defaults; it prints the columns in this order."""

    print_timestamp: bool = False
    print_partition: bool = False
    print_offset: bool = False
    print_epoch: bool = False
    print_headers: bool = False
    print_key: bool = False
    print_value: bool = True
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null_literal: bytes = b"null"

    def format(self) -> Format:
        """Returns the function that prints a record; without any column it prints nothing."""
        chosen: tuple[tuple[bool, Format], ...] = (
            (self.print_timestamp, _timestamp),
            (
                self.print_partition,
                lambda topic_partition, record, batch: b"Partition:%d" % topic_partition[1],
            ),
            (self.print_offset, lambda topic_partition, record, batch: b"Offset:%d" % record.offset),
            (self.print_epoch, lambda topic_partition, record, batch: b"Epoch:%d" % batch.leader_epoch),
            (self.print_headers, self._headers),
            (self.print_key, lambda topic_partition, record, batch: self._or_null(record.key)),
            (self.print_value, lambda topic_partition, record, batch: self._or_null(record.value)),
        )
        columns = [column for is_chosen, column in chosen if is_chosen]
        separator, end = self.key_separator, self.line_separator if columns else b""

        def format_columns(topic_partition: TopicPartition, record: Record, batch: FetchedBatch) -> bytes:
            return separator.join([column(topic_partition, record, batch) for column in columns]) + end

        return format_columns

    def _headers(self, topic_partition: TopicPartition, record: Record, batch: FetchedBatch) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        pairs = [name.encode() + b":" + self._or_null(value) for name, value in record.headers]
        return self.headers_separator.join(pairs)

    def _or_null(self, data: bytes | None) -> bytes:
        return self.null_literal if data is None else bytes(data)


def _timestamp(topic_partition: TopicPartition, record: Record, batch: FetchedBatch) -> bytes:
    if batch.timestamp_type is TimestampType.NO:
        return b"NO_TIMESTAMP"
    return b"%s:%d" % (batch.timestamp_type.label.encode(), record.timestamp)


def _headers(topic_partition: TopicPartition, record: Record, batch: FetchedBatch) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else bytes(value)) for name, value in record.headers
    )


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


_FIELDS: dict[str, Format] = {
    "s": lambda topic_partition, record, batch: bytes(record.value or b""),
    "S": lambda topic_partition, record, batch: b"%d" % _length(record.value),
    "R": lambda topic_partition, record, batch: _INT32.pack(_length(record.value)),
    "k": lambda topic_partition, record, batch: bytes(record.key or b""),
    "K": lambda topic_partition, record, batch: b"%d" % _length(record.key),
    "t": lambda topic_partition, record, batch: topic_partition.topic.encode(),
    "p": lambda topic_partition, record, batch: b"%d" % topic_partition.partition,
    "o": lambda topic_partition, record, batch: b"%d" % record.offset,
    "T": lambda topic_partition, record, batch: b"%d" % record.timestamp,
    "h": _headers,
}


def kcat_format(text: str) -> Format:
    r"""Returns the function that prints a record as kcat's `-f` does.

    %s value, %S its size, -1 for null, %R the same as four bytes, %k key, %K its size, %t topic, %p partition,
    %o offset, %T timestamp in ms, %h headers, %%; and \n, \r, \t, \0, \\, \xNN.
    Raises ValueError for another sequence, with its place counted from 1.
    """
    parts = [_part(token) for token in _TOKEN.finditer(text)]

    def format_parts(topic_partition: TopicPartition, record: Record, batch: FetchedBatch) -> bytes:
        return b"".join(
            part if isinstance(part, bytes) else part(topic_partition, record, batch) for part in parts
        )

    return format_parts


def _part(token: re.Match[str]) -> bytes | Format:
    whole, field, escape, place = token[0], token["field"], token["escape"], token.start() + 1
    if field is not None:
        if field == "%":
            return b"%"
        if field not in _FIELDS:
            known = " ".join(f"%{name}" for name in _FIELDS)
            raise ValueError(f"no sequence {whole} (character {place}): there are {known} %%")
        return _FIELDS[field]
    if escape is None:
        return os.fsencode(whole)
    if escape in _ESCAPES:
        return _ESCAPES[escape]
    if len(escape) > 1:
        return bytes([int(escape[1:], 16)])
    if not escape or escape.isalnum():
        raise ValueError(rf"no sequence {whole} (character {place}): there are \n \r \t \0 \\ \xNN")
    return os.fsencode(escape)
