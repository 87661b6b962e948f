"""Converts `--config replica.lag.time.max.ms=500`, in Kafka's dotted names, to the fields of our configurations."""

from __future__ import annotations

import dataclasses
import os
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from cluster.core.config import BrokerConfig
from cluster.core.controller.config import ControllerConfig
from cluster.local.layout import UnusableInput
from storage.config import LogConfig, parse_integer
from storage.errors import ConfigError
from storage.server_settings import ALL_SERVER_NAMES, log_config_of_server

Config = TypeVar("Config", BrokerConfig, ControllerConfig)
Properties = Iterable[tuple[str, str]]
# The cluster's layout decides these, not a property.
_FIXED = frozenset(
    {"broker_id", "node_id", "host", "port", "controller_id", "controller_host", "controller_port"}
)


# The properties that `up` itself takes: each node has a folder of its own in these directories.
LOG_DIRS, METADATA_LOG_DIR = "log.dirs", "metadata.log.dir"
Pairs = tuple[tuple[str, str], ...]


def take_paths(properties: Properties, option: str | None) -> tuple[Pairs, tuple[Path, ...], Path | None]:
    """Splits off `log.dirs` (or `option`, the value of `--log-dirs`) and `metadata.log.dir`.

    Returns the other properties and these two as absolute paths. Raises UnusableInput.
    """
    properties = tuple(properties)
    lists = [value for name, value in properties if name == LOG_DIRS] + ([] if option is None else [option])
    if len(lists) > 1:
        raise UnusableInput(
            "log directories are given more than once: use either --log-dirs or --config log.dirs"
        )
    paths = tuple([_path(item, LOG_DIRS) for given in lists for item in given.split(",")])
    metadata = [_path(value, METADATA_LOG_DIR) for name, value in properties if name == METADATA_LOG_DIR]
    rest = tuple([pair for pair in properties if pair[0] not in (LOG_DIRS, METADATA_LOG_DIR)])
    return rest, paths, metadata[-1] if metadata else None


def _path(text: str, name: str) -> Path:
    if not text.strip():
        raise UnusableInput(
            f"{name}: expected one or more directories separated by commas, got an empty name"
        )
    return Path(os.path.abspath(text.strip()))


def check_properties(properties: Properties) -> None:
    """Checks the properties of a cluster. Raises UnusableInput for a name that no node has, or an impossible value."""
    properties = tuple(properties)
    known = {**_settable(BrokerConfig), **_settable(ControllerConfig)}
    for name, value in properties:
        kind = known.get(name.replace(".", "_"))
        if kind is not None:
            _parse(name, value, kind)
        elif name not in ALL_SERVER_NAMES:
            raise UnusableInput(
                f"--config: unknown property {name!r}; known are {', '.join(_known_names(known))}"
            )
    _log_config(properties, LogConfig())
    # Here, and not in each node, so that nothing is started.
    configured(BrokerConfig(node_id=1), properties)
    configured(ControllerConfig(), properties)


def configured(config: Config, properties: Properties) -> Config:
    """Returns `config` with the properties that it has, and with the defaults of topics.

    Properties of other nodes are ignored. Raises UnusableInput.
    """
    properties = tuple(properties)
    fields = _settable(type(config))
    chosen = {
        field: _parse(name, value, fields[field])
        for name, value in properties
        if (field := name.replace(".", "_")) in fields
    }
    try:
        # Each value is parsed by the type of its field.
        changed = dataclasses.replace(config, **chosen)  # type: ignore[arg-type]
    except ConfigError as error:
        raise UnusableInput(f"--config {error}") from error
    return dataclasses.replace(changed, log=_log_config(properties, changed.log))


def _log_config(properties: Sequence[tuple[str, str]], base: LogConfig) -> LogConfig:
    try:
        return log_config_of_server(dict(properties), base)
    except ConfigError as error:
        reason = str(error)
        for _, value in properties:
            reason = reason.replace(value, _shown(value)) if value else reason
        raise UnusableInput(f"--config {reason}") from error


def _settable(cls: type[BrokerConfig | ControllerConfig]) -> dict[str, type]:
    return {
        name: hint
        for name, hint in typing.get_type_hints(cls).items()
        if hint in (int, bool, str) and name not in _FIXED
    }


def _known_names(fields: Iterable[str]) -> list[str]:
    dotted = (name.replace("_", ".") for name in fields)
    return sorted({*dotted, *ALL_SERVER_NAMES, LOG_DIRS, METADATA_LOG_DIR})


def _parse(name: str, value: str, kind: type) -> int | bool | str:
    # Of any case and with blanks around it, as in Kafka.
    if kind is bool and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if kind is int:
        try:
            return parse_integer(value.strip())
        except ValueError as error:
            raise UnusableInput(
                f"--config {name}={_shown(value)}: expected a number of at most 64 bits"
            ) from error
    if kind is str:
        return value
    raise UnusableInput(f"--config {name}={_shown(value)}: expected true or false")


def _shown(value: str) -> str:
    """Returns a value as one short line."""
    is_plain = value.isprintable() and len(value) <= 40
    return value if is_plain else repr(value[:40])
