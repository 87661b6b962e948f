"""What a program imports from `replog`: every public name, typed, also where an extra is missing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import replog
from tests.places import ROOT

NAMES = sorted(replog.__all__)
# Hides pyspark, as if the extra were not installed.
WITHOUT_SPARK = """
import importlib.abc, importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "pyspark" else found(name, package)
"""


def run_python(code: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, check=False)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_loads_from_its_module(name: str) -> None:
    value = getattr(replog, name)
    assert value is not None and not isinstance(value, ModuleType)
    assert name in dir(replog)


def test_the_names_for_type_checkers_are_the_names_that_load() -> None:
    tree = ast.parse((ROOT / "replog" / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node))
    typed = {
        (alias.name, node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == set(replog._HOMES.items())
    assert {name for name, _ in typed} == set(NAMES)


def test_a_star_import_brings_every_name() -> None:
    done = run_python("from replog import *\nimport replog\nassert set(replog.__all__) <= set(globals())")
    assert done.returncode == 0, done.stderr


def test_a_star_import_works_without_extras() -> None:
    done = run_python(
        f"{WITHOUT_SPARK}\nfrom replog import *\nprint(Producer.__name__, 'register' in globals())"
    )
    assert (done.returncode, done.stdout) == (0, "Producer False\n"), done.stderr


def test_a_name_whose_extra_is_missing_says_which() -> None:
    done = run_python(f"{WITHOUT_SPARK}\nfrom replog import register")
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, last) == (
        1,
        "ModuleNotFoundError: replog.register needs pyspark: pip install 'replog[spark]'",
    )


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'replog' has no attribute 'Prducer'"):
        getattr(replog, "Prducer")  # noqa: B009


def test_importing_replog_imports_neither_grpc_nor_pyspark() -> None:
    done = run_python("import replog, sys\nprint(sorted({'grpc', 'pyspark', 'pydantic'} & set(sys.modules)))")
    assert done.stdout == "[]\n", done.stderr


def test_a_bundled_scenario_runs_by_name_and_by_path() -> None:
    path = ROOT / "scenarios" / "leader-crash.yaml"
    by_name, by_path = replog.run_scenario("leader-crash", 7), replog.run_scenario(str(path), 7)
    assert by_name.verdict is replog.Verdict.HELD
    assert by_name.trace_hash == by_path.trace_hash
    assert replog.load_scenario(str(path)) == replog.load_scenario(path)


@pytest.mark.parametrize(
    ("scenario", "seed", "kind", "text"),
    [
        ("leader-crash", "7", TypeError, "seed: expected an int, got str"),
        ("leader-crash", None, TypeError, "seed: expected an int, got NoneType"),
        ("leader-crash", True, TypeError, "seed: expected an int, got bool"),
        ("leader-crash", -1, ValueError, "seed: expected 0 to 9223372036854775807, got -1"),
        (5, 7, TypeError, "scenario: expected a path, a name or a Scenario, got int"),
        ("leader-crush", 7, replog.ScenarioError, "did you mean 'leader-crash'"),
    ],
)
def test_a_wrong_argument_of_a_run_is_refused_at_the_call(
    scenario: Any, seed: Any, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        replog.run_scenario(scenario, seed)


def test_a_program_without_logging_gets_no_lines_of_ours() -> None:
    code = "from replog import run_scenario\nrun_scenario('torn-tail-power-loss', 7)"
    assert run_python(code).stderr == ""
