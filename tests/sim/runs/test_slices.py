"""What is judged of a leader that appends, after one job, all that has waited for the job's checks."""

from __future__ import annotations

from sim.run import run_scenario
from sim.scenario.loading import parse_scenario

# Two sets end in one step: the roll for the second one flushes the first.
ROLLS = """
scenario: rolls
warm_up: 0s
duration: 1600ms
cluster: {brokers: 1}
network: {transport: datagram, spread: 31ms}
topics: {u: {replicas: 1, config: {flush.messages: 1, segment.index.bytes: 16}}}
producers: [{topic: u, clients: 2, rate: 40/s, records: 50}]
buggify: {points: [little-work]}
"""


def test_a_roll_for_the_second_set_after_one_job_flushes_the_first() -> None:
    result = run_scenario(parse_scenario(ROLLS), 63000474)
    assert not result.violations, result.violations
