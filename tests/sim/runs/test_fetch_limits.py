"""C8: how long a fetch may wait, and for whom, in runs of the simulator; without the protection, each run fails."""

from __future__ import annotations

import pytest

from cluster.core.messages import FetchResponse, InitProducerIdResponse, MetadataResponse, ProduceResponse
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.parked_fetches import ParkedFetches
from sim.run import Verdict, run_scenario
from sim.scenario.loading import parse_scenario
from sim.scenario.model import Scenario

# The limit of the brokers is below what followers ask for.
SCENARIO = """
scenario: fetch-limits
duration: 7s
cluster: {settings: {max.fetch.wait.ms: 200, replica.fetch.wait.max.ms: 1000}}
topics: {t: {partitions: 1, replicas: 3, config: {min.insync.replicas: 2}}}
producers: [{topic: t, rate: 2/s}]
consumers: [{topic: t}]
steps:
  - {at: 3s, kill: follower(t/0), down: 2s}
  - {at: 4s, kill: leader(t/0), down: 1s}
"""


def limits(rate: str = "2/s") -> Scenario:
    return parse_scenario(SCENARIO.replace("2/s", rate))


def test_c8_fetches_wait_within_the_limits() -> None:
    result = run_scenario(limits(), 1)
    assert result.verdict is Verdict.HELD, result.violations


@pytest.mark.parametrize("bug", ["fetch-waits-as-asked", "fetch-outlives-its-client"])
def test_c8_a_fetch_beyond_the_limits_is_found(bug: str) -> None:
    results = [run_scenario(limits(), seed, bug=bug) for seed in range(3)]
    found = {violation.checker for result in results for violation in result.violations}
    assert found == {ParkedFetches.name}


def test_c8_a_step_on_a_slow_disk_is_no_fetch_that_waits_too_long() -> None:
    topic = "min.insync.replicas: 2, segment.bytes: 1000, retention.ms: 300, retention.bytes: 2000"
    text = SCENARIO.replace("min.insync.replicas: 2", topic).replace("2/s", "80/s")
    text = text.replace("1000}}\ntopics", "200, log.retention.check.interval.ms: 700}}\ntopics")
    slow = "  - {at: 3500ms, slow_disk: leader(t/0), by: 40ms, for: 3s}\n"
    result = run_scenario(parse_scenario(text.partition("  - {at: 3s")[0] + slow), 1)
    assert not [each for each in result.violations if each.checker == ParkedFetches.name], result.violations


def test_c8_what_waits_in_a_core_waits_for_a_client_that_is_there() -> None:
    jury = Jury(Ghost(), (), now_us=lambda: 0, on_violation=lambda found: None)
    parked = ParkedFetches(jury, 500)
    parked.on_idle_answer("broker-1", MetadataResponse())
    assert not jury.violations
    for answer in (FetchResponse(), ProduceResponse(), InitProducerIdResponse()):
        parked.on_idle_answer("broker-1", answer)
    assert [each.checker for each in jury.violations] == [ParkedFetches.name] * 3
