"""Finds what depends on the order of a set in the code that must run alike from the same seed.

`python tools/unordered.py` reads storage, cluster/core and sim with the types that mypy infers. It prints a line for
each place where the order of a set or frozenset can reach a value: a loop, a list or dict made of it, a join, a pop, a
text. A consumer to which order means nothing (`sorted`, `sum`, `any`, another set) is fine. The exit status is 1 if
there is such a place.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from mypy import build
from mypy.main import process_options
from mypy.nodes import Expression
from mypy.types import Instance, Type, UnionType, get_proper_type

ROOT = Path(__file__).parent.parent
FOLDERS = ("storage", "cluster/core", "sim")
SETS = {"builtins.set", "builtins.frozenset"}
# What a call of these returns does not depend on the order of its argument.
WITHOUT_ORDER = {
    "sorted", "set", "frozenset", "sum", "min", "max", "len", "any", "all", "update", "union", "intersection",
    "difference", "issubset", "issuperset", "isdisjoint", "difference_update", "intersection_update",
}  # fmt: skip
# These keep the order of their argument.
KEEP_ORDER = {
    "list", "tuple", "iter", "enumerate", "zip", "map", "filter", "next", "dict", "deque", "str", "repr", "join",
    "extend", "fromkeys",
}  # fmt: skip

# The lines and columns of an expression and its kind or name: what mypy's tree and Python's have in common.
Place = tuple[int, int, int | None, int | None, str]
_KINDS = {
    "Call": "CallExpr", "BinOp": "OpExpr",
    "BoolOp": "OpExpr", "Subscript": "IndexExpr", "SetComp": "SetComprehension", "Set": "SetExpr",
    "IfExp": "ConditionalExpr", "Await": "AwaitExpr",
}  # fmt: skip


def set_places(files: Sequence[Path]) -> set[Place]:
    """Returns the places of all expressions whose type is a set. Raises SystemExit if mypy finds an error.

    mypy keeps no file beside an expression, so two files share their places. An equal name at an equal place in both,
    a set in one of them only, would be reported by mistake; that is rare, and a reader sees it.
    """
    sources, options = process_options([str(path) for path in files])
    options.export_types = options.preserve_asts = True
    options.incremental = False
    result = build.build(sources, options)
    if result.errors:
        raise SystemExit("\n".join(result.errors))
    return {_place_in_mypy(expression) for expression, type_ in result.types.items() if is_set(type_)}


def is_set(type_: Type) -> bool:
    proper = get_proper_type(type_)
    if isinstance(proper, UnionType):
        return any(is_set(item) for item in proper.items)
    return isinstance(proper, Instance) and any(base.fullname in SETS for base in proper.type.mro)


def _place_in_mypy(expression: Expression) -> Place:
    kind = type(expression).__name__
    name = str(getattr(expression, "name", kind)) if kind in ("NameExpr", "MemberExpr") else kind
    return expression.line, expression.column, expression.end_line, expression.end_column, name


def _place(node: ast.expr) -> Place:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            pass
        case _:
            name = _KINDS.get(type(node).__name__, "")
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, name


class Finder:
    """The places of one file at which the order of a set is seen."""

    def __init__(self, tree: ast.AST, sets: set[Place]) -> None:
        self._tree, self._sets = tree, sets
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def found(self) -> Iterator[tuple[int, str]]:
        """Yield the line of each place and what it does with the set."""
        for node in ast.walk(self._tree):
            match node:
                case ast.For(iter=iterated) if self._is_set(iterated):
                    yield iterated.lineno, f"a loop over {ast.unparse(iterated)}"
                case ast.comprehension(iter=iterated) if self._is_set(iterated) and self._keeps_order(node):
                    yield iterated.lineno, f"a list, dict or generator from {ast.unparse(iterated)}"
                case ast.FormattedValue(value=value) if self._is_set(value):
                    yield value.lineno, f"a text of {ast.unparse(value)}"
                case ast.Starred(value=value) if self._is_set(value) and self._star_keeps_order(node):
                    yield value.lineno, f"*{ast.unparse(value)}"
                case ast.Call():
                    yield from self._in_call(node)

    def _in_call(self, call: ast.Call) -> Iterator[tuple[int, str]]:
        name = _called(call)
        if name == "pop" and isinstance(call.func, ast.Attribute) and self._is_set(call.func.value):
            yield call.lineno, f"{ast.unparse(call.func)}: any element"
        if name in KEEP_ORDER:
            for argument in call.args:
                if self._is_set(argument):
                    yield call.lineno, f"{name}({ast.unparse(argument)})"

    def _is_set(self, node: ast.expr) -> bool:
        return _place(node) in self._sets

    def _keeps_order(self, part: ast.comprehension) -> bool:
        whole = self._parents[part]
        return not isinstance(whole, ast.SetComp) and not self._feeds_free_call(whole)

    def _star_keeps_order(self, star: ast.Starred) -> bool:
        return not isinstance(self._parents[star], ast.Set) and not self._feeds_free_call(star)

    def _feeds_free_call(self, node: ast.AST) -> bool:
        call = self._parents.get(node)
        return isinstance(call, ast.Call) and node in call.args and _called(call) in WITHOUT_ORDER


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def unordered(files: Sequence[Path]) -> list[str]:
    """Returns a line for each place in the files where the order of a set is seen."""
    sets, lines = set_places(files), []
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        lines += [f"{shown}:{line}: {what}" for line, what in Finder(tree, sets).found()]
    return sorted(lines)


def main() -> int:
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    lines = unordered(files)
    print("\n".join([*lines, f"{len(files)} files, {len(lines)} places that see the order of a set"]))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
