"""Searches the source for everything that could make one seed two runs.

import-linter checks the imports. These tests check the built-ins and the orders that no import shows.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.places import ROOT

# These files of storage and sim touch the machine.
SHELLS = ("commands.py", "os_filesystem.py")
FORBIDDEN_CALLS = {"hash", "id", "input", "open", "print"}
FORBIDDEN_NAMES = {"__del__", "__hash__"}
ORDERLESS = {"set", "frozenset"}


def pure_files() -> list[Path]:
    folders = (ROOT / "storage", ROOT / "sim", ROOT / "cluster" / "core")
    files = [path for folder in folders for path in folder.rglob("*.py")]
    return sorted(path for path in files if not path.name.endswith(SHELLS))


def offences(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            found.append(f"line {node.lineno}: {node.func.id}()")
        if isinstance(node, ast.FunctionDef) and node.name in FORBIDDEN_NAMES:
            found.append(f"line {node.lineno}: def {node.name}")
        if isinstance(node, ast.For | ast.comprehension) and is_orderless(node.iter):
            found.append(f"line {node.iter.lineno}: an iteration over a set")
        if isinstance(node, ast.Attribute) and node.attr == "now" and isinstance(node.value, ast.Name):
            found += [f"line {node.lineno}: a wall clock"] if node.value.id in ("datetime", "date") else []
    return found


def is_orderless(iterated: ast.expr) -> bool:
    """Whether the node is a set display, a set comprehension or a call of set(): what is visible without types."""
    if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name):
        return iterated.func.id in ORDERLESS
    return isinstance(iterated, ast.Set | ast.SetComp)


@pytest.mark.parametrize("path", pure_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_builtin_that_differs_between_runs(path: Path) -> None:
    assert offences(ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    [
        "hash('a')",
        "x = id(y)",
        "for a in {1, 2}: pass",
        "[a for a in set(b)]",
        "def __del__(self): pass",
        "datetime.now()",
    ],
)
def test_the_gate_notices_each_kind(source: str) -> None:
    assert len(offences(ast.parse(source))) == 1
