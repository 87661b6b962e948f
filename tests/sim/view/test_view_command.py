"""`replog view` writes a page or says why not; a run that violates a rule has its page beside its trace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from replog.cli import main
from tests.sim.view.traces import event, write_trace

SCENARIO = """\
scenario: short
duration: 1s
topics:
  t: {partitions: 1, replicas: 1}
producers:
  - {topic: t, clients: 1, rate: 20/s, acks: all}
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "run.jsonl", [event(1, "broker-1", "start", life=1)])


def test_the_page_is_beside_the_trace(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(trace)]) == 0
    page = trace.with_name("run.html")
    assert capsys.readouterr().out == f"page: {page}\n"
    assert page.read_text().startswith("<!doctype html>")


def test_the_same_trace_is_the_same_page(trace: Path, tmp_path: Path) -> None:
    pages = [tmp_path / "a.html", tmp_path / "b.html"]
    for page in pages:
        assert main(["view", str(trace), "--out", str(page)]) == 0
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_a_page_asks_for_nothing_outside_of_it(trace: Path) -> None:
    main(["view", str(trace)])
    text = trace.with_name("run.html").read_text()
    assert "default-src 'none'" in text
    assert not re.search(r"(?:src|href)=|https?://|@import|url\(", text)


def test_text_of_a_trace_cannot_end_the_script_of_the_page(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    header = '{"format":"replog-trace-1","scenario":"' + evil + '","seed":1}'
    traces = [
        write_trace(tmp_path / name, [event(at, evil, "tell", what=evil)], header)
        for at, name in enumerate("ab")
    ]
    page = tmp_path / "page.html"
    assert main(["view", str(traces[0]), "--compare", str(traces[1]), "--out", str(page)]) == 0
    assert evil not in page.read_text()


@pytest.mark.parametrize(
    "content", ["", "no trace\n", '{"format":"replog-trace-1","scenario":"x","seed":1}\n{"at"']
)
def test_a_file_that_is_no_trace_leaves_no_page(
    tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(content)
    assert main(["view", str(path)]) == 2
    assert f"error: {path}:" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["run.jsonl"]


def test_the_page_must_not_replace_the_trace(trace: Path) -> None:
    before = trace.read_bytes()
    assert main(["view", str(trace), "--out", str(trace)]) == 2
    assert trace.read_bytes() == before


def test_a_window_must_not_end_before_it_begins(trace: Path) -> None:
    assert main(["view", str(trace), "--from", "2", "--until", "1"]) == 2


def test_a_run_writes_its_page_without_a_trace(tmp_path: Path) -> None:
    scenario = tmp_path / "short.yaml"
    scenario.write_text(SCENARIO)
    page = tmp_path / "page.html"
    assert main(["sim", "run", str(scenario), "--view", str(page)]) == 0
    assert "short, seed 0" in page.read_text()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["page.html", "short.yaml"]


def test_a_run_that_holds_writes_its_trace_alone(tmp_path: Path) -> None:
    scenario = tmp_path / "short.yaml"
    scenario.write_text(SCENARIO)
    assert main(["sim", "run", str(scenario), "--trace", str(tmp_path / "run.jsonl")]) == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["run.jsonl", "short.yaml"]


@pytest.mark.slow
def test_a_run_that_violates_a_rule_has_its_page_beside_its_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "run.jsonl"
    planted = ["--seed", "7", "--bug", "truncate-to-high-watermark", "--trace", str(trace)]
    assert main(["sim", "run", "leader-crash", *planted]) == 1
    assert capsys.readouterr().out.endswith(f"page: {tmp_path / 'run.html'}\n")
    assert "leader-crash, seed 7" in (tmp_path / "run.html").read_text()


def test_the_page_of_many_seeds_is_refused(tmp_path: Path) -> None:
    assert main(["sim", "run", "leader-crash", "--seeds", "0..2", "--view", str(tmp_path / "page.html")]) == 2
