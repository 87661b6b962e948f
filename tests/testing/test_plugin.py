"""The pytest plugin: fixtures, seeds, and what a failed test prints."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

HOLDS = """
def test_holds(sim_cluster):
    cluster = sim_cluster(brokers=3)
    cluster.produce(2)
    cluster.advance(300)
    assert len(cluster.consumed()) == 2
"""
FAILS = """
def test_fails(sim_cluster):
    cluster = sim_cluster()
    cluster.kill("leader")
    assert cluster.seed == 0, cluster.seed
    assert False
"""
BROKEN_AT_THE_END = """
from sim.bugs import install
import pytest

@pytest.fixture(autouse=True)
def bug():
    with install("ack-before-high-watermark"):
        yield

def test_leaves_it_unfinished(bug, sim_cluster):
    cluster = sim_cluster()
    cluster.pause(next(broker for broker in cluster.brokers if broker != cluster.leader()))
    cluster.produce(2)
"""


@pytest.fixture
def outside(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project whose pytest has only this plugin, as a user's has."""
    pytester.makeconftest("")
    return pytester


def run(outside: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    is_loaded = "replog" in outside.runpytest_inprocess("--trace-config", "--collect-only").stdout.str()
    plugin = () if is_loaded else ("-p", "replog.testing.plugin")
    return outside.runpytest_inprocess(*plugin, "-p", "no:cacheprovider", *arguments)


def test_a_test_gets_a_cluster_that_is_finished_after_it(outside: pytest.Pytester) -> None:
    outside.makepyfile(HOLDS)
    run(outside).assert_outcomes(passed=1)


def test_each_test_runs_with_every_seed(outside: pytest.Pytester) -> None:
    outside.makepyfile(HOLDS)
    result = run(outside, "--replog-seeds", "3..5", "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_holds?seed3?*PASSED*", "*test_holds?seed4?*PASSED*"])


def test_a_failed_test_prints_the_story_and_the_command_that_repeats_it(outside: pytest.Pytester) -> None:
    outside.makepyfile(FAILS)
    result = run(outside, "--replog-seed", "7")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*the story of the run*", "*kill broker-*", "*run it again with*", "*::test_fails' --replog-seed 7"]
    )


def test_what_a_test_leaves_is_judged_after_it(outside: pytest.Pytester) -> None:
    outside.makepyfile(BROKEN_AT_THE_END)
    result = run(outside)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*RuleViolated*"])


@pytest.mark.parametrize("arguments", [("--replog-seed", "-1"), ("--replog-seeds", "5..5")])
def test_a_seed_that_is_none_ends_pytest_with_one_line(
    outside: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    result = run(outside, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "seed" in result.stderr.str()
