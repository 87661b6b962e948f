"""Shows the checkers of the names of segments each change of a name on the disks of the brokers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import final

from sim.checkers.base import Jury
from sim.checkers.swap_names import CLEANED, JUDGED, LOG, NAME, ROLL_NAME, roll_finding, swap_finding
from sim.disk import SimDisk
from sim.witness.log_reader import DiskEye
from storage.disk.filesystem import basename, dirname, join


@final
class SwapNames:
    """Judges each change of a segment's name on the disks of the brokers, before it is made."""

    def __init__(self, jury: Jury, disks: Mapping[int, SimDisk]) -> None:
        self._jury = jury
        for broker, disk in disks.items():
            disk.observer = partial(self._on_call, broker, DiskEye(disk))

    def _on_call(self, broker: int, eye: DiskEye, verb: str, path: str) -> None:
        if verb == "create" and path.endswith(LOG):
            self._on_new_segment(broker, eye, dirname(path), basename(path))
        if verb not in ("rename", "unlink") or not path.endswith(JUDGED):
            return
        directory, name = dirname(path), basename(path)
        pending = eye.disk.pending_changes_in(directory)
        if not pending:
            return
        # The other names decide only when a cleaned file becomes a swap, and a list of them is costly.
        names = eye.file_system.list(directory) if name.endswith(CLEANED) else ()
        if what := swap_finding(verb, name, pending, names):
            self._jury.report(NAME, f"{basename(directory)}: broker {broker}: {what}")

    def _on_new_segment(self, broker: int, eye: DiskEye, directory: str, name: str) -> None:
        """Judge the begin of a segment; a disk that has lied about a sync excuses the broker."""
        disk = eye.disk
        if disk.has_deceived or disk.has_lost_writes:
            return
        # Those before were the last one once.
        last = [each for each in eye.file_system.list(directory) if each.endswith(LOG)][-1:]
        unsynced = [each for each in last if not disk.is_synced(join(directory, each))]
        if what := roll_finding(name, disk.pending_changes_in(directory), unsynced):
            self._jury.report(ROLL_NAME, f"{basename(directory)}: broker {broker}: {what}")
