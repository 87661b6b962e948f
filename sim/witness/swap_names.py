"""Shows the checker of replaced segments each change of a name on the disks of the brokers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import final

from sim.checkers.base import Jury
from sim.checkers.swap_names import CLEANED, JUDGED, NAME, swap_finding
from sim.disk import SimDisk
from sim.witness.log_reader import DiskEye
from storage.disk.filesystem import basename, dirname


@final
class SwapNames:
    """Judges each change of a segment's name on the disks of the brokers, before it is made."""

    def __init__(self, jury: Jury, disks: Mapping[int, SimDisk]) -> None:
        self._jury = jury
        for broker, disk in disks.items():
            disk.observer = partial(self._on_call, broker, DiskEye(disk))

    def _on_call(self, broker: int, eye: DiskEye, verb: str, path: str) -> None:
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
