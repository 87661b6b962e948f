"""The `replog` command. It imports nothing until an interruption is looked after: Ctrl-C may come that early."""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: see `replog.commands`."""
    try:
        from replog.commands import run

        return run(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        return INTERRUPTED
