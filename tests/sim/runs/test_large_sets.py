"""C7: segment.bytes is lowered below a set of the log while a follower is behind."""

from __future__ import annotations

import pytest

from replog.testing import RuleViolated
from sim.bugs import install
from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import parse_scenario
from tests.sim.runs.cluster_driver import driven_cluster


def lower_segment_bytes(seed: int) -> RunResult:
    """A follower misses several batches, comes back after segment.bytes was lowered below them, and must catch up."""
    cluster = driven_cluster(seed=seed)
    follower = 1 if cluster.leader() != 1 else 2
    cluster.kill(follower)
    cluster.advance(12_000)
    cluster.produce(20)
    cluster.advance(2_000)
    cluster.alter_topic("t", {"segment.bytes": "200"})
    cluster.advance(1_000)
    cluster.restart(follower)
    cluster.advance(2_000)
    return cluster.finish()


def test_c7_a_follower_that_is_behind_catches_up() -> None:
    assert lower_segment_bytes(seed=1).verdict is Verdict.HELD


def test_c7_is_found_by_this_run_when_the_mend_is_taken_out() -> None:
    with install("follower-refuses-large-set"):
        with pytest.raises(RuleViolated):
            lower_segment_bytes(seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_c7_holds_for_other_seeds(seed: int) -> None:
    assert lower_segment_bytes(seed=seed).verdict is Verdict.HELD


COPIED = """\
scenario: late-copies
duration: 4s
network: {transport: datagram, duplicates: 60%, spread: 150ms}
topics:
  t: {partitions: 1, replicas: 3, config: {segment.bytes: 1000}}
producers:
  - {topic: t, rate: 60/s, acks: all, size: 600 B, batch: 4000 B, linger: 100ms}
consumers:
  - {topic: t}
steps:
  - {at: 2500ms, alter_topic: t, config: {segment.bytes: 20000}}
"""


PRODUCERS = range(1, 9)
SPLIT = f"""\
scenario: late-copies-of-split-sets
duration: 12500ms
network: {{transport: datagram, duplicates: 90%, spread: 250ms}}
topics:
  t: {{partitions: 1, replicas: 3, config: {{max.message.bytes: 1000}}}}
producers:
  - {{topic: t, clients: {len(PRODUCERS)}, rate: 10/s, size: 600 B, batch: 4000 B, linger: 300ms, in_flight: 1}}
steps:
  - {{at: 2500ms, alter_topic: t, config: {{max.message.bytes: 20000}}}}
"""


@pytest.mark.parametrize("seed", [2, 3])
def test_the_halves_of_a_set_that_was_too_large_may_be_in_the_log_by_a_copy_of_the_whole(seed: int) -> None:
    cuts = [f'  - {{at: 2800ms, cut: "producer {number} <-> all", for: 9s}}\n' for number in PRODUCERS]
    result = run_scenario(parse_scenario(SPLIT + "".join(cuts), "split.yaml"), seed)
    assert result.verdict is not Verdict.VIOLATED, result.violations


@pytest.mark.parametrize("seed", [5, 9])
def test_a_set_that_was_too_large_may_be_appended_as_a_copy_comes_when_the_topic_takes_it(seed: int) -> None:
    """A network that makes copies brings one after another copy was refused: a refusal is no last word then."""
    result = run_scenario(parse_scenario(COPIED, "copied.yaml"), seed)
    assert result.verdict is Verdict.HELD, result.violations
    assert result.operations["info"] > 0
