"""Files in which one field has a value at or beyond its bounds, made from the tables of the formats.

The binary layouts are the tables at the top of the modules that read them (`| byte | size | field |`), so that a field
that is added there is tried here. Numbers within a record have no fixed place: they are named in `RECORD_NUMBERS`.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator
from types import ModuleType
from typing import Final, NamedTuple

from storage.batch import Compression
from storage.batch import format as batch_format
from storage.batch.format import CRC_AT, CRC_COVERS_FROM, HEADER_SIZE
from storage.batch.legacy import messages
from storage.batch.legacy.builder import build_message
from storage.batch.pieces import LARGE_RECORD_BYTES
from storage.codec.compression import compress, decompress
from storage.codec.crc32c import crc32c
from storage.index import offset_index, time_index, transaction_index
from storage.producers import snapshot

_ROW = re.compile(r"^\| (\d+) \| (\d+)(?: each)? \| ([^|]+?) *\|", re.MULTILINE)
# Sizes that are no number.
_LARGEST_NUMBER = 8


class Field(NamedTuple):
    """A field of a layout: a big-endian number of `size` bytes at byte `at`."""

    name: str
    at: int
    size: int


class Damaged(NamedTuple):
    """The content of a file, and what was done to it."""

    what: str
    content: bytes


def fields_of(module: ModuleType) -> list[Field]:
    """Return the numbers in the table of the module's docstring."""
    rows = _ROW.findall(module.__doc__ or "")
    return [Field(name, int(at), int(size)) for at, size, name in rows if int(size) <= _LARGEST_NUMBER]


def bounds_of(size: int, stored: int) -> list[int]:
    """Return the unsigned forms of the values to try in a number of `size` bytes that holds `stored`."""
    bits = 8 * size
    least, most = 1 << bits - 1, (1 << bits - 1) - 1
    values = [
        0,
        1,
        2,
        most,
        most - 1,
        least,
        least + 1,
        (1 << bits) - 1,
        (1 << bits) - 2,
        stored - 1,
        stored + 1,
    ]
    # The sign bits of the number, and of narrower ones that it may be read into.
    values += [stored ^ 1 << bit for bit in (7, 15, 31, 63) if bit < bits]
    return sorted({value % (1 << bits) for value in values} - {stored})


def with_fields(content: bytes, start: int, fields: list[Field]) -> Iterator[Damaged]:
    """Yield `content` with each field of the layout at `start` set to each value."""
    for field in fields:
        at = start + field.at
        stored = int.from_bytes(content[at : at + field.size])
        for value in bounds_of(field.size, stored):
            damaged = bytearray(content)
            damaged[at : at + field.size] = value.to_bytes(field.size)
            yield Damaged(f"{field.name} {stored:#x} -> {value:#x}", bytes(damaged))


# Batches


def sealed(batch: bytes) -> bytes:
    """Return the batch with the checksum of its bytes."""
    buffer = bytearray(batch)
    struct.pack_into(">I", buffer, CRC_AT, crc32c(batch[CRC_COVERS_FROM:]))
    return bytes(buffer)


def batches(batch: bytes) -> Iterator[Damaged]:
    """Yield the batch with each field of its header set to each value; the checksum fits, unless it is the field."""
    for damaged in with_fields(batch, 0, fields_of(batch_format)):
        is_checksum = damaged.what.startswith("CRC")
        yield damaged if is_checksum else Damaged(damaged.what, sealed(damaged.content))


class Number(NamedTuple):
    """A number of a record: its name, and the bits that it may have."""

    name: str
    bits: int


RECORD_NUMBERS: Final = (
    Number("length", 32),
    Number("attributes", 8),
    Number("timestamp delta", 64),
    Number("offset delta", 32),
    Number("key length", 32),
    Number("value length", 32),
    Number("header count", 32),
    Number("header key length", 32),
    Number("header value length", 32),
)


def _numbers_tried(bits: int, stored: int) -> list[int]:
    most = (1 << bits - 1) - 1
    values = {0, 1, -1, most, most - 1, -most - 1, -most, stored - 1, stored + 1, -stored}
    return sorted(values - {stored})


