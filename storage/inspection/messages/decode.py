"""Decodes messages in Kafka's generic format to values, and prints values as the JSON that Kafka prints.

A value is of one of JSON's types: a dict of a structure's fields in order, a list, a str, a number, a bool or None.
Kafka: the generated `read` and JsonConverter classes, ByteBufferAccessor, Jackson's ObjectNode.toString.
"""

from __future__ import annotations

import base64
import struct
from decimal import Decimal
from functools import lru_cache
from typing import Final, final

from storage.codec.utf8 import decode_utf8
from storage.inspection.messages.schema import Field, FieldType, MessageSchema, Unreadable

Value = str | int | float | bool | None | list["Value"] | dict[str, "Value"]

# What Java prints for an exception without a message.
NO_TEXT: Final = "null"
_NUMBERS = {
    "boolean": struct.Struct(">?"),
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
}
_VARINT_MAX_BYTES = 5
_MAX_STRING = 0x7FFF
# The most values that are read of one record. A value takes about 100 bytes of memory, and may take one in the record.
MOST_VALUES: Final = 200_000


class TooManyValues(Unreadable):
    """A message that would take much more memory decoded than it has bytes."""


@final
class MessageReader:
    """Reads values from bytes, one after the other. A read that fails raises Unreadable with Kafka's message."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0
        self.has_inner = True
        # How many more values may be read.
        self.values_left = MOST_VALUES

    def count_value(self) -> None:
        """Count one value. Raises TooManyValues after the last one that may be read."""
        if self.values_left <= 0:
            raise TooManyValues(f"it has more than {MOST_VALUES} values, which are not decoded here")
        self.values_left -= 1

    @property
    def remaining(self) -> int:
        return len(self._data) - self._position

    def number(self, type_name: str) -> Value:
        """Read a number of the primitive type `type_name`: an int, a float or a bool."""
        layout = _NUMBERS[type_name]
        if self.remaining < layout.size:
            raise Unreadable(NO_TEXT)
        (value,) = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        assert self.remaining >= 0, (type_name, self._position)
        result: Value = value
        return result

    def integer(self, type_name: str) -> int:
        value = self.number(type_name)
        assert isinstance(value, int), value
        return value

    def raw(self, size: int) -> bytes:
        """Read `size` bytes."""
        if size > self.remaining:
            raise Unreadable(
                f"Error reading byte array of {size} byte(s): only {self.remaining} byte(s) available"
            )
        if size < 0:
            # The message of a NegativeArraySizeException.
            raise Unreadable(str(size))
        self._position += size
        assert self.remaining >= 0, (size, self._position)
        return self._data[self._position - size : self._position]

    def unsigned_varint(self) -> int:
        """Read a number of 32 bits. As in Java's int, the bits of a fifth byte may make it negative."""
        # Nearly all are of one byte.
        if self._position < len(self._data) and (first := self._data[self._position]) < 0x80:
            self._position += 1
            return first
        value = 0
        for index in range(_VARINT_MAX_BYTES):
            byte = self.integer("int8") & 0xFF
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                value &= 0xFFFFFFFF
                return value - (1 << 32) if value >> 31 else value
        shown = value & 0x0FFFFFFF | (byte << 28) & 0xFFFFFFFF
        raise Unreadable(
            f"Varint is too long, the most significant bit in the 5th byte is set, converted value: {shown:x}"
        )


def read_message(reader: MessageReader, schema: MessageSchema, *, has_inner: bool = True) -> dict[str, Value]:
    """Read a message; returns the fields that Kafka prints, in Kafka's order. Bytes after the message are not read.

    Raises Unreadable; without `has_inner` also for an inner structure, because Kafka reads none in a message of an
    unknown version.
    """
    reader.has_inner = has_inner
    return _read_struct(reader, schema.fields, schema.is_flexible)


def _read_struct(reader: MessageReader, fields: tuple[Field, ...], flexible: bool) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for each in fields:
        if each.tag is None:
            values[each.name] = _read_value(reader, each.type, flexible, each.name)
    if not flexible:
        return values
    if not (count := reader.unsigned_varint()):
        return values
    tagged = {each.tag: each for each in fields if each.tag is not None}
    for _ in range(count):
        reader.count_value()
        tag, size = reader.unsigned_varint(), reader.unsigned_varint()
        known = tagged.get(tag)
        if known is None:
            reader.raw(size)
            continue
        value = _read_tagged(reader, known)
        if value == _default(known):
            values.pop(known.name, None)
        else:
            values[known.name] = value
    return {each.name: values[each.name] for each in fields if each.name in values}


def _read_tagged(reader: MessageReader, field: Field) -> Value:
    """Read a tagged field. Unlike in other fields, a structure that may be null follows a varint, not a byte."""
    if field.type.name == "struct" and field.type.is_nullable:
        return _read_struct(reader, field.type.fields, True) if reader.unsigned_varint() > 0 else None
    return _read_value(reader, field.type, True, field.name)


