"""Writes a module as mypyc wants it: its dataclasses as plain classes, its constants as final names.

mypyc runs `dataclass` on a class beside the native one and takes the constructor, which is interpreted, from there;
with `slots=True` it cannot even do that. So a dataclass gets its constructor as text here, and its
comparison, because mypyc compares objects by identity where it sees no other way; `storage.values.complete` adds the
rest: text, hash, copies, fields. The fields of a frozen one are `Final`, which a native class keeps.
A constant of a module is `Final` too: mypyc reads it directly, but any other name of a module from its dict. A `maker`
of a class becomes the class, which mypyc calls directly. A named tuple gets a function that makes one, because the
constructor that Python generates is interpreted. An error has a name of its own in each handler of a function.
mypyc also drops the cause of `raise … from`; `storage.values.caused` sets it.
Every statement of a function keeps its line, so that a traceback of the compiled build fits the source: what is added
is put on the line of the decorator and on the blank lines after the class.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

FUTURE = "from __future__ import annotations"
FINAL_HELPER = "; from typing import Final as Final_"
TUPLE_HELPERS = "; from typing import Any as Any_; new_tuple_: Final_[Any_] = tuple.__new__"
CLASS_HELPERS = (
    "; from typing import Any as Any_, ClassVar as ClassVar_"
    "; from storage.values import complete as complete_"
)
CAUSED = "; from storage.values import caused as caused_"
CALL_WITH_CAUSE = "caused_("
# What mypy knows a dataclass by.
MARK = "; __dataclass_fields__: ClassVar_[dict[str, Any_]]"
PLAIN = "quickly_made"
_CONSTANT = re.compile("_?[A-Z][A-Z0-9_]*")
_TYPE_VARIABLES = ("TypeVar", "ParamSpec", "NewType")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A replacement of a part of a text, from `start` to `end` (exclusive), in bytes."""

    start: int
    end: int
    text: str


class FormError(Exception):
    """A module has no form that mypyc can compile; the message says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A field: its annotation, and the expressions of its default and of the factory of its default, or None."""

    name: str
    annotation: str
    value: str | None
    default: str | None
    factory: str | None
    is_compared: bool

    def parameter(self) -> str:
        if self.factory is not None:
            return f"{self.name}: {self.annotation} | None = None"
        return f"{self.name}: {self.annotation}" + ("" if self.default is None else f" = {self.default}")

    def assignment(self) -> str:
        if self.factory is None:
            return f"self.{self.name} = {self.name}"
        return f"self.{self.name} = {self.factory}() if {self.name} is None else {self.name}"


def named_tuples(source: str, path: str) -> set[str]:
    """Returns the full names of the named tuples of a module."""
    module = path.removesuffix(".py").replace("/", ".")
    return {
        f"{module}.{each.name}"
        for each in ast.parse(source).body
        if isinstance(each, ast.ClassDef) and _is_named_tuple(each)
    }


def native_form(source: str, path: str, tuples: Collection[str] = ()) -> str:
    """Returns the module with the same statements on the same lines; `tuples` are all named tuples that are compiled.

    Raises FormError for `path`.
    """
    tree = ast.parse(source)
    text = Text(source, path)
    edits: list[Edit] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            edits += _class_edits(text, node)
    edits += [*_constant_edits(text, tree), *_maker_edits(text, tree), *_tuple_edits(text, tree, tuples)]
    added = "".join(edit.text for edit in edits)
    helpers = FINAL_HELPER if "Final_" in added or "new_tuple_" in added else ""
    if "new_tuple_" in added:
        helpers += TUPLE_HELPERS
    if "\ncomplete_(" in added:
        helpers += CLASS_HELPERS
    for each in ast.walk(tree):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
            edits += _handler_edits(text, each)
        elif isinstance(each, ast.Raise) and each.exc is not None and each.cause is not None:
            edits += _cause_edits(text, each.exc, each.cause)
        elif isinstance(each, ast.Compare):
            _refuse_stars(text, each)
    if any(each.text == CALL_WITH_CAUSE for each in edits):
        helpers += CAUSED
    if helpers:
        start = source.encode().index(FUTURE.encode()) + len(FUTURE)
        edits.append(Edit(start=start, end=start, text=helpers))
    return text.changed(edits)


