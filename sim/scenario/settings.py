"""The settings of nodes that a scenario may have, and the configurations that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from cluster.core.config import BrokerConfig
from cluster.core.controller.config import ControllerConfig
from sim.scenario.model import Scenario

# Times that are about a fifth of Kafka's defaults, so that a fail-over takes seconds of a short run.
SETTINGS: Mapping[str, int] = {
    "broker.session.timeout.ms": 1_800,
    "broker.heartbeat.interval.ms": 400,
    "replica.lag.time.max.ms": 4_000,
    "replica.fetch.wait.max.ms": 100,
    "replica.fetch.backoff.ms": 200,
    "replica.socket.timeout.ms": 1_500,
    "replica.high.watermark.checkpoint.interval.ms": 1_000,
    "log.flush.offset.checkpoint.interval.ms": 12_000,
    "log.flush.start.offset.checkpoint.interval.ms": 12_000,
    "controller.socket.timeout.ms": 1_500,
    "controlled.shutdown.timeout.ms": 2_000,
    "retry.backoff.max.ms": 400,
}

# The simulator itself decides these.
_NOT_SETTINGS = {"node_id", "host", "port", "controller_id", "log", "cluster_id", "steps"}


def setting_names() -> list[str]:
    """Returns the settings that a scenario may have, under Kafka's names, in order of name."""
    known = {field.name for kind in (BrokerConfig, ControllerConfig) for field in fields(kind)}
    return sorted(name.replace("_", ".") for name in known - _NOT_SETTINGS)


def broker_config(scenario: Scenario, node_id: int) -> BrokerConfig:
    """Returns the broker's settings. Raises ConfigError."""
    settings = _settings_of(BrokerConfig, scenario)
    # Settings name fields that are ints, which mypy does not know.
    return replace(BrokerConfig(node_id=node_id), **settings)  # type: ignore[arg-type]


def controller_config(scenario: Scenario) -> ControllerConfig:
    """Returns the controller's settings. Raises ConfigError."""
    settings = _settings_of(ControllerConfig, scenario)
    # Settings name fields that are ints, which mypy does not know.
    return replace(ControllerConfig(), **settings)  # type: ignore[arg-type]


def _settings_of(kind: type[BrokerConfig] | type[ControllerConfig], scenario: Scenario) -> dict[str, int]:
    given = dict(SETTINGS) | scenario.cluster.settings
    names = {field.name for field in fields(kind)} - _NOT_SETTINGS
    return {key: value for name, value in given.items() if (key := name.replace(".", "_")) in names}


def property_text(value: int | str | bool) -> str:
    """Returns the value as a properties file writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
