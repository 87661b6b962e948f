"""Writes every key of a scenario file as Markdown, from the models that read the files.

    python tools/scenario_keys.py

`make docs` puts it into docs/scenario-keys.md. A key without a description is an error, so that none is forgotten.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pydantic import BaseModel, PlainValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from sim.scenario.base import Named, Step
from sim.scenario.model import (
    AdminModel,
    BuggifyModel,
    ClockModel,
    ClusterModel,
    ConsumerModel,
    DiskModel,
    NetworkModel,
    ProducerModel,
    Scenario,
    SeekerModel,
    TopicModel,
)
from sim.scenario.settings import SETTINGS
from sim.scenario.steps import VERBS
from sim.scenario.values import (
    parse_conditions,
    parse_duration,
    parse_instant,
    parse_link,
    parse_methods,
    parse_percent,
    parse_rate,
    parse_shift,
    parse_size,
    parse_target,
)

# The parts of a file: their headings, and what stands in a file to reach them.
PARTS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("The whole file", Scenario),
    ("`cluster`", ClusterModel),
    ("`cluster.disk`", DiskModel),
    ("`cluster.clocks`", ClockModel),
    ("`network`", NetworkModel),
    ("`buggify`", BuggifyModel),
    ("`topics`: each of them, under its name", TopicModel),
    ("`producers`: each of the list", ProducerModel),
    ("`consumers`: each of the list", ConsumerModel),
    ("`seekers`: each of the list", SeekerModel),
    ("`admins`: each of the list", AdminModel),
)

_DURATIONS = ((60_000_000, "m"), (1_000_000, "s"), (1_000, "ms"), (1, "us"))
_SIZES = ((1 << 20, " MiB"), (1 << 10, " KiB"), (1, " B"))


def _scaled(units: tuple[tuple[int, str], ...]) -> Callable[[object], str]:
    def text(value: object) -> str:
        assert isinstance(value, int)
        unit, name = next(each for each in units if value % each[0] == 0 and (value or each[0] == 1))
        return f"{value // unit}{name}"

    return text


# What a file has for a value that a parser reads, and how a default of it is written.
_KINDS: dict[object, tuple[str, Callable[[object], str]]] = {
    parse_duration: ("duration", _scaled(_DURATIONS)),
    parse_shift: ("shift", str),
    parse_size: ("size", _scaled(_SIZES)),
    parse_rate: ("rate", lambda value: f"{value}/s"),
    parse_percent: ("share", lambda value: f"{value}%"),
    parse_instant: ("time", str),
    parse_target: ("target", str),
    parse_link: ("link", str),
    parse_conditions: ("condition, or a list of them", str),
    parse_methods: ("method, or a list of them", str),
}
_PLAIN: dict[object, str] = {str: "text", bool: "`true` or `false`", int: "whole number"}
_TWO_TYPES = (Union, types.UnionType)


def parser_of(annotation: object, metadata: list[Any]) -> object | None:
    """Returns the function that reads the value, or None where pydantic itself does."""
    for each in metadata:
        if isinstance(each, PlainValidator):
            return each.func
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return parser_of(inner, more)
    return None


def _kinds(annotation: object, metadata: list[Any]) -> Iterator[str]:
    """Yields what a file may have there, a word or two for each alternative."""
    parser = parser_of(annotation, metadata)
    origin = get_origin(annotation)
    if parser is not None:
        yield _KINDS[parser][0]
    elif annotation in _PLAIN:
        yield _PLAIN[annotation]
    elif origin is Annotated:
        inner, *more = get_args(annotation)
        yield from _kinds(inner, more)
    elif origin is Literal:
        yield from (f"`{value}`" for value in get_args(annotation))
    elif origin in _TWO_TYPES:
        for each in get_args(annotation):
            yield from () if each is type(None) else _kinds(each, [])
    elif origin is dict:
        yield "mapping"
    elif origin is list:
        yield "list"
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "mapping"
    else:
        raise TypeError(f"no words for {annotation}")


def kind_of(field: FieldInfo) -> str:
    """Returns what a file has for this key, with its limits."""
    words = list(_kinds(field.annotation, field.metadata))
    text = " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 2 else words)
    if text != _PLAIN[int]:
        return text
    least = next((each.ge for each in field.metadata if getattr(each, "ge", None) is not None), None)
    most = next((each.le for each in field.metadata if getattr(each, "le", None) is not None), None)
    return f"{least} to {most}" if most is not None else f"{text} from {least}" if least is not None else text


def default_of(field: FieldInfo) -> str:
    """Returns the default as a file would write it; *required* where there is none."""
    if field.is_required():
        return "*required*"
    value = field.default
    if value is PydanticUndefined or value is None or value == () or isinstance(value, BaseModel):
        return ""
    parser = parser_of(field.annotation, field.metadata)
    text = _KINDS[parser][1](value) if parser is not None else str(value)
    return f"`{text.lower() if isinstance(value, bool) else text}`"


def rows(model: type[BaseModel], left_out: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yields the table of the keys of a part. Raises ValueError for a key without a description."""
    yield "| key | value | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for name, field in model.model_fields.items():
        if name in left_out:
            continue
        key = field.alias or name
        if not field.description:
            raise ValueError(f"{model.__name__}.{name} has no description")
        yield f"| `{key}` | {kind_of(field)} | {default_of(field)} | {field.description} |"
    yield ""


def _words_of(model: type[BaseModel]) -> str:
    """Returns the docstring as one paragraph for each of its own."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", model.__doc__ or ""))


def _settings() -> Iterator[str]:
    yield "These settings have defaults of their own, so that a fail-over takes seconds of a short run:\n"
    yield "| setting | default |"
    yield "| --- | --- |"
    yield from (f"| `{name}` | `{value}` |" for name, value in SETTINGS.items())
    yield ""


def _verbs() -> Iterator[str]:
    common = frozenset({*Step.model_fields, *Named.model_fields})
    for kind in VERBS:
        yield f"### `{kind.verb}`\n"
        yield _words_of(kind) + "\n"
        yield from rows(kind, common)
        if issubclass(kind, Named):
            yield "It may have `as`.\n"


def markdown() -> str:
    """Returns the sections of the page. Raises ValueError for a key without a description."""
    lines: list[str] = []
    for heading, model in PARTS:
        lines += [f"## {heading}\n", _words_of(model) + "\n", *rows(model)]
        if model is ClusterModel:
            lines += _settings()
    lines += ["## `steps`: each of the list\n", _words_of(Step) + "\n", *rows(Named)]
    lines += _verbs()
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
