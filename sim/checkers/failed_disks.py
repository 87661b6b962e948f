"""Judges whether a broker takes a log directory offline once a call on its disk has failed, and only then."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import final

from sim.checkers.base import Jury
from storage.disk.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)

# With the names that they have while they are written.
_CHECKPOINTS = (HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT)


@final
class FailedDisks:
    """A directory goes offline in the step that learns of a failed call below it (AP16, KIP-112, KAFKA-10778).

    What the kernel holds of its files is not known from then on, so no log in it may take or serve anything more. A
    step learns of what its own calls have met, and of what a job has met when it takes the end of that job. Where no
    call has failed, no directory goes offline: not for want of a descriptor, which fails one call and no disk. Nor is a
    directory marked as stopped in order of whose logs or checkpoints a call has failed: its next start has to recover
    them. Those of which no call has failed are marked all the same (LL5).
    """

    name = "failed-disks"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # The life of each broker, and which of the errors of that life are judged.
        self._judged: dict[int, tuple[int, set[int]]] = {}
        # The life of each broker, and how many of its errors were looked at in the very step that met them.
        self._met: dict[int, tuple[int, int]] = {}

    def is_new(self, life: tuple[int, int], errors: Sequence[str]) -> bool:
        """Whether the calls of that life of a broker have met errors that were not judged yet."""
        return len(errors) > len(self._judged_of(life))

    def on_step(
        self, life: tuple[int, int], errors: Sequence[str], online: Iterable[str],
        unheard: Collection[int] = (),
    ) -> None:  # fmt: skip
        """Receives the state after a step: the paths of all failed calls, and the directories that are online.

        Of the calls at the places in `unheard` the broker does not know yet.
        """
        judged = self._judged_of(life)
        new = [place for place in range(len(errors)) if place not in judged and place not in unheard]
        directories = tuple(online)
        for path in dict.fromkeys(errors[place] for place in new):
            for directory in directories:
                if path == directory or path.startswith(f"{directory}/"):
                    what = f"goes on with {directory} although a call on {path} has failed"
                    self._jury.report(self.name, f"broker {life[0]} {what}")
        judged.update(new)

    def _judged_of(self, life: tuple[int, int]) -> set[int]:
        broker, number = life
        if broker not in self._judged or self._judged[broker][0] != number:
            self._judged[broker] = number, set()
        return self._judged[broker][1]

    def new_errors(self, life: tuple[int, int], errors: Sequence[str]) -> Sequence[str]:
        """Returns the paths of the calls that have failed since this was asked last, which is after each step.

        Of those of a start none: it takes the directories as it finds them.
        """
        broker, number = life
        is_begun, met = self._met.get(broker, (0, 0))[0] == number, _count(self._met, life)
        self._met[broker] = number, len(errors)
        return errors[met:] if is_begun else ()

    def on_made_again(self, broker: int, path: str, other: str) -> None:
        """Receives that a log which could not be made, for the call on `path`, is in another directory after that step.

        When the first one is back, a start finds two logs of one partition (LL4). In a later step another topic may
        have the name.
        """
        what = f"has made in {other} the log of which a call on {path} has failed"
        self._jury.report(self.name, f"broker {broker} {what}")

    def on_offline(self, broker: int, directory: str, reason: str) -> None:
        """Receives a directory that goes offline, of which no call has failed and nothing is damaged."""
        what = f"takes {directory} offline, of which no call has failed: {reason}"
        self._jury.report(self.name, f"broker {broker} {what}")

    def on_stopped(self, broker: int, errors: Sequence[str], marked: Iterable[str]) -> None:
        """Receives the orderly end of a life: all its failed calls, and which of its directories have the mark.

        A call on the mark itself, or on the names beside it, may fail after all else is written.
        """
        for directory in marked:
            first = next((path for path in errors if is_trusted_at_a_start(path, directory)), "")
            if first:
                what = f"marks {directory} as stopped in order although a call on {first} has failed"
                self._jury.report(self.name, f"broker {broker} {what}")

    def on_unmarked(self, life: tuple[int, int], errors: Sequence[str], unmarked: Iterable[str]) -> None:
        """Receives the directories without the mark after an orderly end, in which nothing is damaged."""
        broker, number = life
        if not errors or self._met.get(broker, (0, 0))[0] != number:
            # It may have had no time to load its logs.
            return
        for directory in unmarked:
            if not any(path == directory or path.startswith(f"{directory}/") for path in errors):
                what = f"does not mark {directory} as stopped in order, of which no call has failed"
                self._jury.report(self.name, f"broker {broker} {what}, as one on {errors[0]} has")


def _count(counts: Mapping[int, tuple[int, int]], life: tuple[int, int]) -> int:
    """Returns how many errors of that life of a broker were counted."""
    number, count = counts.get(life[0], (life[1], 0))
    return count if number == life[1] else 0


def is_trusted_at_a_start(path: str, directory: str) -> bool:
    """Whether the path is a checkpoint of a log directory, or below the directory of a log, or of what was one."""
    if not path.startswith(f"{directory}/"):
        return False
    name = path[len(directory) + 1 :]
    return "/" in name or name.startswith(_CHECKPOINTS)