def _varint(value: int) -> bytes:
    """Encode any number, of however many bits: what a reader does with too many is its own affair."""
    zigzag, groups = value << 1 if value >= 0 else ~(value << 1), bytearray()
    while zigzag >= 0x80:
        groups.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes((*groups, zigzag))


def _record(numbers: dict[str, int]) -> bytes:
    """Return a record with key, value and one header, whose lengths are what `numbers` says."""
    fields = b"".join(
        (
            (numbers["attributes"] & 0xFF).to_bytes(1),
            _varint(numbers["timestamp delta"]),
            _varint(numbers["offset delta"]),
            _varint(numbers["key length"]) + b"key",
            _varint(numbers["value length"]) + b"value",
            _varint(numbers["header count"]),
            _varint(numbers["header key length"]) + b"name",
            _varint(numbers["header value length"]) + b"content",
        )
    )
    return _varint(numbers.get("length", len(fields))) + fields


SOUND_RECORD: Final = {
    "attributes": 0,
    "timestamp delta": 0,
    "offset delta": 0,
    "key length": 3,
    "value length": 5,
    "header count": 1,
    "header key length": 4,
    "header value length": 7,
}


def with_payload(batch: bytes, payload: bytes, codec: Compression) -> bytes:
    """Return the batch with another payload, and the size, codec and checksum that belong to it."""
    packed = bytearray(batch[:HEADER_SIZE] + compress(codec, payload))
    struct.pack_into(">i", packed, 8, len(packed) - 12)
    struct.pack_into(">h", packed, 21, struct.unpack_from(">h", batch, 21)[0] & ~7 | codec)
    return sealed(bytes(packed))


def records(batch: bytes, codec: Compression) -> Iterator[Damaged]:
    """Yield the batch, of one record, with a record in which one number has each value; then damaged streams."""
    sound = _record(SOUND_RECORD)
    for number in RECORD_NUMBERS:
        stored = SOUND_RECORD.get(number.name, len(sound) - 1)
        for value in _numbers_tried(number.bits, stored):
            payload = _record({**SOUND_RECORD, number.name: value})
            yield Damaged(f"{number.name} {value}", with_payload(batch, payload, codec))
    for number in RECORD_NUMBERS:
        if number.bits > 8:
            payload = _record({**SOUND_RECORD, number.name: 1 << 70})
            yield Damaged(f"{number.name} of 71 bits", with_payload(batch, payload, codec))
    packed = with_payload(batch, sound, codec)
    assert decompress(codec, packed[HEADER_SIZE:]) == sound
    for at in range(HEADER_SIZE, len(packed)):
        damaged = bytearray(packed)
        damaged[at] ^= 0x80
        yield Damaged(f"byte {at - HEADER_SIZE} of the {codec.label} stream", sealed(bytes(damaged)))


# The key and the value of a marker begin at these bytes of its batch; nothing before them is longer than a byte.
CONTROL_KEY_AT: Final = HEADER_SIZE + 5
CONTROL_VALUE_AT: Final = CONTROL_KEY_AT + 5
CONTROL_FIELDS: Final = (
    Field("key version", CONTROL_KEY_AT, 2),
    Field("control type", CONTROL_KEY_AT + 2, 2),
    Field("value version", CONTROL_VALUE_AT, 2),
    Field("coordinator epoch", CONTROL_VALUE_AT + 2, 4),
)


def control_records(marker: bytes) -> Iterator[Damaged]:
    """Yield the marker of a transaction with each field of its key and value set to each value."""
    assert marker[CONTROL_KEY_AT - 1] == 8 and marker[CONTROL_VALUE_AT - 1] == 12, marker
    for damaged in with_fields(marker, 0, list(CONTROL_FIELDS)):
        yield Damaged(damaged.what, sealed(damaged.content))


# Messages of magic 0 and 1

