"""The measuring process of `bench simulate` takes the code of older checkouts too, and leaves parts out."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "bench" / "simulated.py"
PARSER = "def parse_scenario(text, name):\n    return text.upper()\n"
ASK = f"import runpy; print(runpy.run_path({str(SCRIPT)!r})['parse']('steady'))"


def parsed(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", ASK],
        env={**os.environ, "PYTHONPATH": str(tree)},
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "place", ["scenario.py", "scenario/__init__.py", "scenario/model.py", "scenario/loading.py"]
)
def test_the_parser_of_an_older_checkout_is_found(tmp_path: Path, place: str) -> None:
    for part in ("__init__.py", "scenario/__init__.py")[: 2 if "/" in place else 1]:
        (tmp_path / "sim" / part).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sim" / part).touch()
    (tmp_path / "sim" / place).write_text(PARSER)
    assert parsed(tmp_path).stdout == "STEADY\n"


def test_a_fault_within_the_parser_is_told(tmp_path: Path) -> None:
    (tmp_path / "sim" / "scenario").mkdir(parents=True)
    (tmp_path / "sim" / "__init__.py").touch()
    (tmp_path / "sim" / "scenario" / "loading.py").write_text("import no_such_library\n")
    told = parsed(tmp_path)
    assert told.returncode != 0
    assert "no_such_library" in told.stderr.splitlines()[-1]


TINY = """
scenario: tiny
duration: 1s
topics: {t: {partitions: 1, replicas: 3}}
producers: [{topic: t, rate: 20/s}]
consumers: [{topic: t}]
"""


@pytest.mark.parametrize("part", ["", "trace", "checkers"])
def test_a_run_without_a_part_simulates_the_same(part: str) -> None:
    answer = runpy.run_path(str(SCRIPT))["run"](TINY, without=part)
    assert answer["records"] > 10
    assert answer["simulated_s"] >= 1
