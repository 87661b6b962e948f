"""Scenario files: what is read, and what is refused in one line."""

from __future__ import annotations

import typing
from pathlib import Path

import pytest

from cluster.core.config import BrokerConfig
from cluster.core.controller.config import ControllerConfig
from sim.scenario.loading import ScenarioError, load_scenario, parse_scenario
from sim.scenario.settings import setting_names
from sim.scenario.values import (
    parse_condition,
    parse_duration,
    parse_instant,
    parse_link,
    parse_percent,
    parse_rate,
    parse_size,
    parse_target,
)

SCENARIOS = sorted((Path(__file__).resolve().parents[3] / "scenarios").glob("*.yaml"))

GOOD = """\
# a comment
scenario: small
duration: 10s
topics:
  t: {partitions: 2, config: {min.insync.replicas: 2}}
producers:
  - {topic: t, rate: 50/s}
steps:
  - at: 3s
    kill: leader(t/0)
    down: 1s
    as: Victim
  - at: +200ms
    cut: Victim <-> others
    for: 2s
  - when: after-ack(t/1) >= 10
    power: broker 2
    keep: torn
"""

BAD = [
    (
        "unknown job",
        "topics:",
        "cluster: {jobs: {flsh: 5ms}}\ntopics:",
        4,
        "no job 'flsh': write one of checkpoint",
    ),
    ("no shift", "kill: leader(t/0)\n    down: 1s", "step_clock: broker 1\n    by: 0s", 11, "moves no clock"),
    (
        "disk of a client",
        "kill: leader(t/0)\n    down: 1s",
        "slow_disk: producer 1\n    by: 1ms",
        10,
        "is a client",
    ),
    ("unknown key", "duration: 10s", "duraton: 10s", 3, "unknown key 'duraton'"),
    ("unknown key in a step", "    down: 1s", "    downn: 1s", 11, "unknown key 'downn'"),
    ("unknown key in a topic", "{partitions: 2, ", "{partitons: 2, ", 5, "unknown key 'partitons'"),
    ("wrong unit", "duration: 10s", "duration: 5 parsecs", 3, "'5 parsecs' is no duration"),
    ("bare number", "duration: 10s", "duration: 10", 3, "10 is no duration"),
    ("bare rate", "rate: 50/s", "rate: 50", 7, "50 is no rate"),
    ("unknown broker", "broker 2", "broker 4", 17, "unknown node 'broker 4'"),
    ("unknown name", "Victim <-> others", "Other <-> others", 14, "unknown node 'Other'"),
    (
        "unknown producer",
        "kill: leader(t/0)",
        "kill: producer 2",
        10,
        "unknown client 'producer 2': the scenario has 1",
    ),
    (
        "no consumer",
        "kill: leader(t/0)",
        "kill: consumer 1",
        10,
        "unknown client 'consumer 1': the scenario has 0",
    ),
    ("power of a client", "broker 2", "producer 1", 17, "producer 1 is a client: power needs a node"),
    (
        "point of a client",
        "kill: leader(t/0)",
        "kill: producer 1\n    point: after flush",
        11,
        "it has no jobs",
    ),
    ("unknown topic", "leader(t/0)", "leader(x/0)", 10, "unknown topic 'x'"),
    ("unknown topic of a producer", "{topic: t, rate", "{topic: u, rate", 7, "unknown topic 'u'"),
    ("unknown partition", "after-ack(t/1)", "after-ack(t/2)", 16, "unknown partition t/2"),
    ("unknown verb", "    kill: leader(t/0)", "    hit: leader(t/0)", 9, "a step has one of kill"),
    ("two verbs", "    keep: torn", "    kill: broker 1", 16, "a step has one of kill"),
    ("no target", "broker 2", "brokr 2", 17, "'brokr 2' is no target"),
    ("not a process", "broker 2", "clients", 17, "clients is no node"),
    ("no condition", "after-ack(t/1) >= 10", "later", 16, "'later' is no condition"),
    ("both triggers", "  - at: +200ms", "  - at: +200ms\n    when: leader(t/0)", 13, "not both"),
    ("duplicate key", "duration: 10s", "duration: 10s\nduration: 11s", 4, "duplicate key 'duration'"),
    ("unknown property", "min.insync.replicas", "min.insync.copies", 5, "min.insync.copies"),
    ("wrong topic name", "  t: {", "  ../t: {", 5, "topic"),
    ("unknown survivor mode", "keep: torn", "keep: some", 18, "keep"),
    ("no YAML", "topics:", "topics", 5, "no YAML"),
    ("late step", "at: 3s", "at: 30s", 9, "is after the end"),
    ("missing name", "scenario: small\n", "", 2, "scenario: missing"),
    ("more replicas than brokers", "partitions: 2", "replicas: 5", 5, "5 replicas"),
    ("unknown point", "    down: 1s", "    point: before nonsense", 11, "after compact"),
    (
        "point without a side",
        "    down: 1s",
        "    point: flush",
        11,
        "no point 'flush': write one of before checkpoint",
    ),
    (
        "point of another node",
        "    kill: leader(t/0)\n    down: 1s",
        "    kill: controller\n    point: after compact",
        11,
        "no point 'after compact': write one of before flush, after flush",
    ),
    (
        "long linger",
        "rate: 50/s",
        "linger: 1m",
        7,
        "a producer gives a record up after 8000ms: write at most 6500ms",
    ),
    (
        "linger of a patient producer",
        "rate: 50/s",
        "linger: 7s, delivery_timeout: 1m",
        7,
        "write at most 6500ms: the end of a run waits for it",
    ),
    ("impatient", "rate: 50/s", "delivery_timeout: 1s", 7, "a request takes up to 1500ms: write no less"),
    ("large record", "rate: 50/s", "size: 2MiB", 7, "a request has at most 1048576 B"),
    ("huge record", "rate: 50/s", "size: 99999999999999999999 B", 7, "is above 2147483647 B"),
    ("huge batch", "rate: 50/s", "batch: 999999999999MiB", 7, "'999999999999MiB' is above 2147483647 B"),
    (
        "huge answer",
        "steps:",
        "consumers: [{topic: t, min_bytes: 2048MiB}]\nsteps:",
        8,
        "is above 2147483647 B",
    ),
    ("long wait", "steps:", "consumers: [{topic: t, max_wait: 2s}]\nsteps:", 8, "after 1.5s: write less"),
    ("huge time", "duration: 10s", "duration: 99999999999999s", 3, "is above a hundred years"),
    (
        "clocks of long ago",
        "topics:",
        "cluster: {clocks: {offset: 15000000m}}\ntopics:",
        4,
        "at most 20 years",
    ),
    (
        "a clock set too often",
        "  - at: 3s",
        "  - {step_clock: broker 1, by: 9000000m}\n  - {step_clock: broker 1, by: -9000000m}\n  - at: 3s",
        10,
        "at most 20 years, all steps together",
    ),
    ("mistake in a merge", "{partitions: 2", "{<<: {partitons: 2}", 5, "unknown key 'partitons'"),
    ("nested deeply", "duration: 10s", f"duration: {'[' * 60}{']' * 60}", 1, "nested more than 50 levels"),
    ("nested very deeply", "duration: 10s", f"duration: {'[' * 3000}{']' * 3000}", 1, "nested more than 50"),
]


