"""Checks the words of docstrings and comments: the part of CONTRIBUTING.md's rules that a tool can see.

    python tools/prose.py [PATH...]

| rule | where |
| --- | --- |
| every public class has a docstring | product |
| every public function of more than five lines has one | product |
| a docstring opens with a verb or a noun phrase, not with a word that leans on the name above it | all |
| a comment is above its line, not at the end of it | product |
| a comment is not a banner | all |
| words that a reader must look at twice are not used | all |

Every place that breaks a rule is printed with its file and line. Exit status: 0 without one, otherwise 1.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("storage", "cluster", "sim", "pipeline", "replog", "bench", "tools")
EVERYTHING = (*PRODUCT, "tests")
GENERATED = "cluster/rpc/"
# This file was given, and must stay as it is.
GIVEN = "bench/floors.py"
MOST_LINES_WITHOUT_DOCSTRING = 5
LEANING = {
    "Of",
    "By",
    "As",
    "With",
    "For",
    "Where",
    "Who",
    "Whom",
    "Whose",
    "Gives",
    "Tells",
    "Which",
    "Behind",
}
# Each word with the one to use instead.
WORDS = {"anew": "again", "Gives": "Returns", "gives": "returns"}
_WORD = re.compile(r"[A-Za-z]+")
_KEPT_BEHIND = re.compile(r"#\s*(noqa|type:|fmt:|pragma|ruff:|pyright:)")
_BANNER = re.compile(r"^#\s*[-=#*]{3,}|^#\s*[-=]{2,}.*[-=]{2,}\s*$")


class Finding(NamedTuple):
    """One place that breaks a rule."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


def check_text(path: str, text: str) -> Iterator[Finding]:
    """Yield all findings in one Python file, whose path is relative to the checkout."""
    is_product = path.startswith(tuple(f"{folder}/" for folder in PRODUCT))
    tree = ast.parse(text)
    yield from _check_docstrings(path, tree)
    if is_product:
        yield from _check_missing(path, tree)
    yield from _check_comments(path, text, is_product=is_product)


def _check_docstrings(path: str, tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        docstring = ast.get_docstring(node)
        if docstring is None:
            continue
        line = node.body[0].lineno
        first = _WORD.match(docstring)
        if first is not None and first.group() in LEANING:
            yield Finding(path, line, f"a docstring opens with {first.group()!r}: {docstring[:50]!r}")
        yield from _check_words(path, line, docstring)


def _check_words(path: str, line: int, text: str) -> Iterator[Finding]:
    words = set(_WORD.findall(text))
    for word, better in WORDS.items():
        if word in words:
            yield Finding(path, line, f"{word!r}, better {better!r}")


def _check_missing(path: str, tree: ast.Module) -> Iterator[Finding]:
    for node in tree.body:
        yield from _check_missing_in(path, node, is_protocol=False)


def _check_missing_in(path: str, node: ast.stmt, *, is_protocol: bool) -> Iterator[Finding]:
    """Check a public class or function of the top level, or a public method of a class."""
    if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
        if ast.get_docstring(node) is None:
            yield Finding(path, node.lineno, f"class {node.name} has no docstring")
        for each in node.body:
            yield from _check_missing_in(path, each, is_protocol=is_protocol)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_"):
        assert node.end_lineno is not None, (path, node.name)
        lines = node.end_lineno - node.lineno + 1
        if lines > MOST_LINES_WITHOUT_DOCSTRING and ast.get_docstring(node) is None:
            yield Finding(path, node.lineno, f"{node.name}, {lines} lines, has no docstring")


def _check_comments(path: str, text: str, *, is_product: bool) -> Iterator[Finding]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, column = token.start
        is_behind = token.line[:column].strip() != ""
        if is_product and is_behind and not _KEPT_BEHIND.match(token.string):
            yield Finding(path, line, f"a comment at the end of its line: {token.string[:50]}")
        if _BANNER.match(token.string):
            yield Finding(path, line, f"a banner: {token.string[:50]}")
        yield from _check_words(path, line, token.string)


def check(root: Path, paths: list[str]) -> list[Finding]:
    """Returns all findings below `paths`, which are relative to `root`, without generated and given files."""
    files = [
        file
        for path in paths
        for file in ([root / path] if path.endswith(".py") else (root / path).rglob("*.py"))
    ]
    found = []
    for file in sorted(files):
        path = file.relative_to(root).as_posix()
        if path == GIVEN or (path.startswith(GENERATED) and path.endswith(("_pb2.py", "_pb2_grpc.py"))):
            continue
        found += check_text(path, file.read_text(encoding="utf-8"))
    return found


def main() -> int:
    """Print the findings; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", default=list(EVERYTHING), help="files or folders of the checkout")
    arguments = parser.parse_args()
    found = check(ROOT, arguments.paths)
    for finding in found:
        print(finding)
    print(f"{len(found)} places", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
