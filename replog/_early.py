"""Ctrl-C while the package itself is imported by its command: one line and no traceback. It imports next to nothing."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 3
MESSAGE = b"error: interrupted\n"


def end_at_once(number: int, frame: FrameType | None) -> None:
    """End this process with the message and the status of an interruption."""
    os.write(2, MESSAGE)
    os._exit(INTERRUPTED)


def is_command() -> bool:
    """Whether this process runs the `replog` command, as a script or as `python -m replog`."""
    name = sys.argv[0] if sys.argv else ""
    if name == "-m":
        # Python has not found the module yet, and `replog` may be imported by another one.
        return "replog" in sys.orig_argv[1:] and sys.orig_argv[sys.orig_argv.index("-m") + 1] == "replog"
    return os.path.basename(name) == "replog"


if is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, end_at_once)
