"""A real cluster for a test: `replog up` as a child process, on free ports, its data in a directory of the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, final

from cluster.local.detached import ready_of
from cluster.local.python_path import python_path

# How long a start or an orderly stop may take before the test fails.
PATIENCE_S = 60.0


class ClusterNotReady(RuntimeError):
    """`replog up` ended before its cluster could serve; the message is what it said."""


@final
class RealCluster:
    """Brokers from 1 on and a controller, each a process of its own. `with` starts it, and ends every process.

    `options` are those of `replog up`, such as `--config`, `log.segment.bytes=16384`. `bootstrap` names all brokers,
    for the clients of `replog` and for `--bootstrap-server`.
    """

    def __init__(self, data: Path, *options: str, nodes: int = 3) -> None:
        self.data, self.nodes, self._options = data, nodes, options
        self.bootstrap = ""
        # By number or name: the file with the process id of the node while it runs.
        self._pid_files: dict[str, Path] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    def __enter__(self) -> RealCluster:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all nodes and wait until they can serve. Raises ClusterNotReady.

        Whatever else ends the wait, such as a time limit of the test, ends all nodes, too.
        """
        assert self._process is None, "the cluster is running"
        command = [sys.executable, "-m", "replog", "up", "--nodes", str(self.nodes), "--port", "0", "--json"]
        self.data.mkdir(parents=True, exist_ok=True)
        self._said = self.output.open("ab")
        process = self._process = subprocess.Popen(
            [*command, "--data", str(self.data), *self._options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=os.environ | python_path(os.environ),
        )
        # The end of `up` ends the wait for what it says.
        late = threading.Timer(PATIENCE_S, process.terminate)
        late.start()
        try:
            assert process.stdout is not None
            ready = ready_of(process.stdout)
        except BaseException:
            # Nobody else would end its nodes: there is no cluster to leave yet.
            self.stop()
            raise
        finally:
            late.cancel()
        if ready is None:
            process.wait()
            self._forget()
            raise ClusterNotReady(self.output.read_text(errors="replace").strip())
        self.bootstrap = str(ready["bootstrap_server"])
        self._pid_files = {str(node["node"]): Path(node["pid_file"]) for node in ready["nodes"]}

    @property
    def output(self) -> Path:
        """The file with what `up` printed on its standard error."""
        return self.data / "up.err"

    def pid(self, node: int | str) -> int:
        """Returns the process id of a broker, by its number, or of `controller`. Raises OSError if it does not run."""
        return int(self._pid_files[str(node)].read_text())

    def kill(self, node: int | str) -> None:
        """Send SIGKILL to a broker or to `controller`; `up` does not start it again."""
        os.kill(self.pid(node), signal.SIGKILL)

    def pause(self, node: int | str) -> None:
        """Send SIGSTOP."""
        os.kill(self.pid(node), signal.SIGSTOP)

    def resume(self, node: int | str) -> None:
        """Send SIGCONT."""
        os.kill(self.pid(node), signal.SIGCONT)

    def restart(self, node: int) -> None:
        """Start a broker again that has ended. Raises subprocess.CalledProcessError if it cannot."""
        self.command("nodes", "start", str(node), "--data", str(self.data))

    def command(self, *arguments: str) -> str:
        """Run `replog` with these arguments and return what it printed. Raises subprocess.CalledProcessError."""
        done = subprocess.run(
            [sys.executable, "-m", "replog", *arguments],
            capture_output=True,
            check=True,
            timeout=PATIENCE_S,
            text=True,
            env=os.environ | python_path(os.environ),
        )
        return done.stdout

    def stop(self) -> None:
        """End all nodes in order, and by force those that do not end in time."""
        if self._process is None:
            return
        process = self._process
        for node in self._pid_files:
            self._wake(node)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._forget()

    def _wake(self, node: int | str) -> None:
        """Let a node go on that was paused: a stopped process does not end."""
        try:
            self.resume(node)
        except (OSError, ValueError):
            # It has ended; its file with the process id is gone or empty.
            return

    def _forget(self) -> None:
        assert self._process is not None and self._said is not None
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._said.close()
        self._process = self._said = None