_LEGACY_ROW = re.compile(r"^\| (\d*) ?\| (\d+) \| (\d+) \| ([^|]+?) *\|", re.MULTILINE)
_LEGACY_CRC_AT: Final = 12
_LEGACY_CRC_COVERS_FROM: Final = 16
_SOUND_KEY: Final = b"key"


def legacy_fields(magic: int) -> list[Field]:
    """Return the numbers in the table of the messages' module; the value's length follows the key of `message_of`."""
    fields = []
    for first, second, size, name in _LEGACY_ROW.findall(messages.__doc__ or ""):
        at = second if magic else first
        if at:
            fields.append(Field(name, int(at), int(size)))
    last = fields[-1]
    return [*fields, Field("value length", last.at + last.size + len(_SOUND_KEY), 4)]


def message_of(magic: int, value: bytes = b"value", *, offset: int = 0, attributes: int = 0) -> bytes:
    return build_message(
        offset, magic=magic, timestamp=1_000, key=_SOUND_KEY, value=value, attributes=attributes
    )


def sealed_message(message: bytes) -> bytes:
    """Return the message with the checksum of its bytes."""
    buffer = bytearray(message)
    struct.pack_into(">I", buffer, _LEGACY_CRC_AT, zlib.crc32(message[_LEGACY_CRC_COVERS_FROM:]))
    return bytes(buffer)


def _damaged_messages(message: bytes, magic: int) -> Iterator[Damaged]:
    for damaged in with_fields(message, 0, legacy_fields(magic)):
        is_checksum = damaged.what.startswith("CRC")
        yield damaged if is_checksum else Damaged(damaged.what, sealed_message(damaged.content))


def legacy_messages(magic: int) -> Iterator[Damaged]:
    """Yield a plain message, a wrapper, and messages within one, with each field of the header set to each value.

    The wrappers' contents are short, and more than a reader holds at once.
    """
    yield from _damaged_messages(message_of(magic), magic)
    before, large = message_of(magic), bytes(LARGE_RECORD_BYTES)
    for codec, value in (
        *((codec, b"value") for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4)),
        (Compression.LZ4, large),
    ):
        sound = message_of(magic, value, offset=1)
        yield from _damaged_messages(_wrapper(magic, before + sound, codec), magic)
        for damaged in _damaged_messages(sound, magic):
            what = f"in {codec.label}, of {len(value)} bytes: {damaged.what}"
            yield Damaged(what, _wrapper(magic, before + damaged.content, codec))
            yield Damaged(f"before another {what}", _wrapper(magic, damaged.content + sound, codec))


def _wrapper(magic: int, content: bytes, codec: Compression) -> bytes:
    return message_of(magic, compress(codec, content, magic=magic), offset=1, attributes=codec)


# JSON

_INTEGERS: Final = tuple(
    sign * (1 << bits) + near for bits in (31, 32, 63, 64) for sign in (1, -1) for near in (-1, 0, 1)
)
# Python's parser takes the constants; numbers of very many digits and deep nesting are its own limits.
JSON_TEXTS: Final = (
    *(str(number) for number in (*_INTEGERS, 0, 1, -1, -2, 2)),
    *("1.5", "-0", "1e400", "NaN", "Infinity", "9" * 5000, "null", "true", "false"),
    *(
        '""',
        '"x"',
        '"\\ud800"',
        '"\\u0000"',
        '"a/b"',
        '".."',
        '"' + "x" * 300 + '"',
        "[]",
        "[1]",
        "[-1]",
        "[[]]",
    ),
    *('["x"]', "[null]", "{}", '{"a":1}', '{"a":"b"}', "[" * 100_000, "["),
)


def json_members(content: bytes) -> Iterator[Damaged]:
    """Yield an object with each of its members replaced by each text, left out, twice, and with one that is unknown."""
    members = json.loads(content)

    def encoded(parts: list[str]) -> bytes:
        return ("{" + ",".join(parts) + "}").encode()

    sound = {name: f"{json.dumps(name)}:{json.dumps(value)}" for name, value in members.items()}
    for name in members:
        rest = [text for other, text in sound.items() if other != name]
        yield Damaged(f"without {name}", encoded(rest))
        yield Damaged(f"{name} twice", encoded([*rest, sound[name], sound[name]]))
        for text in JSON_TEXTS:
            yield Damaged(f"{name} is {text[:30]}", encoded([*rest, f"{json.dumps(name)}:{text}"]))
    yield Damaged("an unknown member", encoded([*sound.values(), '"unknown":1']))
    for text in JSON_TEXTS:
        yield Damaged(f"no object: {text[:30]}", text.encode())


