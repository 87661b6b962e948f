"""A run shows a core that sends to a node whose address it has told nobody: real sockets would not find it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sim.bugs import Replacement, replaced
from sim.run import run_scenario
from sim.scenario.loading import parse_scenario

SCENARIO = """\
scenario: told-addresses
duration: 2s
topics: {t: {replicas: 3}}
producers: [{topic: t, rate: 20/s}]
"""


@pytest.mark.parametrize(
    ("target", "who"),
    [
        ("cluster.core.client.metadata_cache:MetadataCache.update", "producer-1"),
        ("cluster.core.outbox:Outbox.learn_endpoint", "broker-"),
    ],
)
def test_who_sends_to_a_node_has_told_its_address(target: str, who: str) -> None:
    assert not run_scenario(parse_scenario(SCENARIO), 1, stops_early=True).violations

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def tell_nothing(*args: Any) -> list[Any]:
            if who != "broker-":
                original(*args)
            return []

        return tell_nothing

    with replaced(Replacement(target=target, make=make)):
        found = run_scenario(parse_scenario(SCENARIO), 1, stops_early=True).violations
    assert who in found[0].what and "whose address its core has told nobody" in found[0].what, found
