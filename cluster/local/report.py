"""What `replog up` says: when it is ready, what happens to its nodes, what its end waits for."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import final

from rich.console import Console

from cluster.local.layout import HOST
from cluster.local.own_files import open_output
from cluster.local.supervisor import ManagedNode, Supervisor
from cluster.local.waits import patience


def describe(node: ManagedNode) -> dict[str, object]:
    """Returns a process as `replog nodes --json` prints it."""
    spec = node.spec
    return {
        "node": "controller" if spec.is_controller else spec.node_id,
        "state": node.state,
        "pid": node.pid,
        "pid_file": str(spec.pid_path),
        "address": f"{HOST}:{spec.port}",
        "directory": str(spec.directory),
        "log_directories": [str(path) for path in spec.log_directories],
        "offline_directories": list(node.offline_directories),
        "reason": node.remark,
    }


@final
class Report:
    """Writes lines for a person, or with `as_json` objects; in the background to `log` once the cluster is ready.

    A line that cannot be written, on a full disk or because nobody reads any more, is lost: the cluster goes on.
    """

    def __init__(self, *, as_json: bool = False, log: Path | None = None) -> None:
        self.console = Console()
        self._errors = Console(stderr=True, highlight=False, soft_wrap=True)
        self._as_json = as_json
        self._log = log
        self._is_in_background = False

    @property
    def is_terminal(self) -> bool:
        return self._errors.is_terminal and not self._is_in_background

    @property
    def shows_table(self) -> bool:
        return self.console.is_terminal and not self._as_json and self._log is None

    @property
    def patience_s(self) -> float:
        """The seconds for which a wait is not worth a line."""
        return patience(is_terminal=self.is_terminal)

    def say(self, line: str) -> None:
        """Writes a line to standard error; in the background with the time, to the log."""
        if self._is_in_background:
            line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}"
        with contextlib.suppress(OSError):
            self._errors.print(line, markup=False)

    def ready(self, supervisor: Supervisor) -> None:
        """Writes that the cluster serves, and goes into the background if there is a log. Raises OSError."""
        address = supervisor.spec.first_address
        line = told = f"ready {address}"
        if self._as_json:
            nodes = [describe(node) for node in supervisor.nodes]
            servers = ",".join(f"{HOST}:{port}" for port in supervisor.spec.broker_ports)
            told = json.dumps({"event": "ready", "bootstrap_server": servers, "nodes": nodes})
        log = None if self._log is None else open_output(self._log)
        sys.stdout.write(told + "\n")
        sys.stdout.flush()
        if log is not None:
            self._go_into_background(log.fileno())
            log.close()
            self.say(line)

    def _go_into_background(self, log: int) -> None:
        assert not self._is_in_background, log
        # A log that has the number of a standard stream would be closed by what follows.
        assert log > 2, log
        os.dup2(log, sys.stderr.fileno())
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
        self._is_in_background = True

    def ended(self, supervisor: Supervisor) -> None:
        """Writes that the cluster has ended, as an object or in the background."""
        if self._as_json and not self._is_in_background:
            told = {
                "event": "ended",
                "killed": supervisor.killed,
                "failed": supervisor.failed,
                "nodes": [describe(node) for node in supervisor.nodes],
            }
            with contextlib.suppress(OSError):
                sys.stdout.write(json.dumps(told) + "\n")
                sys.stdout.flush()
        elif self._is_in_background:
            self.say("ended")
