"""The file of a campaign: a header, then a line of JSON for each seed. A campaign goes on where its file ends.

Lines are only ever added. A last line that was cut off, as by a kill, is dropped and its seed runs again.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol, final

from sim.swarm.code import CODE, code_digest, why_not_of
from storage.errors import StorageError

FORMAT = "replog-swarm-1"


class Identified(Protocol):
    """What a file holds the rows of."""

    def identity(self) -> dict[str, object]:
        """Returns what rows of one file must have in common."""


class ResultsError(StorageError):
    """A file that a campaign cannot go on with: the message is `FILE[:LINE]: what`."""


@final
class ResultsFile:
    """The open file of a campaign, which no other process may write to meanwhile.

    `rows` are the rows that it held when it was opened, by seed; the first of a seed counts.
    """

    def __init__(self, path: Path, job: Identified) -> None:
        """Open the file, or create it. Raises ResultsError, and leaves such a file as it is."""
        self._path = path
        # A device or a pipe has no end that could be read to.
        if path.exists() and not path.is_file():
            raise ResultsError(f"{path}: no regular file")
        try:
            # Appends, whatever was read before; makes a missing file.
            self._file: BinaryIO = path.open("a+b", buffering=0)
        except OSError as error:
            raise ResultsError(f"{path}: {error.strerror}") from error
        self.rows: Mapping[int, dict[str, Any]] = {}
        try:
            self._lock()
            self._begin(job)
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
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
        self._file.seek(0)
        data = self._file.read()
        whole = data.rfind(b"\n") + 1
        header = {"format": FORMAT, CODE: code_digest()} | job.identity()
        if not whole and _may_be_torn(data):
            self._file.truncate(0)
            self.add(header)
            return
        found, rows = _parse(self._path, data[:whole])
        if found != header:
            raise ResultsError(f"{self._path}:1: {why_not_of(found, header)}: {json.dumps(found)}")
        self.rows = rows
        self._file.truncate(whole)


def _may_be_torn(data: bytes) -> bool:
    """Whether a file without a whole line is empty, or a header that was cut off."""
    start = f'{{"format": "{FORMAT}"'.encode()
    return data.startswith(start) or start.startswith(data)


def _parse(path: Path, data: bytes) -> tuple[object, dict[int, dict[str, Any]]]:
    """Returns the header and the rows by seed."""
    parsed = []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            parsed.append(json.loads(line))
        except ValueError as error:
            raise ResultsError(f"{path}:{number}: no JSON") from error
        if not isinstance(parsed[-1], dict) or (number == 1) != ("format" in parsed[-1]):
            raise ResultsError(f"{path}:{number}: no line of a campaign")
        if number > 1 and not _is_row(parsed[-1]):
            raise ResultsError(f"{path}:{number}: no row of a seed")
    if not parsed:
        raise ResultsError(f"{path}: no file of a campaign")
    rows: dict[int, dict[str, Any]] = {}
    for row in parsed[1:]:
        rows.setdefault(row["seed"], row)
    return parsed[0], rows


def _is_row(row: dict[str, Any]) -> bool:
    seed = row.get("seed")
    return isinstance(seed, int) and not isinstance(seed, bool) and isinstance(row.get("verdict"), str)
