"""`replog sim swarm`: a campaign from the command line, in processes of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim import seeds as seeds_module
from sim.commands import sim
from sim.sometimes.points import POINTS
from sim.swarm import job as job_module
from sim.swarm import output as output_module
from sim.swarm.drawing import draw
from sim.swarm.profiles import SHARES
from tests.places import ROOT

BUG = "ack-before-high-watermark"


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(sim, [*map(str, arguments)])


def rows(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "missing --seeds A..B"),
        (["--seeds", "0..2", "--describe", "1"], "--describe and --seeds exclude each other"),
        (["--describe", "1", "--jobs", "2"], "--describe and --jobs exclude each other"),
        (["--describe", "1", "--out", "runs"], "--describe and --out exclude each other"),
        (["--describe", "1", "--bug", "nonsense"], "--describe and --bug exclude each other"),
        (["--describe", "1", "--full"], "--describe and --full exclude each other"),
        (["--describe", "1", "--json"], "--describe and --json exclude each other: --describe runs nothing"),
        (["--seeds", "2..2"], "the first must be below the end"),
        (["--seeds", "0..2", "--only", "kill,flood"], "unknown fault 'flood'"),
        (["--seeds", "0..2", "--bug", "nonsense"], "unknown bug 'nonsense'"),
        (["--seeds", "0..2", "--profile", "wild"], "'wild' is not one of"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: list[str], message: str) -> None:
    result = invoke("swarm", *arguments)
    assert result.exit_code == 2 and message in result.stderr


def test_help_and_page_have_the_shares_of_the_profiles() -> None:
    page = (ROOT / "docs" / "swarm.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `(\w+)` \| (\d+) % \|", page, re.MULTILINE))
    assert {profile.value: str(share) for profile, share in SHARES} == told
    help_text = " ".join(invoke("swarm", "--help").stdout.split())
    assert f"drawn, {', '.join(list(told.values())[:2])} and {told['beyond']} in a hundred" in help_text


def test_a_file_that_is_none_of_a_campaign_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("mine\n")
    result = invoke("swarm", "--seeds", "0..2", "--out", path)
    assert (result.exit_code, result.stdout, path.read_text()) == (2, "", "mine\n")


def test_a_seed_that_hangs_is_an_error_with_its_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(*_: object, **__: object) -> None:
        while True:
            pass

    monkeypatch.setattr(job_module, "run_scenario", hangs)
    monkeypatch.setattr(output_module, "MOST_CPU_S", 0.1)
    # The replacement exists only in this process and in its forks.
    monkeypatch.setattr(seeds_module, "may_fork", lambda: True)
    result = invoke("swarm", "--seeds", "3..4", "--jobs", "1")
    lines = result.stdout.splitlines()
    assert result.exit_code == 2
    assert lines[0] == "seed 3: error: hung: no end after 0.1 s of processor time, in test_command.py, hangs"
    assert lines[1].startswith("  replay: replog sim swarm --describe 3 > swarm-3.yaml && replog sim run ")


def test_a_seed_is_described_as_a_file_with_its_options() -> None:
    result = invoke("swarm", "--describe", "3", "--only", "cut", "--profile", "within")
    assert result.exit_code == 0
    assert result.stdout.startswith("# Seed 3: profile within, shape ")
    assert result.stdout != draw(3).as_yaml()


@pytest.mark.parametrize(("option", "has_points"), [("--buggify", True), ("--no-buggify", False)])
def test_buggify_points_are_on_or_off_for_all_seeds(option: str, has_points: bool) -> None:
    for seed in ("0", "1", "2"):
        result = invoke("swarm", "--describe", seed, option)
        assert ("\nbuggify:" in result.stdout) is has_points
    assert f"--describe 7 {option} >" in job_module.SwarmJob(buggify=has_points).replay(7)


@pytest.mark.slow
def test_a_search_is_the_run_of_the_campaign_without_hash_and_points() -> None:
    for seed, bug in ((10, None), (2, BUG)):
        whole = job_module.SwarmJob(bug=bug).run(seed)
        found = job_module.SwarmJob(bug=bug, is_search=True).run(seed)
        assert (found.pop("trace_hash"), found.pop("points")) == ("", [])
        assert whole.pop("trace_hash") and whole.pop("points")
        assert found == whole


@pytest.mark.slow
def test_a_described_seed_is_the_run_of_the_campaign(tmp_path: Path) -> None:
    """The row's replay, for a seed that holds and for one that is violated."""
    for seed, options in ((0, []), (2, ["--bug", BUG])):
        (row, _) = rows(invoke("swarm", "--seeds", f"{seed}..{seed + 1}", "--json", *options))
        path = tmp_path / f"swarm-{seed}.yaml"
        path.write_text(invoke("swarm", "--describe", str(seed)).stdout)
        alone = json.loads(
            invoke("run", path, "--seed", str(seed), "--json", "--stop-early", *options).stdout
        )
        for key in ("verdict", "trace_hash", "events", "violations"):
            assert row[key] == alone[key], (seed, key)


