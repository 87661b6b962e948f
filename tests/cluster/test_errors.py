"""An error survives the way to another process, as a worker of a pool sends it: pickled, or copied, it is the same."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import ModuleType

import pytest

import cluster.core.errors
import cluster.shell.clients.delivery
import storage.errors
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import TopicPartition
from cluster.shell.clients import DeliveryError
from storage.errors import (
    CorruptBatch,
    CorruptCheckpoint,
    CorruptIndex,
    InvalidRecord,
    OffsetOutOfRange,
    RecordError,
    SegmentOffsetOverflow,
    UnexpectedAppendOffset,
)

PLACE = TopicPartition("t", 3)
MODULES: tuple[ModuleType, ...] = (cluster.core.errors, cluster.shell.clients.delivery, storage.errors)
# One of each class with an `__init__` of its own.
EXAMPLES: tuple[Exception, ...] = (
    ClusterError(ErrorCode.INVALID_REQUEST, "reason"),
    DeliveryError(ErrorCode.REQUEST_TIMED_OUT, "reason", PLACE, is_unknown=True),
    CorruptBatch("00.log", 61, "reason"),
    InvalidRecord("reason", (RecordError(2, "why"),)),
    OffsetOutOfRange(9, 1, 5),
    SegmentOffsetOverflow("00.log", 4, 1 << 40),
    CorruptIndex("00.index", "reason"),
    CorruptCheckpoint("checkpoint", 2, "reason"),
    UnexpectedAppendOffset("reason", 3, 8),
)
WAYS: dict[str, Callable[[Exception], Exception]] = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def own_classes() -> list[type[Exception]]:
    """Returns the exceptions that the modules define."""
    found = [each for module in MODULES for each in vars(module).values() if isinstance(each, type)]
    return [each for each in dict.fromkeys(found) if issubclass(each, Exception)]


def example_of(kind: type[Exception]) -> Exception:
    """Returns an error of a class: one of the examples, or one with a message alone."""
    return next((each for each in EXAMPLES if type(each) is kind), None) or kind("reason")


def test_each_class_with_an_init_of_its_own_has_an_example() -> None:
    assert {each for each in own_classes() if "__init__" in vars(each)} == {type(each) for each in EXAMPLES}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", own_classes(), ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_after_it_was_pickled_or_copied(kind: type[Exception], way: str) -> None:
    error = example_of(kind)
    error.add_note("a note")
    again = WAYS[way](error)
    assert again is not error and type(again) is kind
    assert (again.args, str(again), vars(again)) == (error.args, str(error), vars(error))


@pytest.mark.parametrize("way", WAYS)
def test_a_child_without_an_init_stays_one_of_its_class(way: str) -> None:
    again = WAYS[way](_Child(ErrorCode.INVALID_REQUEST, "reason", PLACE, is_unknown=False))
    assert isinstance(again, _Child) and (again.topic_partition, again.is_unknown) == (PLACE, False)


class _Child(DeliveryError):
    """A child as a program may have one."""
