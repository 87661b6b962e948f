"""Shows the checkers of the names of segments each change of a name on the disks of the brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import final

from sim.checkers.base import Jury
from sim.checkers.swap_names import (
    CLEANED,
    JUDGED,
    LOG,
    NAME,
    REMOVAL_NAME,
    REPLACED_NAME,
    ROLL_NAME,
    TEMPORARY,
    Change,
    removal_finding,
    roll_finding,
    swap_finding,
    unsafe_replacement,
)
from sim.disk import SimDisk
from sim.witness.log_reader import DiskEye
from storage.disk.filesystem import basename, dirname, join
from storage.topics import DELETE_SUFFIX


@final
class SwapNames:
    """Judges each change of a segment's name on the disks of the brokers, before it is made."""

    def __init__(self, jury: Jury, disks: Mapping[int, SimDisk]) -> None:
        self._jury = jury
        # By broker: the directory and the temporary name of a file that has replaced another just now, and whose life
        # that was.
        self._replaced: dict[int, tuple[str, str, int]] = {}
        for broker, disk in disks.items():
            disk.observer = partial(self._on_call, broker, DiskEye(disk))

    def _on_call(self, broker: int, eye: DiskEye, verb: str, path: str) -> None:
        if broker in self._replaced:
            self._judge_replaced(broker, eye.disk, verb, path)
        if verb == "rename" and path.endswith(TEMPORARY):
            self._replaced[broker] = (dirname(path), basename(path), eye.disk.lives)
        if verb == "create" and path.endswith(LOG):
            self._on_new_segment(broker, eye, dirname(path), basename(path))
        if verb not in ("rename", "unlink") or not path.endswith(JUDGED):
            return
        directory, name = dirname(path), basename(path)
        pending = eye.disk.pending_changes_in(directory)
        if path.endswith(LOG) and not _is_doomed(directory):
            self._on_removed_segment(broker, eye, directory, name, pending)
        if not pending:
            return
        # The other names decide only when a cleaned file becomes a swap, and a list of them is costly.
        names = eye.file_system.list(directory) if name.endswith(CLEANED) else ()
        if what := swap_finding(verb, name, pending, names):
            self._jury.report(NAME, f"{basename(directory)}: broker {broker}: {what}")

    def _judge_replaced(self, broker: int, disk: SimDisk, verb: str, path: str) -> None:
        """Judge the next change on a disk after a file was replaced: until the name is durable, it has its old content.

        The directory must be synced at once: what the process does next may rely on the new content.
        """
        directory, temporary, life = self._replaced.pop(broker)
        if life != disk.lives or (verb, path) == ("sync_directory", directory):
            return
        if name := unsafe_replacement(temporary, disk.pending_changes_in(directory)):
            what = f"broker {broker} goes on with {verb} of {path}, and a power loss would give {name} its old content"
            self._jury.report(REPLACED_NAME, f"{basename(directory)}: {what}")

    def _on_removed_segment(
        self, broker: int, eye: DiskEye, directory: str, name: str, pending: Sequence[Change]
    ) -> None:
        """Judge the end of a segment, before it gets another name or none."""
        if what := removal_finding(name, pending, eye.file_system.list(directory)):
            self._jury.report(REMOVAL_NAME, f"{basename(directory)}: broker {broker}: {what}")

    def _on_new_segment(self, broker: int, eye: DiskEye, directory: str, name: str) -> None:
        """Judge the begin of a segment; a disk that has lied about a sync excuses the broker."""
        disk = eye.disk
        if disk.has_deceived or disk.has_lost_writes:
            return
        # Those before were the last one once.
        last = next((each for each in reversed(eye.file_system.list(directory)) if each.endswith(LOG)), "")
        unsynced = [last] if last and not disk.is_synced(join(directory, last)) else []
        if what := roll_finding(name, disk.pending_changes_in(directory), unsynced):
            self._jury.report(ROLL_NAME, f"{basename(directory)}: broker {broker}: {what}")


def _is_doomed(directory: str) -> bool:
    """Whether the log in the directory is deleted as a whole."""
    return directory.endswith(DELETE_SUFFIX)
