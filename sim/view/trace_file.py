"""Reads a trace file line by line, in bounded memory; whatever is wrong with it is reported with its line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, final

from sim.world.trace import FORMAT

# Far above the longest message of a run: a file without line ends must not fill the memory.
MAX_LINE_BYTES = 4 * 1024 * 1024
# A page holds times as doubles, which are exact up to here.
MAX_US = 1 << 53
_FAMILY = FORMAT.rpartition("-")[0]


@final
class TraceFileError(Exception):
    """A file that is no whole trace; `line` counts from 1."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        super().__init__(f"{path}:{line}: {reason}")
        self.path, self.line, self.reason = path, line, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a trace: whose run it is."""

    scenario: str
    seed: int


class Event(NamedTuple):
    """One line of a trace after the first: its text without the line's end, and the members that every event has."""

    text: bytes
    at_us: int
    node: str
    kind: str
    # All members, those above included.
    members: dict[str, Any]


@final
class TraceFile:
    """A trace that is read once, from its header to its end."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        """Reads the header. Raises TraceFileError if the file is no trace."""
        self._path, self._file = path, file
        # The number of the line that was read last.
        self.line = 0
        self.header = self._read_header()

    def _read_header(self) -> Header:
        text = self._read_line()
        if text is None:
            raise self._error("the file is empty: a trace begins with a line about its run")
        members = self._members(text, is_first=True)
        form = members.get("format")
        if form != FORMAT:
            is_other = isinstance(form, str) and form.startswith(_FAMILY)
            what = f"of format {form}" if is_other else "no trace of replog"
            raise self._error(
                f"this is {what}: expected {FORMAT}, as `replog sim run --trace FILE` writes it"
            )
        scenario, seed = members.get("scenario"), members.get("seed")
        if not isinstance(scenario, str) or type(seed) is not int:
            raise self._error("the header names no scenario and seed")
        return Header(scenario=scenario, seed=seed)

    def events(self) -> Iterator[Event]:
        """Yield all events in their order. Raises TraceFileError at the first line that is no whole event."""
        last_us = 0
        while (text := self._read_line()) is not None:
            members = self._members(text)
            at_us, node, kind = members.get("at"), members.get("node"), members.get("kind")
            if type(at_us) is not int or not isinstance(node, str) or not isinstance(kind, str):
                raise self._error("this is no event: it needs `at` (microseconds), `node` and `kind`")
            if at_us < last_us:
                raise self._error(f"time goes back, from {last_us} to {at_us} microseconds")
            if at_us > MAX_US:
                raise self._error(f"`at` is above {MAX_US} microseconds: this is no time of a run")
            last_us = at_us
            yield Event(text, at_us, node, kind, members)

    def _read_line(self) -> bytes | None:
        """Returns the next line without its end; None at the end of the file."""
        text = self._file.readline(MAX_LINE_BYTES)
        if not text:
            return None
        self.line += 1
        if not text.endswith(b"\n"):
            if len(text) == MAX_LINE_BYTES:
                raise self._error(f"the line is longer than {MAX_LINE_BYTES} bytes: this is no trace")
            raise self._error("the line is cut off: the run or the copy was interrupted")
        return text[:-1]

    def _members(self, text: bytes, *, is_first: bool = False) -> dict[str, Any]:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            what = "no trace of replog: its first line" if is_first else "damaged: this line"
            raise self._error(f"the file is {what} is no JSON") from error
        if not isinstance(found, dict):
            raise self._error("the line is no JSON object")
        return found

    def _error(self, reason: str) -> TraceFileError:
        return TraceFileError(self._path, max(self.line, 1), reason)
