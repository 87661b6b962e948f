"""The ports of nodes that end and start again."""

from __future__ import annotations

import socket
from pathlib import Path

from cluster.local.layout import HOST
from replog.real.ports import lasting_ports


def test_ports_are_different_and_no_outgoing_connection_gets_them() -> None:
    ports = lasting_ports(5)
    assert len(set(ports)) == 5
    least = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(ports) < least


def test_a_port_on_which_somebody_listens_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, lasting_ports(1)[0]))
        taken.listen()
        assert taken.getsockname()[1] not in lasting_ports(3)
