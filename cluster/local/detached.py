"""`replog up --detach`: runs `replog up` as a process of its own, which goes on after the command has returned."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, final

from cluster.local.layout import ClusterSpec
from cluster.local.python_path import python_path

# What is sent to the process if the command is interrupted before the cluster is ready.
_INTERRUPT = signal.SIGTERM


def log_path(data: Path) -> Path:
    """Returns the file to which an `up` in the background writes after it is ready."""
    return data / "up.txt"


def arguments_of(spec: ClusterSpec) -> list[str]:
    """Returns the arguments of `replog up` that ask for this cluster."""
    arguments = ["--nodes", str(spec.nodes), "--port", str(spec.port), "--data", str(spec.data)]
    arguments += ["--controller-port", str(spec.controller_port)]
    for name, value in spec.properties:
        arguments += ["--config", f"{name}={value}"]
    if spec.log_dirs:
        arguments += ["--log-dirs", ",".join(map(str, spec.log_dirs))]
    if spec.metadata_log_dir is not None:
        arguments += ["--config", f"metadata.log.dir={spec.metadata_log_dir}"]
    return arguments


@final
class NotReady(Exception):
    """An end of the process before the cluster was ready; the message is what it said, `status` its exit status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def start_detached(spec: ClusterSpec) -> dict[str, Any]:
    """Starts the cluster in a session of its own; returns what it said when it was ready, and its process id.

    Raises NotReady. What else ends the wait, such as KeyboardInterrupt, ends the process too.
    """
    command = [sys.executable, "-m", "replog", "up", *arguments_of(spec), "--json", "--in-background"]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,
            env=os.environ | python_path(os.environ),
        )
        assert process.stdout is not None
        try:
            with process.stdout:
                ready = ready_of(process.stdout)
            if ready is None:
                process.wait()
            said.seek(0)
            message = said.read().decode(errors="replace").strip()
        except BaseException:
            # Nobody else knows of it yet.
            _end(process)
            raise
    if ready is None:
        raise NotReady(process.returncode, message)
    return {**ready, "said": message, "pid": process.pid, "log": str(log_path(spec.data))}


def ready_of(lines: Iterable[bytes]) -> dict[str, Any] | None:
    """Returns the object by which `up` says that it is ready; None if it ends before.

    Lines that are no such object are skipped: what the interpreter loads at its start may print some.
    """
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            told = json.loads(line)
            if isinstance(told, dict) and told.get("event") == "ready":
                return told
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process in order; a second interruption leaves it to end by itself."""
    with contextlib.suppress(KeyboardInterrupt):
        process.send_signal(_INTERRUPT)
        process.wait()