class Text:
    """A source and the positions of its lines, in bytes, as `ast` counts them."""

    def __init__(self, source: str, path: str) -> None:
        self.path, self._bytes = path, source.encode()
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def part(self, node: ast.AST) -> Edit:
        """Returns the place and the text of an expression."""
        assert isinstance(node, (ast.expr, ast.stmt)) and node.end_lineno and node.end_col_offset is not None
        start, end = self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)
        return Edit(start=start, end=end, text=self._bytes[start:end].decode())

    def is_blank(self, line: int) -> bool:
        """Whether the line, counted from 1, is blank, or after the end of the text."""
        if line >= len(self._starts):
            return True
        return not self._bytes[self._starts[line - 1] : self._starts[line]].strip()

    def line_start(self, line: int) -> int:
        return self._starts[min(line, len(self._starts)) - 1]

    def changed(self, edits: list[Edit]) -> str:
        """Returns the text after the edits, each of its own place. Raises FormError if two share one."""
        found, at = [], 0
        for edit in sorted(edits, key=lambda each: (each.start, each.end)):
            if edit.start < at:
                raise FormError(f"{self.path}: two changes of one place, {edit}")
            found += [self._bytes[at : edit.start], edit.text.encode()]
            at = edit.end
        return b"".join([*found, self._bytes[at:]]).decode()


def _class_edits(text: Text, node: ast.ClassDef) -> list[Edit]:
    decorator = next((each for each in node.decorator_list if _is_dataclass(each)), None)
    if decorator is None:
        return _quoted_annotations(text, node)
    if any(not ast.unparse(base).startswith("Generic[") for base in node.bases):
        raise FormError(f"{text.path}:{node.lineno}: a dataclass with a base, {node.name}")
    options = _options(decorator)
    edits = [_without_decorator(text, each) for each in node.decorator_list if _is_ours(each)]
    members: list[Member] = []
    statements: list[ast.AnnAssign] = []
    # A class with a type variable cannot have final fields.
    is_final = options.get("frozen", False) and not node.bases
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and not ast.unparse(statement.annotation).startswith(
            "ClassVar"
        ):
            edits += _field_edits(text, statement, is_final=is_final, mark="" if members else MARK)
            members.append(_member(statement))
            statements.append(statement)
    methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    equality = f"    {_equality(node.name, members)}"
    if options.get("eq", True) and statements and "__eq__" not in methods:
        # The line of the decorator becomes that of the comparison, which is after the fields.
        edits.append(_without_line_break(text, decorator))
        at = text.part(statements[-1]).end
        edits.append(Edit(start=at, end=at, text=f"\n{equality}"))
    assert node.end_lineno is not None
    if not (text.is_blank(node.end_lineno + 1) and text.is_blank(node.end_lineno + 2)):
        raise FormError(f"{text.path}:{node.end_lineno}: no two blank lines after {node.name}")
    place = text.line_start(node.end_lineno + 1)
    constructor = f"    {_constructor(members, options, is_checked='__post_init__' in methods)}"
    lines = [
        constructor if members else equality,
        _completion(node.name, members, options),
    ]
    is_last = node.end_lineno + 1 >= len(text._starts)
    added = "\n".join(lines) + ("\n" if is_last else "")
    # One line break is there already, that of the second blank line.
    return [*edits, Edit(start=place, end=place if is_last else place + 1, text=added)]


def _quoted_annotations(text: Text, node: ast.ClassDef) -> list[Edit]:
    """Quote the annotations of a named tuple: mypyc would look each up when the class is made, and knows not all."""
    if not _is_named_tuple(node):
        return []
    kinds = [text.part(each.annotation) for each in node.body if isinstance(each, ast.AnnAssign)]
    return [
        Edit(start=each.start, end=each.end, text=f"'{each.text}'") for each in kinds if "'" not in each.text
    ]


def _is_named_tuple(node: ast.ClassDef) -> bool:
    return [ast.unparse(base) for base in node.bases] == ["NamedTuple"]


def _tuple_edits(text: Text, tree: ast.Module, tuples: Collection[str]) -> Iterator[Edit]:
    """Make named tuples by the functions that stand below their classes, which the others import with the class."""
    module = text.path.removesuffix(".py").replace("/", ".")
    known: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and f"{module}.{statement.name}" in tuples:
            known.add(statement.name)
            yield _below(text, statement, _tuple_maker(statement))
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if alias.asname is None and f"{statement.module}.{alias.name}" in tuples:
                    known.add(alias.name)
                    end = text.at(alias.lineno, alias.col_offset) + len(alias.name)
                    yield Edit(start=end, end=end, text=f", {alias.name}_made")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known:
            if not any(isinstance(each, ast.Starred) for each in node.args):
                end = text.part(node.func).end
                yield Edit(start=end, end=end, text="_made")


