"""The process of one node: `python -m cluster.local.node --node-id 1 --port 19092 --directory DIR/node-1 …`.

It prints one JSON object per line: `ready` once it serves, `log_directory_offline` with the reason for each directory
that fails, `failed` with the reason, `stopped`. It stops in order on SIGTERM, on SIGINT and, with `--lifeline`, when
its standard input closes. The exit status is 0 after an orderly stop, 2 for unusable input, 1 after any other failure.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, final

from cluster.core.config import BrokerConfig
from cluster.core.controller.config import ControllerConfig
from cluster.core.effects import Effect, Observe
from cluster.core.messages import CONTROLLER_ID
from cluster.local.layout import UnusableInput
from cluster.local.own_files import write_own
from cluster.local.properties import configured
from cluster.local.start_recovery import recover_before_start
from cluster.local.tuning import ShortCollections, keep_freed_memory, loop_factory
from cluster.shell.runtime import Core, Runtime, log_observation, unlogged_observations
from cluster.shell.server import BROKER_SERVICES, CONTROLLER_SERVICES, NodeServer, PortInUse
from storage.directory.directories import is_disk_error
from storage.disk.checkpoints import MetaPropertiesFile
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from storage.errors import (
    CorruptCheckpoint,
    DirectoryInUse,
    ForeignDirectory,
    NoLogDirectory,
    StorageError,
    reason_of,
)
from storage.recovery.cut import RecoveryCut

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S = 12.0
CONTROLLER_GRACE_S = 3.0
# A roll, which opens several files, finishes when connections have taken all other descriptors.
SPARE_DESCRIPTORS = 8
_SERVES = {"broker.unfenced": True, "broker.fenced": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The parsed command line of a node."""

    node_id: int
    host: str
    port: int
    directories: tuple[Path, ...]
    pid_path: Path
    controller: tuple[str, int]
    properties: tuple[tuple[str, str], ...]
    has_lifeline: bool
    # Pairs of a node id and the address to connect to, whatever address that node is registered under.
    routes: tuple[tuple[int, tuple[str, int]], ...] = ()

    @property
    def is_controller(self) -> bool:
        return self.node_id == CONTROLLER_ID