def _read_value(reader: MessageReader, field_type: FieldType, flexible: bool, name: str) -> Value:
    reader.count_value()
    type_name = field_type.name
    # The two that a record may have very many of come first.
    if type_name == "string":
        return _read_string(reader, field_type, flexible, name)
    if type_name == "struct":
        if field_type.is_nullable and reader.integer("int8") < 0:
            return None
        if not reader.has_inner:
            raise Unreadable(f"the version of {name} is unknown")
        return _read_struct(reader, field_type.fields, flexible)
    match type_name:
        case "bytes":
            size = _read_size(reader, "int32", field_type, flexible, name)
            return None if size is None else base64.b64encode(reader.raw(size)).decode()
        case "uuid":
            return _read_uuid(reader)
        case "array":
            return _read_array(reader, field_type, flexible, name)
        case _:
            return reader.number(type_name)


def _read_size(
    reader: MessageReader, plain: str, field_type: FieldType, flexible: bool, name: str
) -> int | None:
    """Read the length of a string (`plain` is int16), of bytes or of an array (int32); None for null.

    Compact lengths are stored plus 1. Raises Unreadable for a null that the field does not allow.
    """
    size = reader.unsigned_varint() - 1 if flexible else reader.integer(plain)
    if size >= 0:
        return size
    _check_null(field_type, name)
    return None


def _check_null(field_type: FieldType, name: str) -> None:
    """Raise Unreadable for a null that the field does not allow."""
    if not field_type.is_nullable:
        raise Unreadable(f"non-nullable field {name} was serialized as null")


def _read_string(reader: MessageReader, field_type: FieldType, flexible: bool, name: str) -> str | None:
    size = reader.unsigned_varint() - 1 if flexible else reader.integer("int16")
    if not size:
        return ""
    if size < 0:
        _check_null(field_type, name)
        return None
    if size > _MAX_STRING:
        raise Unreadable(f"string field {name} had invalid length {size}")
    return decode_utf8(reader.raw(size))


def _read_array(
    reader: MessageReader, field_type: FieldType, flexible: bool, name: str
) -> list[Value] | None:
    size = _read_size(reader, "int32", field_type, flexible, name)
    if size is None:
        return None
    if size > reader.remaining:
        raise Unreadable(
            f"Tried to allocate a collection of size {size}, "
            f"but there are only {reader.remaining} bytes remaining."
        )
    assert field_type.element is not None, name
    element, element_name = field_type.element, f"{name} element"
    return [_read_value(reader, element, flexible, element_name) for _ in range(size)]


def _read_uuid(reader: MessageReader) -> str:
    if reader.remaining < 16:
        raise Unreadable(NO_TEXT)
    return uuid_text(reader.raw(16))


def uuid_text(data: bytes) -> str:
    """Returns the text of a uuid as Kafka's Uuid.toString writes it."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _default(field: Field) -> Value:
    match field.default:
        case "null":
            return None
        case "[]":
            return []
        case "false":
            return False
        case "zero":
            return uuid_text(bytes(16))
        case "struct":
            return _zero_of(field.type)
        case number:
            return int(number)


def _zero_of(field_type: FieldType) -> Value:
    match field_type.name:
        case "struct":
            return {each.name: _zero_of(each.type) for each in field_type.fields}
        case "array":
            return []
        case "string" | "bytes":
            return ""
        case _:
            return 0


_ESCAPES = {code: f"\\u{code:04X}" for code in range(0x20)} | {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    ord("\b"): "\\b",
    ord("\f"): "\\f",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}


def json_text(value: Value | dict[str, Value]) -> str:
    """Returns the JSON of a value, without blanks, escaped as Jackson escapes it."""
    if isinstance(value, str):
        # Nothing of most texts is escaped, and a look costs less than a translation.
        return f'"{value}"' if value.isalnum() else f'"{value.translate(_ESCAPES)}"'
    # A look at a dict costs much less than one at any mapping.
    if isinstance(value, dict):
        # Empty texts take a look instead of a call: a record may have very many.
        texts = [
            f"{_name_text(key)}:{json_text(each)}" if each != "" else f'{_name_text(key)}:""'
            for key, each in value.items()
        ]
        return "{" + ",".join(texts) + "}"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_double(value)
    return str(value) if isinstance(value, int) else f"[{','.join(map(json_text, value))}]"


@lru_cache(maxsize=1024)
def _name_text(name: str) -> str:
    """Returns the JSON of a field's name. There are few of them, each of which is printed very often."""
    return json_text(name)


def _java_double(value: float) -> str:
    """Returns the text of Java's Double.toString, in quotes if JSON has no such number."""
    if value != value:
        return '"NaN"'
    if value in (float("inf"), float("-inf")):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int), value
    figures = "".join(map(str, digits)).rstrip("0")
    mantissa = f"{'-' if sign else ''}{figures[0]}.{figures[1:] or '0'}"
    return f"{mantissa}E{exponent + len(digits) - 1}"
