"""The ports of a local cluster, and the arguments that ask for it again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster.local.detached import arguments_of
from cluster.local.layout import ClusterSpec, UnusableInput


def cluster(port: int, controller_port: int) -> ClusterSpec:
    return ClusterSpec(data=Path("/d"), nodes=2, port=port, controller_port=controller_port)


def free(count: int) -> Sequence[int]:
    return [50_000, 40_000, 60_000][:count]


def test_with_port_0_each_process_has_a_port_of_its_own() -> None:
    chosen = cluster(0, 0).with_free_ports(free)
    assert [broker.port for broker in chosen.brokers] == [50_000, 40_000]
    assert (chosen.controller.port, chosen.first_address) == (60_000, "127.0.0.1:50000")


def test_a_port_that_is_named_is_kept() -> None:
    assert cluster(0, 7).with_free_ports(free).ports == (50_000, 40_000, 7)
    assert cluster(10, 0).with_free_ports(free).ports == (10, 11, 50_000)
    assert cluster(10, 20).with_free_ports(free).ports == (10, 11, 20)


@pytest.mark.parametrize("port, controller_port", [(-1, 5), (70_000, 5), (10, 11), (65_535, 5)])
def test_ports_that_cannot_be_are_refused(port: int, controller_port: int) -> None:
    with pytest.raises(UnusableInput):
        cluster(port, controller_port)


def test_the_arguments_of_a_cluster_ask_for_it() -> None:
    spec = ClusterSpec(
        data=Path("/d"), nodes=2, port=0, controller_port=5, properties=(("a.b", "c=d"),),
        log_dirs=(Path("/x"), Path("/y")), metadata_log_dir=Path("/z"),
    )  # fmt: skip
    assert arguments_of(spec) == [
        *("--nodes", "2", "--port", "0", "--data", "/d", "--controller-port", "5", "--config", "a.b=c=d"),
        *("--log-dirs", "/x,/y", "--config", "metadata.log.dir=/z"),
    ]
