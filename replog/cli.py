"""The `replog` command. It imports its modules where an interruption is handled: Ctrl-C may come that early."""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status that `replog.commands` explains."""
    try:
        from replog.commands import run

        return run(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        return INTERRUPTED
