"""Keeps the errors of a dump's output apart from those of the files that it reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import final

from storage.inspection.dump.writers import Write, WritePieces


class OutputFailed(Exception):
    """The output refused a line, because of `reason`. No error of a file that is dumped."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def told_apart(write: Write) -> Write:
    """Returns `write`, whose OSErrors become OutputFailed."""

    def write_line(line: str) -> None:
        try:
            write(line)
        except OSError as error:
            raise OutputFailed(error) from error

    return write_line


def pieces_told_apart(write_pieces: WritePieces) -> WritePieces:
    """Returns `write_pieces`, whose OSErrors become OutputFailed; those of reading the pieces do not."""

    def write_line(pieces: Iterator[str]) -> None:
        source = _Source(pieces)
        try:
            write_pieces(source)
        except OSError as error:
            if error is source.error:
                raise
            raise OutputFailed(error) from error

    return write_line


@final
class _Source:
    """The pieces of a line, which are read from a file when they are asked for."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self._pieces = iter(pieces)
        self.error: OSError | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            return next(self._pieces)
        except OSError as error:
            self.error = error
            raise
