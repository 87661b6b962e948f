"""`--config NAME=VALUE` of a node: its own properties, and Kafka's server-wide names of topic properties."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from cluster.core.config import BrokerConfig
from cluster.core.controller.config import ControllerConfig
from cluster.local.layout import UnusableInput
from cluster.local.properties import check_properties, configured
from storage.config import LogConfig

GIVEN = (("replica.lag.time.max.ms", "777"), ("log.retention.hours", "2"), ("log.segment.bytes", "4096"))


def test_a_broker_takes_its_own_properties_and_those_for_all_topics() -> None:
    check_properties(GIVEN)
    config = configured(BrokerConfig(node_id=1), GIVEN)
    assert config.replica_lag_time_max_ms == 777
    assert (config.log.retention_ms, config.log.segment_bytes) == (7_200_000, 4096)
    assert config.log.segment_ms == BrokerConfig(node_id=1).log.segment_ms


def test_a_controller_ignores_properties_of_brokers_but_not_the_defaults_of_topics() -> None:
    config = configured(ControllerConfig(), GIVEN)
    assert (config.log.retention_ms, config.log.segment_bytes) == (7_200_000, 4096)
    assert replace(config, log=LogConfig()) == ControllerConfig()


def test_a_server_name_is_known_and_a_topics_name_is_not() -> None:
    with pytest.raises(
        UnusableInput, match=r"--config: unknown property 'retention\.ms'; .*log\.retention\.ms"
    ):
        check_properties([("retention.ms", "1")])


@pytest.mark.parametrize(
    ("name", "value"), [("log.roll.ms", "0"), ("log.cleanup.policy", "keep"), ("log.retention.hours", "many")]
)
def test_an_unusable_value_for_all_topics_is_one_line(name: str, value: str) -> None:
    with pytest.raises(UnusableInput, match=f"^--config {name}={value}: .*$"):
        check_properties([(name, value)])


@pytest.mark.parametrize("name", ["num.partitions", "default.replication.factor"])
def test_a_default_for_topics_is_the_controllers_and_at_least_1(name: str) -> None:
    check_properties([(name, "3")])
    assert getattr(configured(ControllerConfig(), [(name, "3")]), name.replace(".", "_")) == 3
    with pytest.raises(UnusableInput, match=rf"^--config {name}=0: must be in \[1, 2147483647\]$"):
        configured(ControllerConfig(), [(name, "0")])


def numbers_of(config: BrokerConfig | ControllerConfig) -> list[str]:
    return [
        each.name
        for each in fields(config)
        if type(getattr(config, each.name)) is int
        and each.name not in ("node_id", "port", "controller_id", "controller_port")
    ]


@pytest.mark.parametrize(
    "config", [BrokerConfig(node_id=1), ControllerConfig()], ids=["broker", "controller"]
)
def test_a_number_of_more_bits_than_kafkas_is_refused(config: Any) -> None:
    """A delay of 10^400 ms would be no number of seconds, and the node would end at the first timer."""
    names = numbers_of(config)
    assert len(names) > 7
    for name in names:
        for value in ("9" * 400, "1_0", "0x10", "", "1.0", "-9" + "9" * 30, str(1 << 63)):
            with pytest.raises(UnusableInput, match="|".join((name, name.replace("_", r"\.")))):
                configured(config, [(name.replace("_", "."), value)])