@pytest.mark.slow
def test_a_campaign_goes_on_where_its_file_ends(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    whole = rows(invoke("swarm", "--seeds", "0..4", "--jobs", "2", "--json"))
    first = invoke("swarm", "--seeds", "1..3", "--out", path)
    assert first.exit_code == 0 and "2 runs" in first.stdout
    # A kill in the midst of a line.
    path.write_bytes(path.read_bytes()[:-20])
    second = invoke("swarm", "--seeds", "0..4", "--out", path, "--json")
    assert "1 seed was in the file already" in second.stderr
    assert _without_time(rows(second)[-1]) == _without_time(whole[-1])
    found = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    assert [row["seed"] for row in found] == [1, 0, 2, 3]
    assert sorted(found, key=lambda row: int(row["seed"])) == whole[:-1]


def _without_time(summary: dict[str, object]) -> dict[str, object]:
    assert float(str(summary["cpu_s"])) > 0
    return {key: value for key, value in summary.items() if key != "cpu_s"}


@pytest.mark.slow
def test_a_mistake_is_found_grouped_and_replayed() -> None:
    result = invoke("swarm", "--seeds", "0..6", "--only", "kill,cut", "--bug", BUG)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith("seed ") and ": violated: at " in lines[0]
    assert "--only kill,cut > swarm-" in lines[1] and lines[1].endswith(f"--bug {BUG} --stop-early")
    assert sum(line.startswith("  replay:") for line in lines) <= sum(" x " in line for line in lines)
    assert "never: " in result.stdout and f"of {len(POINTS)} reached" in result.stdout


@pytest.mark.slow
def test_ctrl_c_keeps_what_has_run(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    command = [
        sys.executable,
        "-m",
        "replog",
        "sim",
        "swarm",
        "--seeds",
        "0..100000",
        "--jobs",
        "2",
        "--json",
    ]
    with subprocess.Popen(
        [*command, "--out", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None and json.loads(process.stdout.readline())["seed"] == 0
        os.killpg(process.pid, signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert process.returncode in (1, 3) and error.startswith(b"interrupted\n")
    summary = json.loads(out.splitlines()[-1])
    kept = [json.loads(line)["seed"] for line in path.read_text().splitlines()[1:]]
    assert summary["interrupted"] and kept[: summary["runs"]] == list(range(summary["runs"]))


@pytest.mark.slow
def test_a_reader_that_leaves_ends_the_campaign() -> None:
    command = [
        sys.executable,
        "-m",
        "replog",
        "sim",
        "swarm",
        "--seeds",
        "0..100000",
        "--jobs",
        "2",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert json.loads(process.stdout.readline())["seed"] == 0
        process.stdout.close()
        assert (process.wait(120), process.stderr.read()) == (3, b"")


def test_a_short_campaign_holds() -> None:
    """A few drawn plans for every change; the slow tests have more."""
    result = invoke("swarm", "--seeds", "0..3", "--json")
    *found, summary = rows(result)
    assert result.exit_code == 0, result.stdout
    assert {row["verdict"] for row in found} <= {"held", "starved"}
    for row in found:
        wanted = {"seed", "verdict", "trace_hash", "signature", "violations", "replay", "points"}
        assert wanted <= row.keys()
    wanted = {"runs", "held", "violated", "starved", "excused", "simulated_s", "cpu_s", "sometimes"}
    assert wanted <= summary.keys() and summary["runs"] == 3


@pytest.mark.slow
def test_a_slice_of_seeds_holds() -> None:
    result = invoke("swarm", "--seeds", "1000..1020")
    assert result.exit_code == 0, result.stdout


@pytest.mark.slow
def test_a_campaign_is_the_same_whatever_the_hash_seed_is() -> None:
    command = [sys.executable, "-m", "replog", "sim", "swarm", "--seeds", "3..6", "--json"]
    found = [
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True)
        for seed in ("1", "2")
    ]
    first, second = (each.stdout.splitlines()[:-1] for each in found)
    assert first == second and len(first) == 3
