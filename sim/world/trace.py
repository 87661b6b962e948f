"""The trace of a run: one line of canonical JSON per event, with checksums of payloads. Its SHA-256 is the trace hash.

    {"at":1200345,"node":"broker-1","kind":"request","call":17,"from":"broker-2","sent":1199821,"body":{…}}

`at` and `sent` are microseconds of virtual time. Members have a fixed order and no blanks between them. A message's
member with its default value is left out, and bytes are shown as their count and CRC-32C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from enum import IntEnum
from hashlib import sha256
from json.encoder import encode_basestring_ascii as quote
from typing import BinaryIO, final

from cluster.core.messages import TopicPartition
from storage.codec.crc32c import crc32c

FORMAT = "replog-trace-1"
_CHUNK_LINES = 512

Fields = tuple[tuple[str, int | str], ...]


@final
class Trace:
    """Hashes every line and, if there is a file, writes it. One that is off drops every line, and has no hash."""

    def __init__(self, file: BinaryIO | None = None, *, is_on: bool = True) -> None:
        assert is_on or file is None, "a file needs the lines"
        # Whoever spends much on a line asks first.
        self.is_on = is_on
        self._file = file
        self._hash = sha256()
        self._lines: list[str] = []
        self.line_count = 0

    def begin(self, scenario: str, seed: int) -> None:
        if self.is_on:
            self._lines.append(f'{{"format":"{FORMAT}","scenario":{quote(scenario)},"seed":{seed}}}\n')

    def event(self, at_us: int, node: str, kind: str, members: str = "") -> None:
        """Add a line. `members` is canonical JSON already: `"a":1,"b":"x"`; `node` and `kind` must need no quoting."""
        if not self.is_on:
            return
        lines = self._lines
        if members:
            lines.append(f'{{"at":{at_us},"node":"{node}","kind":"{kind}",{members}}}\n')
        else:
            lines.append(f'{{"at":{at_us},"node":"{node}","kind":"{kind}"}}\n')
        if len(lines) >= _CHUNK_LINES:
            self._drain()

    def fields(self, at_us: int, node: str, kind: str, values: Fields) -> None:
        """Add an event whose members are ints and strings."""
        if self.is_on:
            self.event(at_us, node, kind, encode_fields(values))

    def _drain(self) -> None:
        assert len(self._lines) <= _CHUNK_LINES, len(self._lines)
        chunk = "".join(self._lines).encode("ascii")
        self.line_count += len(self._lines)
        self._lines.clear()
        self._hash.update(chunk)
        if self._file is not None:
            self._file.write(chunk)

    def finish(self) -> str:
        """Returns the trace hash, empty for a trace that is off; after that the file, if any, holds every line."""
        if not self.is_on:
            return ""
        self._drain()
        if self._file is not None:
            self._file.flush()
        return self._hash.hexdigest()


def encode_fields(values: Fields) -> str:
    return ",".join(
        [f'"{name}":{value if type(value) is int else quote(str(value))}' for name, value in values]
    )


def encode_body(body: object) -> str:
    """Returns a message, or a part of one, as canonical JSON; a message begins with the name of its class."""
    return _encoder(type(body))(body)


def _encode_tuple(value: object) -> str:
    assert type(value) is tuple, value
    return f"[{','.join([_encoder(type(item))(item) for item in value])}]"


def _encode_bytes(value: object) -> str:
    assert isinstance(value, bytes), type(value)
    return f'{{"bytes":{len(value)},"crc":{crc32c(value)}}}'


def _encode_str(value: object) -> str:
    return quote(str(value))


_encoders: dict[type, Callable[[object], str]] = {
    int: str,
    bool: lambda value: "true" if value else "false",
    str: _encode_str,
    bytes: _encode_bytes,
    tuple: _encode_tuple,
    type(None): lambda value: "null",
    TopicPartition: lambda value: f'"{value}"',
}


def _encoder(kind: type) -> Callable[[object], str]:
    encoder = _encoders.get(kind)
    if encoder is None:
        if issubclass(kind, IntEnum):
            encoder = lambda value: quote(getattr(value, "name"))  # noqa: E731, B009
        else:
            encoder = _message_encoder(kind)
        _encoders[kind] = encoder
    return encoder


def _shown(annotation: str) -> str:
    """Returns how `member`, of a field with that annotation, is shown inside an f-string in single quotes."""
    if annotation == "int":
        return "{member}"
    if annotation == "str":
        return "{quote(member)}"
    if annotation == "TopicPartition":
        return '"{member[0]}-{member[1]}"'
    if annotation.startswith("tuple[") and annotation.endswith(", ...]"):
        return '[{",".join([encoder(type(item))(item) for item in member])}]'
    return "{encoder(type(member))(member)}"


def _message_encoder(kind: type) -> Callable[[object], str]:
    """Returns an encoder generated for the class, which is faster: two thirds of all events are messages."""
    assert is_dataclass(kind), f"{kind} has no canonical form: give it one in sim/world/trace.py"
    names: dict[str, object] = {"encoder": _encoder, "quote": quote}
    lines = ["def encode(value):", f'    text = \'{{"is":"{kind.__name__}"\'']
    for field in fields(kind):
        lines.append(f"    member = value.{field.name}")
        add = f"text += f',\"{field.name}\":{_shown(str(field.type))}'"
        if field.default is MISSING:
            lines.append(f"    {add}")
        else:
            names[f"default_{field.name}"] = field.default
            lines += [f"    if member != default_{field.name}:", f"        {add}"]
    lines.append("    return text + '}'")
    exec("\n".join(lines), names)
    encode = names["encode"]
    assert callable(encode)
    return encode