def test_good_scenario_is_read() -> None:
    scenario = parse_scenario(GOOD)
    assert scenario.duration == 10_000_000
    assert [step.verb for step in scenario.steps] == ["kill", "cut", "power"]


@pytest.mark.parametrize(
    ("old", "new", "line", "what"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_bad_scenario_is_one_line_with_file_and_number(old: str, new: str, line: int, what: str) -> None:
    assert old in GOOD
    with pytest.raises(ScenarioError) as raised:
        parse_scenario(GOOD.replace(old, new), "bad.yaml")
    message = str(raised.value)
    assert message.startswith(f"bad.yaml:{line}: "), message
    assert what in message and "\n" not in message


@pytest.mark.parametrize(
    "text", ["", "[]", "- a", "just words", "a: [1", "\t", "scenario: x\n\ttopics: y", "&a *a"]
)
def test_what_is_no_scenario_is_one_line(text: str) -> None:
    with pytest.raises(ScenarioError, match=r"^bad\.yaml:\d+: [^\n]+$"):
        parse_scenario(text, "bad.yaml")


def test_a_merge_of_another_mapping_has_its_keys() -> None:
    text = GOOD.replace(
        "topics:\n",
        "topics:\n  u: &other {partitions: 3, replicas: 2}\n  v:\n    <<: *other\n    replicas: 1\n",
    )
    scenario = parse_scenario(text)
    assert (scenario.topics["v"].partitions, scenario.topics["v"].replicas) == (3, 1)
    with pytest.raises(ScenarioError, match=r"^bad\.yaml:5: unknown key 'partitons'$"):
        parse_scenario(text.replace("partitions: 3", "partitons: 3"), "bad.yaml")


def test_missing_and_binary_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="No such file"):
        load_scenario(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError):
        load_scenario(tmp_path / "binary.yaml")


@pytest.mark.parametrize("path", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_each_scenario_file_is_valid_and_named_after_itself(path: Path) -> None:
    assert load_scenario(path).scenario == path.stem


def test_six_scenarios_are_there() -> None:
    assert {path.stem for path in SCENARIOS} >= {
        "leader-crash",
        "torn-tail-power-loss",
        "divergence-truncation",
        "cut-leader-acks-1",
        "slow-follower-isr",
        "all-power-loss",
    }


def test_values_with_units() -> None:
    assert [parse_duration(text) for text in ("5s", "200ms", "50us", "2m", "1.5s", "0.25ms")] == [
        5_000_000, 200_000, 50, 120_000_000, 1_500_000, 250,
    ]  # fmt: skip
    assert [parse_size(text) for text in ("70 B", "16KiB", "1MiB")] == [70, 16_384, 1 << 20]
    assert (parse_rate("50/s"), parse_percent("20%")) == (50, 20)
    assert parse_instant("+200ms").is_relative and not parse_instant("2s").is_relative


@pytest.mark.parametrize("text", ["5", "5 parsecs", "s", "-5s", "5s5", "1e3s", "0.1us", "", "5S"])
def test_values_that_are_no_duration(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


def test_targets_links_and_conditions() -> None:
    assert parse_target("leader(my.topic/3)").partition == 3
    assert parse_link("broker 1 <-> follower(t/0)").both_ways
    condition = parse_condition("isr(t/0) < 3")
    assert condition.holds(2) and not condition.holds(3)
    for text in ("leader(t)", "follower()", "broker x", "victim"):
        with pytest.raises(ValueError):
            parse_target(text)


def test_every_setting_of_a_scenario_is_a_number_or_a_switch() -> None:
    hints = typing.get_type_hints(BrokerConfig) | typing.get_type_hints(ControllerConfig)
    kinds = {name: hints[name.replace(".", "_")] for name in setting_names()}
    assert {name for name, kind in kinds.items() if kind not in (int, bool)} == set()
    assert "steps" not in kinds and len(kinds) > 30
