"""The settings of nodes that a scenario may have, and the configurations of nodes and clients that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from cluster.core.client.config import ACKS_ALL, ConsumerConfig, OffsetReset, ProducerConfig
from cluster.core.config import BrokerConfig
from cluster.core.controller.config import ControllerConfig
from sim.scenario.model import ConsumerModel, ProducerModel, Scenario

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

# After so long, clients take a request for lost.
CLIENT_TIMEOUT_MS = 1_500

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


def producer_config(model: ProducerModel) -> ProducerConfig:
    """Returns the properties of a simulated producer. Raises ConfigError."""
    return ProducerConfig(
        acks=ACKS_ALL if model.acks == "all" else model.acks,
        enable_idempotence=model.idempotent if model.acks == "all" else None,
        linger_ms=model.linger // 1000,
        batch_size=model.batch,
        request_timeout_ms=CLIENT_TIMEOUT_MS,
        delivery_timeout_ms=model.delivery_timeout // 1000,
        max_block_ms=model.delivery_timeout // 1000,
        max_in_flight_requests_per_connection=model.in_flight,
        retry_backoff_ms=100,
    )


def consumer_config(model: ConsumerModel) -> ConsumerConfig:
    """Returns the properties of a simulated consumer. Raises ConfigError."""
    return ConsumerConfig(
        auto_offset_reset=OffsetReset.EARLIEST,
        fetch_max_wait_ms=model.max_wait // 1_000,
        fetch_min_bytes=model.min_bytes,
        request_timeout_ms=CLIENT_TIMEOUT_MS,
        retry_backoff_ms=100,
        metadata_max_age_ms=10_000,
    )


def property_text(value: int | float | str | bool) -> str:
    """Returns the value as a properties file writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
