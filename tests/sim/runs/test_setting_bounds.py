"""A cluster works with each setting of a broker and of a controller at its bounds."""

from __future__ import annotations

import pytest

from sim.run import Run
from sim.scenario.loading import parse_scenario
from tests.cluster.setting_bounds import LIMITS, with_partners

SCENARIO = """\
scenario: bounds
duration: 3s
cluster: {{brokers: 2, settings: {{{settings}}}}}
topics:
  t:
    replicas: 2
    config: {{min.insync.replicas: 1, cleanup.policy: compact, segment.bytes: 2000, min.cleanable.dirty.ratio: "0.1"}}
producers:
  - {{topic: t, rate: 30/s, acks: 1, keys: 5}}
consumers:
  - {{topic: t}}
"""
# Any answer of another node takes longer in the simulated network.
SHORTER_THAN_A_ROUND_TRIP = {
    ("replica.socket.timeout.ms", 1),
    ("controller.socket.timeout.ms", 1),
    ("broker.session.timeout.ms", 2),
}
BOUNDS = [(name, value) for name, limits in LIMITS.items() for value in limits]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"), [each for each in BOUNDS if each not in SHORTER_THAN_A_ROUND_TRIP]
)
def test_a_cluster_works_with_a_setting_at_its_bound(name: str, value: int) -> None:
    given = with_partners(name, value)
    if name != "log.cleaner.backoff.ms":
        given = {"log.cleaner.backoff.ms": 300, **given}
    settings = ", ".join(f"{each}: {number}" for each, number in given.items())
    result = Run(parse_scenario(SCENARIO.format(settings=settings)), 1).go("")
    assert not result.violations
    assert result.operations["ok"] > 60, result.operations
