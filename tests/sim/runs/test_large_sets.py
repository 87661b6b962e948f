"""C7: segment.bytes is lowered below a set of the log while a follower is behind."""

from __future__ import annotations

import pytest

from cluster.core.messages import AlterTopicConfigsRequest
from sim.bugs import install
from sim.run import RunResult, Verdict
from tests.sim.runs.cluster_driver import ClusterDriver


def lower_segment_bytes(seed: int) -> RunResult:
    """A follower misses several batches, comes back after segment.bytes was lowered below them, and must catch up."""
    driver = ClusterDriver(seed=seed)
    follower = 1 if driver.number("leader") != 1 else 2
    driver.kill(follower)
    driver.pass_time(12_000)
    driver.produce(20, acks_all=True)
    driver.pass_time(2_000)
    request = AlterTopicConfigsRequest(name="t", configs=(("segment.bytes", "200"),))
    controller = driver.node("controller")
    # It comes from the controller itself, which waits for no answer.
    controller.ask_itself(request)
    driver.pass_time(1_000)
    driver.restart(follower)
    driver.pass_time(2_000)
    return driver.end()


def test_c7_a_follower_that_is_behind_catches_up() -> None:
    assert lower_segment_bytes(seed=1).verdict is Verdict.HELD


def test_c7_is_found_by_this_run_when_the_mend_is_taken_out() -> None:
    with install("follower-refuses-large-set"):
        result = lower_segment_bytes(seed=1)
    assert result.verdict is not Verdict.HELD


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_c7_holds_for_other_seeds(seed: int) -> None:
    assert lower_segment_bytes(seed=seed).verdict is Verdict.HELD
