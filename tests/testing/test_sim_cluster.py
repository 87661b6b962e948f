"""The simulated cluster of `replog.testing`: what a test asks for happens, and checkers look on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from replog.testing import RuleViolated, SimCluster
from sim.bugs import install
from sim.hosts.history import Outcome
from sim.run import Verdict
from sim.scenario.loading import ScenarioError
from storage.errors import ConfigError


@pytest.fixture
def cluster() -> SimCluster:
    return SimCluster(seed=1)


def test_what_is_produced_is_acknowledged_and_read(cluster: SimCluster) -> None:
    sends = cluster.produce(["a", "b"])
    assert [send.outcome for send in sends] == [Outcome.OPEN, Outcome.OPEN]
    cluster.advance(500)
    assert [(send.outcome, send.partition, send.offset) for send in sends] == [
        (Outcome.OK, "t-0", 0),
        (Outcome.OK, "t-0", 1),
    ]
    assert [read.value for read in cluster.consumed()] == ["a", "b"]
    assert cluster.finish().verdict is Verdict.HELD


def test_nothing_happens_while_no_time_passes(cluster: SimCluster) -> None:
    before = cluster.now_ms
    cluster.produce(3)
    assert cluster.now_ms == before and cluster.consumed() == []


def test_a_killed_leader_is_replaced_and_what_was_acknowledged_stays(cluster: SimCluster) -> None:
    (send,) = cluster.produce()
    cluster.advance(500)
    first = cluster.leader()
    cluster.kill("leader")
    assert not cluster.is_up(first)
    cluster.advance(5_000)
    assert cluster.leader() not in (first, -1) and first not in cluster.isr()
    cluster.restart(first)
    cluster.advance(5_000)
    assert sorted(cluster.isr()) == [1, 2, 3]
    assert send.value in [read.value for read in cluster.consumed()]


def test_a_cut_follower_leaves_the_isr_and_heals(cluster: SimCluster) -> None:
    follower = next(broker for broker in cluster.brokers if broker != cluster.leader())
    cluster.cut("leader", follower)
    for _ in range(10):
        cluster.produce()
        cluster.advance(1_000)
    assert follower not in cluster.isr()
    cluster.heal()
    cluster.advance(5_000)
    assert follower in cluster.isr()


def test_a_paused_broker_stands_still(cluster: SimCluster) -> None:
    follower = next(broker for broker in cluster.brokers if broker != cluster.leader())
    cluster.pause(follower)
    cluster.produce(5)
    cluster.advance(500)
    assert cluster.ends(cluster.leader())[1] == 5 and cluster.ends(follower)[1] == 0
    cluster.resume(follower)
    cluster.advance(3_000)
    assert cluster.ends(follower)[1] == 5


def test_a_truncated_follower_fetches_what_it_lost(cluster: SimCluster) -> None:
    for _ in range(4):
        cluster.produce(2)
        cluster.advance(100)
    follower = next(broker for broker in cluster.brokers if broker != cluster.leader())
    cluster.stop(follower)
    cluster.advance(3_000)
    assert cluster.truncate(follower, 4) == 4
    cluster.restart(follower)
    cluster.advance(5_000)
    assert cluster.ends(follower) == cluster.ends(cluster.leader()) == (8, 8)
    assert cluster.finish().verdict is Verdict.HELD


def test_a_log_of_a_broker_that_is_up_is_not_truncated(cluster: SimCluster) -> None:
    with pytest.raises(ValueError, match="is up"):
        cluster.truncate(1, 0)


def test_a_power_loss_drops_what_was_not_synced(cluster: SimCluster) -> None:
    cluster.produce(5, acks=1)
    cluster.advance(50)
    for broker in cluster.brokers:
        cluster.power_loss(broker)
    for broker in cluster.brokers:
        cluster.restart(broker)
    cluster.advance(8_000)
    assert cluster.ends(cluster.leader())[1] == 0, cluster.ends(cluster.leader())
    assert cluster.finish().verdict is Verdict.HELD


def test_a_broken_rule_is_an_error_with_seed_and_story() -> None:
    with install("ack-before-high-watermark"):
        cluster = SimCluster(seed=3)
        follower = next(broker for broker in cluster.brokers if broker != cluster.leader())
        cluster.pause(follower)
        cluster.produce(2)
        with pytest.raises(RuleViolated, match=r"acknowledged-committed[\s\S]*seed 3; what happened before:"):
            cluster.advance(2_000)
        with pytest.raises(RuleViolated):
            cluster.check()


def test_a_rule_that_a_restart_breaks_is_an_error_of_the_restart() -> None:
    with install("recovery-skips-crc"):
        cluster = SimCluster(seed=0)
        cluster.produce(30)
        cluster.advance(40)
        leader = cluster.leader()
        cluster.tear_next_append(leader, 70, "torn")
        cluster.produce(10)
        cluster.advance(300)
        with pytest.raises(RuleViolated, match="recover"):
            cluster.restart(leader)


@pytest.mark.parametrize(
    "act",
    [
        lambda cluster: cluster.kill(1),
        lambda cluster: cluster.power_loss(1),
        lambda cluster: cluster.stop(1),
        lambda cluster: cluster.pause(1),
        lambda cluster: cluster.resume(2),
        lambda cluster: cluster.restart(3),
        lambda cluster: cluster.truncate(3, 0),
    ],
)
def test_what_happens_to_a_node_raises_what_checkers_have_found(
    cluster: SimCluster, act: Callable[[SimCluster], object]
) -> None:
    cluster.pause(2)
    cluster.kill(3)
    cluster._run.jury.report("by-hand", "a rule is broken")
    with pytest.raises(RuleViolated, match="a rule is broken"):
        act(cluster)


def test_what_was_found_and_not_raised_is_raised_where_the_cluster_is_left(cluster: SimCluster) -> None:
    cluster._run.jury.report("by-hand", "a rule is broken")
    with pytest.raises(RuleViolated, match="a rule is broken"):
        cluster.leave()
    cluster.leave()


def test_a_cluster_that_is_left_is_finished_unless_it_has_failed(cluster: SimCluster) -> None:
    cluster.leave()
    assert cluster.is_finished
    cluster.leave()


def advance_bit_by_bit(cluster: SimCluster, milliseconds: int) -> None:
    """Let time pass in steps that are shorter than the interval of the looks."""
    for _ in range(milliseconds // 25):
        cluster.advance(25)


def test_a_leader_that_is_never_replaced_is_noticed() -> None:
    with install("controller-never-fences"):
        cluster = SimCluster(seed=1)
        cluster.kill("leader")
        with pytest.raises(RuleViolated, match="fail-over"):
            advance_bit_by_bit(cluster, 9_000)


def test_sends_that_nobody_could_take_are_excused(cluster: SimCluster) -> None:
    cluster.produce(2)
    cluster.advance(500)
    for broker in cluster.brokers:
        cluster.kill(broker)
    for _ in range(20):
        cluster.produce(5)
        cluster.advance(1_000)
    for broker in cluster.brokers:
        cluster.restart(broker)
    cluster.advance(3_000)
    result = cluster.finish()
    assert result.verdict is Verdict.HELD, result.starved_because
    assert list(result.excused_sends) == ["a partition had no running leader"], result.excused_sends


def test_the_same_steps_with_the_same_seed_are_the_same_run() -> None:
    def run(seed: int) -> str:
        cluster = SimCluster(seed=seed)
        cluster.produce(10)
        cluster.advance(100)
        cluster.kill("leader")
        cluster.advance(3_000)
        return cluster.finish().trace_hash

    assert run(5) == run(5) != run(6)


def test_topics_settings_and_transport_are_those_asked_for() -> None:
    cluster = SimCluster(
        brokers=4,
        topics={"orders": {"partitions": 2, "replicas": 2}, "audit": {"replicas": 4}},
        settings={"replica.lag.time.max.ms": 2_000},
        transport="datagram",
    )
    assert cluster.brokers == (1, 2, 3, 4)
    assert len(cluster.isr("orders", 1)) == 2 and len(cluster.isr("audit")) == 4
    (send,) = cluster.produce(topic="audit")
    cluster.advance(1_000)
    assert send.partition == "audit-0"
    assert [read.partition for read in cluster.consumed("audit")] == ["audit-0"]
    assert cluster.consumed("orders") == []


def test_a_fault_on_a_leader_that_is_not_there_does_nothing(cluster: SimCluster) -> None:
    for broker in cluster.brokers:
        cluster.kill(broker)
    cluster.advance(20_000)
    assert cluster.leader() == -1 and not cluster.is_up("leader")
    told = cluster.story
    for act in (
        cluster.kill,
        cluster.power_loss,
        cluster.stop,
        cluster.restart,
        cluster.pause,
        cluster.resume,
    ):
        act("leader")
    cluster.kill_at_job("leader", "before", "flush")
    cluster.tear_next_append("leader", 5)
    cluster.cut("leader", 1)
    cluster.isolate("leader")
    cluster.heal("leader")
    assert cluster.story == told
    with pytest.raises(KeyError, match="t-0 has no leader"):
        cluster.ends("leader")
    with pytest.raises(ValueError, match="t-0 has no leader"):
        cluster.truncate("leader", 0)


def test_a_death_that_was_armed_is_told_when_it_strikes(cluster: SimCluster) -> None:
    leader = cluster.leader()
    cluster.tear_next_append("leader", 5, "torn")
    cluster.kill_at_job("controller", "before", "flush")
    for told in ("will write 5 bytes of its next batch of t-0", "will kill controller before its next flush"):
        assert any(told in line for line in cluster.story)
    cluster.produce(1)
    cluster.advance(10_000)
    assert not cluster.is_up(leader) and not cluster.is_up("controller")
    for told in (
        f"broker-{leader} writes 5 bytes of its next batch of t-0 and dies of a power loss (keep torn)",
        "kill controller before flush",
    ):
        assert [line for line in cluster.story if line.endswith(told)], told


def test_a_leader_is_that_of_the_partition_that_is_named() -> None:
    cluster = SimCluster(topics={"a": {"replicas": 1}, "b": {"partitions": 3, "replicas": 1}})
    other = next(each for each in range(3) if cluster.leader("b", each) != cluster.leader("a"))
    struck = cluster.leader("b", other)
    cluster.tear_next_append("leader", 5, topic="b", partition=other)
    assert f"broker-{struck} will write 5 bytes of its next batch of b-{other}" in cluster.story[-1]
    assert cluster.ends("leader", "b", other) == cluster.ends(struck, "b", other)


def test_properties_of_a_topic_are_texts_numbers_or_truths(cluster: SimCluster) -> None:
    cluster.alter_topic("t", {"min.insync.replicas": 2, "unclean.leader.election.enable": True})
    assert cluster.story[-1].endswith("alter t: min.insync.replicas=2, unclean.leader.election.enable=true")
    cluster.advance(500)


def test_fewer_in_sync_replicas_are_enough_once_a_topic_says_so(cluster: SimCluster) -> None:
    leader = cluster.leader()
    for broker in {1, 2, 3} - {leader}:
        cluster.kill(broker)
    cluster.advance(15_000)
    assert cluster.isr() == (leader,)
    cluster.alter_topic("t", {"min.insync.replicas": 1})
    cluster.advance(1_000)
    sent = cluster.produce(["alone"])
    cluster.advance(2_000)
    assert [each.outcome for each in sent] == [Outcome.OK]


def test_what_checkers_rely_on_does_not_change() -> None:
    cluster = SimCluster(topics={"t": {"replicas": 1, "config": {"flush.messages": 1}}})
    for key, value in (("cleanup.policy", "compact"), ("flush.messages", 2)):
        with pytest.raises(ValueError, match=f"alter_topic: {key} cannot change in a run"):
            cluster.alter_topic("t", {key: value})


def test_words_and_numbers_of_a_fault_are_checked(cluster: SimCluster) -> None:
    told, wrong = cluster.story, cast(Any, "bogus")
    keeps = "expected one of 'none', 'prefix', 'subset', 'torn', 'all', got 'bogus'"
    with pytest.raises(ValueError, match=f"keep: {keeps}"):
        cluster.power_loss(1, keep=wrong)
    with pytest.raises(ValueError, match=f"keep: {keeps}"):
        cluster.tear_next_append(1, 5, keep=wrong)
    with pytest.raises(ValueError, match="side: expected one of 'before', 'after', got 'bogus'"):
        cluster.kill_at_job(1, wrong, "flush")
    for byte in (-5, 2.5):
        with pytest.raises(ValueError, match=f"byte: expected a whole number of 0 or more, got {byte}"):
            cluster.tear_next_append(1, cast(Any, byte))
    assert cluster.story == told


@pytest.mark.parametrize(
    ("values", "error", "what"),
    [
        (["a", b"b"], TypeError, r"records\[1\]: expected a text, got b'b'"),
        (["a", None], TypeError, r"records\[1\]: expected a text, got None"),
        (["a", "\udcff"], ValueError, r"records\[1\]: '\\udcff' cannot be written as UTF-8"),
        (["a", "b", "a"], ValueError, r"records\[2\]: 'a' was sent before"),
        (["a", "old"], ValueError, r"records\[1\]: 'old' was sent before"),
        (b"ab", TypeError, "expected a number or a list of texts, got b'ab'"),
        (1.5, TypeError, "expected a number or a list of texts, got 1.5"),
    ],
)
def test_nothing_is_sent_if_one_value_cannot_be(
    cluster: SimCluster, values: Any, error: type[Exception], what: str
) -> None:
    cluster.produce(["old"])
    with pytest.raises(error, match=what):
        cluster.produce(values)
    cluster.produce(["a", "b"])
    cluster.advance(500)
    assert [read.value for read in cluster.consumed()] == ["old", "a", "b"]
    assert cluster.finish().operations == {"open": 0, "ok": 3, "fail": 0, "info": 0}


def test_wrong_arguments_are_refused_with_what_would_be_right(cluster: SimCluster) -> None:
    with pytest.raises(ScenarioError, match=r"topics\.t\.replicas: 3 replicas need as many brokers"):
        SimCluster(brokers=2, topics={"t": {"replicas": 3}})
    with pytest.raises(ScenarioError, match=r"cluster\.brokers"):
        SimCluster(brokers=0)
    with pytest.raises(ValueError, match="no topic 'x': the cluster has t"):
        cluster.produce(topic="x")
    with pytest.raises(ValueError, match="no broker 7: the cluster has 1, 2, 3"):
        cluster.kill(7)
    with pytest.raises(ValueError, match="no broker 'follower': the cluster has 1, 2, 3"):
        cluster.kill("follower")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no broker 0"):
        cluster.ends(0)
    for look in (cluster.leader, cluster.isr, cluster.consumed):
        with pytest.raises(ValueError, match="no topic 'x': the cluster has t"):
            look("x")
    with pytest.raises(ValueError, match="no partition t-1: t has 1, numbered from 0"):
        cluster.isr("t", 1)
    with pytest.raises(ValueError, match="no topic 'x'"):
        cluster.alter_topic("x", {})
    with pytest.raises(ConfigError, match=r"no\.such"):
        cluster.alter_topic("t", {"no.such": "1"})
    with pytest.raises(ValueError, match="acks: expected one of 'all', 1, 0, got 2"):
        cluster.produce(acks=2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got 'abc'"):
        cluster.produce("abc")
    with pytest.raises(ValueError, match="records: expected 0 or more, got -1"):
        cluster.produce(-1)
    with pytest.raises(ValueError, match="no job 'nap'"):
        cluster.kill_at_job(1, "before", "nap")
    with pytest.raises(ValueError, match="no job 'checkpoint': known are flush, snapshot"):
        cluster.kill_at_job("controller", "before", "checkpoint")
    with pytest.raises(ValueError, match="milliseconds"):
        cluster.advance(-1)
    cluster.produce(["a"])
    with pytest.raises(ValueError, match="'a' was sent before"):
        cluster.produce(["a"])


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_small_cluster_has_a_topic_with_as_many_replicas(brokers: int) -> None:
    small = SimCluster(brokers=brokers)
    small.produce(2)
    small.advance(500)
    assert len(small.isr()) == brokers
    assert small.finish().verdict is Verdict.HELD


@pytest.mark.parametrize(("seed", "error"), [(-1, ValueError), (True, TypeError), ("a", TypeError)])
def test_what_is_no_seed_is_refused(seed: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="seed: expected"):
        SimCluster(seed=seed)


def test_changes_of_a_topic_that_contradict_each_other_are_refused(cluster: SimCluster) -> None:
    cluster.alter_topic("t", {"min.compaction.lag.ms": 100})
    with pytest.raises(ValueError, match=r"alter_topic: max\.compaction\.lag\.ms=50: must be at least"):
        cluster.alter_topic("t", {"max.compaction.lag.ms": 50})
    # The next one is not held up by it.
    cluster.alter_topic("t", {"max.message.bytes": 100, "min.cleanable.dirty.ratio": 0.2})
    cluster.advance(1_000)
    (sent,) = cluster.produce(["x" * 200])
    cluster.advance(1_000)
    assert (sent.outcome, sent.error) == (Outcome.FAIL, "MESSAGE_TOO_LARGE")


def test_a_topic_that_the_controller_refuses_is_told_at_once() -> None:
    with pytest.raises(ScenarioError, match="the controller's own log"):
        SimCluster(topics={"__cluster_metadata": {}})


def test_more_than_a_day_may_pass_although_brokers_forget_producers_then(cluster: SimCluster) -> None:
    cluster.produce(3)
    cluster.advance(1_000)
    cluster._run.expect_time(90_000_000_000)
    assert cluster._run.witness._open_logs._producers._may_expire
