"""What `replog spark` refuses before it starts Spark."""

from __future__ import annotations

import signal
import warnings
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner, Result

from pipeline import commands
from pipeline.commands import spark_group
from pipeline.quiet import interrupt_spark
from sim.interruption import terminated_like_interrupted
from tests.places import ROOT


def campaign(*arguments: str | Path) -> Result:
    return CliRunner().invoke(
        spark_group,
        ["campaign", "--seeds", "0..2", "--scenario", "leader-crash", *map(str, arguments)],
    )


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def starts(name: str, *, master: str) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr(commands, "session", starts)
    monkeypatch.setattr(commands, "check_available", lambda: None)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_a_campaign_never_overwrites(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "results"
    if kind == "file":
        out.write_text("mine")
    elif kind == "directory":
        out.mkdir()
    else:
        out.symlink_to(tmp_path / "nowhere")
    result = campaign("--out", out)
    assert result.exit_code == 2 and result.stdout == ""
    assert f"--out {out} is a " in result.stderr and "nothing is overwritten" in result.stderr
    assert out.is_dir() == (kind == "directory") and out.is_symlink() == (kind == "link")


def test_without_out_the_next_number_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = []
    for _ in range(3):
        target = commands._free_target("leader-crash")
        target.mkdir(parents=True)
        names.append(str(target))
    first = "out/campaign-leader-crash"
    assert names == [first, f"{first}-2", f"{first}-3"]


@pytest.mark.usefixtures("no_spark")
def test_a_campaign_takes_a_bundled_scenario_and_refuses_an_unknown_one() -> None:
    result = campaign("--scenario", "leader-crush")
    assert result.exit_code == 2 and "did you mean 'leader-crash'?" in result.stderr


@pytest.mark.usefixtures("no_spark")
def test_an_error_at_the_start_of_spark_is_one_line(tmp_path: Path) -> None:
    result = campaign("--out", tmp_path / "new")
    assert result.exit_code == 1 and "Error: Spark does not start: Spark is started" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([], "either --scenario SCENARIO or --swarm"),
        (["--swarm", "--scenario", "leader-crash"], "either --scenario SCENARIO or --swarm"),
        (["--scenario", "leader-crash", "--only", "kill"], "need --swarm"),
        (["--swarm", "--only", "floods"], "unknown fault 'floods': write kill"),
        (["--swarm", "--bug", "none"], "unknown bug 'none'"),
        (["--swarm", "--profile", "wild"], "'wild' is not one of 'within', 'edge', 'beyond'"),
    ],
)
def test_options_that_no_campaign_has_are_refused(arguments: list[str], what: str) -> None:
    result = CliRunner().invoke(spark_group, ["campaign", "--seeds", "0..2", *arguments])
    assert result.exit_code == 2 and what in result.stderr, result.output


@pytest.mark.usefixtures("no_spark")
def test_a_campaign_of_drawn_runs_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    arguments = ["campaign", "--seeds", "0..2", "--swarm", "--out", str(tmp_path)]
    result = CliRunner().invoke(spark_group, arguments)
    assert result.exit_code == 2 and "nothing is overwritten" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("name", ["r[1]", "r*", "r?", "{a,b}", "a\\b", "a:b"])
def test_a_directory_that_spark_would_take_for_a_pattern_is_refused(tmp_path: Path, name: str) -> None:
    result = campaign("--out", tmp_path / name)
    assert result.exit_code == 2 and "Spark does not take" in result.stderr
    assert f"--out {tmp_path / name}" in result.stderr and list(tmp_path.iterdir()) == []
    drawn = ["campaign", "--seeds", "0..2", "--swarm", "--out", str(tmp_path / name)]
    result = CliRunner().invoke(spark_group, drawn)
    assert result.exit_code == 2 and "Spark does not take" in result.stderr


@pytest.mark.usefixtures("no_spark")
def test_a_scenario_whose_name_makes_such_a_directory_needs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "scenarios" / "leader-crash.yaml").read_text(encoding="utf-8")
    Path("r[1].yaml").write_text(text, encoding="utf-8")
    result = campaign("--scenario", "./r[1].yaml")
    assert result.exit_code == 2 and "--out out/campaign-r[1]: " in result.stderr


class FakeSpark:
    def stop(self) -> None:
        pass


@pytest.mark.parametrize("held", [[], ["_temporary/0/part-0"], ["part-0"], ["_temporary/0/part-1", "part-0"]])
def test_a_campaign_that_fails_leaves_no_directory_without_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: list[str]
) -> None:
    out = tmp_path / "new"

    def fails(*_: object, **__: object) -> NoReturn:
        out.mkdir()
        for name in held:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).touch()
        raise RuntimeError("it fails")

    monkeypatch.setattr(commands, "session", lambda name, *, master: FakeSpark())
    monkeypatch.setattr(commands, "check_available", lambda: None)
    monkeypatch.setattr(commands, "run_campaign", fails)
    result = campaign("--out", out)
    assert result.exit_code == 1 and "Error: it fails" in result.stderr
    assert [path.name for path in out.rglob("part-0")] == ["part-0"] * ("part-0" in held)
    assert out.exists() == ("part-0" in held)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_campaign_that_is_terminated_stops_spark_and_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    before, stopped = signal.getsignal(number), []

    def is_ended(*_: object, **__: object) -> NoReturn:
        (tmp_path / "new" / "_temporary").mkdir(parents=True)
        signal.raise_signal(number)
        raise AssertionError("it goes on")

    def stops(self: FakeSpark) -> NoReturn:
        stopped.append(self)
        warnings.warn("Java has ended", RuntimeWarning, stacklevel=2)
        raise ConnectionRefusedError("Java has ended")

    monkeypatch.setattr(FakeSpark, "stop", stops)
    monkeypatch.setattr(commands, "session", lambda name, *, master: FakeSpark())
    monkeypatch.setattr(commands, "check_available", lambda: None)
    monkeypatch.setattr(commands, "run_campaign", is_ended)
    result = campaign("--out", tmp_path / "new")
    assert result.exit_code == 1 and "Aborted!" in result.stderr and "Java" not in result.stderr
    assert len(stopped) == 1 and not (tmp_path / "new").exists()
    assert signal.getsignal(number) == before


def test_a_hangup_that_is_to_be_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminated_like_interrupted(interrupt_spark):
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_replays_that_are_not_shown_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    bad: list[dict[str, object]] = [
        {"seed": seed, "verdict": "violated", "error": "", "violations": "[]"} for seed in range(20)
    ]
    commands._report("my runs/x.yaml", "out/r", 30, {"held": 7, "violated": 23}, bad, False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [
        "  replay: replog sim run 'my runs/x.yaml' --seed 19",
        "and 3 more runs that did not hold: their rows are in out/r",
    ]
