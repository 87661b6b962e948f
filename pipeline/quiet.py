"""Keeps what Java and its bridge write to standard error away from a user, finds the cause of an error in Spark's many
lines, and ends what Spark has started.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO

_STANDARD_ERROR = 2
_OURS = "SourceError:"
_EXCEPTION = re.compile(r"^.*?\b[\w.$]*(?:Exception|Error): (?P<message>.+)$")


@contextmanager
def java_writes_to(file: IO[bytes]) -> Iterator[None]:
    """Let the processes that start within this block write their standard errors to `file`, for as long as they live.

    Java and its Python workers write warnings and stack traces there of errors that are also raised here.
    """
    kept = os.dup(_STANDARD_ERROR)
    os.dup2(file.fileno(), _STANDARD_ERROR)
    try:
        yield
    finally:
        os.dup2(kept, _STANDARD_ERROR)
        os.close(kept)


def keep_bridge_quiet() -> None:
    """Let py4j, the bridge to Java, log nothing to standard error: it would log each exception that it raises.

    It logs an interrupt on the root logger, for which Python makes a handler if there is none.
    """
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(logging.NullHandler())


def interrupt_spark(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt at a signal that ends the command. Spark cancels its jobs first, as after Ctrl-C."""
    # There is none where the interrupt is ignored, as after `&` in a script.
    on_interrupt = signal.getsignal(signal.SIGINT)
    if callable(on_interrupt):
        # A signal to the whole group has ended Java as well.
        with suppress(Exception):
            on_interrupt(signal.SIGINT, frame)
    raise KeyboardInterrupt


def end_children() -> None:
    """End the processes that this one has started. Java, interrupted before it knows us, would stay for ever."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as listed:
            numbers = [int(number) for number in listed.read().split()]
    # Only Linux lists them.
    except OSError:
        return
    for number in numbers:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGTERM)


def new_file() -> IO[bytes]:
    """Returns a file without a name, which is deleted when nobody has it open."""
    return tempfile.TemporaryFile(prefix="replog-spark-")


def cause_in(text: str) -> str:
    """Returns the message of our own error, else that of the deepest Java exception, else that of the last exception,
    else the first line; one line.

    In Spark's lines our own error is the last one of the worker's trace.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if ours := [line for line in lines if _OURS in line]:
        return ours[-1].split(_OURS, 1)[1].strip()
    deepest = [line for line in lines if line.startswith("Caused by: ")] or [
        line for line in lines if line.startswith((": ", "Exception in thread"))
    ]
    for line in (*reversed(deepest), *reversed(lines)):
        found = _EXCEPTION.match(line)
        # Java's exception of a Python worker is followed by the worker's own.
        if found and not found["message"].startswith("Traceback (most recent call last)"):
            return found["message"]
    return lines[0] if lines else ""