def parse_arguments(arguments: list[str] | None = None) -> Arguments:
    """Parses a command line (None: that of this process); on a mistake argparse exits with status 2."""
    parser = argparse.ArgumentParser(prog="python -m cluster.local.node", description="Run one node.")
    parser.add_argument(
        "--node-id", type=int, required=True, help=f"number of the node; {CONTROLLER_ID} is the controller"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument(
        "--directory",
        type=Path,
        required=True,
        action="append",
        help="log directory; a broker may have several",
    )
    parser.add_argument(
        "--pid-file", type=Path, help="file for the process id (default: `pid` in the directory)"
    )
    parser.add_argument("--controller", default="127.0.0.1:20092", metavar="HOST:PORT")
    parser.add_argument("--property", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--lifeline", action="store_true", help="stop when standard input closes")
    parser.add_argument(
        "--route",
        action="append",
        default=[],
        metavar="NODE=HOST:PORT",
        help="connect to this node at this address, such as a proxy's",
    )
    given = parser.parse_args(arguments)
    return Arguments(
        node_id=given.node_id,
        host=given.host,
        port=given.port,
        directories=tuple(given.directory),
        pid_path=given.pid_file or given.directory[0] / "pid",
        controller=_address(given.controller),
        properties=tuple(
            (name, value) for name, _, value in (item.partition("=") for item in given.property)
        ),
        has_lifeline=given.lifeline,
        routes=tuple(
            (int(node_id), _address(address))
            for node_id, _, address in (item.partition("=") for item in given.route)
        ),
    )


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


class NodeCore(Core, Protocol):
    """A core that loads its state before its first step."""

    def start(self, now_ms: int) -> Sequence[Effect]: ...


def make_core(arguments: Arguments) -> NodeCore:
    """Makes the controller or a broker, whose logs are recovered first. Raises UnusableInput.

    The imports are here so that a process loads only the modules of its role.
    """
    file_system = OsFileSystem(spare_descriptors=SPARE_DESCRIPTORS)
    directories = [str(path) for path in arguments.directories]
    draws = Draws(int.from_bytes(os.urandom(8), "big"))
    if arguments.is_controller:
        from cluster.core.controller.controller import Controller

        settings = ControllerConfig(host=arguments.host, port=arguments.port)
        return Controller(configured(settings, arguments.properties), file_system, directories[0], draws)
    from cluster.core.broker.broker import Broker

    given = BrokerConfig(node_id=arguments.node_id, host=arguments.host, port=arguments.port)
    config = configured(given, arguments.properties)
    recovered: set[str] = set()
    for directory in directories:
        recovered |= recover_own(config, file_system, directory)
    broker = Broker(config, file_system, directories, draws, recovered=recovered)
    broker.hide_observations(unlogged_observations())
    return broker


def recover_own(config: BrokerConfig, file_system: OsFileSystem, directory: str) -> frozenset[str]:
    """Recovers a log directory of this node after a crash, on all processors if it holds much.

    Returns the directories of the logs that need no recovery any more. Does nothing if the directory belongs to another
    node (the core will refuse it) or if its disk fails (the core starts without it).
    """
    try:
        owner = MetaPropertiesFile(file_system, directory).read()
        if owner is not None and owner.node_id == config.node_id:
            return recover_before_start(directory, config.log, time.time_ns() // 1_000_000, log_cut)
    except CorruptCheckpoint:
        pass
    except OSError as error:
        logger.warning("directory not recovered before the start: directory=%s reason=%s", directory, error)
    return frozenset()


def log_cut(cut: RecoveryCut) -> None:
    """Logs what recovery cut off a log in another process, because this is the only report of it."""
    logger.warning(
        "recovered before the start: path=%s position=%d removed_bytes=%d reason=%s",
        cut.path,
        cut.position,
        cut.removed_bytes,
        cut.reason,
    )


def report_event(event: str, **fields: object) -> None:
    """Writes one event as a line to the parent, if it still reads."""
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
        sys.stdout.flush()


@contextlib.contextmanager
def pid_file(path: Path) -> Iterator[None]:
    """Writes this process's id to `path` and deletes the file at the end of the block. Raises OSError."""
    write_own(path, f"{os.getpid()}\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@final
class NodeProcess:
    """One node as a process: a core, its runtime and its gRPC server."""

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self._core = make_core(arguments)
        self._runtime = Runtime(self._core, observe=self._on_observation)
        self._runtime.peers.routes.update(arguments.routes)
        self._runtime.peers.learn(CONTROLLER_ID, *arguments.controller)
        services = CONTROLLER_SERVICES if arguments.is_controller else BROKER_SERVICES
        self._server = NodeServer(self._runtime, services)
        self._health_updates: set[asyncio.Task[None]] = set()
        # Whether the core has begun, and whether the node was told to stop before.
        self._has_begun = self._is_unwanted = False
        self._collections = ShortCollections()

    async def run(self) -> int:
        """Runs the node until it stops; returns the exit status. Raises what makes the start impossible."""
        arguments = self._arguments
        self._catch_signals()
        await self._server.start(arguments.host, arguments.port)
        if self._is_unwanted:
            # What was stopped in order stays so: the core has taken nothing over yet.
            await self._server.stop()
            await self._runtime.close()
            report_event("stopped", reason="shutdown")
            return 0
        try:
            self._runtime.start(self._core.start)
            self._has_begun = True
            # The logs are loaded now: nothing that came before is garbage.
            self._collections.begin()
            with pid_file(arguments.pid_path):
                if arguments.is_controller:
                    await self._serve(True)
                stop = await self._runtime.stopped
        finally:
            await self._server.stop()
            await self._runtime.close()
        report_event("stopped", reason=stop.reason)
        return 0 if stop.reason == "shutdown" else 1

    def _on_observation(self, effect: Observe) -> None:
        log_observation(effect)
        if effect.kind == "log_directory.offline":
            report_event("log_directory_offline", **dict(effect.fields))
        serves = _SERVES.get(effect.kind)
        if serves is not None:
            task = asyncio.get_running_loop().create_task(self._serve(serves))
            self._health_updates.add(task)
            task.add_done_callback(self._health_updates.discard)

    async def _serve(self, serves: bool) -> None:
        await self._server.set_serving(serves)
        if serves:
            report_event("ready", port=self._arguments.port)

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._shut_down)
        if self._arguments.has_lifeline:
            os.set_blocking(sys.stdin.fileno(), False)
            loop.add_reader(sys.stdin.fileno(), self._on_lifeline)

    def _on_lifeline(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if not os.read(sys.stdin.fileno(), 64):
                asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
                logger.warning("the parent process has ended; stopping")
                # The controller lets the brokers stop first: without it their orderly stop would time out.
                delay_s = CONTROLLER_GRACE_S if self._arguments.is_controller else 0.0
                asyncio.get_running_loop().call_later(delay_s, self._shut_down)

    def _shut_down(self) -> None:
        """Stops in order, at most STOP_TIMEOUT_S long: a broker may wait for a controller that has stopped too."""
        if not self._has_begun:
            self._is_unwanted = True
            return
        loop = asyncio.get_running_loop()
        loop.call_later(STOP_TIMEOUT_S, self._give_up)
        self._runtime.shut_down()

    def _give_up(self) -> None:
        logger.error("no orderly stop within seconds=%s", STOP_TIMEOUT_S)
        self._arguments.pid_path.unlink(missing_ok=True)
        os._exit(1)


async def run_node(arguments: Arguments) -> int:
    """Runs one node; returns the exit status. A failed start is reported to the parent, not raised."""
    try:
        if len(arguments.directories) == 1:
            arguments.directories[0].mkdir(parents=True, exist_ok=True)
        return await NodeProcess(arguments).run()
    except (UnusableInput, PortInUse, DirectoryInUse, ForeignDirectory, NoLogDirectory) as error:
        return _failed(str(error), 2)
    except BlockingIOError:
        return _failed(f"{arguments.directories[0]} is in use by another process", 2)
    except (StorageError, OSError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else " ".join(str(error).split())
        if isinstance(error, StorageError) or is_disk_error(error):
            # The reason names the file and what is wrong with it: where in the code it was met adds nothing.
            logger.error("the node could not start: reason=%s", reason)
            return _failed(reason, 2)
        logger.exception("the node could not start")
        return _failed(reason, 1)


def _failed(reason: str, status: int) -> int:
    report_event("failed", reason=reason, is_unusable_input=status == 2)
    return status


def main() -> int:
    """Runs the node that the command line describes; returns the exit status."""
    arguments = parse_arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    keep_freed_memory()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(run_node(arguments))


if __name__ == "__main__":
    if not __debug__:
        sys.exit("asserts protect the log: run without -O")
    sys.exit(main())
