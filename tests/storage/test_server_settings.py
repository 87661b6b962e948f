"""A broker's settings for all topics. Kafka: LogConfigTest, ServerTopicConfigSynonyms."""

from __future__ import annotations

import pytest

from storage.config import LogConfig
from storage.errors import ConfigError
from storage.server_settings import ALL_SERVER_NAMES, SERVER_NAMES, log_config_of_server

HOUR_MS = 3_600_000


def configured(**given: str) -> LogConfig:
    properties = {name.replace("_", "."): value for name, value in given.items()}
    return log_config_of_server(properties, LogConfig())


@pytest.mark.covers("LogConfigTest.ensureNoStaticInitializationOrderDependency")
def test_every_setting_of_a_topic_has_a_server_name_except_the_one_that_the_controller_decides_on() -> None:
    assert set(LogConfig.property_names) - set(SERVER_NAMES) == {"unclean.leader.election.enable"}
    assert all(SERVER_NAMES.values()) and len(set(ALL_SERVER_NAMES)) == len(ALL_SERVER_NAMES)


@pytest.mark.covers("LogConfigTest.testGetConfigValue")
def test_a_topics_setting_is_found_by_its_server_name_and_an_unknown_one_has_none() -> None:
    assert [each.name for each in SERVER_NAMES["file.delete.delay.ms"]] == ["log.segment.delete.delay.ms"]
    assert "log.foo" not in SERVER_NAMES and "log.foo" not in ALL_SERVER_NAMES


@pytest.mark.covers("LogConfigTest.testKafkaConfigToProps")
def test_hours_and_minutes_become_milliseconds() -> None:
    config = configured(log_roll_hours="2", log_roll_jitter_hours="1", log_retention_hours="960")
    assert (config.segment_ms, config.segment_jitter_ms) == (2 * HOUR_MS, HOUR_MS)
    assert config.retention_ms == 960 * HOUR_MS
    assert configured(log_retention_minutes="3").retention_ms == 180_000


def test_the_finest_unit_of_several_names_counts() -> None:
    times = {"log_retention_hours": "5", "log_retention_minutes": "7"}
    assert configured(**times).retention_ms == 420_000
    assert configured(**times, log_retention_ms="11").retention_ms == 11
    assert configured(log_roll_hours="9", log_roll_ms="13").segment_ms == 13


@pytest.mark.parametrize("name", ["log_retention_ms", "log_retention_minutes", "log_retention_hours"])
def test_minus_one_keeps_records_for_ever_in_every_unit(name: str) -> None:
    assert configured(**{name: "-1"}).retention_ms == -1


def test_no_hours_of_jitter_are_no_milliseconds_and_one_hour_is_the_least() -> None:
    for hours in ("0", "1"):
        assert configured(log_roll_jitter_hours=hours).segment_jitter_ms == int(hours) * HOUR_MS
    assert configured(log_roll_hours="1").segment_ms == HOUR_MS
    for name in ("log_retention_minutes", "log_retention_hours"):
        assert configured(**{name: "-7"}).retention_ms == -1


def test_what_is_not_given_stays() -> None:
    base = LogConfig(segment_bytes=500, cleanup_policy="compact")
    assert log_config_of_server({"replica.lag.time.max.ms": "7"}, base) == base
    changed = log_config_of_server({"log.cleanup.policy": "compact,delete", "log.preallocate": "true"}, base)
    assert (changed.segment_bytes, changed.cleanup_policies) == (500, ("compact", "delete"))
    assert changed.preallocate


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.segment.bytes", "13"),
        ("log.roll.hours", "0"),
        ("log.roll.hours", "two"),
        ("log.retention.hours", "0.5"),
        ("log.cleanup.policy", "keep"),
        ("log.cleaner.min.cleanable.ratio", "1.2"),
        ("message.max.bytes", "-1"),
        ("compression.type", "zip"),
        ("min.insync.replicas", "0"),
        ("log.preallocate", "yes"),
    ],
)
def test_an_unusable_value_is_one_line_with_the_name_that_was_given(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        log_config_of_server({name: value}, LogConfig())
    assert str(caught.value).startswith(f"{name}={value}: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "remote.storage.enable",
        "local.retention.ms",
        "message.format.version",
        "message.timestamp.difference.max.ms",
    ],
)
def test_settings_of_what_there_is_not_here_are_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown topic property '{name}'"):
        LogConfig.from_properties({name: "1"})
