"""Faults that wait for a call on the simulated disk: a crash inside it, a partial effect, or an error."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NoReturn, final

from sim.disk.life import Dead
from storage.codec.buffer import Buffer

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
READ_OR_MUTATE: Final = MUTATING | {"read"}
# What needs a descriptor: a few that are kept for a change, a file that is opened, made, or used after a rest. Only the
# making is a call to a disk.
OPENING: Final = frozenset({"create", "open", "reopen", "reserve"})
ALL_VERBS: Final = READ_OR_MUTATE | OPENING
WRITES: Final = frozenset({"append", "write_at"})
RENAMES: Final = frozenset({"rename"})


class Applied(Enum):
    """The part of an interrupted call that reaches the page cache."""

    NOTHING = "nothing"
    ALL = "all"
    # A drawn prefix of a write; of another call nothing or all.
    DRAWN = "drawn"


@dataclass(slots=True, kw_only=True, eq=False)
class Trigger:
    """A fault that strikes once, at the `countdown`-th call from now that matches, or at the first one after it that
    no earlier fault strikes.
    """

    countdown: int
    verbs: frozenset[str]
    path_suffix: str
    applied: Applied
    path_prefix: str = ""
    # For a write this number of bytes is stored, whatever `applied` says.
    applied_bytes: int | None = None
    # What a write stores in place of its other bytes, which then count as written: nothing where this is empty.
    rest: bytes = b""
    # The error to raise; None: the process dies.
    error_number: int | None = None
    # Whether the next sync writes what a sync that fails has not written.
    keeps_pages: bool = False
    # Called when it strikes: before the error is raised, or when the process has died.
    hook: Callable[[], None] | None = None

    def strikes(self, verb: str, path: str) -> bool:
        """Count the call if it matches. Returns whether this fault strikes it."""
        assert self.countdown >= 0, (verb, path, self.countdown)
        if verb not in self.verbs or not path.endswith(self.path_suffix):
            return False
        if not path.startswith(self.path_prefix):
            return False
        # One that was due at a call that another fault struck is due at the next.
        self.countdown = max(self.countdown - 1, 0)
        return self.countdown == 0


@dataclass(slots=True, kw_only=True, eq=False)
class Refusal:
    """An error that calls of these verbs at or below `path` (empty: anywhere) meet as long as it lasts.

    With `free_bytes` writes succeed until they have taken that much; the one that does not fit is stored in part.
    """

    verbs: frozenset[str]
    path: str
    error_number: int
    free_bytes: int = 0

    def strikes(self, verb: str, path: str, size_bytes: int) -> Trigger | None:
        """Returns the fault that strikes this call, or None if the call may proceed."""
        if verb not in self.verbs or not (self.path == "" or path.startswith(f"{self.path}/")):
            return None
        assert self.free_bytes >= 0, (path, self.free_bytes)
        fits = min(size_bytes, self.free_bytes)
        self.free_bytes -= fits
        if fits == size_bytes and (size_bytes or self.free_bytes):
            return None
        return Trigger(
            countdown=0, verbs=self.verbs, path_suffix="", applied=Applied.NOTHING,
            applied_bytes=fits if verb in WRITES else None, error_number=self.error_number,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Phantom:
    """Writes that are acknowledged and never reach their place: `percent` of them.

    `stray`, if there is one, is called with the path and the bytes of each, to put them elsewhere.
    """

    percent: int
    stray: Callable[[str, bytes], None] | None = None


_EIO_ALWAYS: Final = Trigger(
    countdown=0, verbs=frozenset(), path_suffix="", applied=Applied.NOTHING, error_number=errno.EIO
)
_NO_DESCRIPTOR: Final = Trigger(
    countdown=0, verbs=frozenset(), path_suffix="", applied=Applied.NOTHING, error_number=errno.EMFILE
)


@final
class ArmedFaults:
    """The triggers that wait on one disk, and its directories that raise EIO."""

    __slots__ = ("_broken", "_triggers", "lacking", "phantom", "refusal", "refused", "syncs_lie", "told")

    def __init__(self) -> None:
        self._triggers: list[Trigger] = []
        self._broken: list[str] = []
        self.refusal: Refusal | None = None
        self.phantom: Phantom | None = None
        # The calls for which the process that runs has no descriptor left. No disk has failed then.
        self.lacking: frozenset[str] = frozenset()
        # Whether syncs of files report success and write nothing.
        self.syncs_lie = False
        # The paths of calls that met an error, since `begin_life` was called last, and of those that told their caller.
        self.refused: list[str] = []
        self.told: list[str] = []

    @property
    def is_armed(self) -> bool:
        """Whether any call could be struck."""
        return bool(self._triggers or self._broken or self.refusal or self.syncs_lie or self.lacking)

    @property
    def spoils_calls(self) -> bool:
        """Whether any call could meet an error or lie. A death that waits changes no call before it strikes."""
        is_sound = all(trigger.error_number is None for trigger in self._triggers)
        return bool(not is_sound or self._broken or self.refusal or self.syncs_lie or self.lacking)

    @property
    def is_broken(self) -> bool:
        return bool(self._broken)

    def breaks(self, path: str) -> bool:
        """Whether every call at or below `path` fails."""
        return any(path == broken or path.startswith(f"{broken}/") for broken in self._broken)

    def arm(self, trigger: Trigger) -> None:
        # One that was armed before may be due already: another fault struck the call that was its own.
        assert trigger.countdown >= 0, trigger
        self._triggers.append(trigger)

    def take_back(self, trigger: Trigger) -> None:
        """Drops one trigger, if it is armed."""
        self._triggers = [each for each in self._triggers if each is not trigger]

    def disarm(self) -> None:
        """Drop every trigger; broken directories stay broken."""
        self._triggers.clear()

    def break_directory(self, path: str) -> None:
        self._broken.append(path)

    def mend(self) -> None:
        self._broken.clear()
        self.refusal, self.phantom, self.syncs_lie = None, None, False

    def struck(self, verb: str, path: str, size_bytes: int = 0) -> Trigger | None:
        """Returns the trigger that strikes this call, and notes the path if the call meets an error."""
        trigger = self._struck(verb, path, size_bytes)
        # Where a descriptor is lacking no disk has failed.
        if trigger is None or trigger is _NO_DESCRIPTOR:
            return trigger
        if trigger.error_number is not None:
            self.refused.append(path)
            self.told.append(path)
        return trigger

    def keep_back(self, path: str) -> None:
        """Note that the caller of the last call, at `path`, is not told of its error yet."""
        assert self.told[-1] == path, (self.told[-1], path)
        self.told.pop()

    def begin_life(self) -> None:
        """Forget the errors that earlier processes met, and what they lacked."""
        self.lacking = frozenset()
        self.refused.clear()
        self.told.clear()

    def _struck(self, verb: str, path: str, size_bytes: int) -> Trigger | None:
        """Returns the trigger that strikes this call, and removes it; every matching trigger counts the call."""
        if self.breaks(path):
            return _EIO_ALWAYS
        if verb in self.lacking:
            return _NO_DESCRIPTOR
        if self.refusal is not None and (refused := self.refusal.strikes(verb, path, size_bytes)):
            return refused
        struck = [trigger for trigger in self._triggers if trigger.strikes(verb, path)]
        if not struck:
            return None
        self._triggers.remove(struck[0])
        return struck[0]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """A call that a fault strikes: the caller first applies `share` of it, then calls `end`.

    `crash` ends every process on the disk; `drawn` draws how much of a call of a given size is applied.
    """

    trigger: Trigger
    verb: str
    path: str
    crash: Callable[[], None]
    drawn: Callable[[int], int]

    def share(self, size_bytes: int = 1) -> int:
        """Returns the number of bytes of a write to store; for another call, 1 if it takes effect, else 0."""
        if self.trigger.applied_bytes is not None:
            return min(self.trigger.applied_bytes, size_bytes)
        if self.trigger.applied is Applied.DRAWN:
            return self.drawn(size_bytes)
        return size_bytes if self.trigger.applied is Applied.ALL else 0

    def stored(self, data: Buffer) -> bytes:
        """Returns what a write of `data` leaves in the file: a part of it, and what is in place of the rest."""
        share, filler = self.share(len(data)), self.trigger.rest
        assert 0 <= share <= len(data), (share, len(data))
        left = len(data) - share if filler else 0
        return bytes(memoryview(data)[:share]) + (filler * (left // max(len(filler), 1) + 1))[:left]

    def end(self) -> NoReturn:
        """Raise the trigger's OSError, or end the process and raise Dead."""
        if self.trigger.error_number is not None:
            if self.trigger.hook is not None:
                self.trigger.hook()
            raise OSError(self.trigger.error_number, os.strerror(self.trigger.error_number), self.path)
        # All handles die before the exception is raised, so that no `finally` changes a dead node's disk.
        self.crash()
        if self.trigger.hook is not None:
            self.trigger.hook()
        raise Dead(f"inside {self.verb} of {self.path}")
