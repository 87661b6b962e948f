"""No function says two things of one attribute that a type checker takes for a contradiction.

A check that `self.x` is some object narrows its type to the end of the function, whatever is called meanwhile. The
interpreter does not care; the compiled build then refuses the None that the attribute has by now.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.places import ROOT

COMPILED = ("storage", "cluster", "sim")


def name_of(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        before = name_of(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else None


def facts(function: ast.FunctionDef) -> Iterator[tuple[int, str, str]]:
    """Yields the lines at which an attribute is assigned, or asserted to be some object or None."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for each in ast.walk(target):
                    if isinstance(each, ast.Attribute) and (name := name_of(each)) is not None:
                        yield node.lineno, name, "assigned"
        elif isinstance(node, ast.Assert):
            for test in ast.walk(node.test):
                if isinstance(test, ast.Compare) and isinstance(test.left, ast.Attribute):
                    name, other = name_of(test.left), test.comparators[0]
                    is_none = isinstance(other, ast.Constant) and other.value is None
                    if name is not None and isinstance(test.ops[0], ast.Is | ast.IsNot):
                        says_none = is_none and isinstance(test.ops[0], ast.Is)
                        yield node.lineno, name, "none" if says_none else "some"


def contradictions(source: str) -> list[str]:
    found = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        known: dict[str, str] = {}
        for line, name, fact in sorted(facts(function)):
            if {known.get(name), fact} == {"some", "none"}:
                found.append(f"{function.name}, line {line}: {name} is {fact}, and was not")
            known[name] = fact
    return found


def test_a_contradiction_is_found() -> None:
    source = """
def fail(self, running):
    assert self.round is running
    {between}
    assert self.round is None
"""
    assert contradictions(source.format(between="self.end(running)"))
    assert not contradictions(source.format(between="self.round = None"))


def test_no_module_that_is_compiled_has_one() -> None:
    paths = [path for folder in COMPILED for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {str(path): contradictions(path.read_text(encoding="utf-8")) for path in paths}
    assert len(paths) > 100
    assert {path: each for path, each in found.items() if each} == {}
