"""Faults that wait for a call on the simulated disk: a crash inside it, a part of it, an error from it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NoReturn, final

from sim.crash import Dead

if TYPE_CHECKING:
    from sim.disk import SimDisk

MUTATING: Final = frozenset(
    {
        "append",
        "create",
        "make_directory",
        "remove_directory",
        "rename",
        "set_length",
        "set_modified",
        "sync",
        "sync_directory",
        "truncate",
        "unlink",
        "write_at",
    }
)
WRITES: Final = frozenset({"append", "write_at"})


class Applied(Enum):
    """How much of an interrupted call reaches the page cache."""

    NOTHING = "nothing"
    ALL = "all"
    DRAWN = "drawn"  # of a write any prefix, of another call nothing or all


@dataclass(slots=True, kw_only=True, eq=False)
class Trigger:
    """Waits for the call number `countdown` among those that match, then strikes once."""

    countdown: int
    verbs: frozenset[str]
    path_suffix: str
    applied: Applied
    applied_bytes: int | None = None  # overrides `applied` for a write
    error_number: int | None = None  # None: the process dies
    hook: Callable[[], None] | None = None

    def strikes(self, verb: str, path: str) -> bool:
        if verb not in self.verbs or not path.endswith(self.path_suffix):
            return False
        self.countdown -= 1
        return self.countdown == 0


EIO_ALWAYS: Final = Trigger(
    countdown=0, verbs=frozenset(), path_suffix="", applied=Applied.NOTHING, error_number=errno.EIO
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """A struck call: first apply `share` of it, then `end` it."""

    disk: SimDisk
    trigger: Trigger
    verb: str
    path: str

    def share(self, size_bytes: int = 1) -> int:
        """Of a write: how many bytes are written. Of another call: 1 if it takes effect, else 0."""
        if self.trigger.applied_bytes is not None:
            return min(self.trigger.applied_bytes, size_bytes)
        if self.trigger.applied is Applied.DRAWN:
            return self.disk.draws.between(0, size_bytes, "disk.interrupted", self.disk.operations)
        return size_bytes if self.trigger.applied is Applied.ALL else 0

    def end(self) -> NoReturn:
        if self.trigger.error_number is not None:
            raise OSError(self.trigger.error_number, os.strerror(self.trigger.error_number), self.path)
        # Every handle is fenced before the stack unwinds: a `finally` repairs nothing on a dead node's disk.
        self.disk.crash_process()
        if self.trigger.hook is not None:
            self.trigger.hook()
        raise Dead(f"inside {self.verb} of {self.path}")
