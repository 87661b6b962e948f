"""An unclean election excuses losses, so it has to be one that no member of the in-sync set could spare (E2)."""

from __future__ import annotations

from sim.bugs.planting import Replacement, replaced
from sim.run import run_scenario
from sim.scenario.loading import parse_scenario

UNCLEAN = """\
scenario: spared
duration: 12s
topics:
  t: {partitions: 1, replicas: 3, config: {unclean.leader.election.enable: true, min.insync.replicas: 2}}
producers:
- {topic: t, rate: 60/s}
steps:
- when: after-ack(t/0) >= 60
  pick: leader(t/0)
  as: L
- pick: follower(t/0, 1)
  as: F
- cut: F <-> L
  for: 6s
- when: isr(t/0) < 3
  pick: L
- at: +1s
  kill: L
  down: 2s
"""


def test_e2_an_unclean_election_that_a_member_could_spare_is_found() -> None:
    """A follower is away from the leader until it has left the in-sync set; then the leader is killed."""
    scenario = parse_scenario(UNCLEAN)
    assert run_scenario(scenario, 1).violations == ()
    first_active = Replacement(
        target="cluster.core.controller.elections:LeaderElection.is_valid_leader",
        make=lambda original: lambda self, replica, isr, is_active: False,
    )
    with replaced(first_active):
        found = run_scenario(scenario, 1, stops_early=True).violations
    assert {each.checker for each in found} == {"elections"}
