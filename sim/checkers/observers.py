"""Fetches of metadata: none waits at the controller while there is something to read for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Request
from cluster.core.messages import FetchMetadataRequest, FetchMetadataResponse, ResponseBody
from sim.checkers.base import Jury


@final
class Observers:
    """Judges each answer to a fetch of metadata: it leaves in the step that has committed the next record (CTL-5).

    A broker that is woken by a timer only would learn of each decision late, and nothing else would be wrong. A fetch
    whose sender has left is never answered, and not judged.
    """

    name = "observers"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # The offset that each fetch asks for, by call.
        self._waiting: dict[int, int] = {}
        # Up to where the metadata was committed, for each fetch that waited for less.
        self._late: dict[int, int] = {}

    def on_died(self) -> None:
        """Receives the end of the controller's process."""
        self._waiting.clear()
        self._late.clear()

    def on_step(self, events: Sequence[Event], effects: Sequence[object], committed_offset: int) -> None:
        """Receives a step of the controller, after which all below `committed_offset` may be read."""
        event = events[0]
        if type(event) is Request and isinstance(event.body, FetchMetadataRequest) and event.body.offset >= 0:
            self._waiting[event.call] = event.body.offset
        for effect in effects:
            if type(effect) is Reply:
                self._waiting.pop(effect.call, None)
                end = self._late.pop(effect.call, None)
                # A refusal waits for the disk, with all that it rests on.
                if end is not None and _is_granted(effect.body):
                    what = f"is answered late: all below {end} was committed in an earlier step"
                    self._jury.report(self.name, f"a fetch of metadata {what}")
        for call in [call for call, offset in self._waiting.items() if offset < committed_offset]:
            del self._waiting[call]
            self._late[call] = committed_offset


def _is_granted(body: ResponseBody) -> bool:
    return isinstance(body, FetchMetadataResponse) and body.error is ErrorCode.NONE
