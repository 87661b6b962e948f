"""The report of `make demo` on its own cluster. The demo itself takes three brokers and is run as a user does."""

from __future__ import annotations

from cluster.shell.clients import parse_bootstrap
from replog.demo import NODES, bootstrap_of


def test_the_demos_clients_know_every_broker_for_any_may_be_the_one_that_is_killed() -> None:
    assert parse_bootstrap(bootstrap_of(19092)) == [("127.0.0.1", 19092 + number) for number in range(NODES)]
