"""What a broker that dies inside a change on its disk tells of the logs that it had."""

from __future__ import annotations

from sim.run import Run
from sim.scenario.loading import parse_scenario

# The follower does not hear that its topic was deleted and created again, and dies as retention moves its log's start.
CREATED_AGAIN = """
scenario: created-again
duration: 6s
cluster: {settings: {log.retention.check.interval.ms: 300, log.initial.task.delay.ms: 100}}
topics: {t: {partitions: 1, replicas: 3, config: {segment.bytes: 1024, retention.bytes: 2048}}}
producers: [{topic: t, rate: 50/s}]
steps:
- {at: 4s, lag_metadata: follower(t/0), as: V, for: 3s}
- {at: 4600ms, delete_topic: t}
- {at: 4650ms, create_topic: t}
- {at: 5s, kill_inside: V, change: 1, down: 300ms}
"""


def test_the_start_of_a_deleted_topics_log_is_none_of_the_next_one_of_its_name() -> None:
    run = Run(parse_scenario(CREATED_AGAIN), 1)
    run.begin()
    run.faults.begin()
    run.world.run_to(4_900_000)
    assert run.ghost.partition("t-0").log_start == 0
    run.world.run_to(5_200_000)
    assert any("inside a change on its disk" in line for line in run.story.lines)
    assert run.ghost.partition("t-0").log_start == 0
