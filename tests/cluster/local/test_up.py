"""`replog up`: it gets ready, reports and ends. What it refuses leaves nothing."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from tests.cluster.local.real_cluster import (
    FAST_SESSIONS,
    HOST,
    Up,
    assert_all_end,
    free_port,
    is_running,
    replog,
    replog_process,
    running,
)


def refused(*arguments: str) -> str:
    """Run a command that must end with status 2. Returns its one line."""
    done = replog_process(*arguments)
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 2, (done.returncode, lines)
    assert done.stdout == b""
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_up_is_ready_serves_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    data = tmp_path / "new" / "data"
    with running(data, 1) as up:
        pids = up.pids()
        assert len(set(pids)) == 2
        assert all(is_running(pid) for pid in pids)
        assert json.loads((data / "cluster.json").read_text())["nodes"] == 1
        assert up.stop(number) == 0
        assert not any(is_running(pid) for pid in pids)
        assert list(data.rglob("pid")) == []
        assert not (data / "control.json").exists()
        assert up.complaints() == []


@pytest.mark.slow
def test_nodes_die_with_their_parent(tmp_path: Path) -> None:
    with running(tmp_path, 1) as up:
        pids = up.pids()
        up.stop(signal.SIGKILL)
        assert_all_end(pids, "nodes outlive a killed `up`")
        assert list(tmp_path.rglob("pid")) == []


def test_a_dead_node_is_reported_once_and_started_again_on_request_only(tmp_path: Path) -> None:
    with running(tmp_path, 1, *FAST_SESSIONS) as up:
        pid = up.pid(1)
        up.kill(1)
        up.assert_soon(
            lambda: not (tmp_path / "node-1" / "pid").exists(), "the pid file of a killed node stays"
        )
        listed = json.loads(replog("nodes", "list", "--data", str(tmp_path), "--json").stdout)["nodes"]
        assert [(node["node"], node["state"]) for node in listed] == [("controller", "ready"), (1, "dead")]
        started = replog("nodes", "start", "1", "--data", str(tmp_path))
        assert started.returncode == 0, started.stderr
        assert up.pid(1) != pid
        assert up.run("topics", "list").returncode == 0
        assert up.stop() == 0
        assert up.errors().count("node 1 died: killed by SIGKILL") == 1
        assert list(tmp_path.rglob("pid")) == []


@pytest.mark.slow
def test_after_a_killed_up_the_next_one_waits_until_its_nodes_have_left(tmp_path: Path) -> None:
    with running(tmp_path, 1) as first:
        pids = first.pids()
        first.stop(signal.SIGKILL)
        with running(tmp_path, 1, port=first.port) as second:
            assert not any(is_running(pid) for pid in pids)
            assert second.run("topics", "list").returncode == 0
            assert second.stop() == 0


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    port = free_port(2)
    data = tmp_path / "data"
    with socket.socket() as other:
        other.bind((HOST, port + 1))
        other.listen()
        line = refused("up", "--nodes", "2", "--port", str(port), "--data", str(data))
    assert line == f"error: port {port + 1} of {HOST} is in use by another process"
    assert not data.exists()


def test_a_data_directory_in_use_is_refused(tmp_path: Path) -> None:
    with running(tmp_path, 1) as up:
        line = refused("up", "--nodes", "1", "--port", str(free_port(1)), "--data", str(tmp_path))
        assert line == f"error: {tmp_path} is in use by another process"
        assert all(is_running(pid) for pid in up.pids())


@pytest.mark.slow
def test_a_log_directory_in_use_is_refused_and_started_nodes_are_stopped(tmp_path: Path) -> None:
    with running(tmp_path / "one", 1):
        second = tmp_path / "two"
        second.mkdir()
        (second / "node-1").symlink_to(tmp_path / "one" / "node-1")
        line = refused("up", "--nodes", "1", "--port", str(free_port(1)), "--data", str(second))
        assert line.startswith("error: node 1: ")
        assert not (second / "controller" / "pid").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("meta.properties", b"garbage\0\xff\n", "meta.properties line 1: not UTF-8 at byte 8"),
        ("meta.properties", b"", "meta.properties: broker.id is missing, which version 0 requires"),
        ("meta.properties", b"version=1\nnode.id=7\ncluster.id=x\n", "belongs to node 7, not to 1"),
        ("photos/beach.jpg", b"", "photos: expected TOPIC-PARTITION as the name of a partition directory"),
    ],
)
def test_a_directory_of_something_else_is_refused_and_left_as_it_was(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    path = tmp_path / "node-1" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    line = refused("up", "--nodes", "1", "--port", str(free_port(1)), "--data", str(tmp_path))
    assert line.startswith(f"error: node 1: {tmp_path}/node-1") and line.endswith(reason)
    assert path.read_bytes() == content


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = refused(
        "up", "--nodes", "1", "--port", str(free_port(1)), "--data", str(tmp_path / "file" / "data")
    )
    assert "cannot be made" in line


@pytest.mark.parametrize(
    "options, reason",
    [
        (("--nodes", "0"), "--nodes 0"),
        (("--port", "70000"), "port 70000"),
        (("--config", "no.such.property=1"), "unknown property"),
        (("--config", "broker.session.timeout.ms=soon"), "expected a number"),
        (("--config", "broker.session.timeout.ms"), "expected NAME=VALUE"),
        (("--port", "-1"), "port -1: must be 1 to 65535, or 0 for any that is free"),
        (("--detach", "--port", "70000"), "port 70000"),
    ],
)
def test_unusable_options_are_refused(tmp_path: Path, options: tuple[str, ...], reason: str) -> None:
    data = tmp_path / "data"
    assert reason in refused("up", "--data", str(data), *options)
    assert not data.exists()


@pytest.mark.parametrize("command", [("up",), ("down",), ("nodes", "list"), ("nodes", "kill", "1")])
def test_the_empty_text_is_no_data_directory(command: tuple[str, ...]) -> None:
    assert "a directory is expected, not an empty text" in refused(*command, "--data", "")


@pytest.mark.parametrize("name", ["9" * 5000, "x" * 5000])
def test_a_name_that_no_node_can_have_is_refused(tmp_path: Path, name: str) -> None:
    line = refused("nodes", "kill", name, "--data", str(tmp_path))
    assert line.endswith("…: expected 1, 2, … or controller") and len(line) < 100


def test_nodes_without_a_cluster_is_refused(tmp_path: Path) -> None:
    assert "no cluster is running" in refused("nodes", "list", "--data", str(tmp_path))


@pytest.mark.slow
def test_a_node_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with running(tmp_path, 1):
        assert "there is no node 7" in refused("nodes", "kill", "7", "--data", str(tmp_path))


@pytest.mark.slow
def test_a_signal_before_ready_ends_it_too(tmp_path: Path) -> None:
    up = Up(tmp_path, 1)
    up.assert_soon(lambda: (tmp_path / "controller").exists(), "the start begins")
    assert up.stop() == 0
    assert list(tmp_path.rglob("pid")) == []
    for stream in (up.process.stdout, up.process.stderr):
        assert stream is not None
        stream.close()
