"""Drawn runs over datagrams that once wrote records twice, or reported as refused what was read later."""

from __future__ import annotations

import pytest

from sim.run import run_scenario
from tests.sim.runs.drawn_clients import drawn


def test_one_seed_draws_one_scenario() -> None:
    assert drawn(3) == drawn(3) != drawn(4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [35, 46])
def test_each_record_is_in_the_log_once_whatever_the_network_does(seed: int) -> None:
    assert not run_scenario(drawn(seed), seed).violations
