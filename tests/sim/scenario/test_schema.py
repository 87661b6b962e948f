"""The JSON Schema of scenario files: it accepts what the loader reads, and refuses what has a wrong form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.commands import sim
from sim.scenario.loading import ScenarioError, parse_scenario
from sim.scenario.schema import schema_text
from sim.scenario.source import parse_yaml
from sim.scenario.steps import VERB_NAMES
from sim.swarm.drawing import draw
from tests.places import ROOT
from tests.sim.scenario.json_schema import Validator
from tests.sim.scenario.test_scenarios import BAD, GOOD, SCENARIOS

FILE = ROOT / "scenarios" / "schema.json"
VALIDATOR = Validator(json.loads(FILE.read_text(encoding="utf-8")))
# What is wrong with these files is no matter of their form: names that are defined nowhere, and times, numbers and
# targets that do not fit the rest of the file.
ONLY_BY_THE_LOADER = {
    "no shift", "disk of a client", "unknown broker", "unknown name", "unknown producer", "no consumer",
    "power of a client", "point of a client", "unknown topic", "unknown topic of a producer", "unknown partition",
    "not a process", "duplicate key", "no YAML", "late step", "more replicas than brokers", "point of another node",
    "long linger", "linger of a patient producer", "impatient",
    "large record", "huge record", "huge batch", "huge answer", "long wait", "huge time",
    "clocks of long ago", "a clock set too often", "nested deeply", "nested very deeply",
}  # fmt: skip
# Of these not even the data can be read.
NO_DOCUMENT = {"duplicate key", "no YAML", "nested deeply", "nested very deeply"}


def problems(text: str) -> list[str]:
    return VALIDATOR.problems(parse_yaml(text).data)


def test_the_file_is_that_of_the_models() -> None:
    assert FILE.read_text(encoding="utf-8") == schema_text(), "run `make generate`"


def test_the_command_prints_the_schema() -> None:
    result = CliRunner().invoke(sim, ["schema"])
    assert (result.exit_code, result.stdout) == (0, schema_text())


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_each_bundled_scenario_is_valid(path: Path) -> None:
    assert problems(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("seed", range(12))
def test_each_drawn_scenario_is_valid(seed: int) -> None:
    assert problems(draw(seed).as_yaml()) == []


def test_the_good_scenario_is_valid() -> None:
    assert problems(GOOD) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [(case[1], case[2]) for case in BAD if case[0] not in ONLY_BY_THE_LOADER],
    ids=[case[0] for case in BAD if case[0] not in ONLY_BY_THE_LOADER],
)
def test_a_file_of_a_wrong_form_is_refused(old: str, new: str) -> None:
    assert problems(GOOD.replace(old, new)) != []


def test_only_files_of_the_right_form_are_left_to_the_loader() -> None:
    names = [case[0] for case in BAD]
    assert set(names) >= ONLY_BY_THE_LOADER and len(names) - len(ONLY_BY_THE_LOADER) >= 15
    for name, old, new, _, _ in BAD:
        if name in ONLY_BY_THE_LOADER - NO_DOCUMENT:
            assert problems(GOOD.replace(old, new)) == [], name


@pytest.mark.parametrize("verb", VERB_NAMES)
def test_each_verb_has_a_step_of_its_own(verb: str) -> None:
    (found,) = (each for each in VALIDATOR._root["definitions"].values() if verb in each.get("required", ()))
    assert found["additionalProperties"] is False and "at" in found["properties"]


@pytest.mark.parametrize(
    ("key", "value", "is_valid"),
    [
        ("down", "1.5s", True),
        ("down", "5", False),
        ("down", "5 parsecs", False),
        ("down", 5, False),
        ("kill", "follower(t/0, 1)", True),
        ("kill", "Victim", True),
        ("kill", "victim", False),
        ("kill", "leader(t)", False),
        ("at", "+200ms", True),
        ("at", "-200ms", False),
        ("when", "leader(t/0)", True),
        ("when", ["isr(t/0) < 3", "truncated(t/0)"], True),
        ("when", "isr(t/0)", False),
        ("when", ["leader(t/0)", "later"], False),
        ("point", "before flush", True),
        ("point", "flush", False),
        ("as", "victim", False),
    ],
)
def test_values_have_the_patterns_of_the_parsers(key: str, value: object, is_valid: bool) -> None:
    file = parse_yaml(GOOD).data
    assert isinstance(file, dict)
    file["steps"] = [{"kill": "broker 1", key: value}]
    assert (VALIDATOR.problems(file) == []) == is_valid


MUTATIONS = [
    "5",
    "5s",
    "5 S",
    "1/s",
    "50%",
    "64 B",
    "leader(t/0)",
    "Victim <-> others",
    "isr(t/0) < 3",
    "none",
    "",
]


@settings(max_examples=30, derandomize=True, deadline=None, database=None)
@given(line=st.integers(1, GOOD.count("\n") - 1), value=st.sampled_from(MUTATIONS))
def test_what_the_loader_reads_is_never_refused(line: int, value: str) -> None:
    lines = GOOD.splitlines()
    head, separator, _ = lines[line].partition(": ")
    lines[line] = f"{head}{separator}{json.dumps(value)}"
    text = "\n".join(lines)
    try:
        parse_scenario(text)
    except ScenarioError:
        return
    assert problems(text) == []
