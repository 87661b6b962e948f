"""Double runs: nothing of ours differs between two interpreters, and each of ten canaries does."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.bugs.planting import Replacement, replaced
from sim.commands import sim
from sim.determinism.command import MISMATCH, closing_line
from sim.determinism.divergence import first_divergence
from sim.determinism.double import DoubleRun, SideError, double_runs, traces, works
from sim.determinism.side import Outcome, Work, run_one
from sim.seed_range import MOST_SEEDS, Seeds
from sim.swarm.job import SwarmJob
from tests.sim.determinism import canary_table
from tests.sim.determinism.canaries import environment, plant
from tests.sim.determinism.canary_table import CANARIES, HERE, ONLY_GUARDED, TINY, noticed, pairs


def test_a_seed_is_one_run_in_interpreters_that_differ() -> None:
    found = pairs("", is_guarded=True)
    assert sorted(pair.seed for pair in found) == [0, 1]
    assert [pair.difference() for pair in found] == ["", ""]
    assert len({pair.first.trace_hash for pair in found}) == 2
    assert all(pair.first.verdict == "held" and pair.first.events > 100 for pair in found)


def test_the_interpreters_import_nothing_of_the_users_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    assert [pair.difference() for pair in pairs("", is_guarded=True)] == ["", ""]


@pytest.mark.parametrize("canary", CANARIES)
def test_a_canary_is_noticed(canary: str) -> None:
    is_guarded = canary in ONLY_GUARDED
    assert noticed(canary, is_guarded=is_guarded)


def test_the_table_of_canaries_says_which_are_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(canary_table, "CANARIES", ("wall_clock", "thread"))
    assert canary_table.main() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 of 2 canaries noticed"
    monkeypatch.setattr(canary_table, "noticed", lambda canary, *, is_guarded: canary == "thread")
    assert canary_table.main() == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 of 2 canaries noticed"


@pytest.mark.parametrize("canary", ["wall_clock", "unsorted_listing"])
def test_the_guard_names_what_a_run_asked_the_machine_for(canary: str) -> None:
    assert all("a simulated run must not" in pair.difference() for pair in pairs(canary, is_guarded=True))


def test_the_first_event_that_differs_is_shown_from_both_runs(tmp_path: Path) -> None:
    found = first_divergence(*traces(HERE, 1, tmp_path, plant="tests.sim.determinism.canaries:environment"))
    assert found is not None and found.line > 1
    assert found.first.startswith('{"at":') and found.second.startswith('{"at":')
    assert found.first != found.second


def test_a_trace_that_ends_earlier_differs_where_it_ends(tmp_path: Path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    whole.write_text("a\nb\n")
    part.write_text("a\n")
    found = first_divergence(whole, part)
    assert found is not None and found.lines()[1:] == ["  first run:  b", "  second run: (ended)"]
    assert first_divergence(whole, whole) is None


def test_a_side_that_ends_early_is_an_error_with_what_it_said() -> None:
    with pytest.raises(SideError, match="no_such_function"):
        list(double_runs("tests.sim.determinism.test_double:no_such_function", Seeds(first=0, end=1)))


def test_the_work_of_a_long_range_is_short() -> None:
    seeds = Seeds(first=3, end=MOST_SEEDS)
    for work in works(HERE, seeds):
        text = work.as_json()
        assert len(text) < 500 and Work.from_json(text) == work


@contextmanager
def breaks() -> Iterator[None]:
    """The same error at the same moment of every run, one run a process."""
    draws = count()

    def source() -> int:
        assert next(draws) < 500, "the log end went back"
        return 0

    with plant(source):
        yield


@contextmanager
def breaks_after_a_difference() -> Iterator[None]:
    """The same error in every run, and before it what differs between two interpreters."""
    with environment(), breaks():
        yield


def broken(planted: str) -> DoubleRun:
    """Returns one double run that ends with an error."""
    name = f"tests.sim.determinism.test_double:{planted}"
    (pair,) = double_runs(HERE, Seeds(first=0, end=1), plant=name, is_guarded=False)
    assert pair.is_error and pair.first.error == pair.second.error != ""
    assert pair.first.error.startswith("AssertionError: the log end went back")
    return pair


def test_runs_that_end_with_the_same_error_are_compared_up_to_it() -> None:
    pair = broken("breaks")
    assert pair.is_equal and pair.first.trace_hash and pair.first.draws and pair.first.events > 100
    assert not broken("breaks_after_a_difference").is_equal


def test_a_run_that_does_not_even_begin_is_an_error_with_its_draws() -> None:
    def never() -> None:
        raise AssertionError("no world")

    with replaced(Replacement(target="sim.run:Ghost", make=lambda original: never)):
        outcome = run_one(works(HERE, Seeds(first=0, end=1))[0], 0)
    assert outcome.error == "AssertionError: no world" and (outcome.trace_hash, outcome.events) == ("", 0)


def test_the_closing_line_counts_the_runs_that_ended_with_an_error() -> None:
    seeds = Seeds(first=0, end=5)
    # They prove nothing of what would have followed.
    assert closing_line("x", seeds, 0, 2) == "x, seeds 0..5: 5 double runs, 0 differ, 2 ended with an error"
    assert closing_line("x", seeds, 0, 1).endswith(
        ", 0 differ, 1 ended with an error: with 95 % confidence fewer than 75 % of runs do"
    )
    assert closing_line("x", seeds, 1, 1) == "x, seeds 0..5: 5 double runs, 1 differ, 1 ended with an error"
    assert "error" not in closing_line("x", seeds, 0, 0)


@contextmanager
def takes_sources() -> Iterator[None]:
    """What a side of a compiled build needs: the switch, and the package that obeys it."""
    assert os.environ["REPLOG_INTERPRETED"] == "1" and "replog" in sys.modules
    yield


def test_both_sides_take_sources_also_of_a_compiled_build() -> None:
    name = "tests.sim.determinism.test_double:takes_sources"
    (pair,) = double_runs(HERE, Seeds(first=0, end=1), plant=name, is_guarded=False)
    assert pair.is_equal and not pair.is_error


def test_the_command_fails_if_no_run_comes_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Outcome(error="BugError: it is compiled")

    def all_fail(*arguments: object) -> Iterator[DoubleRun]:
        for seed in range(2):
            yield DoubleRun(seed=seed, first=failed, second=failed)

    monkeypatch.setattr("sim.determinism.command.double_runs", all_fail)
    result = CliRunner().invoke(sim, ["check", "swarm", "--seeds", "0..2"])
    assert result.exit_code == 2
    assert result.output.endswith("no run came to its end: BugError: it is compiled\n")


def test_each_part_of_an_outcome_is_compared() -> None:
    same = Outcome(trace_hash="a", draws="1:2", verdict="held", events=3)
    for other in (
        Outcome(trace_hash="b", draws="1:2", verdict="held", events=3),
        Outcome(trace_hash="a", draws="2:2", verdict="held", events=3),
        Outcome(trace_hash="a", draws="1:2", verdict="starved", events=3),
        Outcome(trace_hash="a", draws="1:2", verdict="held", events=4),
        Outcome(error="AssertionError: 1"),
        Outcome(trace_hash="a", draws="1:2", verdict="held", events=3, error="AssertionError: 1"),
    ):
        assert DoubleRun(seed=0, first=same, second=same).is_equal
        assert not DoubleRun(seed=0, first=same, second=other).is_equal


@pytest.mark.parametrize("name", ["tiny.yaml", "./tiny.yml", "a:b.yaml"])
def test_the_command_prints_what_the_double_runs_prove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = name
    (tmp_path / name).write_text(TINY)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(sim, ["check", path, "--seeds", "5..7"])
    assert result.exit_code == 0, result.output
    assert result.output == f"{path}, seeds 5..7: 2 double runs, 0 differ\n"
    assert closing_line("x", Seeds(first=0, end=1000), 0, 0).endswith("fewer than 0.3 % of runs do")
    assert MISMATCH == 4


def test_the_command_checks_what_each_seed_draws() -> None:
    result = CliRunner().invoke(sim, ["check", "swarm", "--seeds", "11..13", "--json"])
    assert result.exit_code == 0, result.output
    *rows, last = map(json.loads, result.output.splitlines())
    assert last["summary"] == {"scenario": "swarm", "double_runs": 2, "mismatches": 0, "errors": 0}
    # The same runs as those of `replog sim swarm`.
    for row in rows:
        run = SwarmJob().run(row["seed"])
        assert (row["equal"], row["trace_hash"], row["error"]) == (True, run["trace_hash"], "")


def test_the_command_refuses_a_scenario_that_is_none() -> None:
    result = CliRunner().invoke(sim, ["check", "no-such-scenario"])
    assert result.exit_code == 2 and "no-such-scenario" in result.stderr