# Other binary files


def last_entry(content: bytes, size: int) -> int:
    return (len(content) // size - 1) * size


def index_entries(content: bytes, module: ModuleType) -> Iterator[Damaged]:
    """Yield an index with each field of its first and last entry set to each value, and cut to odd lengths."""
    fields = fields_of(module)
    size = sum(field.size for field in fields)
    for start in sorted({0, last_entry(content, size)}):
        yield from with_fields(content, start, fields)
    for length in (0, 1, size - 1, size + 1, len(content) - 1):
        yield Damaged(f"{length} bytes", content[:length])


INDEXES: Final = {".index": offset_index, ".timeindex": time_index, ".txnindex": transaction_index}

# The sizes of the fields of a snapshot's entry, as its docstring lists them.
_SNAPSHOT_ENTRY = re.compile(r"([a-z][a-z ]+?) int(16|32|64)")


def snapshot_fields() -> list[Field]:
    """Return the fields of a snapshot's frame and of its first entry."""
    fields = [field for field in fields_of(snapshot) if field.name != "the entries"]
    text = (snapshot.__doc__ or "").partition("An entry: ")[2].partition(";")[0].replace("\n", " ")
    at = sum(field.size for field in fields)
    for name, bits in _SNAPSHOT_ENTRY.findall(text):
        fields.append(Field(name, at, int(bits) // 8))
        at += int(bits) // 8
    return fields


def snapshots(content: bytes) -> Iterator[Damaged]:
    """Yield a snapshot with each field set to each value; the checksum fits, unless it is the field."""
    for damaged in with_fields(content, 0, snapshot_fields()):
        if damaged.what.startswith("CRC"):
            yield damaged
            continue
        fitting = bytearray(damaged.content)
        struct.pack_into(">I", fitting, 2, crc32c(fitting[6:]))
        yield Damaged(damaged.what, bytes(fitting))


# Text files

_NUMBER = re.compile(rb"-?[0-9]+")
# At and beyond the bounds of Java's int and long, and what is no number to it.
TEXTS: Final = (
    *(
        b"%d" % (sign * (1 << bits) + near)
        for bits in (31, 32, 63, 64)
        for sign in (1, -1)
        for near in (-1, 0, 1)
    ),
    *(b"0", b"-0", b"+1", b"-1", b"1", b"00000000000000000000007", b"9" * 5000),
    *(
        b"",
        b"-",
        b"1_0",
        b"0x10",
        b"1e3",
        b"1.0",
        b"NaN",
        " \u0663".encode(),
        b"\xff",
        b"1\x00",
        b"1 1",
        b"\n",
    ),
)


def texts(content: bytes) -> Iterator[Damaged]:
    """Yield a text file with each of its numbers replaced by each text, and with the lines that make no sense."""
    for match in _NUMBER.finditer(content):
        for text in TEXTS:
            if text != match.group():
                damaged = content[: match.start()] + text + content[match.end() :]
                yield Damaged(f"{match.group().decode()} -> {text[:30]!r}", damaged)
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines):
        rest = [*lines[:number], *lines[number + 1 :]]
        yield Damaged(f"without line {number}", b"".join(rest))
        yield Damaged(f"line {number} twice", b"".join([*lines[:number], line, *lines[number:]]))
        yield Damaged(
            f"line {number} of 1 MB", b"".join([*lines[:number], b"x" * (1 << 20), *lines[number:]])
        )
        yield Damaged(f"line {number} with a colon", b"".join([*lines[:number], b":=::", *lines[number:]]))
    yield Damaged("nothing", b"")
    yield Damaged("spaces", b" " * 100)
