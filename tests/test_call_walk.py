"""The counts of a recorded walk: two modules that call each other, a generator, an error, and calls left out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.call_walk import Walk, recorded_walks

UPPER = """\
def entry(number):
    helper()
    lower.work(number)
    return json.dumps(number)

def helper():
    pass
"""
LOWER = """\
def work(number):
    upper.helper()
    outside.work(upper.helper)
    try:
        fail()
    except ValueError:
        pass
    return sum(each for each in counted(number))

def fail():
    raise ValueError

def counted(number):
    yield number
    yield number

def recurse(again):
    return recurse(again - 1) if again else None
"""
OUTSIDE = """\
def work(then):
    then()
"""


@pytest.fixture
def modules(tmp_path: Path) -> SimpleNamespace:
    named = SimpleNamespace()
    for name, text in (("in/upper", UPPER), ("in/lower", LOWER), ("out/outside", OUTSIDE)):
        module = SimpleNamespace(json=json)
        exec(compile(text, str(tmp_path / f"{name}.py"), "exec"), module.__dict__)
        setattr(named, name.rpartition("/")[2], module)
    for module in vars(named).values():
        vars(module).update(vars(named))
    return named


@pytest.fixture
def walk(tmp_path: Path, modules: SimpleNamespace) -> Walk:
    with recorded_walks(modules.upper.entry, tmp_path, ("in",)) as walks:
        modules.lower.work(1)
        modules.upper.entry(7)
        modules.lower.work(1)
    (only,) = walks
    return only


# Resumptions of a generator that yields twice.
GENERATOR = 3


def test_a_walk_is_every_call_beneath_the_entry_in_order_with_its_depth(walk: Walk) -> None:
    assert list(walk.lines()) == [
        "in/upper.py:entry",
        "  in/upper.py:helper",
        "  in/lower.py:work",
        "    in/upper.py:helper",
        "    in/upper.py:helper",
        "    in/lower.py:fail",
        *["    in/lower.py:work.<locals>.<genexpr>", "      in/lower.py:counted"] * GENERATOR,
    ]


def test_a_move_is_a_call_into_another_file_than_the_one_before(walk: Walk) -> None:
    assert (len(walk.calls), walk.moves, walk.files) == (6 + 2 * GENERATOR, 3, 2)
    assert str(walk) == "12 calls, 3 moves between 2 files"


def test_a_walk_holds_what_the_entry_was_given_and_what_it_returned(walk: Walk) -> None:
    assert walk.arguments == {"number": 7}
    assert walk.result == "7"


def test_a_call_of_the_entry_inside_itself_is_part_of_the_walk(
    tmp_path: Path, modules: SimpleNamespace
) -> None:
    with recorded_walks(modules.lower.recurse, tmp_path, ("in",)) as walks:
        modules.lower.recurse(2)
        modules.lower.recurse(0)
    assert [[call.depth for call in walk.calls] for walk in walks] == [[0, 1, 2], [0]]


def test_an_entry_that_raises_ends_its_walk(tmp_path: Path, modules: SimpleNamespace) -> None:
    with recorded_walks(modules.lower.fail, tmp_path, ("in",)) as walks:
        for _ in range(2):
            with pytest.raises(ValueError):
                modules.lower.fail()
    assert [str(walk) for walk in walks] == ["1 calls, 0 moves between 1 files"] * 2


def test_the_profiler_of_before_is_put_back(tmp_path: Path, modules: SimpleNamespace) -> None:
    before = sys.getprofile()
    with pytest.raises(ValueError), recorded_walks(modules.lower.fail, tmp_path, ("in",)):
        modules.lower.fail()
    assert sys.getprofile() is before
