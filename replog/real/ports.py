"""Chooses ports for nodes that end and start again, at which nobody else may listen meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from cluster.local.layout import HOST
from cluster.local.up import free_ports
from cluster.shell.server import PortInUse, check_port_free

FIRST_PORT = 10_000
# Runs that start at the same moment begin their search at different ports.
_STRIDE = 61
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def lasting_ports(count: int) -> Sequence[int]:
    """Returns ports that are free now, and that the system uses for no outgoing connection.

    While a node is down, others try to reach it: one of these connections could get the very port that they look for,
    and the node could not start again. Where the system does not say which ports these are, any free ones are returned.
    """
    try:
        end = int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return free_ports(count)
    found = list(islice(_free_below(end), count))
    return found if len(found) == count else free_ports(count)


def _free_below(end: int) -> Iterator[int]:
    """Yield the free ports from FIRST_PORT to `end` (exclusive), each once, beginning somewhere between."""
    room = max(0, end - FIRST_PORT)
    for distance in range(room):
        port = FIRST_PORT + (os.getpid() * _STRIDE + distance) % room
        try:
            check_port_free(HOST, port)
        except (PortInUse, OSError):
            continue
        yield port
