"""`replog sim shrink`: a planted mistake, from its scenario to the smallest file that shows it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim import seeds
from sim.commands import sim
from sim.run import Verdict, run_scenario
from sim.scenario.loading import load_scenario, parse_scenario
from sim.shrink import report
from sim.shrink.again import Proof, prove
from sim.shrink.data import read_data
from sim.shrink.likelihood import Restarts
from sim.shrink.report import file_text
from sim.shrink.search import Failing
from sim.shrink.trial import Forks, Outcome, Trial, Trials
from tests.places import ROOT

BUG = "ack-before-high-watermark"


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(sim, ["shrink", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "missing SCENARIO, or --seed N of the swarm"),
        (["leader-crash"], "the run with seed 0 does not fail"),
        (["--seed", "5"], "the run with seed 5 does not fail"),
        (["leader-crash", "--swarm", "1"], "--swarm N is scenario and seed at once"),
        (["leader-crush", "--seed", "1"], "did you mean 'leader-crash'?"),
        (["leader-crash", "--seed", "1", "--bug", "nonsense"], "unknown bug 'nonsense'"),
        (["leader-crash", "--seed", "1", "--budget", "soon"], "'soon' is no duration"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: list[str], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2 and message in result.stderr


# Fails at once: its log is not made in time.
STUCK = """\
scenario: stuck
warm_up: 500ms
duration: 900ms
converge: 1s
topics: {t: {replicas: 1}}
cluster: {brokers: 1, disk: {call: 150ms}}
"""


@pytest.fixture
def stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scenario that fails, in a directory of its own, whose result is proven without a run."""
    monkeypatch.setattr(report, "prove", lambda *_: Proof(runs=10, failed=10, is_same_run=True))
    monkeypatch.setattr(report, "_when", lambda *_: ((), None, None))
    path = tmp_path / "stuck.yaml"
    path.write_text(STUCK)
    return path


def shrink_it(path: Path, out: Path) -> Result:
    return invoke(path, "--seed", "0", "--budget", "0s", "--jobs", "1", "--out", out)


def test_the_proof_imports_nothing_of_the_users_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)\n")
    (tmp_path / "stuck.yaml").write_text(STUCK)
    monkeypatch.chdir(tmp_path)
    found = Failing(data=read_data(Path("stuck.yaml")), seed=0, outcome=Outcome(signature=""))
    assert prove(found, "", None).is_same_run


