"""Messages drawn from the table of bounds: within it, at its edges, and with one field beyond."""

from __future__ import annotations

import dataclasses
import typing

from hypothesis import strategies as st

from cluster.core.errors import ErrorCode
from cluster.core.messages import TopicPartition
from cluster.shell.wire.bounds import Anything, Bound, Fields, Many, Optional, Pair, Text, Whole
from cluster.shell.wire.limits import BOUNDS

Values = st.SearchStrategy[typing.Any]

# The topics of the tests, so that a name is often one that there is.
TOPICS = ("t", "u")
# Longer values are left to tests of their own: one text or list of these sizes takes longer than all else.
LONGEST_TEXT = 33_000
LONGEST_LIST = 1_500


def names_of(part: typing.Any) -> list[str]:
    """The fields of a message or of a part of one."""
    if issubclass(part, TopicPartition):
        return list(TopicPartition._fields)
    return [field.name for field in dataclasses.fields(part)]


def within(cls: type) -> Values:
    """Messages with every field within its bounds, often at one of them."""
    return _built(cls, Fields(BOUNDS[cls]))


def beyond(cls: type) -> Values:
    """Messages with one field, at any depth, just outside its bounds."""
    found = _beyond_one_of(cls, Fields(BOUNDS[cls]))
    return st.nothing() if found is None else found


def _built(cls: type, bounds: Fields, **other: Values) -> Values:
    hints = typing.get_type_hints(cls)
    values = {
        name: other[name] if name in other else _within(hints[name], bounds.bounds[name])
        for name in names_of(cls)
    }
    return st.builds(cls, **values)


def _beyond_one_of(cls: type, bounds: Fields) -> Values | None:
    hints = typing.get_type_hints(cls)
    choices = []
    for name in names_of(cls):
        wrong = _beyond(hints[name], bounds.bounds[name])
        if wrong is not None:
            choices.append(_built(cls, bounds, **{name: wrong}))
    return st.one_of(choices) if choices else None


def _within(hint: typing.Any, bound: Bound) -> Values:
    match bound:
        case Anything():
            return st.sampled_from(ErrorCode) if hint is ErrorCode else st.booleans()
        case Whole(low=low, high=high):
            # Small numbers are those of brokers, partitions and epochs that there are.
            return (
                st.sampled_from((low, high)) | st.integers(low, min(low + 3, high)) | st.integers(low, high)
            )
        case Text(most=most, least=least) if least:
            return st.text("az09._-é日", min_size=least, max_size=most)
        case Text(most=most):
            long = st.just(_text(hint, most)) if most <= LONGEST_TEXT else st.nothing()
            if hint is bytes:
                return st.binary(max_size=16) | long
            return st.sampled_from(TOPICS) | st.text("az09._-é日", max_size=min(most, 8)) | long
        case Many(of=of):
            return st.lists(_within(_element(hint), of), max_size=3).map(tuple)
        case Pair(first=first, second=second):
            return st.tuples(_within(str, first), _within(str, second))
        case Optional(of=of):
            return st.none() | _within(_present(hint), of)
        case Fields():
            return _built(hint, bound)


def _beyond(hint: typing.Any, bound: Bound) -> Values | None:
    match bound:
        case Anything():
            return None
        case Whole(low=low, high=high):
            return st.sampled_from((low - 1, high + 1))
        case Text(most=most, least=least) if least:
            return st.sampled_from(("", _text(hint, least - 1), _text(hint, most + 1)))
        case Text(most=most):
            return st.just(_text(hint, most + 1)) if most <= LONGEST_TEXT else None
        case Many(of=of, most=most):
            wrong = _beyond(_element(hint), of)
            one = st.nothing() if wrong is None else wrong.map(lambda value: (value,))
            if most > LONGEST_LIST:
                return one
            return one | _within(_element(hint), of).map(lambda value: (value,) * (most + 1))
        case Pair(first=first, second=second):
            firsts, seconds = _beyond(str, first), _beyond(str, second)
            assert firsts is not None and seconds is not None
            return st.tuples(firsts, _within(str, second)) | st.tuples(_within(str, first), seconds)
        case Optional(of=of):
            return _beyond(_present(hint), of)
        case Fields():
            return _beyond_one_of(hint, bound)


def _text(hint: typing.Any, length: int) -> str | bytes:
    return b"x" * length if hint is bytes else "x" * length


def _element(hint: typing.Any) -> typing.Any:
    return typing.get_args(hint)[0]


def _present(hint: typing.Any) -> typing.Any:
    return next(argument for argument in typing.get_args(hint) if argument is not type(None))
