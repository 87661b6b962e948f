"""The constructor that sets the fields of a frozen dataclass by assignment."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, replace

import pytest

from storage.values import maker, quickly_made


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: int
    y: int = 7


@quickly_made
@dataclass(frozen=True, slots=True)
class Bounded:
    least: int
    most: int

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise ValueError(f"{self.least} is above {self.most}")


def test_an_object_has_the_class_the_fields_and_the_defaults() -> None:
    point = Point(x=1)
    assert type(point) is Point
    assert (point.x, point.y) == (1, 7)
    assert point == Point(x=1, y=7) != Point(x=2)
    assert len({point, Point(x=1)}) == 1
    assert repr(point) == "Point(x=1, y=7)"


def test_no_field_can_be_set_or_deleted_and_no_other_added() -> None:
    point = Point(x=1)
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del point.x
    with pytest.raises((FrozenInstanceError, TypeError)):
        point.z = 3  # type: ignore[attr-defined]
    assert point == Point(x=1)


def test_fields_are_given_by_name_only_where_the_class_says_so() -> None:
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Point(x=1, z=2)  # type: ignore[call-arg]
    assert Bounded(1, 2) == Bounded(least=1, most=2)
    assert list(inspect.signature(Bounded).parameters) == ["least", "most"]


def test_the_constructor_assigns_and_does_not_go_through_setattr() -> None:
    assert "open_kind" in Point.__new__.__code__.co_names
    assert "__init__" not in vars(Point)


def test_what_is_refused_after_the_fields_are_set_is_refused() -> None:
    with pytest.raises(ValueError, match="3 is above 2"):
        Bounded(3, 2)


def test_a_copy_with_changes_and_a_pickled_one_are_of_the_same_class() -> None:
    point = Point(x=1)
    assert replace(point, y=2) == Point(x=1, y=2)
    for again in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert type(again) is Point
        assert again == point


def test_a_maker_makes_what_a_call_of_the_class_makes() -> None:
    make = maker(Point)
    assert make is not Point
    made = make(x=1, y=2)
    assert type(made) is Point and made == Point(x=1, y=2)
    with pytest.raises(FrozenInstanceError):
        made.x = 3  # type: ignore[misc]
    with pytest.raises(ValueError, match="3 is above 2"):
        maker(Bounded)(3, 2)


def test_the_maker_of_a_class_that_is_not_quickly_made_is_the_class() -> None:
    @dataclass(frozen=True, slots=True)
    class Slow:
        x: int

    assert maker(Slow) is Slow
