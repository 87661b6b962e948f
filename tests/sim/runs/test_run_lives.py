"""Runs in which lives end at odd moments."""

from __future__ import annotations

from sim.run import Verdict, run_scenario
from sim.scenario.loading import parse_scenario
from tests.sim.runs.cluster_driver import driven_cluster

# The leader asks for its follower to join, stops at its deadline, and closes its logs when the answer comes.
STOPS_WITH_A_PROPOSAL = """\
scenario: stops-with-a-proposal
warm_up: 500ms
duration: 6s
converge: 30s
cluster:
  brokers: 2
  settings: {controlled.shutdown.timeout.ms: 100, replica.lag.time.max.ms: 500, broker.session.timeout.ms: 10000}
topics:
  t: {replicas: 2}
steps:
  - {at: 1s, cut: leader(t/0) -> follower(t/0), for: 1s}
  - {at: 1900ms, clog: controller -> leader(t/0), only: [AlterPartition, BrokerHeartbeat, FetchMetadata], for: 1s}
  - {at: 2600ms, stop: leader(t/0), down: 50ms}
  - {at: 2695ms, slow_disk: broker 1, by: 100ms, for: 3s}
  - {at: 2695ms, slow_disk: broker 2, by: 100ms, for: 3s}
producers:
  - {topic: t, rate: 20/s}
"""


def test_committed_records_that_the_controller_could_not_report_count_from_its_next_start() -> None:
    cluster = driven_cluster(seed=1)
    # It is the flush of the election that follows.
    cluster.kill_at_job("controller", "after", "flush")
    cluster.kill("leader")
    cluster.advance(4_000)
    assert not cluster.is_up("controller")
    before = cluster.leader()
    cluster.restart("controller")
    cluster.advance(200)
    assert cluster.leader() != before
    assert cluster.violations == ()


def test_what_the_controller_lost_before_it_was_on_disk_never_counts() -> None:
    cluster = driven_cluster(seed=1)
    before = cluster.leader()
    cluster.kill("leader")
    cluster.kill_at_job("controller", "before", "flush")
    cluster.advance(4_000)
    assert not cluster.is_up("controller")
    cluster.power_loss("controller", "none")
    cluster.restart("controller")
    cluster.advance(200)
    assert cluster.leader() == before
    assert cluster.violations == ()


def test_a_node_that_is_stopping_when_everything_is_healed_comes_back() -> None:
    cluster = driven_cluster(seed=1)
    cluster.stop("leader")
    assert cluster.finish().verdict is Verdict.HELD


def test_a_broker_that_closes_its_logs_need_not_take_the_answer_to_a_proposal() -> None:
    result = run_scenario(parse_scenario(STOPS_WITH_A_PROPOSAL, "stops-with-a-proposal.yaml"), 1)
    assert not result.violations
