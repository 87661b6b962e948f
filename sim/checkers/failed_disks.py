"""Judges whether a broker takes a log directory offline once a call on its disk has failed, and only then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

from sim.checkers.base import Jury


@final
class FailedDisks:
    """A directory goes offline in the step that learns of a failed call below it (AP16, KIP-112, KAFKA-10778).

    What the kernel holds of its files is not known from then on, so no log in it may take or serve anything more. A
    step learns of what its own calls have met, and of what a job has met when it takes the end of that job. Where no
    call has failed, no directory goes offline: not for want of a descriptor, which fails one call and no disk.
    """

    name = "failed-disks"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # The life of each broker, and how many of the errors of that life are judged.
        self._judged: dict[int, tuple[int, int]] = {}

    def is_new(self, life: tuple[int, int], errors: Sequence[str]) -> bool:
        """Whether the calls of that life of a broker have met errors that were not judged yet."""
        return len(errors) > self._count(life)

    def on_step(self, life: tuple[int, int], errors: Sequence[str], online: Iterable[str]) -> None:
        """Receives the state after a step: the paths of all failed calls, and the directories that are online."""
        broker, number = life
        directories = tuple(online)
        for path in dict.fromkeys(errors[self._count(life) :]):
            for directory in directories:
                if path == directory or path.startswith(f"{directory}/"):
                    what = f"goes on with {directory} although a call on {path} has failed"
                    self._jury.report(self.name, f"broker {broker} {what}")
        self._judged[broker] = number, len(errors)

    def on_offline(self, broker: int, directory: str, reason: str) -> None:
        """Receives a directory that goes offline, of which no call has failed and nothing is damaged."""
        what = f"takes {directory} offline, of which no call has failed: {reason}"
        self._jury.report(self.name, f"broker {broker} {what}")

    def _count(self, life: tuple[int, int]) -> int:
        number, count = self._judged.get(life[0], (life[1], 0))
        return count if number == life[1] else 0
