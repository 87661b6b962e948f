"""What is judged of a broker while a death inside a change on its disk waits for its moment."""

from __future__ import annotations

from unittest.mock import patch

from sim.run import run_scenario
from sim.scenario.loading import parse_scenario
from storage.log.retention import Retention

# No directory has so many renames, so that the death waits to the end of the run.
WAITS = """
scenario: a-death-waits
duration: 5s
strict: false
cluster: {brokers: 1, settings: {log.retention.check.interval.ms: 300, log.initial.task.delay.ms: 100}}
topics: {t: {partitions: 1, replicas: 1, config: {segment.bytes: 1024, retention.bytes: 2048}}}
producers: [{topic: t, rate: 50/s, acks: 1}]
steps:
- {at: 2s, kill_inside: leader(t/0), renames: true, change: 900}
"""


def test_a_broker_is_judged_by_its_retention_while_a_death_waits() -> None:
    scenario = parse_scenario(WAITS)
    assert not run_scenario(scenario, 1).violations
    with patch.object(Retention, "delete_old", lambda *_, **__: 0):
        found = run_scenario(scenario, 1).violations
    assert {each.checker for each in found} == {"retention-due"}
    # The death is armed at 2 s, after the warm-up, and dropped at 5 s, when everything is healed.
    assert any(2_000_000 < each.at_us < 5_000_000 for each in found)
