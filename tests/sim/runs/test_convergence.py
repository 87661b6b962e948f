"""When a healed cluster is judged: as long as it comes nearer to rest it has time, within a limit."""

from __future__ import annotations

import pytest

from cluster.core.messages import CreateTopicRequest, DeleteTopicRequest
from sim.judgement import MOST_WAITS, Convergence
from sim.run import Run
from sim.scenario.loading import parse_scenario

# Each record has a segment of its own, and so a fetch of its own.
TEXT = """\
scenario: slow-copy
duration: 6s
cluster: {brokers: 2, disk: {call: 3us, sync: 8ms, mebibyte: 2ms}}
topics:
  t: {replicas: 2, config: {segment.bytes: 200, min.insync.replicas: 1}}
producers:
  - {topic: t, rate: RATE/s, acks: 1, size: 100 B, batch: 1 B, linger: 0ms}
"""


def rest_of(within_us: int, *, comes_back: bool, rate: int = 25) -> tuple[list[str], float]:
    """Return what convergence reports of a follower that lacks many records, and how many seconds it took."""
    run = Run(parse_scenario(TEXT.replace("RATE", str(rate))), 1)
    run.begin()
    run.world.run_to(1_500_000)
    leader = run.jury.ghost.partition("t-0").leader
    follower = run.cluster.brokers[3 - leader]
    follower.crash()
    run.world.run_to(3_000_000)
    for producer in run.cluster.producers:
        producer.finish()
    if comes_back:
        follower.start()
    begun_us = run.world.now_us
    Convergence(run.cluster, run.jury, run.chronicle, run.witness.lives).await_rest(within_us)
    found = [each.what for each in run.jury.violations if each.checker == "convergence"]
    return found, (run.world.now_us - begun_us) / 1e6


def test_a_cluster_that_comes_nearer_to_rest_has_more_time() -> None:
    found, took_s = rest_of(1_000_000, comes_back=True)
    assert not found
    assert 1 < took_s < MOST_WAITS


def test_a_cluster_that_stands_still_is_judged_when_its_time_is_over() -> None:
    found, took_s = rest_of(1_000_000, comes_back=False)
    assert len(found) == 1
    assert f"{took_s:g} s after everything was healed t-0: only " in found[0]
    # What was on its way at first was progress.
    assert 1 <= took_s < 1.5


def test_a_cluster_that_does_not_come_to_rest_is_judged_after_some_times_its_time() -> None:
    found, took_s = rest_of(300_000, comes_back=True, rate=80)
    assert len(found) == 1
    assert took_s == 0.3 * MOST_WAITS


@pytest.mark.parametrize("delete", ["600ms", "30s"])
def test_a_flush_that_waits_for_many_jobs_has_time_as_long_as_they_become_fewer(delete: str) -> None:
    config = "flush.messages: 1, retention.bytes: 200, file.delete.delay.ms: 0, "
    text = (
        TEXT.replace("RATE", "25")
        .replace("config: {", "config: {" + config)
        .replace("replicas: 2", "replicas: 1")
    )
    settings = "settings: {log.initial.task.delay.ms: 100, log.retention.check.interval.ms: 100}"
    text = text.replace("disk: {", f"{settings}, jobs: {{delete: {delete}}}, disk: {{")
    run = Run(parse_scenario(text), 1)
    run.begin()
    run.world.run_to(4_000_000)
    for producer in run.cluster.producers:
        producer.finish()
    assert max(node.jobs_last_us for node in run.cluster.brokers.values()) > 4_000_000
    Convergence(run.cluster, run.jury, run.chronicle, run.witness.lives).await_rest(3_000_000)
    found = [each.what for each in run.jury.violations if each.checker == "convergence"]
    assert len(found) == (delete == "30s")


@pytest.mark.parametrize("is_away", [True, False])
def test_a_broker_without_partitions_that_cannot_register_again_is_judged_too(*, is_away: bool) -> None:
    """Nobody else would notice: its session is not over, and no replica waits for it."""
    run = Run(parse_scenario(TEXT.replace("RATE", "1").replace("brokers: 2", "brokers: 3")), 1)
    run.begin()
    run.world.run_to(1_500_000)
    assert 2 not in run.jury.ghost.partition("t-0").isr
    if is_away:
        run.cluster.controller.crash()
    run.cluster.brokers[2].crash()
    run.world.run_to(3_000_000)
    run.cluster.brokers[2].start()
    for producer in run.cluster.producers:
        producer.finish()
    Convergence(run.cluster, run.jury, run.chronicle, run.witness.lives).await_rest(12_000_000)
    found = [each.what for each in run.jury.violations if each.checker == "convergence"]
    assert [each.rpartition("healed ")[2] for each in found] == (["broker-2 is fenced"] if is_away else [])


@pytest.mark.parametrize("has_heard", [True, False])
def test_a_broker_that_has_not_heard_of_a_second_creation_is_awaited(*, has_heard: bool) -> None:
    """Its replica of the topic before looks as the new one would: empty, led, and in sync."""
    run = Run(parse_scenario(TEXT.replace("RATE", "1").replace("replicas: 2", "replicas: 1")), 1)
    run.begin()
    run.world.run_to(100_000)
    for producer in run.cluster.producers:
        producer.finish()
    run.world.run_to(1_500_000)
    leader = run.cluster.brokers[run.jury.ghost.partition("t-0").leader]
    if not has_heard:
        leader.hold_metadata()
    run.cluster.admin.ask(DeleteTopicRequest(name="t"))
    run.world.run_to(1_700_000)
    run.cluster.admin.ask(CreateTopicRequest(name="t", partitions=1, replication_factor=1))
    run.world.run_to(2_000_000)
    Convergence(run.cluster, run.jury, run.chronicle, run.witness.lives).await_rest(1_000_000)
    found = [each.what for each in run.jury.violations if each.checker == "convergence"]
    assert ["replica" in each for each in found] == ([] if has_heard else [True])


@pytest.mark.parametrize("is_away", [True, False])
def test_a_topic_that_is_still_to_be_deleted_is_awaited(*, is_away: bool) -> None:
    """Until the controller decides on it all replicas agree; then they would be judged while they are deleted."""
    run = Run(parse_scenario(TEXT.replace("RATE", "1")), 1)
    run.begin()
    run.world.run_to(100_000)
    for producer in run.cluster.producers:
        producer.finish()
    run.world.run_to(1_500_000)
    if is_away:
        run.cluster.controller.pause()
    run.cluster.admin.ask(DeleteTopicRequest(name="t"))
    run.world.run_to(1_600_000)
    Convergence(run.cluster, run.jury, run.chronicle, run.witness.lives).await_rest(1_000_000)
    found = [each.what for each in run.jury.violations if each.checker == "convergence"]
    assert ["topic t is still to be deleted" in each for each in found] == [True] * is_away
