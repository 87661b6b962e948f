"""Ten mistakes of the kind that make one seed two runs. Each is planted into the latency of messages, from outside.

A latency is a microsecond longer or not, by something that differs between two interpreters.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any

from google.protobuf.struct_pb2 import Struct

from sim.bugs.planting import Replacement, replaced
from sim.world.streams import Stream

NAMES = ("orders", "audit", "clicks", "users", "payments", "events", "metrics", "logs")


def plant(source: Callable[[], int]) -> AbstractContextManager[None]:
    """Add what `source` returns, in microseconds, to every exponential draw."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def exponential(stream: Stream, mean: int) -> int:
            return int(original(stream, mean)) + source()

        return exponential

    return replaced(Replacement(target="sim.world.streams:Stream.exponential", make=make))


def set_order() -> AbstractContextManager[None]:
    """The first element of a set of texts."""
    return plant(lambda: NAMES.index(next(iter(set(NAMES)))))


def address_order() -> AbstractContextManager[None]:
    """Some bits of the address of an object."""
    return plant(lambda: int(id(object()) >> 4 & 7))


@contextmanager
def leaked_cache() -> Iterator[None]:
    """A cache that outlives a run: what it holds depends on the runs before in the same process."""
    cache: dict[int, int] = {}

    def source() -> int:
        cache[len(cache)] = 0
        return len(cache) // 100 % 2

    with plant(source):
        yield


def wall_clock() -> AbstractContextManager[None]:
    """The time of day."""
    return plant(lambda: int(time.time_ns()) >> 10 & 1)


def unsorted_listing() -> AbstractContextManager[None]:
    """The number of files in the working directory."""
    return plant(lambda: len(os.listdir(".")))


class _Cycle:
    """An object that only the garbage collector ends."""

    def __init__(self) -> None:
        self.itself = self


def garbage() -> AbstractContextManager[None]:
    """The number of unreachable objects that the collector has not found yet."""
    alive: weakref.WeakSet[_Cycle] = weakref.WeakSet()

    def source() -> int:
        alive.add(_Cycle())
        return len(alive) >> 5

    return plant(source)


def thread() -> AbstractContextManager[None]:
    """A value that another thread sets."""

    def source() -> int:
        found: list[int] = []
        worker = threading.Thread(target=found.append, args=(1,))
        worker.start()
        worker.join()
        return found[0]

    return plant(source)


def protobuf_map() -> AbstractContextManager[None]:
    """The keys of a protobuf map, which has no order: one key after the other, as few orders are alike in all."""
    calls = count()

    def source() -> int:
        message = Struct()
        for name in NAMES:
            message.fields[name].number_value = 1.0
        return NAMES.index(list(message.fields)[next(calls) % len(NAMES)])

    return plant(source)


def float_sum() -> AbstractContextManager[None]:
    """A sum of floats in the order of a set."""
    weights = {name: 10.0 ** (2 * number) / 3 for number, name in enumerate(NAMES)}
    return plant(lambda: int(str(sum(weights[name] for name in set(NAMES)))[-1]))


def environment() -> AbstractContextManager[None]:
    """The length of a variable of the environment."""
    return plant(lambda: len(os.environ.get("TZ", "")))
