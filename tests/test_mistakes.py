"""The list behind `make mutants` is true: the source line that it changes occurs once, and its tests exist."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.places import ROOT
from tools.mistakes import MISTAKES, Mistake

EACH = pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.name for mistake in MISTAKES])


@EACH
def test_each_mistake_finds_its_target_exactly_once(mistake: Mistake) -> None:
    for edit in mistake.edits:
        assert (ROOT / edit.path).read_text(encoding="utf-8").count(edit.old) == 1, edit
        assert edit.old != edit.new


@EACH
def test_each_mistake_names_watchers_that_exist(mistake: Mistake) -> None:
    assert mistake.tests or mistake.scenarios
    for test in mistake.tests:
        path, _, name = test.partition("::")
        assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), test
    for scenario in mistake.scenarios:
        assert (ROOT / "scenarios" / f"{scenario.partition('@')[0]}.yaml").is_file(), scenario


def test_an_unknown_mistake_is_one_clear_line() -> None:
    command = (sys.executable, str(ROOT / "tools" / "mutants.py"), "nonsense")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "unknown mistake 'nonsense'" in done.stderr
