"""Child processes of a measurement: orders to them and answers, one JSON value a line, and their CPU time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, final

STOP_TIMEOUT_S = 60.0
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@final
class Child:
    """A process that answers each line on its standard input with one line; it ends when the input closes."""

    def __init__(
        self, arguments: Sequence[str], *, env: Mapping[str, str] | None = None, stderr: IO[str] | None = None
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=env,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def read(self) -> Any:
        """Returns the next line that the process writes. Raises RuntimeError if it ends instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with {self._process.wait()}")
        return json.loads(line)

    def ask(self, **order: object) -> Any:
        """Writes an order, and returns the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        return self.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@final
class Nodes:
    """`replog up` with the code of a checkout; `with` waits until the cluster is ready, and stops it."""

    def __init__(self, data: Path, *, nodes: int = 3, env: Mapping[str, str] | None = None) -> None:
        self._data = data
        command = ["-m", "replog", "up", "--nodes", str(nodes), "--port", "0", "--data", str(data)]
        self._up = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, env=env)

    def __enter__(self) -> Self:
        assert self._up.stdout is not None
        line = self._up.stdout.readline()
        if not line.startswith(b"ready "):
            raise RuntimeError(f"the cluster is not ready: {line!r}, status {self._up.wait()}")
        self.bootstrap = line.split()[1].decode()
        self.node_pids = {path.parent.name: int(path.read_text()) for path in self._data.glob("*/pid")}
        self.pids = [self._up.pid, *self.node_pids.values()]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._up.send_signal(signal.SIGTERM)
        self._up.wait(STOP_TIMEOUT_S)


def code_of(tree: Path) -> dict[str, str]:
    """Returns the environment of a process that imports the packages of the checkout `tree`."""
    return {**os.environ, "PYTHONPATH": str(tree)}


def cpu_s(pids: Iterable[int]) -> float:
    """Returns the CPU time that the processes have used so far, in seconds, of the user and of the system."""
    ticks = 0
    for pid in pids:
        # The name of the process is in parentheses, and may hold spaces.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_A_SECOND


def resident_bytes(pids: Iterable[int]) -> int:
    """Returns the resident memory of the processes; a shared page counts once for each."""
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids) * _PAGE_BYTES
