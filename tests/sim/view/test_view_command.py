"""`replog view` writes a page or says why not; a run that violates a rule has its page beside its trace."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from replog.cli import main
from tests.sim.view.traces import event, leads, write_trace

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


def test_a_trace_of_whatever_name_beside_the_page_stays(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "run.html.part", [event(1, "broker-1", "start", life=1)])
    before = trace.read_bytes()
    assert main(["view", str(trace), "--out", str(tmp_path / "run.html")]) == 0
    assert trace.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["run.html", "run.html.part"]


def test_a_page_that_cannot_take_its_place_leaves_no_file(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: Path) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr("os.replace", refuse)
    assert main(["view", str(trace), "--out", str(tmp_path / "page.html")]) == 2
    assert [each.name for each in tmp_path.iterdir()] == ["run.jsonl"]


def test_a_page_replaces_no_pipe_but_goes_through_it(trace: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert main(["view", str(trace), "--out", str(pipe)]) == 0
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    reader.join(10)
    assert read[0].startswith(b"<!doctype html>")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["pipe", "run.jsonl"]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_page_goes_into_the_file_behind_a_link(trace: Path, tmp_path: Path, is_there: bool) -> None:
    folder, link = tmp_path / "folder", tmp_path / "page.html"
    folder.mkdir()
    target = folder / "target.html"
    if is_there:
        target.write_text("old")
        target.chmod(0o600)
    link.symlink_to(Path("folder") / "target.html")
    assert main(["view", str(trace), "--out", str(link)]) == 0
    assert link.is_symlink() and target.read_text().startswith("<!doctype html>")
    assert [each.name for each in folder.iterdir()] == ["target.html"]
    assert not is_there or stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_page_may_be_read_by_whom_the_umask_lets(trace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch()
    main(["view", str(trace)])
    assert trace.with_name("run.html").stat().st_mode == other.stat().st_mode


@pytest.mark.parametrize("out", [".", "/", "..", "nowhere/page.html"])
def test_a_page_that_can_be_no_file_is_refused_with_one_line(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], out: str
) -> None:
    monkeypatch.chdir(trace.parent)
    assert main(["view", trace.name, "--out", out]) == 2
    said = capsys.readouterr().err.splitlines()
    assert out in said[-1] and ".part" not in said[-1], said
    assert [each.name for each in trace.parent.iterdir()] == ["run.jsonl"]


@pytest.mark.parametrize("option", ["--from", "--until"])
@pytest.mark.parametrize("seconds", ["nan", "inf", "1e305"])
def test_a_time_that_is_no_number_of_seconds_is_refused(
    trace: Path, capsys: pytest.CaptureFixture[str], option: str, seconds: str
) -> None:
    assert main(["view", str(trace), option, seconds]) == 2
    assert f"{option}: {float(seconds):g} is no number of seconds" in capsys.readouterr().err


HUGE = "1" + 400 * "0"


@pytest.mark.parametrize(
    "line",
    [
        event(1, "broker-1", "tell", what="x").replace('"at":1', f'"at":{HUGE}'),
        leads(1, 1, 0).replace('"leader_epoch":0', '"leader_epoch":1e999'),
        event(1, "network", "lost", from_=1, to=2).replace('"to":2', '"to":1e999'),
        event(1, "controller", "controller.isr_changed", topic_partition="t-0", isr=5, partition_epoch=1),
    ],
)
def test_an_event_that_no_page_can_show_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    path = write_trace(tmp_path / "run.jsonl", [line])
    assert main(["view", str(path)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"error: {path}:2: ")


def test_text_that_is_no_unicode_is_escaped(tmp_path: Path) -> None:
    header = '{"format":"replog-trace-1","scenario":"\\ud800","seed":1}'
    ours = write_trace(tmp_path / "a", [event(1, "world", "tell", what="x")], header)
    theirs = write_trace(tmp_path / "b", [], header)
    theirs.write_bytes(theirs.read_bytes() + b'{"at":1,"node":"world","kind":"tell","what":"\xed\xa0\x80"}\n')
    page = tmp_path / "page.html"
    assert main(["view", str(ours), "--compare", str(theirs), "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert r"replog: \ud800, seed 1" in text and r"\\xed\\xa0\\x80" in text


def test_a_page_of_a_name_that_is_no_text_is_told(
    trace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(trace), "--out", str(tmp_path / "\udcff.html")]) == 0
    assert capfd.readouterr().out == f"page: {tmp_path}/\N{REPLACEMENT CHARACTER}.html\n"


def test_a_name_with_a_mark_of_the_template_stays_as_it_is(tmp_path: Path) -> None:
    header = '{"format":"replog-trace-1","scenario":"@SCRIPT@ @STYLE@","seed":1}'
    path = write_trace(tmp_path / "run.jsonl", [event(1, "broker-1", "start", life=1)], header)
    assert main(["view", str(path)]) == 0
    assert "<title>replog: @SCRIPT@ @STYLE@, seed 1</title>" in (tmp_path / "run.html").read_text()


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--trace x --history x", "--trace and --history are the same file"),
        ("--trace x --view ./x", "--trace and --view are the same file"),
        ("--history x --view sub/../x", "--history and --view are the same file"),
        ("--trace short.yaml", "SCENARIO and --trace are the same file"),
        ("--history short.yaml", "SCENARIO and --history are the same file"),
        ("--view short.yaml", "SCENARIO and --view are the same file"),
        ("--trace x.jsonl --history x.html", "--history and the page beside the trace are the same file"),
    ],
)
def test_no_two_files_of_a_run_are_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.yaml").write_text(SCENARIO)
    (tmp_path / "sub").mkdir()
    assert main(["sim", "run", "short.yaml", *options.split()]) == 2
    assert message in capsys.readouterr().err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["short.yaml", "sub"]
    assert (tmp_path / "short.yaml").read_text() == SCENARIO


def test_what_is_no_file_takes_both_trace_and_history(tmp_path: Path) -> None:
    scenario = tmp_path / "short.yaml"
    scenario.write_text(SCENARIO)
    assert main(["sim", "run", str(scenario), "--trace", "/dev/null", "--history", "/dev/null"]) == 0


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


needs_full_device = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="/dev/full is absent, a device of Linux that is always full"
)


def test_two_links_to_one_file_are_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.yaml").write_text(SCENARIO)
    os.link("short.yaml", "other")
    assert main(["sim", "run", "short.yaml", "--history", "other"]) == 2
    assert "SCENARIO and --history are the same file" in capsys.readouterr().err
    assert (tmp_path / "short.yaml").read_text() == SCENARIO


@needs_full_device
@pytest.mark.parametrize("option", ["--trace", "--history", "--view"])
def test_a_full_disk_is_said_with_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    scenario = tmp_path / "short.yaml"
    scenario.write_text(SCENARIO)
    assert main(["sim", "run", str(scenario), option, "/dev/full"]) == 2
    assert "No space left on device: '/dev/full'" in capsys.readouterr().err


@needs_full_device
def test_where_no_message_can_be_written_the_status_says_it() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "replog", "sim", "run", "absent.yaml"],
            stderr=full, stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    assert done.returncode == 2
