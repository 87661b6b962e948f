"""The state machine of `replog.testing`: any cluster, and a failure at whatever step it is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from replog.testing import RuleViolated, SimCluster, SimClusterMachine
from replog.testing.machine import Load
from replog.testing.sim_cluster import Who

FEW = settings(
    max_examples=5,
    stateful_step_count=5,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def run(machine: type[RuleBasedStateMachine], how: settings = FEW) -> None:
    run_state_machine_as_test(machine, settings=how)


class Alone(SimClusterMachine):
    """A cluster of one broker."""

    struck: ClassVar[set[Who]] = set()
    topics: ClassVar[Mapping[str, Mapping[str, object]]] = {"orders": {"replicas": 1}}

    def make_cluster(self, seed: int) -> SimCluster:
        return SimCluster(seed=seed, brokers=1, topics=self.topics)

    def _number(self, who: Who) -> Who:
        self.struck.add(found := super()._number(who))
        return found


def test_a_cluster_may_have_one_broker() -> None:
    run(Alone)
    assert Alone.struck == {1, "controller"}


def test_the_controller_is_killed_at_jobs_that_it_has() -> None:
    class Struck(SimClusterMachine):
        def under(
            self, load: Load, fault: Callable[[], None], then_ms: int, end: Callable[[], None] | None = None
        ) -> None:
            """Strike, and let no time pass."""
            fault()
            story.extend(self.cluster.story[-1:])

    story: list[str] = []
    run(Struck, settings(FEW, stateful_step_count=60))
    assert any("will kill controller" in line for line in story), story


def test_every_broker_of_a_larger_cluster_is_struck() -> None:
    struck: set[Who] = set()

    class Five(SimClusterMachine):
        def make_cluster(self, seed: int) -> SimCluster:
            return SimCluster(seed=1, brokers=5)

        def under(
            self, load: Load, fault: Callable[[], None], then_ms: int, end: Callable[[], None] | None = None
        ) -> None:
            """Only look who would be struck."""

        def _number(self, who: Who) -> Who:
            struck.add(found := super()._number(who))
            return found

    run(Five, settings(FEW, max_examples=20, stateful_step_count=20))
    assert struck == {1, 2, 3, 4, 5, "controller"}


class BrokenAtLast(SimClusterMachine):
    """Breaks a rule that no method raises any more."""

    def teardown(self) -> None:
        self.cluster._run.jury.report("by-hand", "a rule is broken")
        super().teardown()


def test_what_was_found_and_not_raised_is_raised_at_the_end() -> None:
    with pytest.raises(RuleViolated, match="a rule is broken") as raised:
        run(BrokenAtLast)
    assert any("broker 2 registers" in note for note in raised.value.__notes__), raised.value.__notes__
