"""Becomes another program that is killed with its parent: `python launch.py PARENT PROGRAM ARGUMENT…`.

A node that is suspended reads no closed pipe, and a parent that is killed says no word. So Linux is asked to kill the
child when its parent ends (prctl(2), PR_SET_PDEATHSIG); the request outlives exec. Elsewhere this only executes.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Execute the program; ends at once if the parent has ended before the request was made."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
