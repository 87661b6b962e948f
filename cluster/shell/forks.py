"""Refuses a client in a process that was forked from one with a client: it would die there by SIGSEGV.

From the first channel on, gRPC for asyncio has a poller and a thread for the whole process. A fork copies the poller
without its thread, and nothing of it can be made again.
"""

from __future__ import annotations

import os

# The end of a message: why it is refused, and what to do instead.
SPAWN = (
    "gRPC does not survive a fork: start the process with the method 'spawn' of multiprocessing, or fork before the"
    " first client"
)
# The process that made the first channel, once there is one.
_first: list[int] = []


def note_channel() -> None:
    """Notes that this process makes a channel."""
    if not _first:
        _first.append(os.getpid())


def check_process(client: str) -> None:
    """Raises RuntimeError where `client` cannot run, because this process was forked after the first channel."""
    if _first and _first[0] != os.getpid():
        raise RuntimeError(
            f"no {client} can run in this process, which was forked from one with a client: {SPAWN}"
        )
