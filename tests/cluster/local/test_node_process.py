"""A node's process that cannot start: it writes one line for its parent, and says whose fault it is."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from cluster.local.node import parse_arguments, run_node
from cluster.shell.server import NodeServer
from storage.batch import Record, build_batch


def test_routes_are_pairs_of_a_node_and_an_address() -> None:
    given = [
        "--node-id",
        "1",
        "--port",
        "1",
        "--directory",
        "d",
        "--route",
        "2=10.0.0.1:5",
        "--route",
        "0=[::1]:7",
    ]
    assert parse_arguments(given).routes == ((2, ("10.0.0.1", 5)), (0, ("[::1]", 7)))


@pytest.mark.parametrize("node_id", ["0", "1"])
def test_a_directory_that_cannot_be_made_is_unusable_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], node_id: str
) -> None:
    (tmp_path / "file").touch()
    directory = tmp_path / "file" / "node-1"
    arguments = parse_arguments(["--node-id", node_id, "--port", "1", "--directory", str(directory)])
    assert asyncio.run(run_node(arguments)) == 2
    assert json.loads(capsys.readouterr().out) == {
        "event": "failed",
        "reason": f"{directory}: Not a directory",
        "is_unusable_input": True,
    }


def test_ll1_a_broker_whose_only_directory_cannot_be_read_ends_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    unreadable = tmp_path / "meta.properties"
    unreadable.mkdir()
    arguments = parse_arguments(["--node-id", "1", "--port", "0", "--directory", str(tmp_path)])
    assert asyncio.run(run_node(arguments)) == 2
    reason = f"{tmp_path}: read failed: {unreadable}: Is a directory"
    assert json.loads(capsys.readouterr().out)["reason"] == reason
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert record.getMessage() == f"the node could not start: reason={reason}" and not record.exc_info


@pytest.mark.parametrize("value", [b"no JSON", b"{}", b"\xff"])
def test_a_node_that_is_refused_for_damaged_content_ends_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, value: bytes
) -> None:
    log = tmp_path / "__cluster_metadata-0"
    log.mkdir()
    batch = build_batch([Record(0, 1, None, value)], partition_leader_epoch=0)
    (log / f"{0:020d}.log").write_bytes(batch)
    arguments = parse_arguments(["--node-id", "1000", "--port", "0", "--directory", str(tmp_path)])
    assert asyncio.run(run_node(arguments)) == 2
    failed = json.loads(capsys.readouterr().out)
    assert failed["is_unusable_input"] and "offset 0" in failed["reason"], failed
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert record.getMessage() == f"the node could not start: reason={failed['reason']}"
    assert not record.exc_info and "\n" not in failed["reason"]


def test_sto3_a_node_that_is_told_to_stop_before_it_has_begun_keeps_the_mark_of_a_clean_stop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = NodeServer.start

    async def told_to_stop(server: NodeServer, host: str, port: int) -> int:
        bound = await begin(server, host, port)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)
        return bound

    monkeypatch.setattr(NodeServer, "start", told_to_stop)
    mark = tmp_path / ".kafka_cleanshutdown"
    mark.write_bytes(b"")
    arguments = parse_arguments(["--node-id", "1", "--port", "0", "--directory", str(tmp_path)])
    assert asyncio.run(run_node(arguments)) == 0
    assert json.loads(capsys.readouterr().out) == {"event": "stopped", "reason": "shutdown"}
    assert mark.exists()
