"""How a process of the cluster ended, in one line for tables: its own word, else the last line of its log."""

from __future__ import annotations

import signal
from pathlib import Path

from storage.disk.filesystem import OpenMode
from storage.disk.os_filesystem import OsFileSystem

_TAIL_BYTES = 4096
_MOST_CHARACTERS = 300


def how_it_ended(status: int, told: str, log: Path, log_start: int) -> str:
    """Returns the signal or the exit status of a process, and why it ended if that is known.

    `told` is the reason that it gave; if it gave none, the last line that it wrote to `log` from the byte `log_start`
    on stands for it. A signal needs no other reason, and an orderly end has none: the result is empty.
    """
    if status < 0:
        return f"killed by {_signal_name(-status)}"
    if status == 0 and not told:
        return ""
    reason = told or last_line(log, log_start)
    return f"exit status {status}: {reason}" if reason else f"exit status {status}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        # A real-time signal has no name.
        return f"signal {number}"


def _tail(path: Path, start: int) -> bytes:
    file = OsFileSystem().open(str(path), OpenMode.READ)
    try:
        return file.read_at(max(start, file.size() - _TAIL_BYTES), _TAIL_BYTES)
    finally:
        file.close()


def last_line(path: Path, start: int) -> str:
    """Returns the last line of `path` from the byte `start` on that is not blank, cut if long; empty if there is none.

    A log that cannot be read has none.
    """
    try:
        lines = _tail(path, start).decode(errors="replace").splitlines()
    except OSError:
        return ""
    line = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 1] + "…"
