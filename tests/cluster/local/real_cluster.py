"""`replog up` as a child process, for tests against real nodes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from replog.cli import main

HOST = "127.0.0.1"
DEADLINE_S = 60.0
# The pause between two looks of a test that waits.
LOOK_S = 0.02
REPLOG = [sys.executable, "-m", "replog"]
# Kafka's session timeout is 9 s. Tests that wait until a node's death is noticed use a shorter one.
FAST_SESSIONS = ("--config", "broker.session.timeout.ms=2000", "--config", "broker.heartbeat.interval.ms=300")
ROOT = Path(__file__).resolve().parents[3]


# Blocks of ports that this process has reserved, each by a name that no other process can bind meanwhile.
_RESERVED: dict[int, socket.socket] = {}
_BLOCK = 20
# A process that has this many uses the oldest again: its cluster has ended.
_MOST_RESERVED = 30


def free_port(nodes: int) -> int:
    """Return a port that is free, together with the next ones and the controller's, which is 1000 higher.

    The ports stay ours until this process ends. Other test runs on the machine reserve theirs in the same way, and an
    outgoing connection never gets a port below the system's range for those: between this look and the moment when a
    node listens, seconds pass on a busy machine, and a port that was only looked at may be taken.
    """
    least_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    # Nodes have the ports of even thousands, controllers those of odd ones.
    bases = [base for base in range(10_000, least_ephemeral - 1000 - _BLOCK, _BLOCK) if base // 1000 % 2 == 0]
    start = os.getpid() % len(bases)
    own = list(_RESERVED) if len(_RESERVED) >= _MOST_RESERVED else []
    for base in own + bases[start:] + bases[:start]:
        is_ours = base in own or _reserve(base)
        if is_ours and _are_free([*range(base, base + nodes), base + 1000]):
            # The most recently used one is the last.
            _RESERVED[base] = _RESERVED.pop(base)
            return base
    raise AssertionError("no free ports")


def _reserve(base: int) -> bool:
    """Reserve a block for as long as this process lives. Returns False if somebody has it, an earlier test too."""
    if base in _RESERVED:
        return False
    name = socket.socket(socket.AF_UNIX)
    try:
        # A name in Linux's abstract namespace: no file is left.
        name.bind(f"\0replog-test-ports-{base}")
    except OSError:
        name.close()
        return False
    _RESERVED[base] = name
    return True


def _are_free(ports: Iterable[int]) -> bool:
    with contextlib.ExitStack() as held, contextlib.suppress(OSError):
        for port in ports:
            held.enter_context(socket.socket()).bind((HOST, port))
        return True
    return False


def replog(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the command inside this process, with standard streams of its own. A new process takes most of a second."""
    streams = sys.stdin, sys.stdout, sys.stderr
    stdin, stdout, stderr = (io.TextIOWrapper(io.BytesIO(data)) for data in (given, b"", b""))
    sys.stdin, sys.stdout, sys.stderr = stdin, stdout, stderr
    try:
        status = main(arguments)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
    stdout.flush()
    stderr.flush()
    told, complained = stdout.buffer, stderr.buffer
    assert isinstance(told, io.BytesIO) and isinstance(complained, io.BytesIO)
    return subprocess.CompletedProcess(arguments, status, told.getvalue(), complained.getvalue())


def replog_process(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*REPLOG, *arguments], input=given, capture_output=True, timeout=DEADLINE_S, cwd=ROOT, check=False
    )


def _is_over(pid: int, within_s: float) -> bool:
    """Wait until a process has ended, our child or not. Returns False if it has not after `within_s`."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], max(within_s, 0))[0])
    finally:
        os.close(handle)


def assert_all_end(pids: Iterable[int], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    for pid in pids:
        assert _is_over(pid, deadline - time.monotonic()), what


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


class Up:
    """A running `replog up`."""

    def __init__(
        self,
        data: Path,
        nodes: int,
        *options: str,
        port: int | None = None,
        command: Sequence[str] = tuple(REPLOG),
    ) -> None:
        self.data, self.nodes, self.port = data, nodes, port or free_port(nodes)
        self.bootstrap = f"{HOST}:{self.port}"
        # One of them may be dead.
        self.bootstrap_servers = ",".join(f"{HOST}:{self.port + index}" for index in range(nodes))
        arguments = ["up", "--nodes", str(nodes), "--port", str(self.port), "--data", str(data), *options]
        self.process = subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
        )

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode().strip()
        assert line == f"ready {self.bootstrap}", (line, self.stop(), self.errors())

    def assert_soon(self, condition: Callable[[], bool], what: str) -> None:
        """Ask until the condition holds. Fails at the deadline, or when this `up` ends."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert not _is_over(self.process.pid, LOOK_S), f"{what}: `up` has ended"
            assert time.monotonic() < deadline, what

    def pid(self, node: int | str) -> int:
        directory = "controller" if node == "controller" else f"node-{node}"
        return int((self.data / directory / "pid").read_text())

    def pids(self) -> list[int]:
        return [self.pid("controller"), *(self.pid(node) for node in range(1, self.nodes + 1))]

    def kill(self, node: int | str) -> None:
        os.kill(self.pid(node), signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def complaints(self) -> list[str]:
        """Return the lines of standard error but for those that say what a slow machine waited for."""
        return [line for line in self.errors().splitlines() if not line.startswith("waiting for ")]

    def run(self, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return replog(*arguments, "--bootstrap-server", self.bootstrap_servers, given=given)

    def describe(self, topic: str) -> list[dict[str, object]]:
        done = self.run("topics", "describe", topic, "--json")
        assert done.returncode == 0, done.stderr
        partitions: list[dict[str, object]] = json.loads(done.stdout)["partitions"]
        return partitions


@contextlib.contextmanager
def running(
    data: Path,
    nodes: int,
    *options: str,
    port: int | None = None,
    command: Sequence[str] = tuple(REPLOG),
) -> Iterator[Up]:
    """Run `replog up`, the one that `command` starts, until the end of the block. Yields it once it is ready."""
    up = Up(data, nodes, *options, port=port, command=command)
    try:
        up.wait_ready()
        yield up
    finally:
        if up.process.poll() is None:
            up.stop()
        for stream in (up.process.stdout, up.process.stderr):
            if stream is not None:
                stream.close()
