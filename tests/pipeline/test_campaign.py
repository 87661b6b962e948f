"""The row of one run of a campaign, without Spark and without the run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pipeline.campaign import run_seeds

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
