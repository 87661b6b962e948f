"""The `replog` command. It imports its modules where an interruption is handled: Ctrl-C may come that early."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status that `replog.commands` explains.

    Without `arguments` those of the process are taken, and the process is ours: Ctrl-C prints no traceback, at whatever
    moment it comes.
    """
    try:
        if arguments is not None:
            from replog.commands import run

            return run(arguments)
        return _own_process()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        return INTERRUPTED


def _own_process() -> int:
    from replog.interruption import end_on_ctrl_c, end_with

    end_on_ctrl_c()
    from replog.commands import run

    status = run(None)
    end_with(status)
    return status
