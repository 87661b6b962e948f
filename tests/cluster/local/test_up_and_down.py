"""`replog up -d` and `replog down`, free ports, what a stop waits for, and why a node ended."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.local.real_cluster import (
    DEADLINE_S,
    FAST_SESSIONS,
    REPLOG,
    ROOT,
    Up,
    is_running,
    replog,
    replog_process,
    running,
)

FULL_BYTES = 24 << 20


def started(data: Path, *options: str) -> dict[str, Any]:
    """Start a cluster of one node in the background on free ports. Return what the command said."""
    done = replog_process("up", "-d", "--nodes", "1", "--port", "0", "--data", str(data), "--json", *options)
    assert done.returncode == 0, done.stderr
    ready: dict[str, Any] = json.loads(done.stdout)
    return ready


def ended(data: Path) -> dict[str, Any]:
    done = replog("down", "--data", str(data), "--json")
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def nodes_of(data: Path) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(replog("nodes", "list", "--data", str(data), "--json").stdout)[
        "nodes"
    ]
    return listed


def test_a_detached_cluster_serves_until_down_and_then_all_have_ended(tmp_path: Path) -> None:
    ready = started(tmp_path)
    try:
        pids = [ready["pid"], *(node["pid"] for node in ready["nodes"])]
        assert all(is_running(pid) for pid in pids)
        listed = replog("topics", "list", "--bootstrap-server", ready["bootstrap_server"])
        assert listed.returncode == 0, listed.stderr
        addresses = [node["address"] for node in nodes_of(tmp_path)]
        assert len(set(addresses)) == 2 and addresses[1] == ready["bootstrap_server"]
    finally:
        outcome = ended(tmp_path)
    assert [node["state"] for node in outcome["nodes"]] == ["stopped", "stopped"]
    assert not any(is_running(pid) for pid in pids[1:])
    assert not (tmp_path / "up.lock").exists() and not (tmp_path / "control.json").exists()
    log = Path(ready["log"]).read_text().splitlines()
    assert log[0].endswith(f" ready {ready['bootstrap_server']}") and log[-1].endswith(" ended")


def test_down_where_no_cluster_runs_is_refused(tmp_path: Path) -> None:
    done = replog("down", "--data", str(tmp_path))
    assert (done.returncode, done.stderr.decode()) == (2, f"error: no cluster is running on {tmp_path}\n")


@pytest.mark.slow
def test_a_detached_cluster_that_cannot_start_says_why_with_its_status(tmp_path: Path) -> None:
    directory = tmp_path / "node-1"
    directory.mkdir()
    (directory / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=x\n")
    done = replog_process("up", "-d", "--nodes", "1", "--port", "0", "--data", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().startswith("error: node 1: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_down_after_a_killed_up_says_that_it_was_killed(tmp_path: Path) -> None:
    with running(tmp_path, 1) as up:
        up.stop(signal.SIGKILL)
        done = replog("down", "--data", str(tmp_path))
        wanted = (
            f"error: no cluster is running on {tmp_path}: its `replog up` was killed, and its nodes stop "
        )
        assert (done.returncode, done.stderr.decode()) == (2, wanted + "by themselves\n")


@pytest.mark.slow
def test_a_cluster_that_is_still_starting_can_be_listed_and_ended(tmp_path: Path) -> None:
    up = Up(tmp_path, 1)
    up.assert_soon(lambda: (tmp_path / "control.json").exists(), "no command is taken")
    assert {node["state"] for node in nodes_of(tmp_path)} <= {"starting", "ready", "stopped"}
    ended(tmp_path)
    assert up.process.wait(DEADLINE_S) == 0
    for stream in (up.process.stdout, up.process.stderr):
        assert stream is not None
        stream.close()


@pytest.mark.slow
def test_down_ends_a_cluster_in_the_foreground_too(tmp_path: Path) -> None:
    with running(tmp_path, 1) as up:
        ended(tmp_path)
        assert up.process.wait(DEADLINE_S) == 0
        assert up.complaints() == []


@pytest.mark.slow
def test_an_up_that_prints_json_says_when_it_is_ready_and_how_it_ended(tmp_path: Path) -> None:
    command = [*REPLOG, "up", "--nodes", "1", "--port", "0", "--data", str(tmp_path), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["event"] == "ready" and ready["nodes"][1]["address"] == ready["bootstrap_server"]
        process.send_signal(signal.SIGINT)
        last = json.loads(process.stdout.readline())
        assert (last["event"], last["killed"]) == ("ended", [])
        assert process.wait(DEADLINE_S) == 0


@pytest.mark.slow
def test_a_node_that_does_not_stop_is_waited_for_aloud_and_killed(tmp_path: Path) -> None:
    ready = started(tmp_path)
    pid = ready["nodes"][1]["pid"]
    os.kill(pid, signal.SIGSTOP)
    done = replog_process("down", "--data", str(tmp_path))
    waits, *_, refused = done.stderr.decode().splitlines()
    assert waits == (
        f"waiting for node 1 (process {pid}), which hands over its leaderships and closes its logs; "
        "it is killed after 15 s"
    )
    assert (done.returncode, refused) == (1, "error: did not stop in order and was killed: node 1")
    assert not is_running(pid)


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[Path]:
    """Mount a disk of FULL_BYTES during the block. Skips the test where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    path.mkdir()
    if libc.mount(b"tmpfs", bytes(path), b"tmpfs", 0, b"size=%d" % FULL_BYTES) != 0:
        pytest.skip(f"a small disk cannot be mounted: {os.strerror(ctypes.get_errno())}")
    try:
        yield path
    finally:
        # At once for new files, for open ones when they are closed.
        libc.umount2(bytes(path), 2)


@pytest.mark.slow
def test_a_node_that_ends_because_its_disk_is_full_says_so_in_the_table(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, running(disk / "data", 1, *FAST_SESSIONS) as up:
        assert up.run("topics", "create", "t").returncode == 0
        (disk / "fill").write_bytes(bytes(FULL_BYTES // 2))
        give_up = (
            "--producer-property",
            "delivery.timeout.ms=2000",
            "--producer-property",
            "request.timeout.ms=1000",
        )
        line = b"%d\n" % 7 * 50_000
        up.run(
            "produce",
            "t",
            *give_up,
            "--producer-property",
            "linger.ms=0",
            given=(b"x" * 1000 + b"\n") * 16_000 + line,
        )
        up.assert_soon(lambda: nodes_of(up.data)[1]["state"] == "dead", "the node survives a full disk")
        reason = nodes_of(up.data)[1]["reason"]
        assert reason.startswith("exit status 1: ") and "No space left on device" in reason


def test_a_start_that_the_disk_refuses_is_an_answer(tmp_path: Path) -> None:
    with running(tmp_path, 1, *FAST_SESSIONS) as up:
        assert replog("nodes", "stop", "1", "--data", str(tmp_path)).returncode == 0
        log = tmp_path / "node-1.txt"
        log.unlink()
        log.mkdir()
        refused = replog("nodes", "start", "1", "--data", str(tmp_path))
        assert (refused.returncode, refused.stderr.decode()) == (1, f"error: node 1: {log}: Is a directory\n")
        assert up.process.poll() is None


@pytest.mark.slow
def test_a_second_interruption_prints_no_traceback(tmp_path: Path) -> None:
    up = Up(tmp_path, 1)
    up.wait_ready()
    up.process.send_signal(signal.SIGINT)
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(DEADLINE_S) in (0, 3)
    assert "Traceback" not in up.errors()
    for stream in (up.process.stdout, up.process.stderr):
        assert stream is not None
        stream.close()
