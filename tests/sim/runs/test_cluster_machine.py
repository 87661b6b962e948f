"""A cluster of three under whatever Hypothesis thinks of: the rules hold at each step, and peace brings agreement.

It uses the same cores, disks and links as `replog sim run`, with all checkers on. A failed run is printed as its story.
"""

from __future__ import annotations

from collections.abc import Callable
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
from tests.sim.runs.cluster_driver import ClusterDriver, Who

# The number of records before, during and after a fault; whether they are sent with acks=all.
Load = tuple[int, bool]
brokers = st.sampled_from(("leader", 1, 2, 3))
nodes = st.sampled_from(("leader", 1, 2, 3, "controller"))
keeps: st.SearchStrategy[PowerLoss] = st.sampled_from(("none", "prefix", "subset", "torn", "all"))
# The longest is above a session's time-out.
whiles_ms = st.sampled_from((150, 20, 600, 2500))
loads: st.SearchStrategy[Load] = st.tuples(st.sampled_from((5, 0, 1, 40)), st.booleans())
sides: st.SearchStrategy[Literal["before", "after"]] = st.sampled_from(("before", "after"))


class ClusterMachine(RuleBasedStateMachine):
    """A cluster of which every rule ends with a while of virtual time."""

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

    # Load and time

    @rule(load=loads, then_ms=whiles_ms)
    def produce(self, load: Load, then_ms: int) -> None:
        self.under(load, lambda: None, then_ms)

    @rule(milliseconds=st.sampled_from((50, 500, 3_000, 6_000)))
    def wait(self, milliseconds: int) -> None:
        self.driver.pass_time(milliseconds)

    def under(
        self, load: Load, fault: Callable[[], None], then_ms: int, end: Callable[[], None] | None = None
    ) -> None:
        """Send records, let the fault strike, and send more while time passes. `end`, if given, ends the fault."""
        records, acks_all = load
        self.driver.produce(records, acks_all=acks_all)
        self.driver.pass_time(3 * min(records, 1))
        fault()
        self.driver.produce(records, acks_all=acks_all)
        self.driver.pass_time(then_ms)
        if end is not None:
            end()
            self.driver.produce(records, acks_all=acks_all)
            self.driver.pass_time(then_ms)

    # Ends of processes

    @rule(who=nodes, load=loads, then_ms=whiles_ms, comes_back=st.booleans())
    def kill(self, who: Who, load: Load, then_ms: int, comes_back: bool) -> None:
        who = self.driver.number(who)
        back = (lambda: self.driver.restart(who)) if comes_back else None
        self.under(load, lambda: self.driver.kill(who), then_ms, back)

    @rule(who=nodes, keep=keeps, load=loads, then_ms=whiles_ms, comes_back=st.booleans())
    def lose_power(self, who: Who, keep: PowerLoss, load: Load, then_ms: int, comes_back: bool) -> None:
        who = self.driver.number(who)
        back = (lambda: self.driver.restart(who)) if comes_back else None
        self.under(load, lambda: self.driver.lose_power(who, keep), then_ms, back)

    @rule(keep=keeps, load=loads, then_ms=whiles_ms)
    def lose_power_everywhere(self, keep: PowerLoss, load: Load, then_ms: int) -> None:
        def all_dark() -> None:
            for broker in (1, 2, 3):
                self.driver.lose_power(broker, keep)

        self.under(load, all_dark, then_ms, self.restart_brokers)

    @rule(who=nodes, side=sides, kind=st.sampled_from(("flush", "checkpoint", "shutdown")), load=loads)
    def kill_at_job(self, who: Who, side: Literal["before", "after"], kind: str, load: Load) -> None:
        self.under(load, lambda: self.driver.kill_at_job(who, side, kind), 20)

    @rule(who=brokers, byte=st.integers(0, 200), keep=st.none() | keeps, load=loads)
    def tear_next_append(self, who: Who, byte: int, keep: PowerLoss | None, load: Load) -> None:
        self.under(load, lambda: self.driver.tear_next_append(who, byte, keep), 20)

    @rule(who=nodes, load=loads, then_ms=whiles_ms, comes_back=st.booleans())
    def stop(self, who: Who, load: Load, then_ms: int, comes_back: bool) -> None:
        who = self.driver.number(who)
        back = (lambda: self.driver.restart(who)) if comes_back else None
        self.under(load, lambda: self.driver.stop(who), then_ms, back)

    @rule(who=nodes, load=loads, then_ms=whiles_ms)
    def restart(self, who: Who, load: Load, then_ms: int) -> None:
        self.under(load, lambda: self.driver.restart(who), then_ms)

    @rule(load=loads, then_ms=whiles_ms)
    def restart_all(self, load: Load, then_ms: int) -> None:
        self.driver.restart("controller")
        self.under(load, self.restart_brokers, then_ms)

    def restart_brokers(self) -> None:
        for broker in (1, 2, 3):
            self.driver.restart(broker)

    @rule(who=nodes, load=loads, then_ms=whiles_ms, goes_on=st.booleans())
    def pause(self, who: Who, load: Load, then_ms: int, goes_on: bool) -> None:
        who = self.driver.number(who)
        resume = (lambda: self.driver.resume(who)) if goes_on else None
        self.under(load, lambda: self.driver.pause(who), then_ms, resume)

    # Links

    @rule(start=nodes, end=nodes, both_ways=st.booleans(), load=loads, then_ms=whiles_ms)
    def cut(self, start: Who, end: Who, both_ways: bool, load: Load, then_ms: int) -> None:
        self.under(load, lambda: self.driver.cut(start, end, both_ways=both_ways), then_ms)

    @rule(who=nodes, load=loads, then_ms=whiles_ms, heals=st.booleans())
    def isolate(self, who: Who, load: Load, then_ms: int, heals: bool) -> None:
        who = self.driver.number(who)
        heal = (lambda: self.driver.heal(who)) if heals else None
        self.under(load, lambda: self.driver.isolate(who), then_ms, heal)

    @rule(load=loads, then_ms=whiles_ms)
    def heal_all(self, load: Load, then_ms: int) -> None:
        def heal() -> None:
            for broker in (1, 2, 3):
                self.driver.heal(broker)
                self.driver.resume(broker)
            self.driver.resume("controller")

        self.under(load, heal, then_ms)

    # What must hold

    @invariant()
    def nothing_is_violated(self) -> None:
        if self.cluster is not None:
            self.judge(self.cluster)

    def judge(self, cluster: ClusterDriver) -> None:
        if cluster.violations:
            note(cluster.story)
        assert not cluster.violations, cluster.violations[0]

    def teardown(self) -> None:
        """Check that each acknowledged record is there once and in order and that the replicas agree.

        A loss may be excused, as `sim/checkers/ghost.py` describes.
        """
        if self.cluster is not None and not self.cluster.violations:
            self.cluster.end()
            self.judge(self.cluster)


def assert_machine_holds(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        ClusterMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=True,
            deadline=None,
            database=None,
            # Shrinking takes minutes, and the story shows enough.
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_cluster_keeps_the_rules_whatever_happens_to_it() -> None:
    assert_machine_holds(examples=45, steps=12)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_cluster_keeps_the_rules_whatever_happens_to_it_for_long() -> None:
    assert_machine_holds(examples=2_000, steps=20)
