"""Each planted mistake in the core of a connection is found in the run that it names."""

from __future__ import annotations

import pytest

from sim.bugs import bugs
from sim.run import Verdict, run_scenario
from sim.scenario.loading import parse_scenario

CONTROLLER_DOWN_TWICE = """\
scenario: controller-down-twice
duration: 16s
topics:
  t: {partitions: 1, replicas: 2}
producers:
  - {topic: t, rate: 20/s, acks: all}
steps:
  - at: 4s
    kill: controller
    down: 4s
  - at: 11s
    kill: controller
    down: 2s
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("connection-answers-again", "was answered again"),
        ("connection-fails-late-call-alone", "after another call on its stream had failed"),
        ("connection-takes-answers-of-its-past", "was answered again"),
        ("connection-mixes-up-calls", "got the answer to another call"),
        ("connection-loses-last-call", "never reached broker"),
        ("connection-loses-last-answer", "the answer is lost"),
    ],
)
def test_a_run_finds_each_bug_of_connections_in_its_scenario(name: str, what: str) -> None:
    result = run_scenario(bugs()[name].found_by, 1, bug=name)
    assert result.violations[0].checker == "calls", result.violations
    assert what in result.violations[0].what


@pytest.mark.slow
def test_a_run_finds_a_wait_that_grows_after_the_peer_was_reached() -> None:
    scenario = parse_scenario(CONTROLLER_DOWN_TWICE)
    assert run_scenario(scenario, 1).verdict is Verdict.HELD
    result = run_scenario(scenario, 1, bug="connection-never-forgets-failures")
    assert result.violations[0].checker == "calls", result.violations
