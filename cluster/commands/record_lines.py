"""Lines of `replog produce` as records: key, headers and value by the rules of Kafka's LineMessageReader.

Unlike Kafka, a line is bytes, not text, and a separator is no regular expression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from storage.batch.record import Header
from storage.codec.utf8 import decode_utf8
from storage.errors import ConfigError

_SHOWN_BYTES = 60


class BadLine(ValueError):
    """A line of the input that is no record. The message begins with its number, counted from 1."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"line {number}: {reason}")
        self.number = number


class Outgoing(NamedTuple):
    """One record to send; None leaves the choice of the partition or of the timestamp to the producer."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRules:
    """The properties of Kafka's LineMessageReader, with its defaults. Raises ConfigError for equal separators."""

    parse_key: bool = False
    key_separator: bytes = b"\t"
    parse_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    # A line without a separator is sent as far as it can be read.
    ignore_error: bool = False
    # A key, value, header value or list of headers equal to it is null.
    null_marker: bytes | None = None

    def __post_init__(self) -> None:
        separators = {
            "key.separator": self.key_separator,
            "headers.delimiter": self.headers_delimiter,
            "headers.separator": self.headers_separator,
            "headers.key.separator": self.headers_key_separator,
        }
        for name, separator in separators.items():
            if not separator:
                raise ConfigError(f"{name} is empty")
            if separator == self.null_marker:
                raise ConfigError(f"null.marker and {name} may not be equal")
        within_headers = list(separators.items())[1:]
        for place, (name, separator) in enumerate(within_headers):
            for other, same in within_headers[place + 1 :]:
                if separator == same:
                    raise ConfigError(f"{name} and {other} may not be equal")

    def read(self, line: bytes, number: int) -> Outgoing:
        """Splits the line into headers, key and value, in this order. Raises BadLine where a separator is missing."""
        headers: tuple[Header, ...] = ()
        key, rest = None, line
        if self.parse_headers:
            listed, rest = self._split("headers.delimiter", self.headers_delimiter, rest, number)
            if listed is not None and listed != self.null_marker:
                headers = tuple(self._header(pair, number) for pair in self._pairs(listed))
        if self.parse_key:
            key, rest = self._split("key.separator", self.key_separator, rest, number)
        return Outgoing(self._or_null(rest), None if key is None else self._or_null(key), headers)

    def _split(self, name: str, separator: bytes, line: bytes, number: int) -> tuple[bytes | None, bytes]:
        part, found, rest = line.partition(separator)
        if found:
            return part, rest
        if self.ignore_error:
            return None, line
        raise BadLine(number, f"no {name} {shown(separator)} in {shown(line)}")

    def _pairs(self, listed: bytes) -> list[bytes]:
        """Splits at headers.separator; as with Java's split, empty parts at the end do not count."""
        pairs = listed.split(self.headers_separator)
        while len(pairs) > 1 and not pairs[-1]:
            pairs.pop()
        return [] if pairs == [b""] and listed else pairs

    def _header(self, pair: bytes, number: int) -> Header:
        name, found, value = pair.partition(self.headers_key_separator)
        if not found and not self.ignore_error:
            separator = shown(self.headers_key_separator)
            raise BadLine(number, f"no headers.key.separator {separator} in the header {shown(pair)}")
        if found and name == self.null_marker:
            raise BadLine(
                number, f"the header {shown(pair)} has the null.marker as its key, which cannot be null"
            )
        return self._text(name, number), self._or_null(value) if found else None

    def _text(self, name: bytes, number: int) -> str:
        try:
            return name.decode()
        except UnicodeDecodeError as error:
            if self.ignore_error:
                return decode_utf8(name)
            raise BadLine(number, f"the header key {shown(name)} is not UTF-8") from error

    def _or_null(self, data: bytes) -> bytes | None:
        return None if data == self.null_marker else data


def shown(data: bytes) -> str:
    """Returns the beginning of `data` as quoted text for a message."""
    text = repr(data[:_SHOWN_BYTES].decode("utf-8", "backslashreplace"))
    return f"{text[:-1]}…{text[-1]}" if len(data) > _SHOWN_BYTES else text
