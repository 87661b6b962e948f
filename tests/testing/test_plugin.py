"""The pytest plugin: fixtures, seeds, and what a failed test prints."""

from __future__ import annotations

import shlex

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
FAILS_WITH_PARAMETERS = """
import pytest

@pytest.mark.parametrize("who", ["it's", "seed3-x[seed3]", "seed3"])
def test_fails(sim_cluster, who):
    assert False

class TestInAClass:
    def test_fails(self, sim_cluster):
        assert False
"""
FAILS_BY_FIXTURES = """
import pytest

@pytest.fixture(params=["a", "seed3"])
def kind(request):
    return request.param

def test_with_kinds(sim_cluster, kind):
    assert sim_cluster.seed != 3

@pytest.mark.parametrize("number", [1])
def test_with_a_number(sim_cluster, number):
    assert sim_cluster.seed != 3

def test_alone(sim_cluster):
    assert sim_cluster.seed != 3
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

FOUND_AND_NOT_RAISED = """
import pytest
from replog.testing import RuleViolated

def test_leaves_it(sim_cluster):
    sim_cluster()._run.jury.report("by-hand", "a rule is broken")

def test_expects_it(sim_cluster):
    cluster = sim_cluster()
    cluster._run.jury.report("by-hand", "a rule is broken")
    with pytest.raises(RuleViolated):
        cluster.check()
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
        ["*the story of the run*", "*kill broker-*", "*run it again with*", "*::test_fails --replog-seed 7"]
    )


@pytest.mark.parametrize("seeds", [("--replog-seed", "3"), ("--replog-seeds", "3..4")])
def test_the_command_that_repeats_a_run_names_the_test_that_failed(
    outside: pytest.Pytester, seeds: tuple[str, str]
) -> None:
    path = outside.makepyfile(FAILS_WITH_PARAMETERS).name
    result = run(outside, *seeds)
    result.assert_outcomes(failed=4)
    commands = [line for line in result.outlines if line.startswith("pytest ")]
    assert [shlex.split(command) for command in commands] == [
        ["pytest", f"{path}::{test}", "--replog-seed", "3"]
        for test in (
            "test_fails[it's]",
            "test_fails[seed3-x[seed3]]",
            "test_fails[seed3]",
            "TestInAClass::test_fails",
        )
    ]


@pytest.mark.parametrize(("folder", "path"), [("sub", "test_it.py"), ("beside", "../sub/test_it.py")])
def test_the_command_that_repeats_a_run_works_in_the_folder_of_the_call(
    outside: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, folder: str, path: str
) -> None:
    outside.makeini("[pytest]")
    for each in ("sub", "beside"):
        (outside.path / each).mkdir()
    (outside.path / "sub" / "test_it.py").write_text(FAILS_BY_FIXTURES, encoding="utf-8")
    monkeypatch.chdir(outside.path / folder)
    result = run(outside, "--replog-seeds", "3..4", path)
    commands = [shlex.split(line) for line in result.outlines if line.startswith("pytest ")]
    # A fixture's parameter comes before the seed.
    assert commands == [
        ["pytest", f"{path}::test_with_kinds[a-seed3]", "--replog-seeds", "3..4"],
        ["pytest", f"{path}::test_with_kinds[seed3-seed3]", "--replog-seeds", "3..4"],
        ["pytest", f"{path}::test_with_a_number[1]", "--replog-seed", "3"],
        ["pytest", f"{path}::test_alone", "--replog-seed", "3"],
    ]
    run(outside, *commands[0][1:]).assert_outcomes(failed=1)


SEEDS_OF_ITS_OWN = """
import pytest

@pytest.mark.parametrize("replog_seed", [5])
def test_direct(sim_cluster, replog_seed):
    sim_cluster()
    assert False

@pytest.mark.parametrize("kind, replog_seed", [("a", 6)])
def test_beside_another(sim_cluster, kind, replog_seed):
    sim_cluster()
    assert False
"""


def test_a_test_with_seeds_of_its_own_is_repeated_by_its_name(outside: pytest.Pytester) -> None:
    outside.makepyfile(test_it=SEEDS_OF_ITS_OWN)
    commands = [shlex.split(line) for line in run(outside).outlines if line.startswith("pytest ")]
    assert [command[1] for command in commands] == [
        "test_it.py::test_direct[5]", "test_it.py::test_beside_another[a-6]",
    ]  # fmt: skip
    for command in commands:
        run(outside, *command[1:]).assert_outcomes(failed=1)


def test_what_a_test_leaves_is_judged_after_it(outside: pytest.Pytester) -> None:
    outside.makepyfile(BROKEN_AT_THE_END)
    result = run(outside)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*RuleViolated*"])


def test_what_checkers_have_found_and_no_method_has_raised_fails_the_test(outside: pytest.Pytester) -> None:
    outside.makepyfile(FOUND_AND_NOT_RAISED)
    result = run(outside)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_leaves_it*", "*RuleViolated*a rule is broken*"])


@pytest.mark.parametrize("arguments", [("--replog-seed", "-1"), ("--replog-seeds", "5..5")])
def test_a_seed_that_is_none_ends_pytest_with_one_line(
    outside: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    result = run(outside, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "seed" in result.stderr.str()
