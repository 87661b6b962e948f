"""The kinds of bounds that a field of a message may have, and the check of a whole message against them.

A message is checked once, where bytes become messages. The check of each class is one expression, compiled from its
bounds: a loop over the fields would cost a fetch several microseconds. Only where the expression is false, a walk finds
out which field it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from typing import final

from cluster.core.errors import ErrorCode

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
# How much of a refused value a log line or an answer repeats.
SHOWN_CHARACTERS = 64

_INVALID = ErrorCode.INVALID_REQUEST


@final
@dataclass(frozen=True, slots=True)
class Excess:
    """A field outside its bound: `field` is the path to it, `code` is the error for its sender."""

    field: str
    value: object
    bound: str
    code: ErrorCode

    def __str__(self) -> str:
        value = self.value
        text = repr(value[: SHOWN_CHARACTERS + 1] if isinstance(value, (str, bytes)) else value)
        shown = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
        return f"{self.field}={shown}: {self.bound}"


@final
@dataclass(frozen=True, slots=True)
class Anything:
    """No bound: the wire cannot carry a wrong value."""

    def expression(self, value: str) -> str:
        return ""

    def excess(self, value: object, field: str) -> Excess | None:
        return None


@final
@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from `low` to `high`, both inclusive."""

    low: int
    high: int
    code: ErrorCode = _INVALID

    def expression(self, value: str) -> str:
        return f"{self.low} <= {value} <= {self.high}"

    def excess(self, value: object, field: str) -> Excess | None:
        if isinstance(value, int) and self.low <= value <= self.high:
            return None
        return Excess(field, value, f"must be {self.low} to {self.high}", self.code)


@final
@dataclass(frozen=True, slots=True)
class Text:
    """A string of `least` to `most` characters, or bytes of such a size."""

    most: int
    code: ErrorCode = _INVALID
    least: int = 0

    def expression(self, value: str) -> str:
        # Most have no least length, and one comparison is cheaper.
        return (
            f"{self.least} <= len({value}) <= {self.most}" if self.least else f"len({value}) <= {self.most}"
        )

    def excess(self, value: object, field: str) -> Excess | None:
        """Returns which of the two lengths `value` does not keep to."""
        assert isinstance(value, Sized), (field, type(value))
        if self.least <= len(value) <= self.most:
            return None
        bound = f"at least {self.least}" if len(value) < self.least else f"at most {self.most}"
        return Excess(field, value, f"{len(value)} long, {bound}", self.code)


@final
@dataclass(frozen=True, slots=True)
class Many:
    """A tuple of at most `most` elements, each within `of`."""

    of: Bound
    most: int
    code: ErrorCode = _INVALID

    def expression(self, value: str) -> str:
        """Returns the check of the size and of each element."""
        # The element's name is longer than every name around it, so that nested loops do not share one.
        element = "e" * (value.count("e") + 1)
        inner = self.of.expression(element)
        size = f"len({value}) <= {self.most}"
        # A list, because a generator costs more than the check of the few elements that most messages have.
        return f"{size} and not [0 for {element} in {value} if not ({inner})]" if inner else size

    def excess(self, value: object, field: str) -> Excess | None:
        """Returns the size if it is too large, else the first element out of bounds."""
        assert isinstance(value, tuple), (field, type(value))
        if len(value) > self.most:
            return Excess(field, f"{len(value)} elements", f"at most {self.most} are allowed", self.code)
        found = (self.of.excess(element, f"{field}[{index}]") for index, element in enumerate(value))
        return next((each for each in found if each is not None), None)


@final
@dataclass(frozen=True, slots=True)
class Pair:
    """A tuple of two, each with a bound of its own: a property with its value."""

    first: Bound
    second: Bound

    def expression(self, value: str) -> str:
        parts = (self.first.expression(f"{value}[0]"), self.second.expression(f"{value}[1]"))
        return " and ".join(part for part in parts if part)

    def excess(self, value: object, field: str) -> Excess | None:
        assert isinstance(value, tuple), (field, type(value))
        first = self.first.excess(value[0], f"{field}.name")
        return first or self.second.excess(value[1], f"{field}.value")


@final
@dataclass(frozen=True, slots=True)
class Optional:
    """None, or a value within `of`."""

    of: Bound

    def expression(self, value: str) -> str:
        inner = self.of.expression(value)
        return f"({value} is None or ({inner}))" if inner else ""

    def excess(self, value: object, field: str) -> Excess | None:
        return None if value is None else self.of.excess(value, field)


@final
@dataclass(frozen=True, slots=True)
class Fields:
    """A message within a message, with a bound for each of its fields."""

    bounds: Mapping[str, Bound]

    def expression(self, value: str) -> str:
        parts = (bound.expression(f"{value}.{name}") for name, bound in self.bounds.items())
        return " and ".join(part for part in parts if part)

    def excess(self, value: object, field: str) -> Excess | None:
        prefix = f"{field}." if field else ""
        found = (bound.excess(getattr(value, name), f"{prefix}{name}") for name, bound in self.bounds.items())
        return next((each for each in found if each is not None), None)


Bound = Anything | Whole | Text | Many | Pair | Optional | Fields


def compile_check(bounds: Mapping[str, Bound]) -> Callable[[object], bool]:
    """Returns a function that says whether a message is within `bounds`."""
    expression = Fields(bounds).expression("m") or "True"
    # The expression is made of this module's constants and of names in the code.
    check: Callable[[object], bool] = eval(f"lambda m: {expression}", {"len": len})
    return check
