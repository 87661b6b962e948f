"""Refuses, for the length of a run, what a simulated run must never ask the machine for.

The static gates read the source; this one sees what runs, libraries included. What it cannot see, such as an
environment variable, shows in the comparison of two runs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from sim.bugs.planting import Make, Replacement, replaced

# Events that Python reports before it opens a file, lists a directory, starts a process, or sleeps.
REFUSED_EVENTS = frozenset(
    {
        "open", "os.listdir", "os.scandir", "os.remove", "os.rename", "os.mkdir", "socket.connect", "socket.bind",
        "subprocess.Popen", "os.fork", "time.sleep",
    }
)  # fmt: skip
# Functions without such an event.
REFUSED_CALLS = (
    "time:time", "time:time_ns", "time:monotonic", "time:monotonic_ns", "time:perf_counter", "os:urandom",
    "threading:Thread.start",
    "random:random", "random:randrange", "random:randint", "random:choice", "random:shuffle", "random:getrandbits",
)  # fmt: skip


class MachineUsed(Exception):
    """A simulated run asked the machine for something that differs between two runs."""


_active: list[bool] = []


def _on_event(event: str, arguments: tuple[object, ...]) -> None:
    if _active and event in REFUSED_EVENTS:
        raise MachineUsed(f"{event}{arguments}: a simulated run must not do that")


@contextmanager
def guarded() -> Iterator[None]:
    """Raise MachineUsed in the block for each refused event and call. The block must have imported all it needs."""
    if not _installed:
        # An audit hook stays for the life of the process, so there is one.
        sys.addaudithook(_on_event)
        _installed.append(True)
    with ExitStack() as stack:
        for target in REFUSED_CALLS:
            importlib.import_module(target.partition(":")[0])
            stack.enter_context(replaced(Replacement(target=target, make=_refuses(target))))
        _active.append(True)
        try:
            yield
        finally:
            _active.pop()


_installed: list[bool] = []


def _refuses(target: str) -> Make:
    def make(original: Callable[..., object]) -> Callable[..., object]:
        def refused(*arguments: object, **named: object) -> object:
            raise MachineUsed(f"{target.replace(':', '.')}(): a simulated run must not ask for it")

        return refused

    return make
