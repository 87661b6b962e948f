"""Parses the values of a scenario file: durations, sizes, rates, targets, links and conditions.

Each parser raises ValueError, whose message says what to write instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema

_DURATION_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000}
_SIZE_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
# A hundred years, and what the format of records keeps in an int: no number of a run is near the ends of its field.
_MOST_DURATION_US = 52_560_000 * _DURATION_US["m"]
_MOST_SIZE_BYTES = (1 << 31) - 1
_AMOUNT = r"([0-9]+)(?:\.([0-9]{1,6}))?"
_NUMBER = re.compile(rf"{_AMOUNT}\s*([A-Za-z/%]*)")
_PARTITION = r"([a-zA-Z0-9._-]+)/([0-9]+)"
_TARGETS = (
    ("broker", re.compile(r"broker ([0-9]+)")),
    ("producer", re.compile(r"producer ([0-9]+)")),
    ("consumer", re.compile(r"consumer ([0-9]+)")),
    ("leader", re.compile(rf"leader\({_PARTITION}\)")),
    ("follower", re.compile(rf"follower\({_PARTITION}(?:,\s*([1-9]))?\)")),
)
_GROUPS = ("all", "clients", "controller", "others")
_NAME = re.compile(r"[A-Z][A-Za-z0-9_]*")
_CONDITION = re.compile(
    rf"(after-ack|elected|isr|joining|leader|truncated)\({_PARTITION}\)(?:\s*(>=|<=|=|<|>)\s*([0-9]+))?"
)


def _scaled(value: object, units: dict[str, int], what: str, example: str) -> int:
    """Returns a value such as `1.5s` as a whole number of the smallest unit."""
    match = _NUMBER.fullmatch(str(value).strip())
    if match is None or match[3] not in units:
        raise ValueError(f"{value!r} is no {what}: write {example} (units {', '.join(units)})")
    fraction = match[2] or ""
    scaled = int(match[1] + fraction) * units[match[3]]
    if scaled % int(10 ** len(fraction)):
        raise ValueError(f"{value!r} is finer than the smallest unit of a {what}")
    return scaled // int(10 ** len(fraction))


def parse_duration(value: object) -> int:
    """Returns a duration such as `5s` in microseconds."""
    duration = _scaled(value, _DURATION_US, "duration", "5s or 200ms")
    if duration > _MOST_DURATION_US:
        raise ValueError(f"{value!r} is above a hundred years")
    return duration


def parse_shift(value: object) -> int:
    """Returns a shift of a clock such as `-5s` in microseconds; it is negative if the clock is set back."""
    text = str(value).strip()
    shift = parse_duration(text[1:] if text[:1] in ("+", "-") else text)
    if not shift:
        raise ValueError(f"{value!r} moves no clock: write 5s to set it ahead, -5s to set it back")
    return -shift if text.startswith("-") else shift


def parse_size(value: object) -> int:
    """Returns a size such as `16KiB` in bytes."""
    size = _scaled(value, _SIZE_BYTES, "size", "64 B or 16KiB")
    if size > _MOST_SIZE_BYTES:
        raise ValueError(
            f"{value!r} is above {_MOST_SIZE_BYTES} B, the most that a field of the record format holds"
        )
    return size


def parse_rate(value: object) -> int:
    """Returns a rate such as `50/s` in events per second."""
    rate = _scaled(value, {"/s": 1}, "rate", "50/s")
    if not 0 < rate <= 100_000:
        raise ValueError(f"a rate of {rate}/s is not between 1/s and 100000/s")
    return rate


def no_truth(value: object) -> object:
    """Returns the value of a key that takes numbers, which a truth value would pass for, as `True == 1`."""
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is no number")
    return value


def parse_percent(value: object) -> int:
    percent = _scaled(value, {"%": 1}, "share", "20%")
    if percent > 100:
        raise ValueError(f"{percent}% is above 100%")
    return percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """A time: `5s` after the start of the run, or `+200ms` after the step before."""

    us: int
    is_relative: bool


def parse_instant(value: object) -> Instant:
    text = str(value).strip()
    return Instant(us=parse_duration(text.removeprefix("+").strip()), is_relative=text.startswith("+"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of a fault; `kind` is broker, producer, consumer, leader, follower, name or one of the groups."""

    text: str
    kind: str
    # The number of a broker, a producer or a consumer.
    broker: int = 0
    topic: str = ""
    partition: int = 0
    # The number of an in-sync follower, 1 for the first in the order of the ISR; 0: one is drawn.
    number: int = 0


