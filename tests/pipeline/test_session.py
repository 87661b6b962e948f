"""The settings of a session, without Spark: only a local one is bound to loopback and to this interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pipeline
from cluster.local.python_path import own_python_path, python_path
from pipeline.session import environment_for, settings_for


@pytest.mark.parametrize("master", ["local[*]", "local", "local-cluster[1,1,1024]"])
def test_a_local_session_stays_on_loopback_and_runs_this_interpreter(master: str) -> None:
    settings, environment = settings_for(master), environment_for(master, {"PYSPARK_PYTHON": "python3"})
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"


@pytest.mark.parametrize("master", ["spark://h:7077", "yarn", "k8s://h"])
def test_the_workers_of_a_cluster_reach_the_driver_and_run_the_python_that_the_user_names(
    master: str,
) -> None:
    """On loopback they would call themselves."""
    assert not settings_for(master).keys() & {"spark.driver.host", "spark.driver.bindAddress"}
    named = environment_for(master, {"PYSPARK_PYTHON": "/opt/python"})
    assert "PYSPARK_PYTHON" not in named and "SPARK_LOCAL_IP" not in named
    assert environment_for(master, {})["PYSPARK_PYTHON"] == sys.executable


def test_no_process_of_a_command_imports_from_the_current_directory(tmp_path: Path) -> None:
    """A user's storage.py or queue.py took the place of ours, or of Python's."""
    for name in ("storage.py", "queue.py", "pipeline/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit('the wrong module')")
    with own_python_path():
        done = subprocess.run(
            [sys.executable, "-c", "import storage, queue, pipeline; print(pipeline.__file__)"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert (done.stdout.strip(), done.stderr) == (pipeline.__file__, "")


def test_what_a_command_sets_for_its_processes_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    before = dict(os.environ)
    with own_python_path():
        assert os.environ["PYTHONSAFEPATH"] == "1" and os.environ["PYTHONPATH"].endswith("/mine")
    assert dict(os.environ) == before


def test_the_python_path_of_the_user_still_counts() -> None:
    first, *others = python_path({"PYTHONPATH": "/mine::/more"})["PYTHONPATH"].split(os.pathsep)
    assert first == str(Path(pipeline.__file__).parent.parent) and others == ["/mine", "/more"]
    again = python_path({"PYTHONPATH": os.pathsep.join([first, *others])})
    assert again["PYTHONPATH"].split(os.pathsep) == [first, *others]
