"""`replog sim bugs`: the list, and a measurement in processes of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim.bugs import bugs
from sim.commands import sim
from sim.detection import commands
from sim.detection.measure import Measured, Plan

BUG = "append-called-back-twice"


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(sim, ["bugs", *map(str, arguments)])


def test_the_list_has_every_bug_with_its_mistake() -> None:
    rows = json.loads(invoke("--json").stdout)["bugs"]
    assert [row["id"] for row in rows] == list(bugs())
    assert all(row["story"] for row in rows)
    assert all(row["id"] in invoke().stdout for row in rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "nonsense"], "unknown bug 'nonsense'"),
        (["--budget", "soon"], "'soon' is no time"),
        (["--budget", "1mm"], "'1mm' is no time"),
        (["--budget", "6_0"], "'6_0' is no time"),
        (["--budget", "0s"], "is not from"),
        (["--budget", "60ms"], "is not from"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: list[str], message: str) -> None:
    result = invoke("--measure", *arguments)
    assert result.exit_code == 2 and message in result.stderr


@pytest.mark.parametrize(
    "option",
    ["--budget 60s", "--starts 9", "--jobs 2", "--seed 0", "--out rows"],
    ids=lambda option: option[:6],
)
def test_options_of_a_measurement_need_one(option: str) -> None:
    result = invoke("--only", BUG, *option.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{option.split()[0]} needs --measure" in result.stderr


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("60s", 60), ("1.5m", 90), ("60", 60), ("0.2", 0.2)]
)
def test_a_budget_has_a_unit_or_is_in_seconds(
    text: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[float] = []

    def measure(plan: Plan, **_: object) -> Measured:
        planned.append(plan.budget_s)
        return Measured(base=0, budget_s=plan.budget_s, rows=[])

    monkeypatch.setattr(commands, "measure", measure)
    assert invoke("--measure", "--only", BUG, "--budget", text).exit_code == 0
    assert planned == [seconds]


def test_a_file_of_another_budget_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text('{"format": "replog-swarm-1", "measures": "bugs", "base": 5, "budget_s": 9.0}\n')
    result = invoke("--measure", "--only", BUG, "--out", path)
    assert result.exit_code == 2 and "other options" in result.stderr


@pytest.mark.slow
def test_a_measurement_finds_a_bug_and_goes_on_where_its_file_ends(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    options = ("--measure", "--only", BUG, "--budget", "60s", "--jobs", "1", "--json", "--out", path)
    first = json.loads(invoke(*options, "--starts", "1", "--seed", "5").stdout)
    (found,) = first["bugs"]
    assert found["found"] and found["checker"] == "no-failure" and found["median_cpu_s"] > 0
    held = path.read_bytes()
    again = json.loads(invoke(*options, "--starts", "1").stdout)
    assert again == first and path.read_bytes() == held
    (decided,) = json.loads(invoke(*options, "--starts", "3").stdout)["bugs"]
    assert (decided["starts"], decided["starts_planned"]) == (2, 3)
    assert decided["found"] and decided["median_is_bound"]
