"""The layout of a local cluster: its ports, directories, process ids, and the file with its arguments.

| path | what |
| --- | --- |
| `DIR/node-I/` | the log directory of broker I; its process id is in `pid` while it runs |
| `A/node-I/`, `B/node-I/` | its log directories with `--log-dirs A,B`; its process id is in `DIR/node-I.pid` then |
| `DIR/controller/` | the controller's log; its process id is in `pid` while it runs |
| `DIR/node-I.txt`, `DIR/controller.txt` | the log lines of the process |
| `DIR/cluster.json` | nodes, ports and properties that `up` was last given |
| `DIR/up.lock` | the lock that a running `up` holds |
| `DIR/up.txt` | what an `up` in the background says after it was ready |
| `DIR/control.json` | the port and token by which `replog nodes` reaches a running `up` |
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cluster.core.messages import CONTROLLER_ID
from cluster.local.own_files import read_own, write_own

HOST = "127.0.0.1"
DEFAULT_PORT = 19092
CONTROLLER_PORT_DISTANCE = 1000
MAX_NODES = 99
MAX_PORT = 65_535
_MOST_PID = (1 << 31) - 1


class UnusableInput(Exception):
    """Arguments or files of the user that cannot work; the message is one line. The exit status is 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One process: its port, and its directories. Its logs are in `log_dirs`, or in `directory` if there are none."""

    node_id: int
    port: int
    directory: Path
    log_dirs: tuple[Path, ...] = ()

    @property
    def is_controller(self) -> bool:
        return self.node_id == CONTROLLER_ID

    @property
    def name(self) -> str:
        return "controller" if self.is_controller else f"node {self.node_id}"

    @property
    def log_directories(self) -> tuple[Path, ...]:
        return self.log_dirs or (self.directory,)

    @property
    def pid_path(self) -> Path:
        """The file with the process id; it is not in `log_dirs`, whose disks may fail alone."""
        if self.log_dirs:
            return self.directory.with_name(self.directory.name + ".pid")
        return self.directory / "pid"

    @property
    def output_path(self) -> Path:
        return self.directory.with_name(self.directory.name + ".txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """The cluster that `up` was asked for. Broker I (1 to `nodes`) listens on `port` + I - 1.

    With port 0 every broker takes a port that is free, and `free_ports` of the spec that `with_free_ports` returns says
    which; a controller port of 0 likewise.
    Its logs are in `node-I` of each of `log_dirs`, or of `data` if there are none. The controller's metadata log is in
    `controller` of `metadata_log_dir`, or of `data`. Raises UnusableInput where that cannot work.
    """

    data: Path
    nodes: int
    port: int
    controller_port: int
    properties: tuple[tuple[str, str], ...] = ()
    log_dirs: tuple[Path, ...] = ()
    metadata_log_dir: Path | None = None
    # The brokers' ports in order, if they do not count up from `port`.
    free_ports: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MAX_NODES:
            raise UnusableInput(f"--nodes {self.nodes}: must be 1 to {MAX_NODES}")
        for port in self.ports:
            if not 0 <= port <= MAX_PORT:
                raise UnusableInput(f"port {port}: must be 1 to 65535, or 0 for any that is free")
        if self.controller_port and self.controller_port in self.broker_ports:
            raise UnusableInput(f"controller port {self.controller_port} is also a broker's port")
        repeated = sorted({str(path) for path in self.log_dirs if self.log_dirs.count(path) > 1})
        if repeated:
            raise UnusableInput(
                f"--log-dirs: these directories are given more than once: {', '.join(repeated)}"
            )

    @property
    def broker_ports(self) -> tuple[int, ...]:
        """The port of each broker, in their order; 0 where a free one is still to be chosen."""
        if self.free_ports:
            return self.free_ports
        return tuple(range(self.port, self.port + self.nodes)) if self.port else (0,) * self.nodes

    @property
    def ports(self) -> tuple[int, ...]:
        return (*self.broker_ports, self.controller_port)

    @property
    def first_address(self) -> str:
        """The address of node 1, which `ready` names."""
        return f"{HOST}:{self.broker_ports[0]}"

    def with_free_ports(self, choose: Callable[[int], Sequence[int]]) -> ClusterSpec:
        """Returns the cluster with a port for each 0; `choose` returns as many free ports as it is asked for."""
        chosen = iter(choose(self.ports.count(0)))
        *brokers, controller = [port or next(chosen) for port in self.ports]
        return replace(self, free_ports=tuple(brokers), controller_port=controller)

    @property
    def brokers(self) -> tuple[NodeSpec, ...]:
        return tuple(self.broker(node_id) for node_id in range(1, self.nodes + 1))

    def broker(self, node_id: int) -> NodeSpec:
        """Returns the process of broker `node_id`, 1 to `nodes`."""
        assert 1 <= node_id <= self.nodes, node_id
        name = f"node-{node_id}"
        return NodeSpec(
            node_id=node_id,
            port=self.broker_ports[node_id - 1],
            directory=self.data / name,
            log_dirs=tuple([path / name for path in self.log_dirs]),
        )

    @property
    def controller(self) -> NodeSpec:
        """The process of the controller."""
        directory, other = self.data / "controller", self.metadata_log_dir
        log_dirs = () if other is None else (other / "controller",)
        return NodeSpec(
            node_id=CONTROLLER_ID, port=self.controller_port, directory=directory, log_dirs=log_dirs
        )

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders that hold the brokers' log directories."""
        return tuple(map(str, self.log_dirs or (self.data,)))

    def save(self) -> None:
        """Writes `cluster.json`, which `check_knows_logs` of the next `up` reads."""
        record = {
            **asdict(self),
            "port": self.broker_ports[0],
            "data": str(self.data),
            "properties": dict(self.properties),
            "log_dirs": self.roots,
            "metadata_log_dir": None if self.metadata_log_dir is None else str(self.metadata_log_dir),
        }
        write_own(self.data / "cluster.json", json.dumps(record, indent=2) + "\n")

    def check_knows_logs(self, say: Callable[[str], None]) -> None:
        """Raises UnusableInput if none of the last run's log directories is given: every log would seem deleted.

        `say` is told if the file of the last run does not name them.
        """
        path = self.data / "cluster.json"
        try:
            record = json.loads(read_own(path))
            before = [str(each) for each in record.get("log_dirs", [str(self.data)])]
        except FileNotFoundError:
            return
        except (OSError, ValueError, AttributeError, TypeError, RecursionError):
            say(f"{path} is damaged: that --log-dirs keeps a directory of the last run is not checked")
            return
        if not set(before) & set(self.roots):
            raise UnusableInput(
                f"{self.data} was last run with --log-dirs {','.join(before)}: "
                "--log-dirs must keep at least one of these"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The port on which a running `up` takes commands; the token keeps other users of the machine out."""

    port: int
    token: str

    def save(self, data: Path) -> None:
        """Writes a new file: one that was there, of whatever kind, might be readable for others. Raises OSError."""
        path = control_path(data)
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(self), file)

    @staticmethod
    def load(data: Path) -> Control:
        """Reads the port and token of the `up` that runs on `data`. Raises UnusableInput when none does."""
        try:
            record = json.loads(read_own(control_path(data)))
            port, token = record["port"], str(record["token"])
            if type(port) is not int or not 0 < port <= MAX_PORT:
                raise ValueError(port)
            return Control(port=port, token=token)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UnusableInput(f"no cluster is running on {data}") from error


def control_path(data: Path) -> Path:
    return data / "control.json"


def read_pid(path: Path) -> int | None:
    """Returns the process id in a file; None where there is none. A signal to 0 or less would be one to many."""
    try:
        pid = int(read_own(path))
    except (OSError, ValueError):
        return None
    return pid if 0 < pid <= _MOST_PID else None
