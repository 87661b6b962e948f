"""The grammar of `layouts.py`: the fields of a message in each version, in Kafka's generic message format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import final

from storage.errors import StorageError


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldType:
    """The type of a field. `name` is `array`, `struct` or a primitive; `element` is the type of an array's elements,
    `fields` are those of a structure.
    """

    name: str
    is_nullable: bool = False
    element: FieldType | None = None
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a structure; `tag` is None for a field that is always present."""

    name: str
    type: FieldType
    tag: int | None = None
    # The default of a tagged field, as written in the layout.
    default: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSchema:
    """The fields of a message in one version."""

    name: str
    is_flexible: bool
    fields: tuple[Field, ...] = field(default=())


@final
class _Parser:
    """Parses the fields of one line. It asserts, because an error in the table is a bug of ours."""

    _WORD = re.compile(r"[A-Za-z0-9_]+")
    _DEFAULT = re.compile(r"[^ }]+")

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def fields(self, end: str = "") -> tuple[Field, ...]:
        """Parse fields up to `end`, or to the end of the line."""
        assert len(end) <= 1, (self._text, self._at, end)
        found: list[Field] = []
        while self._at < len(self._text) and not (end and self._text[self._at] == end):
            found.append(self._field())
            if self._text[self._at : self._at + 1] == " ":
                self._at += 1
        assert self._at == len(self._text) or self._text[self._at] == end, (self._text, self._at, end)
        return tuple(found)

    def _field(self) -> Field:
        start = self._at
        assert start < len(self._text), (self._text, start)
        name = self._match(self._WORD)
        self._expect(":")
        field_type, tag, default = self._type(), None, ""
        if self._text[self._at : self._at + 1] == "@":
            self._at += 1
            tag = int(self._match(self._WORD))
            self._expect("=")
            default = self._match(self._DEFAULT)
        assert start < self._at <= len(self._text), (self._text, start, self._at)
        return Field(name=name, type=field_type, tag=tag, default=default)

    def _type(self) -> FieldType:
        element: FieldType | None = None
        fields: tuple[Field, ...] = ()
        assert self._at < len(self._text), (self._text, self._at)
        match self._text[self._at]:
            case "[":
                self._at += 1
                name, element = "array", self._type()
                self._expect("]")
            case "{":
                self._at += 1
                name, fields = "struct", self.fields("}")
                self._expect("}")
            case _:
                name = self._match(self._WORD)
        is_nullable = self._text[self._at : self._at + 1] == "?"
        self._at += is_nullable
        assert (element is None) == (name != "array"), (self._text, self._at, name)
        return FieldType(name=name, is_nullable=is_nullable, element=element, fields=fields)

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        assert found is not None, (self._text, self._at)
        self._at = found.end()
        return found.group()

    def _expect(self, text: str) -> None:
        assert self._text.startswith(text, self._at), (self._text, self._at, text)
        self._at += len(text)


_LINE = re.compile(r"(?P<name>\w+) (?P<first>\d+)(?:-(?P<last>\d+))?(?P<flexible>~)?:(?: (?P<fields>.*))?")


@cache
def schemas_of(layouts: str) -> Mapping[str, Mapping[int, MessageSchema]]:
    """Parse all lines; returns the schemas by name and version."""
    found: dict[str, dict[int, MessageSchema]] = {}
    for line in _lines(layouts):
        parsed = _LINE.fullmatch(line)
        assert parsed is not None, line
        schema = MessageSchema(
            name=parsed["name"],
            is_flexible=parsed["flexible"] is not None,
            fields=_Parser(parsed["fields"] or "").fields(),
        )
        first = int(parsed["first"])
        for version in range(first, int(parsed["last"] or first) + 1):
            found.setdefault(schema.name, {})[version] = schema
    return found


def _lines(layouts: str) -> Iterator[str]:
    """Yield the lines, each joined with the lines that continue it."""
    return iter(layouts.strip().replace("\n  ", " ").split("\n"))


class Unreadable(StorageError):
    """A message that does not decode; its text is what Kafka's dump tool prints."""
