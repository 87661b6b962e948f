"""Judges whether the controller begins a snapshot where its log has grown enough."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from cluster.core.controller.controller import Controller
from cluster.core.effects import RunJob, Stop
from cluster.core.events import Event, JobDone
from sim.checkers.base import Jury


@final
class DueSnapshots:
    """The controller begins a snapshot, as a flush of its log ends, if that has grown enough and none is written.

    So does one whose last snapshot could not be written (KR-SNP-5). One that stops in order begins none.
    """

    name = "snapshot-due"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # The jobs that run in this life of the controller, with their kinds.
        self._jobs: dict[int, str] = {}

    def on_died(self) -> None:
        self._jobs.clear()

    def on_step(
        self, core: Controller, events: Iterable[Event], effects: Iterable[object], *, is_stopping: bool
    ) -> None:
        """Receives what the controller took in one step, and what came of it."""
        has_flushed = False
        for event in events:
            if type(event) is JobDone:
                kind = self._jobs.pop(event.job, "")
                has_flushed |= kind == "flush" and event.error is None
        for effect in effects:
            if type(effect) is RunJob:
                self._jobs[effect.job] = effect.kind
            # It judges nothing any more.
            is_stopping |= type(effect) is Stop
        most = core.config.metadata_log_max_record_bytes_between_snapshots
        if not has_flushed or is_stopping or core.log.bytes_since_snapshot < most:
            return
        if "snapshot" not in self._jobs.values():
            what = f"the metadata log has grown by {core.log.bytes_since_snapshot} bytes, {most} are enough"
            self._jury.report(self.name, f"the controller begins no snapshot; {what}")
