"""The options that say how records are read and printed: `--property NAME=VALUE` by Kafka's names, and `--from`."""

from __future__ import annotations

import dataclasses
import os
import re
import typing
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import click

from cluster.commands.options import no_such_property
from cluster.commands.record_formats import Columns
from cluster.commands.record_lines import LineRules
from cluster.core.client.config import OffsetReset
from cluster.core.client.consumer import Start
from cluster.core.client.starts import AtTime, BeforeEnd
from storage.batch.record import MAX_INT64
from storage.errors import ConfigError

Rules = TypeVar("Rules", LineRules, Columns)

# What each separator needs, to be used.
_SWITCHES = {
    "key.separator": "parse.key",
    "headers.delimiter": "parse.headers",
    "headers.separator": "parse.headers",
    "headers.key.separator": "parse.headers",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = "2026-01-31"
_START_EXPECTED = (
    "earliest, latest, a time such as 2026-01-31T10:00:00Z, milliseconds since 1970,"
    " or -N for the last N records of each partition"
)


def with_properties(rules: Rules, values: tuple[str, ...]) -> Rules:
    """Returns `rules` changed by the NAME=VALUE pairs of `--property`; the last of a name counts.

    A value is taken as it is, with its spaces. Raises click.UsageError.
    """
    hints = typing.get_type_hints(type(rules))
    changes: dict[str, bool | bytes] = {}
    for value in values:
        name, equals, text = value.partition("=")
        field = name.strip().replace(".", "_")
        if not equals:
            raise click.UsageError(f"--property: expected NAME=VALUE, got {value!r}")
        if field not in hints:
            raise no_such_property("--property", name, hints)
        changes[field] = _switch(value, text) if hints[field] is bool else os.fsencode(text)
    try:
        # Each value is parsed by the type of its field.
        return dataclasses.replace(rules, **changes)  # type: ignore[arg-type]
    except ConfigError as error:
        raise click.UsageError(f"--property: {error}") from error


def line_rules(key_separator: str | None, values: tuple[str, ...]) -> LineRules:
    """Returns the rules of `--key-separator` and `--property`.

    Raises click.UsageError, also for a separator that nothing is split at: the records would be sent in another shape
    than was meant.
    """
    for name, switch in _SWITCHES.items():
        if any(value.startswith(f"{name}=") for value in values) and not any(
            value.startswith(f"{switch}=") for value in values
        ):
            raise click.UsageError(f"--property {name} has no effect without --property {switch}=true")
    if key_separator is not None:
        values = ("parse.key=true", f"key.separator={key_separator}", *values)
    return with_properties(LineRules(), values)


def _switch(value: str, text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.strip().lower()]
    except KeyError as error:
        raise click.UsageError(f"--property {value}: expected true or false") from error


def parse_start(context: click.Context, parameter: click.Parameter, value: str | None) -> Start | None:
    """Reads the value of `--from`. Raises click.BadParameter, which names all forms."""
    if value is None:
        return None
    if value in ("earliest", "latest"):
        return OffsetReset(value)
    try:
        if re.fullmatch(r"-\d{1,18}", value, re.ASCII):
            return BeforeEnd(-int(value))
        return AtTime(_milliseconds(value))
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(f"{value}: {error}", ctx=context, param=parameter) from error


def _milliseconds(text: str) -> int:
    """Returns the first millisecond at or after a time, since 1970; earlier times are 0. Raises ValueError."""
    if re.fullmatch(r"\d+", text, re.ASCII):
        # Python refuses to read numbers of thousands of digits.
        if len(text) > len(str(MAX_INT64)) or int(text) > MAX_INT64:
            raise ValueError(f"above {MAX_INT64}, the last millisecond that a record can have")
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"expected {_START_EXPECTED}") from error
    # Python takes any character between the date and the time, also the sign of a zone.
    if len(text) > len(_DATE) and "+" in text and not re.search("[T ]", text):
        raise ValueError(f"expected {_START_EXPECTED}")
    if time.tzinfo is None:
        whole = "T".join((text, "00:00")) if len(text) <= len(_DATE) else text
        raise ValueError(f"a zone is missing: {whole}Z is UTC, {whole}+02:00 two hours ahead of it")
    return max(0, -((_EPOCH - time) // timedelta(milliseconds=1)))