@pytest.mark.parametrize("part", ["_when", "prove"])
def test_what_the_search_has_found_is_kept_by_ctrl_c_after_it(
    stuck: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(report, part, interrupted)
    out = stuck.with_name("min.yaml")
    result = shrink_it(stuck, out)
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == f"interrupted: the small scenario, not proven, is in {out}\n"
    assert load_scenario(out) == load_scenario(stuck)


def test_a_file_that_cannot_be_written_is_refused_before_the_first_run(
    stuck: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(report, "Forks")
    nowhere = shrink_it(stuck, stuck.with_name("none") / "min.yaml")
    assert (nowhere.exit_code, nowhere.stderr.count("\n")) == (2, 1) and "no directory" in nowhere.stderr
    assert shrink_it(stuck, stuck.parent).exit_code == 2
    # A superuser may write everywhere.
    monkeypatch.setattr("os.access", lambda *_: False)
    refused = shrink_it(stuck, stuck.with_name("min.yaml"))
    assert refused.exit_code == 2 and refused.stderr.endswith("min.yaml: must not be written\n")


@pytest.mark.parametrize(
    ("out", "source"), [("small", "./small"), ("small.yaml", "small.yaml"), ("sub/small", "sub/small")]
)
def test_the_command_that_repeats_the_failure_names_a_file(out: str, source: str) -> None:
    failing = Failing(data={"scenario": "x"}, seed=2, outcome=Outcome(signature="history: N", reason="lost"))
    assert f"# replog sim run {source} --seed 2 --stop-early" in file_text(failing, None, out).splitlines()


def test_a_file_that_can_be_written_no_more_is_printed(stuck: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    out = stuck.with_name("min.yaml")
    out.write_text("of before\n")
    monkeypatch.setattr("os.replace", full)
    result = shrink_it(stuck, out)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"[Errno 28] No space left on device: '{out}'"
    assert parse_scenario(result.stdout) == load_scenario(stuck)
    assert out.read_text() == "of before\n"
    assert sorted(each.name for each in stuck.parent.iterdir()) == ["min.yaml", "stuck.yaml"]


@pytest.mark.parametrize("name", ["stuck.yaml", "linked.yaml", "hard.yaml"])
def test_the_scenario_itself_is_never_replaced(
    stuck: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delattr(report, "Forks")
    stuck.with_name("linked.yaml").symlink_to(stuck)
    stuck.with_name("hard.yaml").hardlink_to(stuck)
    result = shrink_it(stuck, stuck.with_name(name))
    assert result.exit_code == 2 and "SCENARIO and --out are the same file" in result.stderr
    assert stuck.read_text() == STUCK


def test_a_run_that_takes_longer_than_its_time_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    # The limit is that of the process.
    monkeypatch.setattr(seeds, "may_fork", lambda: True)
    data = {
        "scenario": "long",
        "duration": "6000s",
        "topics": {"t": {"replicas": 1}},
        "cluster": {"brokers": 1},
    }
    trials = Trials(trials=[Trial(data=data, seed=0)], bug=None, most_events=None, most_cpu_s=1)
    (outcome,) = trials.outcomes(1)
    assert (outcome.signature, outcome.took_longer) == ("", True)
    assert outcome.reason == "takes longer than 1 s of processor time"


def test_the_first_run_may_be_too_long_to_be_shrunk(stuck: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Outcome(signature="", reason="takes longer than 60 s of processor time", took_longer=True)
    monkeypatch.setattr(Forks, "run", lambda *_: outcome)
    result = shrink_it(stuck, stuck.with_name("min.yaml"))
    assert result.exit_code == 2 and result.stderr == (
        "nothing to shrink: the run with seed 0 takes longer than 60 s of processor time and has not failed by then\n"
    )


@pytest.mark.slow
def test_a_planted_mistake_is_shrunk_to_a_file_that_shows_it(tmp_path: Path) -> None:
    path = tmp_path / "min.yaml"
    # In a process without gRPC, which may fork.
    arguments = ["leader-crash", "--seed", "0", "--bug", BUG, "--out", str(path), "--json", "--jobs", "1"]
    command = [sys.executable, "-m", "replog", "sim", "shrink", *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    row = json.loads(result.stdout)
    assert row["proof"] == {"runs": 10, "failed": 10, "is_same_run": True}
    assert (row["after"]["steps"], row["after"]["sends"]) == (0, 1)
    assert len(row["likelihood"]) == 12 and 3 <= len(row["story"]) <= 5
    again = run_scenario(path, row["seed"], bug=BUG, stops_early=True)
    assert again.verdict is Verdict.VIOLATED and again.violations[0].checker == "acknowledged-committed"
    assert run_scenario(path, row["seed"]).verdict is Verdict.HELD


@pytest.mark.slow
def test_a_run_that_does_not_fail_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "min.yaml"
    result = invoke("leader-crash", "--seed", "0", "--out", path)
    assert (result.exit_code, path.exists()) == (2, False)
    assert "the run with seed 0 does not fail" in result.stderr


@pytest.mark.slow
def test_fresh_draws_change_a_run_from_their_event_on_and_none_changes_nothing() -> None:
    path = ROOT / "scenarios" / "leader-crash.yaml"
    whole = run_scenario(load_scenario(path), 0, bug=BUG, stops_early=True)
    outcome = Outcome(signature="acknowledged-committed: x", events=whole.events)
    failing = Failing(data=read_data(path), seed=0, outcome=outcome)
    asked = [(whole.events + 1, 1), (300, 1), (300, 1), (300, 2)]
    rows = [Restarts(failing=failing, bug=BUG, asked=asked).run(number) for number in range(4)]
    hashes = [row["trace_hash"] for row in rows]
    assert hashes[0] == whole.trace_hash
    assert hashes[1] == hashes[2] and len(set(hashes)) == 3
    assert rows[0]["fresh_at_us"] == -1 and rows[1]["fresh_at_us"] == rows[3]["fresh_at_us"] > 0
