"""A process that was started under the id of a broker whose session had ended: one of both has roles (BRK-3)."""

from __future__ import annotations

import pytest

from sim.run import Verdict, run_scenario
from sim.scenario.loading import parse_scenario

# Two brokers lose their sessions; as their heartbeats come again, another process may have registered under their ids.
SCENARIO = """
scenario: a-copied-process
duration: 8s
cluster: {settings: {broker.session.timeout.ms: 1500, broker.heartbeat.interval.ms: 200}}
topics: {t: {replicas: 3, config: {min.insync.replicas: 2}}}
producers: [{topic: t, rate: 30/s}]
consumers: [{topic: t}]
buggify: {points: [registration-of-a-copy, heartbeat-late]}
steps:
  - {at: 2s, cut: broker 2 <-> controller, for: 2500ms}
  - {at: 5s, cut: broker 3 <-> controller, for: 2500ms}
"""


@pytest.mark.parametrize("seed", [1, 5, 6])
def test_brk3_a_broker_under_whose_id_another_process_registers_ends_its_roles_and_comes_back(
    seed: int,
) -> None:
    result = run_scenario(parse_scenario(SCENARIO), seed)
    assert result.verdict is Verdict.HELD, result.violations


def test_brk3_one_that_goes_on_in_its_roles_is_found() -> None:
    result = run_scenario(parse_scenario(SCENARIO), 5, bug="without-is-later-life")
    assert {each.checker for each in result.violations} == {"metadata"}
