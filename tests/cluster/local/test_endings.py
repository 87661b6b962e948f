"""How a process ended, in one line."""

from __future__ import annotations

import signal
from pathlib import Path

from cluster.local.endings import how_it_ended, last_line


def test_its_own_word_comes_before_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("the last line\n")
    assert how_it_ended(1, "the disk is full", log, 0) == "exit status 1: the disk is full"


def test_without_a_word_the_last_line_of_this_life_is_the_reason(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("an earlier life\nTraceback\nRuntimeError: a broken invariant\n\n")
    assert how_it_ended(1, "", log, 0) == "exit status 1: RuntimeError: a broken invariant"
    assert how_it_ended(1, "", log, log.stat().st_size) == "exit status 1"


def test_a_signal_is_named_and_needs_no_reason(tmp_path: Path) -> None:
    assert how_it_ended(-signal.SIGBUS, "", tmp_path, 0) == "killed by SIGBUS"
    assert how_it_ended(-signal.SIGRTMIN - 1, "", tmp_path, 0) == f"killed by signal {signal.SIGRTMIN + 1}"


def test_an_orderly_end_has_no_reason(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("INFO the node stops\n")
    assert how_it_ended(0, "", log, 0) == ""


def test_a_log_that_is_long_missing_or_no_text_does_not_matter(tmp_path: Path) -> None:
    assert last_line(tmp_path / "missing", 0) == ""
    log = tmp_path / "log"
    log.write_bytes(b"\xff" * 10_000 + b"x" * 1_000)
    assert len(last_line(log, 0)) == 300
