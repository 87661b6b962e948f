"""What the documents name exists: the tests, the files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.places import ROOT

PAGES = sorted((ROOT / "docs").glob("*.md"))
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_FILE = re.compile(
    r"`((?:storage|cluster|sim|pipeline|replog|tests|tools|bench|scenarios|docs)/[\w/.-]+\.\w+)`"
)


def _tests_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = _TEST.findall(page.read_text(encoding="utf-8"))
    missing = [f"{file}::{name}" for file, name in named if name not in _tests_in(ROOT / file)]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    assert not [
        name for name in _FILE.findall(page.read_text(encoding="utf-8")) if not (ROOT / name).exists()
    ]
