"""What `replog up -d` reads of the process that it starts; the process is a script."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from cluster.local.detached import NotReady, ready_of, start_detached
from cluster.local.layout import ClusterSpec

READY = '{"event": "ready", "nodes": []}'


def runs_instead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> ClusterSpec:
    """Let a shell script run in the place of `up`. Return a cluster to start."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return ClusterSpec(data=tmp_path, nodes=1, port=1, controller_port=2)


def test_lines_that_are_no_objects_before_the_ready_line_are_skipped() -> None:
    """A module of the user's, or a sitecustomize, prints as it is imported."""
    lines = [b"this is a file of the user\n", b"\xff\n", b"\n", b"7\n", b"{}\n", READY.encode() + b"\n"]
    assert ready_of(lines) == {"event": "ready", "nodes": []}


def test_an_up_that_ends_before_it_is_ready_has_said_no_ready_line() -> None:
    assert ready_of([]) is None
    assert ready_of([b"a line\n", b'{"event": "ended"}\n']) is None


def test_an_up_in_the_background_does_not_import_from_the_current_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It says here how it was started, and ends at once."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    spec = runs_instead(monkeypatch, tmp_path, 'echo hello\necho "safe: $PYTHONSAFEPATH" >&2\nexit 2')
    with pytest.raises(NotReady, match=r"^safe: 1$") as raised:
        start_detached(spec)
    assert raised.value.status == 2


def test_an_up_whose_words_cannot_be_read_is_not_left_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(lines: Iterable[bytes]) -> None:
        next(iter(lines))
        raise MemoryError

    monkeypatch.setattr("cluster.local.detached.ready_of", broken)
    spec = runs_instead(monkeypatch, tmp_path, f"echo $$ > {tmp_path}/pid\necho '{READY}'\nexec sleep 60")
    with pytest.raises(MemoryError):
        start_detached(spec)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
