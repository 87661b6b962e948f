"""A cluster under whatever Hypothesis thinks of, as a base for state machines of one's own.

class MyMachine(SimClusterMachine):
    topics = {"orders": {"partitions": 2}}

    @rule()
    def my_step(self) -> None:
        self.cluster.produce(["a"], topic="orders")

TestMine = MyMachine.TestCase
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from replog.testing.sim_cluster import DEFAULT_TOPICS, Side, SimCluster, Who
from sim.disk import PowerLoss
from sim.scenario.steps import CONTROLLER_JOBS

# The number of records before, during and after a fault; whether they are sent with acks=all.
Load = tuple[int, bool]
# Numbers for the brokers of a cluster of any size, in turn.
_numbers: st.SearchStrategy[Who] = st.sampled_from(range(60))
_leader: st.SearchStrategy[Who] = st.just("leader")
_controller: st.SearchStrategy[Who] = st.just("controller")
_brokers = _leader | _numbers
_nodes = _leader | _controller | _numbers
_keeps: st.SearchStrategy[PowerLoss] = st.sampled_from(("none", "prefix", "subset", "torn", "all"))
# The longest is above a session's time-out.
_whiles_ms = st.sampled_from((150, 20, 600, 2500))
_loads: st.SearchStrategy[Load] = st.tuples(st.sampled_from((5, 0, 1, 40)), st.booleans())
_sides: st.SearchStrategy[Side] = st.sampled_from(("before", "after"))


class SimClusterMachine(RuleBasedStateMachine):
    """A cluster of which every rule ends with a while of virtual time; it has three brokers if `make_cluster` is kept.

    The checkers look on at each step; the end heals everything, and checks that each acknowledged record is there once
    and in order, and that the replicas agree. `topics` and `settings` are those of SimCluster; the load goes to the
    first topic.
    """

    topics: ClassVar[Mapping[str, Mapping[str, object]]] = DEFAULT_TOPICS
    settings: ClassVar[Mapping[str, int]] = {}

    def __init__(self) -> None:
        super().__init__()
        self._cluster: SimCluster | None = None

    @property
    def cluster(self) -> SimCluster:
        """The cluster; it is there from the first rule on."""
        assert self._cluster is not None
        return self._cluster

    def make_cluster(self, seed: int) -> SimCluster:
        """Returns the cluster of an example; to be overridden for one that differs."""
        return SimCluster(seed=seed, topics=self.topics, settings=self.settings)

    @initialize(seed=st.integers(0, 1_000))
    def start(self, seed: int) -> None:
        self._cluster = self.make_cluster(seed)

    # Load and time

    @rule(load=_loads, then_ms=_whiles_ms)
    def produce(self, load: Load, then_ms: int) -> None:
        self.under(load, lambda: None, then_ms)

    @rule(milliseconds=st.sampled_from((50, 500, 3_000, 6_000)))
    def wait(self, milliseconds: int) -> None:
        self.pass_time(milliseconds)

    def under(
        self, load: Load, fault: Callable[[], None], then_ms: int, end: Callable[[], None] | None = None
    ) -> None:
        """Send records, let the fault strike, and send more while time passes. `end`, if given, ends the fault."""
        records, _ = load
        self.send(load)
        self.pass_time(3 * min(records, 1))
        fault()
        self.send(load)
        self.pass_time(then_ms)
        if end is not None:
            end()
            self.send(load)
            self.pass_time(then_ms)

    def send(self, load: Load) -> None:
        records, acks_all = load
        self.cluster.produce(records, topic=next(iter(self.topics)), acks="all" if acks_all else 1)

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass. Raises RuleViolated."""
        self.cluster.advance(milliseconds)

    # Ends of processes

    def _number(self, who: Who) -> Who:
        """Returns the broker for a number that was drawn, or the one that leads now; the controller as it is."""
        if who == "leader":
            leader = self.cluster.leader(next(iter(self.topics)))
            return leader if leader in self.cluster.brokers else self.cluster.brokers[0]
        return who if who == "controller" else self.cluster.brokers[who % len(self.cluster.brokers)]

    @rule(who=_nodes, load=_loads, then_ms=_whiles_ms, comes_back=st.booleans())
    def kill(self, who: Who, load: Load, then_ms: int, comes_back: bool) -> None:
        who = self._number(who)
        back = (lambda: self.cluster.restart(who)) if comes_back else None
        self.under(load, lambda: self.cluster.kill(who), then_ms, back)

    @rule(who=_nodes, keep=_keeps, load=_loads, then_ms=_whiles_ms, comes_back=st.booleans())
    def lose_power(self, who: Who, keep: PowerLoss, load: Load, then_ms: int, comes_back: bool) -> None:
        who = self._number(who)
        back = (lambda: self.cluster.restart(who)) if comes_back else None
        self.under(load, lambda: self.cluster.power_loss(who, keep), then_ms, back)

    @rule(keep=_keeps, load=_loads, then_ms=_whiles_ms)
    def lose_power_everywhere(self, keep: PowerLoss, load: Load, then_ms: int) -> None:
        """Cut the power of every broker, and start them again."""

        def all_dark() -> None:
            for broker in self.cluster.brokers:
                self.cluster.power_loss(broker, keep)

        self.under(load, all_dark, then_ms, self._restart_brokers)

    @rule(who=_brokers, side=_sides, kind=st.sampled_from(("flush", "checkpoint", "shutdown")), load=_loads)
    def kill_at_job(self, who: Who, side: Side, kind: str, load: Load) -> None:
        who = self._number(who)
        self.under(load, lambda: self.cluster.kill_at_job(who, side, kind), 20)

    @rule(side=_sides, kind=st.sampled_from(CONTROLLER_JOBS), load=_loads)
    def kill_controller_at_job(self, side: Side, kind: str, load: Load) -> None:
        self.under(load, lambda: self.cluster.kill_at_job("controller", side, kind), 20)

    @rule(who=_brokers, byte=st.integers(0, 200), keep=st.none() | _keeps, load=_loads)
    def tear_next_append(self, who: Who, byte: int, keep: PowerLoss | None, load: Load) -> None:
        who, topic = self._number(who), next(iter(self.topics))
        self.under(load, lambda: self.cluster.tear_next_append(who, byte, keep, topic=topic), 20)

    @rule(who=_nodes, load=_loads, then_ms=_whiles_ms, comes_back=st.booleans())
    def stop(self, who: Who, load: Load, then_ms: int, comes_back: bool) -> None:
        who = self._number(who)
        back = (lambda: self.cluster.restart(who)) if comes_back else None
        self.under(load, lambda: self.cluster.stop(who), then_ms, back)

    @rule(who=_nodes, load=_loads, then_ms=_whiles_ms)
    def restart(self, who: Who, load: Load, then_ms: int) -> None:
        who = self._number(who)
        self.under(load, lambda: self.cluster.restart(who), then_ms)

    @rule(load=_loads, then_ms=_whiles_ms)
    def restart_all(self, load: Load, then_ms: int) -> None:
        self.cluster.restart("controller")
        self.under(load, self._restart_brokers, then_ms)

    def _restart_brokers(self) -> None:
        for broker in self.cluster.brokers:
            self.cluster.restart(broker)

    @rule(who=_nodes, load=_loads, then_ms=_whiles_ms, goes_on=st.booleans())
    def pause(self, who: Who, load: Load, then_ms: int, goes_on: bool) -> None:
        who = self._number(who)
        resume = (lambda: self.cluster.resume(who)) if goes_on else None
        self.under(load, lambda: self.cluster.pause(who), then_ms, resume)

    # Links

    @rule(start=_nodes, end=_nodes, both_ways=st.booleans(), load=_loads, then_ms=_whiles_ms)
    def cut(self, start: Who, end: Who, both_ways: bool, load: Load, then_ms: int) -> None:
        start, end = self._number(start), self._number(end)
        self.under(load, lambda: self.cluster.cut(start, end, both_ways=both_ways), then_ms)

    @rule(who=_nodes, load=_loads, then_ms=_whiles_ms, heals=st.booleans())
    def isolate(self, who: Who, load: Load, then_ms: int, heals: bool) -> None:
        who = self._number(who)
        heal = (lambda: self.cluster.heal(who)) if heals else None
        self.under(load, lambda: self.cluster.isolate(who), then_ms, heal)

    @rule(load=_loads, then_ms=_whiles_ms)
    def heal_all(self, load: Load, then_ms: int) -> None:
        """Heal all links and end all pauses."""

        def heal() -> None:
            self.cluster.heal()
            for broker in self.cluster.brokers:
                self.cluster.resume(broker)
            self.cluster.resume("controller")

        self.under(load, heal, then_ms)

    # The end

    def teardown(self) -> None:
        """Heal everything and judge the whole run, unless a rule was broken already; then the story is a note."""
        if self._cluster is None:
            return
        try:
            self._cluster.leave()
        finally:
            if self._cluster.violations:
                note("\n".join(self._cluster.story))
