"""Each setting of a broker and of a controller beyond its bounds: one line, and nothing is started."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest
from click.testing import CliRunner, Result

from cluster.commands.up import up
from cluster.core.config import BROKER_LIMITS, BrokerConfig
from cluster.core.controller.config import CONTROLLER_LIMITS, ControllerConfig
from cluster.local.layout import UnusableInput
from cluster.local.properties import check_properties, configured
from storage.errors import ConfigError
from storage.server_settings import ALL_SERVER_NAMES
from tests.cluster.setting_bounds import LIMITS, NO_NUMBERS, at_bounds, beyond, with_partners


def started_with(directory: Path, *settings: str) -> Result:
    """Call `replog up`, which must refuse the settings."""
    given = [word for setting in settings for word in ("--config", setting)]
    result = CliRunner().invoke(up, ["--nodes", "1", "--port", "0", "--data", str(directory), *given])
    assert not directory.exists()
    return result


def line_of(result: Result) -> str:
    """The one line that a refused command has printed."""
    assert result.exit_code == 2, result.output
    (line,) = result.output.splitlines()
    return line


def test_the_tables_have_every_number() -> None:
    for config, limits in ((BrokerConfig, BROKER_LIMITS), (ControllerConfig, CONTROLLER_LIMITS)):
        hints = get_type_hints(config)
        assert {each.name for each in fields(config) if hints[each.name] is int} == set(limits)


@pytest.mark.parametrize(("name", "value"), list(beyond()))
def test_a_value_beyond_its_bounds_is_one_line_with_name_value_and_bounds(
    tmp_path: Path, name: str, value: int
) -> None:
    line = line_of(started_with(tmp_path / "data", f"{name}={value}"))
    least, greatest = LIMITS[name]
    assert line == f"error: --config {name}={value}: must be in [{least}, {greatest}]"


@pytest.mark.parametrize("name", LIMITS)
def test_what_is_no_number_is_one_short_line_with_the_name(tmp_path: Path, name: str) -> None:
    for text in NO_NUMBERS:
        line = line_of(started_with(tmp_path / "data", f"{name}={text}"))
        assert line.startswith(f"error: --config {name}=")
        assert line.endswith(": expected a number of at most 64 bits")
        assert len(line) < 200


@pytest.mark.parametrize(("name", "value"), list(at_bounds()))
def test_a_value_within_its_bounds_is_taken(name: str, value: int) -> None:
    given = [(each, f" {number} ") for each, number in with_partners(name, value).items()]
    check_properties(given)
    field = name.replace(".", "_")
    broker, controller = configured(BrokerConfig(node_id=1), given), configured(ControllerConfig(), given)
    assert {getattr(broker, field, value), getattr(controller, field, value)} == {value}


@pytest.mark.parametrize(
    ("settings", "name", "bound"),
    [
        (("replica.fetch.wait.max.ms=30001",), "replica.fetch.wait.max.ms", "replica.lag.time.max.ms=30000"),
        (("replica.socket.timeout.ms=499",), "replica.fetch.wait.max.ms", "replica.socket.timeout.ms=499"),
        (
            ("broker.heartbeat.interval.ms=9000",),
            "broker.heartbeat.interval.ms",
            "broker.session.timeout.ms=9000",
        ),
        (
            ("broker.session.timeout.ms=2000",),
            "broker.heartbeat.interval.ms",
            "broker.session.timeout.ms=2000",
        ),
        (("retry.backoff.ms=1001",), "retry.backoff.ms", "retry.backoff.max.ms=1000"),
    ],
)
def test_two_settings_that_contradict_each_other_are_both_named(
    tmp_path: Path, settings: tuple[str, ...], name: str, bound: str
) -> None:
    line = line_of(started_with(tmp_path / "data", *settings))
    assert re.fullmatch(rf"error: --config {name}=[0-9]+: must be (at most|below) {bound}, or .*", line)


@pytest.mark.parametrize("name", ALL_SERVER_NAMES)
def test_a_setting_of_all_topics_that_is_nothing_of_its_kind_is_one_short_line(
    tmp_path: Path, name: str
) -> None:
    for text in ("1\n2", "x" * 5000):
        line = line_of(started_with(tmp_path / "data", f"{name}={text}"))
        assert line.startswith(f"error: --config {name}=") and len(line) < 300


@pytest.mark.parametrize("text", ["true", "FALSE", " True "])
def test_a_flag_is_read_as_kafka_reads_it(text: str) -> None:
    given = [("log.cleaner.enable", text)]
    check_properties(given)
    expected = text.strip().lower() == "true"
    assert configured(BrokerConfig(node_id=1), given).log_cleaner_enable is expected


@pytest.mark.parametrize("text", ["", "1", "yes", "0", "on", "true\nfalse"])
def test_what_is_no_flag_is_one_line(tmp_path: Path, text: str) -> None:
    line = line_of(started_with(tmp_path / "data", f"log.cleaner.enable={text}"))
    assert line.endswith(": expected true or false")


@pytest.mark.parametrize("text", ["a b", "a\nversion=9", "a=b", "x" * 256, "\N{SNOWMAN}", "a/b"])
def test_a_cluster_id_that_no_file_can_hold_is_one_line(tmp_path: Path, text: str) -> None:
    line = line_of(started_with(tmp_path / "data", f"cluster.id={text}"))
    assert line.startswith("error: --config cluster.id=") and len(line) < 200


@pytest.mark.parametrize("text", ["", "x" * 255, "MkU3OEVBNTcwNTJENDM2Qg", "a-b_c.d"])
def test_a_cluster_id_may_be_chosen(text: str) -> None:
    given = [("cluster.id", text)]
    check_properties(given)
    assert configured(ControllerConfig(), given).cluster_id == text


def test_the_fixed_numbers_have_bounds_too() -> None:
    for name, value in (("port", 65_536), ("port", -1), ("node_id", -1), ("controller_id", -1)):
        with pytest.raises(ConfigError, match=name.replace("_", r"\.")):
            BrokerConfig(**{"node_id": 1, name: value})  # type: ignore[arg-type]
        with pytest.raises(UnusableInput, match="unknown property"):
            check_properties([(name.replace("_", "."), str(value))])
