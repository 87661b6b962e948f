"""The command that shows how much of codec and connection core simulated runs go through."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.runs import codec_coverage
from tests.sim.runs.message_kinds import Kinds


def test_a_run_that_goes_past_the_connection_core_or_the_codec_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not codec_coverage.show_coverage([("a run without messages", lambda: None)])
    shown = capsys.readouterr().out
    assert "error: a run without messages goes past the connection core\n" in shown
    assert "error: a run without messages goes past the codec\n" in shown


def test_only_the_statements_of_functions_count() -> None:
    path = next(each for each in codec_coverage.FILES if each.endswith("backoff.py"))
    lines, text = codec_coverage.all_lines()[path], Path(path).read_text().splitlines()
    stated = [text[line - 1].strip() for line in sorted(lines)]
    assert stated[0] == "self._next_ms = FIRST_BACKOFF_MS" and len(stated) == 9
    assert not any(line.startswith(("def", "class", "import", "#", '"')) for line in stated)


@pytest.mark.parametrize(
    ("missed", "text"), [((), ""), ((3,), "3"), ((3, 4, 9), "3-9"), ((1, 3, 9, 10), "1-3, 9-10")]
)
def test_missed_lines_are_ranges_of_what_could_have_run(missed: tuple[int, ...], text: str) -> None:
    assert codec_coverage.ranges((1, 3, 4, 9, 10), frozenset(missed)) == text


def test_a_message_that_one_world_lacks_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    simulated, real = Kinds(requests={("/Data/Fetch", "FetchRequest")}), Kinds()
    assert codec_coverage.show_kinds(real, real)
    assert not codec_coverage.show_kinds(simulated, real)
    shown = capsys.readouterr().out
    assert ["/Data/Fetch", "FetchRequest", "yes", "no"] in [line.split() for line in shown.splitlines()]


@pytest.mark.slow
def test_a_scenario_goes_through_both_and_simulated_nodes_send_what_real_ones_send(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert codec_coverage.main(["leader-crash"]) == 0
    shown = capsys.readouterr().out
    row = next(line.split() for line in shown.splitlines() if line.startswith("leader-crash"))
    run, reachable = int(row[1]), int(row[3])
    assert reachable // 2 < run <= reachable
    assert "error" not in shown and "/replog.v1.Replica/Fetch" in shown