def _tuple_maker(node: ast.ClassDef) -> str:
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    names = ", ".join(ast.unparse(each.target) for each in fields)
    parameters = ", ".join(ast.unparse(each) for each in fields)
    return f"def {node.name}_made({parameters}) -> {node.name}: return new_tuple_({node.name}, ({names},))"


def _below(text: Text, node: ast.ClassDef, line: str) -> Edit:
    """Put a line on the first blank one after a class. Raises FormError without one."""
    assert node.end_lineno is not None
    if not text.is_blank(node.end_lineno + 1):
        raise FormError(f"{text.path}:{node.end_lineno}: no blank line after {node.name}")
    place = text.line_start(node.end_lineno + 1)
    is_last = node.end_lineno + 1 >= len(text._starts)
    return Edit(start=place, end=place, text=line + ("\n" if is_last else ""))


def _is_dataclass(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).startswith("dataclass")


def _is_ours(decorator: ast.expr) -> bool:
    return _is_dataclass(decorator) or ast.unparse(decorator) == PLAIN


def _options(decorator: ast.expr) -> dict[str, bool]:
    if not isinstance(decorator, ast.Call):
        return {}
    return {str(each.arg): bool(ast.literal_eval(each.value)) for each in decorator.keywords}


def _without_decorator(text: Text, decorator: ast.expr) -> Edit:
    part = text.part(decorator)
    return Edit(start=part.start - 1, end=part.end, text="")


def _without_line_break(text: Text, decorator: ast.expr) -> Edit:
    at = text.part(decorator).end
    return Edit(start=at, end=at + 1, text="")


def _member(statement: ast.AnnAssign) -> Member:
    assert isinstance(statement.target, ast.Name)
    default = factory = None
    is_compared = True
    if statement.value is not None:
        default = ast.unparse(statement.value)
        if isinstance(statement.value, ast.Call) and ast.unparse(statement.value.func) == "field":
            named = {each.arg: ast.unparse(each.value) for each in statement.value.keywords}
            default, factory = named.get("default"), named.get("default_factory")
            is_compared = named.get("compare") != "False"
    value = None if statement.value is None else ast.unparse(statement.value)
    annotation = ast.unparse(statement.annotation)
    return Member(
        name=statement.target.id,
        annotation=annotation,
        value=value,
        default=default,
        factory=factory,
        is_compared=is_compared,
    )


def _field_edits(text: Text, statement: ast.AnnAssign, *, is_final: bool, mark: str) -> Iterator[Edit]:
    """Take the default away, whose lines stay, and declare a field of a frozen class as final."""
    annotation = text.part(statement.annotation)
    end = text.part(statement).end
    lines = (statement.end_lineno or 0) - statement.lineno
    kind = f"Final_[{annotation.text}]" if is_final else annotation.text
    yield Edit(start=annotation.start, end=end, text=kind.replace("\n", " ") + mark + "\n" * lines)


def _constructor(members: list[Member], options: dict[str, bool], *, is_checked: bool) -> str:
    star = ["*"] if options.get("kw_only") and members else []
    parameters = ", ".join(["self", *star, *(each.parameter() for each in members)])
    body = [each.assignment() for each in members] + (["self.__post_init__()"] if is_checked else [])
    return f"def __init__({parameters}) -> None: {'; '.join(body) or 'pass'}"


def _equality(name: str, members: list[Member]) -> str:
    """Returns the method that compares: mypyc compares objects whose class has none by their identity."""
    compared = "".join(f" and self.{each.name} == other.{each.name}" for each in members if each.is_compared)
    return f"def __eq__(self, other: object) -> bool: return isinstance(other, {name}){compared}"


def _completion(name: str, members: list[Member], options: dict[str, bool]) -> str:
    kinds = ", ".join(f'"{each.name}": {each.annotation!r}' for each in members)
    values = ", ".join(f'"{each.name}": {each.value}' for each in members if each.value is not None)
    given = {key: value for key, value in options.items() if key != "slots"}
    named = "".join(f", {key}={value}" for key, value in given.items())
    return f"complete_({name}, {{{kinds}}}, {{{values}}}{named})  # type: ignore"


