"""The text that mypyc compiles: every dataclass written out as a class of the same behaviour, on the same lines."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType

import pytest

from tests.places import ROOT
from tools.native_form import FormError, named_tuples, native_form

SOURCE = '''"""Values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeVar

from storage.values import maker, quickly_made

NOTHING = -1
LEAST, MOST = 0, 9
NAMES: dict[int, str] = {0: "least"}
ENDS = (LEAST, MOST)
Number = int | float
T = TypeVar("T")
TURN = 0


class Pair(NamedTuple):
    view: memoryview
    count: int = 0


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point."""

    dimensions: ClassVar[int] = 2
    x: int
    # A comment stays.
    y: int = NOTHING
    text: str = field(
        default="",
        compare=False,
    )


_point = maker(Point)


@dataclass(slots=True)
class Kept:
    least: int
    found: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.least < 0:
            raise ValueError(self.least)


def reason() -> str:
    try:
        int("x")
    except TypeError as error:
        return str(error)
    except ValueError as error:
        return type(error).__name__
    return ""


def fail(is_silent: bool) -> None:
    try:
        int("x")
    except TypeError as error:
        raise KeyError("type") from error
    except ValueError as error:
        if is_silent:
            raise KeyError from None
        raise KeyError(
            "value",
        ) from error


def turned() -> int:
    global TURN
    TURN += 1
    return TURN


def origin() -> Point:
    return _point(x=0)


def pairs() -> list[Pair]:
    return [Pair(memoryview(b"x"), 2), Pair(*(memoryview(b"y"),))]
'''
TUPLES = {"values.Pair"}


@pytest.fixture(scope="module")
def native() -> ModuleType:
    """The module `SOURCE` in its native form, run by the interpreter."""
    module = ModuleType("native_values")
    sys.modules[module.__name__] = module
    exec(compile(native_form(SOURCE, "values.py", TUPLES), "values.py", "exec"), module.__dict__)
    return module


def functions(source: str) -> list[tuple[str, int]]:
    """Returns the functions of a module and their lines, without those that the form adds."""
    found = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.FunctionDef)]
    return sorted(
        (each.name, each.lineno) for each in found if not each.name.endswith(("__init__", "__eq__", "_made"))
    )


def test_no_dataclass_is_left_and_every_statement_of_a_function_keeps_its_line() -> None:
    before, after = SOURCE.splitlines(), native_form(SOURCE, "values.py").splitlines()
    assert "@dataclass" not in "\n".join(after)
    for line in ("def reason() -> str:", "        if self.least < 0:", "        return str(error)"):
        assert before.index(line) == after.index(line), line


def test_the_fields_of_a_frozen_class_are_final() -> None:
    assert "    x: Final_[int]" in native_form(SOURCE, "values.py")
    assert "    least: int" in native_form(SOURCE, "values.py")


def test_a_class_keeps_what_its_dataclass_has(native: ModuleType) -> None:
    point = native.Point(x=1)
    assert (point.x, point.y, point.text, native.Point.dimensions) == (1, -1, "", 2)
    assert point == native.Point(x=1, text="other") != native.Point(x=2)
    assert len({point, native.Point(x=1)}) == 1
    assert repr(point) == "Point(x=1, y=-1, text='')"
    assert [each.name for each in fields(native.Point)] == ["x", "y", "text"]
    assert replace(point, y=5) == native.Point(x=1, y=5)
    assert native.Point.__match_args__ == ()
    with pytest.raises(TypeError):
        native.Point(1)


def test_a_copy_is_equal(native: ModuleType) -> None:
    point = native.Point(x=1, y=2)
    assert copy.copy(point) == point == pickle.loads(pickle.dumps(point))


def test_a_default_is_made_for_each_object_and_checked_after_it(native: ModuleType) -> None:
    first, second = native.Kept(1), native.Kept(least=2, found=[3])
    first.found.append(7)
    assert native.Kept(1).found == []
    assert second.found == [3]
    with pytest.raises(TypeError):
        hash(first)
    with pytest.raises(ValueError, match="-1"):
        native.Kept(-1)


def test_handlers_of_different_errors_name_them_apart(native: ModuleType) -> None:
    assert native.reason() == "ValueError"
    assert "except TypeError as error:" in native_form(SOURCE, "values.py")
    assert "except ValueError as error_1:" in native_form(SOURCE, "values.py")


def test_a_raised_error_keeps_its_cause(native: ModuleType) -> None:
    with pytest.raises(KeyError) as raised:
        native.fail(is_silent=False)
    assert isinstance(raised.value.__cause__, ValueError)
    with pytest.raises(KeyError) as raised:
        native.fail(is_silent=True)
    assert raised.value.__cause__ is None and raised.value.__suppress_context__
    # mypyc drops what is after `from`.
    written = native_form(SOURCE, "values.py")
    assert " from error\n" not in written and ") from None\n" not in written
    assert 'raise caused_(KeyError("type"), error)' in written


def test_a_named_tuple_may_have_fields_of_any_type(native: ModuleType) -> None:
    assert native.Pair(memoryview(b"x")).count == 0
    assert inspect.get_annotations(native.Pair).keys() == {"view", "count"}


def test_constants_are_final(native: ModuleType) -> None:
    after = native_form(SOURCE, "values.py").splitlines()
    assert "NOTHING: Final_ = -1" in after
    assert "LEAST: Final_ = 0; MOST: Final_ = 9" in after
    assert 'NAMES: Final_[dict[int, str]] = {0: "least"}' in after
    assert (native.LEAST, native.MOST, native.NAMES) == (0, 9, {0: "least"})


def test_tuples_types_and_what_changes_are_not_final(native: ModuleType) -> None:
    after = native_form(SOURCE, "values.py").splitlines()
    for line in ("ENDS = (LEAST, MOST)", "Number = int | float", 'T = TypeVar("T")', "TURN = 0"):
        assert line in after, line
    assert (native.turned(), native.turned()) == (1, 2)


def test_the_class_is_called_and_not_its_maker(native: ModuleType) -> None:
    assert "    return Point(x=0)" in native_form(SOURCE, "values.py").splitlines()
    assert native.origin() == native.Point(x=0)


def test_named_tuples_are_made_by_a_function(native: ModuleType) -> None:
    after = native_form(SOURCE, "values.py", TUPLES)
    assert """[Pair_made(memoryview(b"x"), 2), Pair(*(memoryview(b"y"),))]""" in after
    assert native.pairs() == [native.Pair(memoryview(b"x"), 2), native.Pair(memoryview(b"y"))]
    assert type(native.pairs()[0]) is native.Pair
    assert named_tuples(SOURCE, "values.py") == TUPLES


def test_who_imports_a_named_tuple_imports_its_function() -> None:
    source = "from __future__ import annotations\n\nfrom values import Pair\n\n\nMADE = Pair(VIEW)\n"
    after = native_form(source, "other.py", TUPLES).splitlines()
    assert "from values import Pair, Pair_made" in after
    assert "MADE: Final_ = Pair_made(VIEW)" in after


def test_a_dataclass_with_a_base_is_refused() -> None:
    with pytest.raises(FormError, match=r"values.py:2: a dataclass with a base, Near"):
        native_form("@dataclass\nclass Near(Point):\n    z: int\n", "values.py")


def test_a_starred_element_after_in_is_refused() -> None:
    with pytest.raises(FormError, match=r"values.py:2: a starred element after `in`, \(LEAST, \*others\)"):
        native_form("def found(others):\n    return 1 in (LEAST, *others)\n", "values.py")


def test_every_module_that_is_compiled_has_a_native_form() -> None:
    program = "from native_build import compiled_modules; print(*compiled_modules(), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT / "tools", capture_output=True, text=True, check=True
    )
    names = done.stdout.split()
    assert len(names) > 100
    for name in names:
        source = Path(ROOT, name).read_text()
        after = native_form(source, name)
        assert "@dataclass" not in after, name
        assert functions(after) == functions(source), name