def parse_target(value: object) -> Target:
    """Returns a target such as `broker 2`, `leader(t/0)` or `clients`."""
    text = " ".join(str(value).split())
    if text in _GROUPS:
        return Target(text=text, kind=text)
    for kind, pattern in _TARGETS:
        if match := pattern.fullmatch(text):
            if kind in ("broker", "producer", "consumer"):
                return Target(text=text, kind=kind, broker=int(match[1]))
            number = int(match[3] or 0) if kind == "follower" else 0
            return Target(text=text, kind=kind, topic=match[1], partition=int(match[2]), number=number)
    if _NAME.fullmatch(text):
        return Target(text=text, kind="name")
    raise ValueError(
        f"{text!r} is no target: write broker N, leader(t/0), follower(t/0), controller, producer N, "
        "consumer N, clients, others, all, "
        "or a name that an earlier step defined (it begins with a capital letter)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPair:
    """The links between two targets: `A -> B` one way, `A <-> B` both ways."""

    text: str
    source: Target
    target: Target
    both_ways: bool


def parse_link(value: object) -> LinkPair:
    """Returns links such as `leader(t/0) <-> others`."""
    text = " ".join(str(value).split())
    both_ways = "<->" in text
    sides = text.split("<->" if both_ways else "->")
    if len(sides) != 2:
        raise ValueError(f"{text!r} is no link: write A -> B or A <-> B")
    source, target = parse_target(sides[0]), parse_target(sides[1])
    return LinkPair(text=text, source=source, target=target, both_ways=both_ways)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition `FACT(topic/partition) OPERATOR NUMBER`.

    The facts: after-ack, the number of acknowledged records; isr, its size; leader, 1 if there is one. Since the step
    began to wait: elected, the number of leader epochs if there is a leader; joining, how often a leader has proposed
    that a replica joins the ISR; truncated, the number of truncations.
    """

    text: str
    fact: str
    topic: str
    partition: int
    operator: str = ">="
    number: int = 1

    def holds(self, value: int) -> bool:
        """Whether the condition is true if its fact is `value`."""
        match self.operator:
            case ">=":
                return value >= self.number
            case "<=":
                return value <= self.number
            case "<":
                return value < self.number
            case ">":
                return value > self.number
            case _:
                return value == self.number


def parse_condition(value: object) -> Condition:
    """Returns a condition such as `isr(t/0) < 3`."""
    text = " ".join(str(value).split())
    match = _CONDITION.fullmatch(text)
    if match is None or (match[1] in ("after-ack", "isr") and match[4] is None):
        raise ValueError(
            f"{text!r} is no condition: write after-ack(t/0) >= 100, isr(t/0) < 3, leader(t/0), elected(t/0), "
            "joining(t/0), or truncated(t/0)"
        )
    return Condition(
        text=text, fact=match[1], topic=match[2], partition=int(match[3]),
        operator=match[4] or ">=", number=int(match[5] or 1),
    )  # fmt: skip


def parse_conditions(value: object) -> tuple[Condition, ...]:
    """Returns one condition, or a list of them, each of which has to hold after the one before."""
    return (
        tuple(parse_condition(each) for each in value)
        if isinstance(value, list)
        else (parse_condition(value),)
    )


def parse_methods(value: object) -> tuple[str, ...]:
    """Returns the names of methods of the wire protocol, given as one name or as a list of them."""
    names = [str(each).strip() for each in value] if isinstance(value, list) else str(value).split()
    if len(set(names)) < len(names):
        raise ValueError(f"{', '.join(names)}: write each method once")
    return tuple(names)


def _text(pattern: str, example: str) -> WithJsonSchema:
    """Returns the JSON Schema of a text that has the pattern as a whole, apart from blanks around it."""
    return WithJsonSchema({"type": "string", "pattern": rf"^\s*(?:{pattern})\s*$", "examples": [example]})


# The patterns of the JSON Schema, from what the parsers match. Only a parser sees that a value is too large, or finer
# than its smallest unit.
_DURATION = rf"{_AMOUNT}\s*(?:{'|'.join(_DURATION_US)})"
_SIZE = rf"{_AMOUNT}\s*(?:{'|'.join(_SIZE_BYTES)})"
_TARGET = "|".join((*_GROUPS, *(each.pattern.replace(" ", r"\s+") for _, each in _TARGETS), _NAME.pattern))
_LINK = rf"(?:{_TARGET})\s*<?->\s*(?:{_TARGET})"
_NO_NUMBER = r"(?:after-ack|isr)\([^)]*\)\s*$"
_ONE_CONDITION = {
    "type": "string",
    "pattern": rf"^\s*(?!{_NO_NUMBER})(?:{_CONDITION.pattern})\s*$",
    "examples": ["isr(t/0) < 3"],
}

# Types for pydantic: the file holds text, the model holds the parsed values.
Duration = Annotated[int, PlainValidator(parse_duration), _text(_DURATION, "5s")]
Shift = Annotated[int, PlainValidator(parse_shift), _text(rf"[+-]?\s*{_DURATION}", "-5s")]
Size = Annotated[int, PlainValidator(parse_size), _text(_SIZE, "16KiB")]
Rate = Annotated[int, PlainValidator(parse_rate), _text(rf"{_AMOUNT}\s*/s", "50/s")]
Percent = Annotated[int, PlainValidator(parse_percent), _text(rf"{_AMOUNT}\s*%", "20%")]
When = Annotated[Instant, PlainValidator(parse_instant), _text(rf"\+?\s*{_DURATION}", "+200ms")]
TargetField = Annotated[Target, PlainValidator(parse_target), _text(_TARGET, "leader(t/0)")]
LinkField = Annotated[LinkPair, PlainValidator(parse_link), _text(_LINK, "leader(t/0) <-> others")]
ConditionsField = Annotated[
    tuple[Condition, ...],
    PlainValidator(parse_conditions),
    WithJsonSchema({"anyOf": [_ONE_CONDITION, {"type": "array", "items": _ONE_CONDITION}]}),
]
MethodsField = Annotated[
    tuple[str, ...],
    PlainValidator(parse_methods),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
