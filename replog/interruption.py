"""Ctrl-C without a traceback while a command starts and ends; in between it is KeyboardInterrupt, as in any program.

Python's own handler raises KeyboardInterrupt wherever the program is. Within imports that is often a callback whose
errors Python only prints; the command then goes on, without the module or as if nothing had happened. While a command
starts and ends nothing has to be cleaned up, so there the process ends at once.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from replog._early import end_at_once

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# Whether this process runs one command and then ends. In any other one, handlers are its owner's affair.
_is_ours = False


def end_on_ctrl_c() -> None:
    """Let Ctrl-C end this process at once, with the message and status of an interruption."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, end_at_once):
        global _is_ours
        _is_ours = True
        signal.signal(signal.SIGINT, end_at_once)
        sys.unraisablehook = _interrupt_again


def end_with(status: int) -> None:
    """Let Ctrl-C end this process at once with `status`, in silence: the command is done, and its output written."""
    # Whatever handler the command has set, such as Spark's, has nothing left to do. An ignored signal stays ignored.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(status))


@contextmanager
def raised_on_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt within this block, for code that cleans up."""
    if signal.getsignal(signal.SIGINT) is not end_at_once:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        # A command may have set a handler of its own.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, end_at_once)


@contextmanager
def ends_on_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end this process at once within this block, if the process is a command's and not yet at work."""
    if not _is_ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, end_at_once)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is end_at_once:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt_again(unraisable: UnraisableHookArgs) -> None:
    """Interrupt the command again where Python dropped an interruption in a callback; show other errors as usual."""
    if unraisable.exc_type is KeyboardInterrupt:
        # From another thread, so that it is not raised in here, where it would be dropped again.
        _thread.start_new_thread(os.kill, (os.getpid(), signal.SIGINT))
    else:
        sys.__unraisablehook__(unraisable)