def _constant_edits(text: Text, tree: ast.Module) -> Iterator[Edit]:
    """Declare as final what the module names once, in capitals or with its type, and no function sets again."""
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not _is_read(node)]
    names += [name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names]
    once = {name for name, count in Counter(names).items() if count == 1}
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign) and _is_constant(statement.target, statement.value, once):
            annotation = text.part(statement.annotation)
            if not annotation.text.startswith("Final"):
                yield Edit(start=annotation.start, end=annotation.end, text=f"Final_[{annotation.text}]")
        elif isinstance(statement, ast.Assign):
            yield from _assigned_edits(text, statement, once)


def _assigned_edits(text: Text, statement: ast.Assign, once: set[str]) -> Iterator[Edit]:
    target = statement.targets[0]
    pairs = [(target, statement.value)]
    if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
        pairs = list(zip(target.elts, statement.value.elts, strict=True))
    if not all(_is_constant(name, value, once) and _is_capital(name) for name, value in pairs):
        return
    if len(pairs) == 1:
        at = text.part(target).end
        yield Edit(start=at, end=at, text=": Final_")
        return
    part = text.part(statement)
    lines = [f"{ast.unparse(name)}: Final_ = {ast.unparse(value)}" for name, value in pairs]
    yield Edit(start=part.start, end=part.end, text="; ".join(lines) + "\n" * part.text.count("\n"))


def _is_constant(name: ast.expr, value: ast.expr | None, once: set[str]) -> bool:
    """Whether a name of the module is a constant. A tuple is none: mypyc would make it again wherever it is read."""
    if not isinstance(name, ast.Name) or name.id not in once or value is None or isinstance(value, ast.Tuple):
        return False
    return not (isinstance(value, ast.Call) and ast.unparse(value.func) in _TYPE_VARIABLES)


def _is_capital(name: ast.expr) -> bool:
    return isinstance(name, ast.Name) and _CONSTANT.fullmatch(name.id) is not None


def _is_read(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _maker_edits(text: Text, tree: ast.Module) -> Iterator[Edit]:
    """Call the class where the source calls its `maker`, which only interpreted classes need."""
    kinds: dict[str, str] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            target, value = statement.targets[0], statement.value
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = value.elts if isinstance(value, ast.Tuple) else [value]
            for name, each in zip(names, values, strict=False):
                if isinstance(each, ast.Call) and ast.unparse(each.func) == "maker":
                    kinds[ast.unparse(name)] = ast.unparse(each.args[0])
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and _is_read(node) and node.id in kinds:
            part = text.part(node)
            yield Edit(start=part.start, end=part.end, text=kinds[node.id])


def _handler_edits(text: Text, function: ast.AST) -> Iterator[Edit]:
    """Name the error of a handler apart from that of an earlier handler of another type in the same function."""
    first: dict[str, str] = {}
    for number, handler in enumerate(_handlers(function)):
        if handler.name is None or handler.type is None:
            continue
        if first.setdefault(handler.name, ast.unparse(handler.type)) == ast.unparse(handler.type):
            continue
        renamed = f"{handler.name}_{number}"
        after_type = text.part(handler.type).end
        found = text._bytes.index(handler.name.encode(), after_type)
        yield Edit(start=found, end=found + len(handler.name.encode()), text=renamed)
        for statement in handler.body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and node.id == handler.name:
                    part = text.part(node)
                    yield Edit(start=part.start, end=part.end, text=renamed)


def _cause_edits(text: Text, error: ast.expr, cause: ast.expr) -> Iterator[Edit]:
    """Write `raise A from B` as `raise caused_(A, B)`."""
    raised, reason = text.part(error), text.part(cause)
    yield Edit(start=raised.start, end=raised.start, text=CALL_WITH_CAUSE)
    yield Edit(start=raised.end, end=reason.start, text=", ")
    yield Edit(start=reason.end, end=reason.end, text=")")


def _refuse_stars(text: Text, comparison: ast.Compare) -> None:
    """Raises FormError for `x in (first, *others)`: mypyc makes a comparison of each element, and ends at the star."""
    for place, operator in zip(comparison.comparators, comparison.ops, strict=True):
        if isinstance(operator, (ast.In, ast.NotIn)) and isinstance(place, (ast.Tuple, ast.List, ast.Set)):
            if any(isinstance(each, ast.Starred) for each in place.elts):
                raise FormError(
                    f"{text.path}:{place.lineno}: a starred element after `in`, {ast.unparse(place)}"
                )


def _handlers(function: ast.AST) -> list[ast.ExceptHandler]:
    found = [node for node in ast.walk(function) if isinstance(node, ast.ExceptHandler)]
    return sorted(found, key=lambda each: (each.lineno, each.col_offset))
