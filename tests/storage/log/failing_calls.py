"""Raises an error at the n-th call of a function of storage, in the midst of whatever is running.

The interpreter's profile hook is called at the start of each Python function. An error that it raises is raised in
that function, before its first line, and reaches the caller as if the function had failed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import storage
from storage.errors import StorageError

ROOT = str(Path(storage.__file__).resolve().parent)
# The guard itself, which must work for any promise to hold, and the functions that build error messages for it.
_SPARED = frozenset({"_During.__exit__", "Online.failed", "Online.during", "Appends._has_written"})


class Struck(RuntimeError):
    """An error that nothing in storage expects."""


class StruckInStorage(StorageError):
    """An error of storage's own kind, in the place of any that a helper may raise."""


class FailingCalls:
    """Counts the calls of storage's functions while it is on; the `struck_call`-th raises `error`, 0 for none."""

    def __init__(self, struck_call: int = 0, error: type[Exception] = Struck) -> None:
        self.calls = 0
        self.place = ""
        self._struck_call, self._error = struck_call, error

    def during(self, run: Callable[[], object]) -> None:
        """Run `run` with the hook on. Raises what `run` raises."""
        before = sys.getprofile()
        sys.setprofile(self._on_event)
        try:
            run()
        finally:
            sys.setprofile(before)

    def _on_event(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(ROOT) or code.co_qualname in _SPARED:
            return
        self.calls += 1
        if self.calls == self._struck_call:
            self.place = f"{code.co_filename[len(ROOT) + 1 :]} {code.co_qualname}"
            raise self._error(self.place)
