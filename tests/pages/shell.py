"""A shell that runs the commands of a page, and the comparison of what they print with what the page says.

`…` in a page stands for any text within a line; a line that is `…` alone stands for any number of lines.
"""

from __future__ import annotations

import difflib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

DEADLINE_S = 480.0
# An orderly stop of a cluster takes a second, on a busy machine many.
STOP_S = 60.0
# The pause between two looks at what a background command has printed.
LOOK_S = 0.05
_END = "\x01"
_ELLIPSIS = "…"
_WAITING = "waiting for "


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of a console block, `> ` lines joined, and the lines that the page says it prints."""

    text: str
    printed: tuple[str, ...]

    @property
    def in_background(self) -> bool:
        return self.text.endswith(" &")


def commands_of(block: str) -> Iterator[Command]:
    """Yield the commands of a console block. Raises ValueError for a block that does not begin with one."""
    text, printed = "", list[str]()
    for line in block.splitlines():
        if line.startswith("$ "):
            if text:
                yield Command(text=text, printed=tuple(printed))
            text, printed = line[2:], []
        elif line.startswith("> ") and text and not printed:
            text += "\n" + line[2:]
        elif not text:
            raise ValueError(f"{line!r} stands before the first command: a command begins with '$ '")
        else:
            printed.append(line)
    if not text:
        raise ValueError("the block has no command: a command begins with '$ '")
    yield Command(text=text, printed=tuple(printed))


def matches(printed: str, wanted: tuple[str, ...]) -> bool:
    """Whether the printed text is the wanted lines, blanks at the ends of lines aside.

    Where the page has no line of that kind, a line that says what a command waits for is left out: a command says so
    only after two seconds, on a slow machine.
    """
    pattern = "".join(_pattern(line) for line in wanted)
    has_wait = any(line.startswith(_WAITING) for line in wanted)
    shown = [line for line in printed.splitlines() if has_wait or not line.startswith(_WAITING)]
    lines = "".join(line.rstrip() + "\n" for line in shown)
    return re.fullmatch(pattern, lines) is not None


def _pattern(line: str) -> str:
    if line.strip() == _ELLIPSIS:
        return r"(?:.*\n)*?"
    parts = [re.escape(part) for part in line.rstrip().split(_ELLIPSIS)]
    return ".*".join(parts) + r"\n"


def difference(printed: str, wanted: tuple[str, ...]) -> str:
    """Returns what a reader of the page would have to change in it."""
    lines = difflib.unified_diff(wanted, printed.splitlines(), "the page", "printed", lineterm="")
    return "\n".join(lines)


@final
class Shell:
    """A bash that keeps its variables, its directory and its background commands from one command to the next."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._background = 0
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        # A job is then a process group of its own. A signal to its first process, a shell, would spare what that runs.
        self._run("set -m")

    def run(self, command: Command, is_all: Callable[[str], bool]) -> str:
        """Run the command; returns what it printed. One in the background is read until `is_all` of its output."""
        if not command.in_background:
            return self._run(command.text)
        self._background += 1
        output = self._directory / f".background-{self._background}"
        output.touch()
        self._run(f"{{ {command.text.removesuffix('&')}; }} > {output} 2>&1 &")
        deadline = time.monotonic() + DEADLINE_S
        while not is_all(output.read_text(encoding="utf-8")) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return output.read_text(encoding="utf-8")

    def _run(self, text: str) -> str:
        assert self._bash.stdin is not None and self._bash.poll() is None, "the shell has ended"
        self._bash.stdin.write(f"{{ {text}\n}} < /dev/null 2>&1; printf '{_END}'\n".encode())
        self._bash.stdin.flush()
        printed = b""
        deadline = time.monotonic() + DEADLINE_S
        while not printed.endswith(_END.encode()):
            printed += self._read(deadline, printed)
        return printed.decode("utf-8", "backslashreplace").removesuffix(_END)

    def _read(self, deadline: float, so_far: bytes) -> bytes:
        assert self._bash.stdout is not None
        ready, _, _ = select.select([self._bash.stdout], [], [], max(deadline - time.monotonic(), 0))
        chunk = os.read(self._bash.stdout.fileno(), 1 << 16) if ready else b""
        assert chunk, f"the command {'did not end' if not ready else 'ended the shell'}: {so_far!r}"
        return chunk

    def close(self) -> None:
        """Stop the background commands in order, and wait for them; one that does not end is killed."""
        groups = [int(line) for line in self._run("jobs -p").split()]
        for group in groups:
            _signal_group(group, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        while any(_signal_group(group, 0) for group in groups) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        late = [group for group in groups if _signal_group(group, signal.SIGKILL)]
        self._bash.communicate(timeout=DEADLINE_S)
        assert not late, f"background commands did not end within {STOP_S:g} s: process groups {late}"


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to the processes of a group, 0 for none. Returns whether there are any."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True
