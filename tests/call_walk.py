"""Recording the walk of one call: every Python call below it into the folders that count, in order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import final


@dataclass(frozen=True, slots=True)
class Call:
    """One Python call. `file` is relative to the root; `depth` is the number of counted calls around it."""

    depth: int
    file: str
    function: str


@dataclass(frozen=True, slots=True)
class Walk:
    """The counted calls of one call of the entry, the entry first, with its arguments and its result."""

    arguments: dict[str, object]
    calls: list[Call] = field(default_factory=list)
    result: object = None

    @property
    def moves(self) -> int:
        """Count the calls into another file than that of the call before."""
        return sum(before.file != after.file for before, after in pairwise(self.calls))

    @property
    def files(self) -> int:
        return len({call.file for call in self.calls})

    def __str__(self) -> str:
        return f"{len(self.calls)} calls, {self.moves} moves between {self.files} files"

    def lines(self) -> Iterator[str]:
        """Return the calls as text, each indented by its depth."""
        for call in self.calls:
            yield f"{'  ' * call.depth}{call.file}:{call.function}"


@contextmanager
def recorded_walks(
    entry: Callable[..., object], root: Path, folders: tuple[str, ...]
) -> Iterator[list[Walk]]:
    """Record a walk of each call of `entry` inside the block. Yields a list that grows by one walk as each call ends.

    A call counts if its code is in one of the `folders` of `root`. The resumption of a generator counts as a
    call, and so
    does a comprehension on Python 3.11. Libraries and C code do not count, but the code that they call back does.
    """
    recorder = _Recorder(entry.__code__, root, folders)
    before = sys.getprofile()
    sys.setprofile(recorder.on_event)
    try:
        yield recorder.walks
    finally:
        sys.setprofile(before)


@final
class _Recorder:
    __slots__ = ("_calls", "_entry", "_files", "_folders", "_open", "_root", "walks")

    def __init__(self, entry: CodeType, root: Path, folders: tuple[str, ...]) -> None:
        assert entry.co_filename.startswith(tuple(f"{root}/{folder}/" for folder in folders)), entry
        self._entry = entry
        self._root = f"{root}/"
        self._folders = tuple(f"{root}/{folder}/" for folder in folders)
        # None for code that does not count.
        self._files: dict[CodeType, str | None] = {}
        self._calls: list[Call] = []
        # The frames of the counted calls that have not ended, the entry's first. It is empty outside a walk.
        self._open: list[FrameType] = []
        self.walks: list[Walk] = []

    def on_event(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and (self._open or frame.f_code is self._entry):
            file = self._file_of(frame.f_code)
            if file is not None:
                self._calls.append(Call(len(self._open), file, frame.f_code.co_qualname))
                self._open.append(frame)
        # A generator that is closed returns without a call before: its frame is not the newest.
        elif event == "return" and self._open and self._open[-1] is frame:
            self._open.pop()
            if not self._open:
                self.walks.append(Walk(dict(frame.f_locals), self._calls, argument))
                self._calls = []

    def _file_of(self, code: CodeType) -> str | None:
        if code not in self._files:
            path = code.co_filename
            self._files[code] = path.removeprefix(self._root) if path.startswith(self._folders) else None
        return self._files[code]
