"""The file of a campaign: a header, then a line of JSON for each seed. A campaign goes on where its file ends.

Lines are only ever added. A last line that was cut off, as by a kill, is dropped and its seed runs again.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol, final

from sim.swarm.code import CODE, code_digest, why_not_of
from storage.errors import StorageError

FORMAT = "replog-swarm-1"
Row = dict[str, Any]
# The files that are open. The lock belongs to all processes that have one open, and a child outlives its parent.
_OPEN: list[BinaryIO] = []


def _close_inherited() -> None:
    for file in _OPEN:
        file.close()
    _OPEN.clear()


os.register_at_fork(after_in_child=_close_inherited)


class Identified(Protocol):
    """What a file holds the rows of."""

    def identity(self) -> dict[str, object]:
        """Returns what rows of one file must have in common."""

    def wrong_in(self, row: Row) -> str:
        """Returns the name of a member that is missing in a row or has no such value; empty if it can be counted."""


class ResultsError(StorageError):
    """A file that a campaign cannot go on with: the message is `FILE[:LINE]: what`."""


@final
class ResultsFile:
    """The open file of a campaign, which no other process may write to meanwhile. No child has it open.

    `seeds` are those of the rows that it held when it was opened.
    """

    def __init__(self, path: Path, job: Identified, on_row: Callable[[Row], object]) -> None:
        """Open the file, or create it. Raises ResultsError, and leaves such a file as it is.

        `on_row` is called with each row that it holds, the first of its seed, in their order. None is kept.
        """
        self._path, self._wrong_in = path, job.wrong_in
        # A device or a pipe has no end that could be read to.
        if path.exists() and not path.is_file():
            raise ResultsError(f"{path}: no regular file")
        try:
            # Appends, whatever was read before; makes a missing file.
            self._file: BinaryIO = path.open("a+b", buffering=0)
        except OSError as error:
            raise ResultsError(f"{path}: {error.strerror}") from error
        _OPEN.append(self._file)
        self.seeds: set[int] = set()
        self._on_row = on_row
        try:
            self._lock()
            self._begin(job)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._file in _OPEN:
            _OPEN.remove(self._file)
        self._file.close()

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row, in one write: what a kill leaves of it is one torn line. Raises ResultsError if it cannot."""
        data = json.dumps(row).encode() + b"\n"
        assert data.count(b"\n") == 1, data
        try:
            written = self._file.write(data)
        except OSError as error:
            raise ResultsError(f"{self._path}: {error.strerror}") from error
        if written != len(data):
            raise ResultsError(f"{self._path}: only {written} of {len(data)} bytes were written")

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResultsError(f"{self._path}: another campaign writes to it") from None

    def _begin(self, job: Identified) -> None:
        header = {"format": FORMAT, CODE: code_digest()} | job.identity()
        with self._path.open("rb") as lines:
            first = lines.readline()
            if not first.endswith(b"\n") and _may_be_torn(first):
                self._file.truncate(0)
                self.add(header)
                return
            found = self._parsed(first, 1)
            if found != header:
                raise ResultsError(f"{self._path}:1: {why_not_of(found, header)}: {json.dumps(found)}")
            self._file.truncate(len(first) + self._read_rows(lines))

    def _read_rows(self, lines: BinaryIO) -> int:
        """Pass on the rows after the header. Returns the size of their lines in bytes, without a torn last one."""
        size_bytes = 0
        for number, line in enumerate(lines, start=2):
            if not line.endswith(b"\n"):
                break
            size_bytes += len(line)
            row = self._parsed(line, number)
            if row["seed"] not in self.seeds:
                self.seeds.add(row["seed"])
                self._on_row(row)
        return size_bytes

    def _parsed(self, line: bytes, number: int) -> Row:
        """Returns what a line holds: the header if its number is 1, else a row. Raises ResultsError."""
        where = f"{self._path}:{number}"
        if not line.endswith(b"\n"):
            raise ResultsError(f"{self._path}: no file of a campaign")
        try:
            parsed = json.loads(line)
        except ValueError as error:
            raise ResultsError(f"{where}: no JSON") from error
        if not isinstance(parsed, dict) or (number == 1) != ("format" in parsed):
            raise ResultsError(f"{where}: no line of a campaign")
        if number > 1 and not _is_row(parsed):
            raise ResultsError(f"{where}: no row of a seed")
        if number > 1 and (wrong := self._wrong_in(parsed)):
            raise ResultsError(f"{where}: no row of a seed: {wrong!r} is missing or wrong")
        return parsed


def _may_be_torn(data: bytes) -> bool:
    """Whether a file without a whole line is empty, or a header that was cut off."""
    start = f'{{"format": "{FORMAT}"'.encode()
    return data.startswith(start) or start.startswith(data)


def _is_row(row: Row) -> bool:
    seed = row.get("seed")
    return isinstance(seed, int) and not isinstance(seed, bool) and isinstance(row.get("verdict"), str)
