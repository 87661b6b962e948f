"""A copy of a proposal that the controller has refused comes late, when nothing speaks against it any more."""

from __future__ import annotations

from sim.bugs import install
from sim.run import RunResult, run_scenario
from sim.scenario.loading import parse_scenario

# The leader does not learn that its follower is fenced, and asks for it to join all the time.
LATE_COPY = """\
scenario: late-copy-of-a-proposal
warm_up: 500ms
duration: 6s
converge: 30s
cluster:
  brokers: 2
  settings: {replica.lag.time.max.ms: 500, broker.session.timeout.ms: 1000, broker.heartbeat.interval.ms: 100}
network: {transport: datagram, duplicates: 60%, spread: 200ms}
topics:
  t: {replicas: 2, config: {min.insync.replicas: 1}}
producers:
  - {topic: t, rate: 20/s}
steps:
  - {at: 1s, pick: leader(t/0), as: L}
  - {at: 1s, pick: follower(t/0), as: F}
  - {at: 1s, cut: L <-> F, for: 1400ms}
  - {at: 1900ms, cut: F <-> controller, for: 1700ms}
  - {at: 2400ms, lag_metadata: L, for: 2500ms}
"""


def run() -> RunResult:
    return run_scenario(parse_scenario(LATE_COPY, "late-copy-of-a-proposal.yaml"), 1)


def test_isr6_a_late_copy_of_a_refused_proposal_changes_nothing() -> None:
    result = run()
    assert any("is fenced" in line for line in result.story)
    assert not result.violations


def test_isr6_a_late_copy_that_is_accepted_is_found() -> None:
    with install("without-check-proposal-is-latest"):
        found = {violation.checker for violation in run().violations}
    assert "in-sync-replicas" in found
