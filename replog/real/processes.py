"""The processes of a run: each is killed, suspended, stopped and started again under its name."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, final

from cluster.core.config import BrokerConfig
from cluster.core.messages import CONTROLLER_ID
from cluster.local.layout import HOST
from cluster.local.python_path import python_path
from replog.real import launch
from sim.scenario.model import Scenario
from sim.scenario.settings import SETTINGS

# An orderly stop that takes longer than this ends with SIGKILL.
STOP_TIMEOUT_S = 20.0
# A line of a client: the records of one answer.
MAX_LINE_BYTES = 64 << 20


class Owner(Protocol):
    """The receiver of what a process says and of how it ends."""

    def on_line(self, process: Process, line: bytes) -> None:
        """Receives a line of the process's standard output."""

    def on_ended(self, process: Process, status: int) -> None:
        """Receives the end of a life, after its last line; `status` is negative after a signal."""


@final
class Process:
    """A node or client of the scenario, which has one life after the other. `output` takes its standard error."""

    def __init__(self, name: str, owner: Owner, output: Path, command: Callable[[], Sequence[str]]) -> None:
        """`command` returns the program and its arguments, at each start."""
        self.name, self.output = name, output
        self._owner, self._command = owner, command
        # The number of lives so far.
        self.starts = 0
        self.paused = False
        self._paused_s = 0.0
        # Whether the present life was asked to end, and whether by SIGKILL.
        self.is_asked = self.is_killed = False
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None
        # Held while a life begins: two starts at once begin one.
        self._starting = asyncio.Lock()

    @property
    def is_up(self) -> bool:
        """Whether the process runs. One that was sent SIGKILL does not, though its end may not be known yet."""
        return self._is_running and not self.is_killed

    @property
    def _is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        assert self._process is not None, self.name
        return self._process.pid

    async def start(self, *, after: int | None = None) -> bool:
        """Begin the next life, once the one before has ended. Returns whether one has begun.

        Nothing happens if the process runs or, with `after`, if it has had more lives than that.
        Raises OSError if no process can be made.
        """
        async with self._starting:
            if self.is_up or after not in (None, self.starts):
                return False
            await self.until_ended()
            assert not self._is_running, (self.name, self.starts)
            await self._begin()
        return True

    async def _begin(self) -> None:
        command = [sys.executable, "-S", launch.__file__, str(os.getpid()), *self._command()]
        with self.output.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                # The terminal's Ctrl-C reaches the run only, which ends all processes.
                start_new_session=True,
                limit=MAX_LINE_BYTES,
                env={"GRPC_VERBOSITY": "NONE", **os.environ, **python_path(os.environ)},
            )
        # A kill before this was of a process that had ended.
        self.paused = self.is_asked = self.is_killed = False
        self.starts += 1
        self._watcher = asyncio.get_running_loop().create_task(self._watch(self._process))

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            # What a process was killed in the midst of is no line.
            while (line := await process.stdout.readline()).endswith(b"\n"):
                self._owner.on_line(self, line)
        finally:
            status = await process.wait()
            if process.stdin is not None:
                process.stdin.close()
            self.paused = False
            self._owner.on_ended(self, status)

    def tell(self, line: bytes) -> None:
        """Write a line to the process, if it runs."""
        if self.is_up and self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(line + b"\n")

    def kill(self) -> None:
        """End the process as `kill -9` does; what it has written is in the page cache and stays."""
        self.is_asked = self.is_killed = True
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """Ask for an orderly end."""
        self.is_asked = True
        self._signal(signal.SIGTERM)

    def pause(self) -> None:
        """Suspend the process. One pause may begin within another: it stands still from the first one on."""
        if not self.paused:
            self._paused_s = asyncio.get_running_loop().time()
        self.paused = True
        self._signal(signal.SIGSTOP)

    def resume(self) -> int:
        """Let the process go on. Returns for how many microseconds it stood still."""
        stood_s = asyncio.get_running_loop().time() - self._paused_s if self.paused else 0.0
        self.paused = False
        self._signal(signal.SIGCONT)
        return round(1_000_000 * stood_s)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def until_ended(self) -> None:
        """Wait until the present life is over and all that it said was passed on."""
        if self._watcher is not None:
            await asyncio.shield(self._watcher)

    async def end(self) -> bool:
        """End the life in order, or by force after STOP_TIMEOUT_S. Returns whether it ended in order."""
        if not self.is_up:
            await self.until_ended()
            return True
        if self.paused:
            self.resume()
        self.stop()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self.until_ended()
        except TimeoutError:
            await self.end_at_once()
            return False
        return True

    async def end_at_once(self) -> None:
        """Kill the process and wait for its end, which no signal can put off; also one that is being started."""
        self.kill()
        async with self._starting:
            self.kill()
            await self.until_ended()
            assert not self._is_running, self.name


def node_command(
    scenario: Scenario, node_id: int, *, port: int, routes: Mapping[int, int], data: Path, name: str
) -> list[str]:
    """Returns the command of a broker, or of the controller (CONTROLLER_ID); `routes` has the port for each peer."""
    arguments = ["--lifeline", "--node-id", str(node_id), "--host", HOST, "--port", str(port)]
    if node_id != CONTROLLER_ID:
        arguments += ["--controller", f"{HOST}:{routes[CONTROLLER_ID]}"]
    arguments += ["--pid-file", str(data / f"{name}.pid")]
    for directory in node_directories(scenario, node_id, data, name):
        arguments += ["--directory", str(directory)]
    for peer, route in routes.items():
        arguments += ["--route", f"{peer}={HOST}:{route}"]
    for key, value in {**SETTINGS, **scenario.cluster.settings}.items():
        arguments += ["--property", f"{key}={_setting_text(key, value)}"]
    return [sys.executable, "-m", "cluster.local.node", *arguments]


def _setting_text(name: str, value: int) -> str:
    """Returns a setting as a node's command line has it; scenarios write those that are true or false as 1 or 0."""
    is_bool = isinstance(getattr(BrokerConfig(node_id=1), name.replace(".", "_"), None), bool)
    return str(bool(value)).lower() if is_bool else str(value)


def node_directories(scenario: Scenario, node_id: int, data: Path, name: str) -> list[Path]:
    """Returns the log directories of a broker, or the one of the controller."""
    count = 1 if node_id == CONTROLLER_ID else scenario.cluster.directories
    return [data / name / f"log-{number}" for number in range(1, count + 1)]
