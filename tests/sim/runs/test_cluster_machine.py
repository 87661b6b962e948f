"""A cluster of three under whatever Hypothesis thinks of: the rules hold at each step, and peace brings agreement.

It uses the same cores, disks and links as `replog sim run`, with all checkers on. A failed run is printed as its story.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, run_state_machine_as_test

from replog.testing import SimClusterMachine
from tests.sim.runs.cluster_driver import driven_cluster


class ClusterMachine(SimClusterMachine):
    """A cluster whose topic has drawn settings."""

    @initialize(
        seed=st.integers(0, 1_000),
        min_isr=st.sampled_from((2, 1)),
        flush_promised=st.booleans(),
        unclean=st.sampled_from((False, False, True)),
    )
    def start(self, seed: int, min_isr: int, flush_promised: bool, unclean: bool) -> None:
        self._cluster = driven_cluster(seed, min_isr=min_isr, flush_promised=flush_promised, unclean=unclean)


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
