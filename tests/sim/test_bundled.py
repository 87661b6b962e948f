"""Bundled scenarios: found by name, listed, and never mixed up with files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim.bundled import bundled_scenarios, find_scenario
from sim.commands import sim
from sim.run import replay_command
from sim.scenario.loading import ScenarioError
from tests.places import ROOT

NAMES = sorted(path.stem for path in (ROOT / "scenarios").glob("*.yaml"))


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(sim, arguments)


def test_every_scenario_of_the_checkout_is_bundled_under_its_name() -> None:
    assert list(bundled_scenarios()) == NAMES and "leader-crash" in NAMES
    assert find_scenario("leader-crash") == ROOT / "scenarios" / "leader-crash.yaml"


def test_list_has_a_line_for_each_scenario_with_its_description() -> None:
    lines = invoke("list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert all(re.fullmatch(r"\S+ {2,}[A-Z].*\.", line) for line in lines), lines
    listed = json.loads(invoke("list", "--json").stdout)["scenarios"]
    assert [each["name"] for each in listed] == NAMES
    assert all(each["description"] and Path(each["file"]).is_file() for each in listed)


def test_a_bundled_scenario_runs_by_name_and_its_replay_names_it_too() -> None:
    result = invoke("run", "leader-crash", "--seed", "7", "--json")
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["verdict"]) == (0, "held")
    assert answer["replay"] == "replog sim run leader-crash --seed 7"


def test_a_replay_takes_no_file_for_an_option() -> None:
    assert replay_command("-d.yaml", 7, None) == "replog sim run ./-d.yaml --seed 7"


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    result = invoke("run", "leader-crush")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "no bundled scenario is called 'leader-crush': did you mean 'leader-crash'?\n"
    far = invoke("run", "x" * 30)
    assert far.exit_code == 2 and all(name in far.stderr for name in NAMES) and far.stderr.count("\n") == 1


def test_the_file_of_a_bundled_name_is_refused_with_that_name() -> None:
    result = invoke("run", "leader-crash.yaml")
    assert result.exit_code == 2 and "the bundled scenario is 'leader-crash'" in result.stderr


def test_a_file_wins_only_with_a_suffix_or_a_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("leader-crash", "leader-crash.yaml", "mine"):
        Path(name).write_text("scenario: other\n")
    assert find_scenario("leader-crash") == bundled_scenarios()["leader-crash"]
    assert find_scenario("./leader-crash") == Path("leader-crash")
    assert find_scenario("leader-crash.yaml") == Path("leader-crash.yaml")
    with pytest.raises(ScenarioError, match=r"for the file of this name say \./mine"):
        find_scenario("mine")


def test_the_folder_scenarios_of_a_user_does_not_hide_the_bundled_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert list(bundled_scenarios()) == NAMES


def test_the_help_says_when_a_file_is_meant() -> None:
    text = " ".join(invoke("run", "--help").stdout.split())
    assert "with a suffix or a slash, a file" in text and "0 every rule held, 1 a rule was violated" in text
