"""A cluster of three under whatever comes to Hypothesis' mind: the rules hold at each step, and peace brings agreement.

The same cores, disks and links as `replog sim run`, all checkers on. What a run was is printed as its story.
"""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from sim.disk import PowerLoss
from tests.sim.cluster_driver import ClusterDriver, Who

brokers = st.sampled_from(("leader", 1, 2, 3))
nodes = st.sampled_from(("leader", 1, 2, 3, "controller"))
keeps: st.SearchStrategy[PowerLoss] = st.sampled_from(("none", "prefix", "subset", "torn", "all"))
pauses_ms = st.sampled_from((0, 20, 150, 600, 2500))  # up to more than a session's time-out
sides: st.SearchStrategy[Literal["before", "after"]] = st.sampled_from(("before", "after"))


class ClusterMachine(RuleBasedStateMachine):
    """Every rule ends with a while of virtual time, in which the cluster does what it does."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster: ClusterDriver | None = None

    @property
    def driver(self) -> ClusterDriver:
        assert self.cluster is not None
        return self.cluster

    @initialize(
        seed=st.integers(0, 1_000),
        min_isr=st.sampled_from((2, 1)),
        flush_promised=st.booleans(),
        unclean=st.sampled_from((False, False, True)),
    )
    def start(self, seed: int, min_isr: int, flush_promised: bool, unclean: bool) -> None:
        self.cluster = ClusterDriver(seed, min_isr=min_isr, flush_promised=flush_promised, unclean=unclean)

    # load and time

    @rule(records=st.sampled_from((1, 5, 40)), acks_all=st.booleans(), then_ms=pauses_ms)
    def produce(self, records: int, acks_all: bool, then_ms: int) -> None:
        self.driver.produce(records, acks_all=acks_all)
        self.driver.pass_time(then_ms)

    @rule(milliseconds=st.sampled_from((50, 500, 3_000, 6_000)))
    def wait(self, milliseconds: int) -> None:
        self.driver.pass_time(milliseconds)

    # ends of processes

    @rule(who=nodes, then_ms=pauses_ms)
    def kill(self, who: Who, then_ms: int) -> None:
        self.driver.kill(who)
        self.driver.pass_time(then_ms)

    @rule(who=nodes, keep=keeps, then_ms=pauses_ms)
    def lose_power(self, who: Who, keep: PowerLoss, then_ms: int) -> None:
        self.driver.lose_power(who, keep)
        self.driver.pass_time(then_ms)

    @rule(keep=keeps, then_ms=pauses_ms)
    def lose_power_everywhere(self, keep: PowerLoss, then_ms: int) -> None:
        for broker in (1, 2, 3):
            self.driver.lose_power(broker, keep)
        self.driver.pass_time(then_ms)

    @rule(who=nodes, side=sides, kind=st.sampled_from(("flush", "checkpoint", "shutdown")))
    def kill_at_job(self, who: Who, side: Literal["before", "after"], kind: str) -> None:
        self.driver.kill_at_job(who, side, kind)

    @rule(who=brokers, byte=st.integers(0, 200), keep=st.none() | keeps)
    def tear_next_append(self, who: Who, byte: int, keep: PowerLoss | None) -> None:
        self.driver.tear_next_append(who, byte, keep)

    @rule(who=nodes, then_ms=pauses_ms)
    def stop(self, who: Who, then_ms: int) -> None:
        self.driver.stop(who)
        self.driver.pass_time(then_ms)

    @rule(who=nodes, then_ms=pauses_ms)
    def restart(self, who: Who, then_ms: int) -> None:
        self.driver.restart(who)
        self.driver.pass_time(then_ms)

    @rule(then_ms=pauses_ms)
    def restart_all(self, then_ms: int) -> None:
        for who in ("controller", 1, 2, 3):
            self.driver.restart(who)
        self.driver.pass_time(then_ms)

    @rule(who=nodes, then_ms=pauses_ms)
    def pause(self, who: Who, then_ms: int) -> None:
        self.driver.pause(who)
        self.driver.pass_time(then_ms)

    @rule(who=nodes, then_ms=pauses_ms)
    def resume(self, who: Who, then_ms: int) -> None:
        self.driver.resume(who)
        self.driver.pass_time(then_ms)

    # links

    @rule(start=nodes, end=nodes, both_ways=st.booleans(), then_ms=pauses_ms)
    def cut(self, start: Who, end: Who, both_ways: bool, then_ms: int) -> None:
        self.driver.cut(start, end, both_ways=both_ways)
        self.driver.pass_time(then_ms)

    @rule(who=brokers, then_ms=pauses_ms)
    def isolate(self, who: Who, then_ms: int) -> None:
        self.driver.isolate(who)
        self.driver.pass_time(then_ms)

    @rule(who=nodes, then_ms=pauses_ms)
    def heal(self, who: Who, then_ms: int) -> None:
        self.driver.heal(who)
        self.driver.pass_time(then_ms)

    # what must hold

    @invariant()
    def nothing_is_violated(self) -> None:
        if self.cluster is not None:
            self.judge(self.cluster)

    def judge(self, cluster: ClusterDriver) -> None:
        if cluster.violations:
            note(cluster.story)
        assert not cluster.violations, cluster.violations[0]

    def teardown(self) -> None:
        """Each acknowledged record is there once and in order, the replicas agree, or an excuse of 6.4 holds."""
        if self.cluster is not None and not self.cluster.violations:
            self.cluster.end()
            self.judge(self.cluster)


def run_machine(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        ClusterMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],  # to shrink takes minutes; the story tells enough
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_cluster_keeps_the_rules_whatever_happens_to_it() -> None:
    run_machine(examples=40, steps=25)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_cluster_keeps_the_rules_whatever_happens_to_it_for_long() -> None:
    run_machine(examples=1_000, steps=60)
