"""`replog up`: checks its arguments, starts the cluster, reports when it is ready, and stops it when told to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from cluster.local.control import ControlServer
from cluster.local.layout import HOST, ClusterSpec, UnusableInput, read_pid
from cluster.local.report import Report
from cluster.local.supervisor import STOP_TIMEOUT_S, StartFailed, Supervisor
from cluster.local.waits import ManyWaits, Say, Waits
from cluster.shell.server import PortInUse, check_port_free
from storage.disk.os_filesystem import OsFileSystem

HELD, VIOLATED, UNUSABLE, OUT_OF_TIME = 0, 1, 2, 3
_LOOK_S = 0.1


@contextlib.contextmanager
def prepared(spec: ClusterSpec, say: Say) -> Iterator[ClusterSpec]:
    """Holds the lock of the data directory during the block, and yields `spec` with a port for each node.

    `say` is told what is waited for. Raises UnusableInput, having started nothing.
    """
    _until_left(spec, say)
    for port in filter(None, spec.ports):
        try:
            check_port_free(HOST, port)
        except (PortInUse, OSError) as error:
            raise UnusableInput(str(error)) from error
    made = _make_directories(spec.data)
    path = spec.data / "up.lock"
    try:
        lock = OsFileSystem().lock(str(path))
    except BlockingIOError as error:
        raise UnusableInput(f"{spec.data} is in use by another process") from error
    except OSError as error:
        _remove_directories(made)
        raise UnusableInput(f"{spec.data} is not writable: {error.strerror}") from error
    try:
        spec.check_knows_logs(say)
        spec = spec.with_free_ports(free_ports)
        spec.save()
        yield spec
    except OSError as error:
        raise UnusableInput(f"{error.filename or spec.data}: {error.strerror}") from error
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def free_ports(count: int) -> list[int]:
    """Returns ports that are free now, each another one. The system does not choose them again at once."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]


def _until_left(spec: ClusterSpec, say: Say, timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Waits while the nodes of an `up` that was killed still run: they stop by themselves within seconds."""
    deadline_s = time.monotonic() + timeout_s
    has_said = False
    while _is_abandoned(spec.data / "up.lock") and time.monotonic() < deadline_s:
        if not any(_is_alive(path) for pattern in ("*/pid", "*.pid") for path in spec.data.glob(pattern)):
            return
        if not has_said:
            say("waiting for the nodes of an earlier `replog up`, which was killed, to stop")
            has_said = True
        time.sleep(_LOOK_S)


def _is_abandoned(lock_path: Path) -> bool:
    """Whether an `up` was killed: it has left its lock file and does not hold the lock. An orderly end deletes it."""
    if not lock_path.exists():
        return False
    try:
        OsFileSystem().lock(str(lock_path)).release()
    except OSError:
        # The lock is held or cannot be opened; taking it will fail with the reason.
        return False
    return True


def _is_alive(pid_path: Path) -> bool:
    pid = read_pid(pid_path)
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _make_directories(path: Path) -> list[Path]:
    """Makes `path` and its parents; returns those that were missing, innermost first. Raises UnusableInput."""
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _remove_directories(missing)
        raise UnusableInput(f"the directory {path} cannot be made: {error.strerror}") from error
    return missing


def _remove_directories(directories: list[Path]) -> None:
    for directory in directories:
        with contextlib.suppress(OSError):
            directory.rmdir()


async def run_up(spec: ClusterSpec, report: Report) -> int:
    """Runs the cluster until SIGINT, SIGTERM, SIGHUP or `replog down`; returns the exit status.

    A second signal kills all nodes.
    """
    supervisor = Supervisor(spec, report.say)
    stop = asyncio.Event()
    ending = ManyWaits()
    ending.join(Waits(report.say, report.patience_s))
    control = ControlServer(supervisor, stop, ending)
    status = HELD
    with _signals(stop, supervisor):
        try:
            await control.start()
            await _serve(supervisor, report, stop)
        except (StartFailed, TimeoutError) as error:
            report.say(f"error: {error}")
            status = _status_of(error)
        finally:
            stop.set()
            if report.is_terminal and any(node.is_alive for node in supervisor.nodes):
                report.say("stopping the cluster; Ctrl-C kills all nodes at once")
            await supervisor.stop_all(ending)
            await control.finish()
    report.ended(supervisor)
    return status


def _status_of(error: StartFailed | TimeoutError) -> int:
    if isinstance(error, TimeoutError):
        return OUT_OF_TIME
    return UNUSABLE if error.is_unusable_input else VIOLATED


@contextlib.contextmanager
def _signals(stop: asyncio.Event, supervisor: Supervisor) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    kills: list[asyncio.Task[None]] = []

    def on_signal() -> None:
        if stop.is_set():
            kills.append(loop.create_task(supervisor.kill_all()))
        stop.set()

    # What our caller has told us to ignore stays so: `nohup` outlives its terminal.
    every = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    caught = [each for each in every if signal.getsignal(each) is not signal.SIG_IGN]
    for number in caught:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)


async def _serve(supervisor: Supervisor, report: Report, stop: asyncio.Event) -> None:
    """Starts the nodes and reports when they serve; returns once `stop` is set. Raises StartFailed, TimeoutError."""
    loop = asyncio.get_running_loop()
    stopping = loop.create_task(stop.wait())
    starting = loop.create_task(supervisor.start_all())
    try:
        await asyncio.wait({stopping, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and not stop.is_set():
            starting.result()
            await _until_stopped(supervisor, report, stopping)
    finally:
        for task in (starting, stopping):
            task.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)


async def _until_stopped(supervisor: Supervisor, report: Report, stopping: asyncio.Task[bool]) -> None:
    table = None
    try:
        if report.shows_table:
            # gRPC's client is loaded only where a table is shown.
            from cluster.local.table import LiveTable

            table = asyncio.get_running_loop().create_task(LiveTable(supervisor, report.console).run())
        else:
            report.ready(supervisor)
        await stopping
    finally:
        if table is not None:
            table.cancel()
            await asyncio.gather(table, return_exceptions=True)
