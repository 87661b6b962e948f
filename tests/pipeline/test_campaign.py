"""The row of one run of a campaign, without Spark and without the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.campaign import run_seed, run_seeds

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")


@pytest.mark.parametrize(
    ("called", "replay"),
    [
        ("leader-crash", "replog sim run leader-crash --seed 3"),
        ("my runs/x.yaml", "replog sim run 'my runs/x.yaml' --seed 3"),
    ],
)
def test_the_replay_names_the_scenario_as_the_user_did(
    monkeypatch: pytest.MonkeyPatch, called: str, replay: str
) -> None:
    """A file name alone is found neither for a bundled scenario nor from another directory."""

    def runs(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert Path(command[5]).name == "x.yaml" and Path(command[5]).read_text(encoding="utf-8") == "text"
        return subprocess.CompletedProcess(command, 0, '{"verdict": "held"}', "")

    monkeypatch.setattr(subprocess, "run", runs)
    (row,) = run_seeds("x.yaml", "text", [3], called=called)
    assert (row["scenario"], row["verdict"], row["replay"]) == ("x", "held", replay)


def test_what_a_killed_task_leaves_is_in_the_folder_that_spark_deletes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from pyspark import SparkFiles, TaskContext

    # The constructor would make it the task of this process for good.
    monkeypatch.setattr(TaskContext, "_taskContext", object.__new__(TaskContext))
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    runs_instead(monkeypatch, tmp_path, 'echo "$5" >&2; exit 2')
    (row,) = run_seeds("x.yaml", "text", [3], called="x")
    assert Path(row["error"]).parent.parent == tmp_path and Path(row["error"]).name == "x.yaml"
    assert [path.name for path in tmp_path.iterdir()] == ["python"]


def runs_instead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_a_run_imports_nothing_from_the_current_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs_instead(monkeypatch, tmp_path, 'echo "{\\"verdict\\": \\"safe: $PYTHONSAFEPATH\\"}"')
    assert run_seed(tmp_path / "x.yaml", 3, called="x")["verdict"] == "safe: 1"


def test_the_error_of_a_run_that_breaks_an_assert_is_its_last_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its exit status is that of a violation, with nothing to parse."""
    runs_instead(monkeypatch, tmp_path, "echo Traceback: >&2; echo 'AssertionError: (3, 2)' >&2; exit 1")
    row = run_seed(tmp_path / "x.yaml", 3, called="x")
    assert (row["verdict"], row["error"]) == ("error", "AssertionError: (3, 2)")
