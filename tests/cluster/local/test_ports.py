"""The ports of tests against real nodes are reserved, not guessed."""

from __future__ import annotations

import subprocess
import sys

from tests.cluster.local.real_cluster import ROOT, free_port

CHILD = "from tests.cluster.local.real_cluster import free_port; print([free_port(2) for _ in range(25)]); input()"


def test_ports_stay_reserved_until_the_process_ends_whoever_looks_for_some() -> None:
    """Processes whose numbers are alike begin their search at the same port."""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    found = [free_port(2) for _ in range(25)]
    for child in children:
        assert child.stdout is not None
        line = child.stdout.readline().decode()
        found += [int(port) for port in line.strip(" []\n").split(",")]
    for child in children:
        child.communicate(b"\n")
    assert len(set(found)) == len(found) == 75
    assert all(port // 1000 % 2 == 0 for port in found)


def test_ports_are_below_those_of_outgoing_connections() -> None:
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as limits:
        least = int(limits.read().split()[0])
    port = free_port(3)
    assert port + 1000 + 20 <= least


def test_a_process_with_many_ports_uses_the_oldest_again() -> None:
    found = [free_port(1) for _ in range(200)]
    assert len(set(found)) <= 60
    # Some of the 30 that it has may still be in use by what an earlier test started.
    assert all(len(set(found[at : at + 20])) == 20 for at in range(100, 180))
