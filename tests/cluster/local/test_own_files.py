"""Whatever has the name of a file that the cluster keeps for itself: an answer at once, and never a traceback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.local.control import ControlServer
from cluster.local.endings import last_line
from cluster.local.layout import ClusterSpec, Control, UnusableInput, control_path, read_pid
from cluster.local.node import parse_arguments, pid_file, run_node
from cluster.local.report import Report
from cluster.local.supervisor import Supervisor
from cluster.local.up import prepared
from cluster.local.waits import ManyWaits

SPEC = ClusterSpec(data=Path("data"), nodes=1, port=0, controller_port=0)
KINDS: dict[str, Callable[[Path], object]] = {
    "FIFO": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "directory": lambda path: path.mkdir(),
    "loop of links": lambda path: path.symlink_to(path.name),
    "sparse giant": lambda path: sparse(path, 8 << 30),
}
DEEP = "[" * 100_000
TEXTS = ("", "[]", "5", "null", DEEP, "9" * 5000, "\x00")
PORTS = ("Infinity", "[]", '{"a": 1}', "null", '"x"', "-1", "65536", "1" * 400, "0")


def sparse(path: Path, size_bytes: int) -> None:
    with path.open("wb") as file:
        file.truncate(size_bytes)


@pytest.fixture(autouse=True)
def _ends_soon() -> Iterator[None]:
    """End a test that waits for ever by a signal."""

    def late(*_: object) -> None:
        raise TimeoutError("not done after 10 s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_control_file_of_any_kind_is_no_running_cluster(tmp_path: Path, kind: str) -> None:
    KINDS[kind](control_path(tmp_path))
    with pytest.raises(UnusableInput, match="no cluster is running"):
        Control.load(tmp_path)


@pytest.mark.parametrize(
    "text", [*TEXTS, *(f'{{"port": {port}, "token": "x"}}' for port in PORTS), '{"port": 1}']
)
def test_a_control_file_of_any_content_is_no_running_cluster(tmp_path: Path, text: str) -> None:
    control_path(tmp_path).write_text(text)
    with pytest.raises(UnusableInput, match="no cluster is running"):
        Control.load(tmp_path)


@pytest.mark.parametrize("kind", ["FIFO", "device", "loop of links"])
def test_a_control_file_takes_the_place_of_whatever_was_there(tmp_path: Path, kind: str) -> None:
    KINDS[kind](control_path(tmp_path))
    Control(port=7, token="t").save(tmp_path)
    assert Control.load(tmp_path) == Control(port=7, token="t")


def test_the_token_is_for_its_owner_alone_where_the_file_was_there_before(tmp_path: Path) -> None:
    control_path(tmp_path).touch(mode=0o644)
    Control(port=7, token="t").save(tmp_path)
    assert control_path(tmp_path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_id_of_any_kind_is_none(tmp_path: Path, kind: str) -> None:
    KINDS[kind](tmp_path / "pid")
    assert read_pid(tmp_path / "pid") is None


@pytest.mark.parametrize("text", [*TEXTS, "0", "-1", str(1 << 31), str(1 << 70)])
def test_only_a_number_that_a_process_may_have_is_a_process_id(tmp_path: Path, text: str) -> None:
    (tmp_path / "pid").write_text(text)
    assert read_pid(tmp_path / "pid") == (5 if text == "5" else None)


@pytest.mark.parametrize("kind", ["FIFO", "device", "directory", "loop of links"])
def test_a_process_id_is_written_to_a_regular_file_only(tmp_path: Path, kind: str) -> None:
    KINDS[kind](tmp_path / "pid")
    with pytest.raises(OSError, match="pid"), pid_file(tmp_path / "pid"):
        pytest.fail("it was written")


@pytest.mark.parametrize("node_id", ["1", "1000"])
def test_a_node_whose_process_id_cannot_be_written_ends_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], node_id: str
) -> None:
    os.mkfifo(tmp_path / "pid")
    arguments = parse_arguments(["--node-id", node_id, "--port", "0", "--directory", str(tmp_path)])
    assert asyncio.run(run_node(arguments)) == 2
    reason = f"{tmp_path}/pid: expected a regular file, found a FIFO"
    assert json.loads(capsys.readouterr().out) == {
        "event": "failed",
        "reason": reason,
        "is_unusable_input": True,
    }


@pytest.mark.parametrize("text", [*TEXTS, '{"log_dirs": 5}', '{"log_dirs": null}'])
def test_the_record_of_a_run_that_says_nothing_keeps_no_up_from_starting(tmp_path: Path, text: str) -> None:
    path, said = tmp_path / "cluster.json", list[str]()
    path.write_text(text)
    with prepared(replace(SPEC, data=tmp_path), said.append):
        assert json.loads(path.read_text())["nodes"] == 1
    assert said == [f"{path} is damaged: that --log-dirs keeps a directory of the last run is not checked"]


@pytest.mark.parametrize("kind", ["FIFO", "device", "directory", "loop of links"])
@pytest.mark.parametrize("name", ["cluster.json", "up.lock"])
def test_an_up_that_cannot_write_its_files_is_refused_by_name(tmp_path: Path, name: str, kind: str) -> None:
    KINDS[kind](tmp_path / name)
    with (
        pytest.raises(UnusableInput, match=str(tmp_path)) as refused,
        prepared(replace(SPEC, data=tmp_path), lambda line: None),
    ):
        pytest.fail("it went on")
    assert "\n" not in str(refused.value)


async def _start(supervisor: Supervisor) -> None:
    try:
        await supervisor.start(supervisor.controller)
    finally:
        await supervisor.stop_all()


@pytest.mark.parametrize("has_reader", [False, True])
def test_a_node_whose_output_cannot_be_written_is_not_started(tmp_path: Path, has_reader: bool) -> None:
    os.mkfifo(tmp_path / "controller.txt")
    reader = os.open(tmp_path / "controller.txt", os.O_RDONLY | os.O_NONBLOCK) if has_reader else None
    supervisor = Supervisor(replace(SPEC, data=tmp_path), lambda line: None)
    with pytest.raises(OSError, match=r"regular file.*controller\.txt"):
        asyncio.run(_start(supervisor))
    if reader is not None:
        os.close(reader)
    assert last_line(tmp_path / "controller.txt", 0) == ""


def test_an_up_in_the_background_needs_a_log_that_can_be_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "up.txt")
    report = Report(log=tmp_path / "up.txt")
    with pytest.raises(OSError, match=r"up\.txt"):
        report.ready(Supervisor(replace(SPEC, data=tmp_path, port=9), lambda line: None))


@pytest.mark.parametrize("asked", [DEEP[:60_000], "[]", "5", '{"token": 5}', '{"token": "\\ud800"}', "\x00"])
def test_who_asks_nonsense_gets_no_answer_and_ends_nothing(tmp_path: Path, asked: str) -> None:
    async def ask() -> bytes:
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        supervisor = Supervisor(replace(SPEC, data=tmp_path), lambda line: None)
        server = ControlServer(supervisor, asyncio.Event(), ManyWaits())
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", Control.load(tmp_path).port)
        writer.write(asked.encode() + b"\n")
        answer = await reader.read()
        writer.close()
        await server.finish()
        await asyncio.sleep(0)
        assert not faults, faults
        return answer

    assert asyncio.run(ask()) == b""
