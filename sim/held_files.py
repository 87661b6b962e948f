"""Looks for files and maps that a broker at rest holds open for nobody (LS22)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import final

from cluster.core.broker.broker import Broker
from cluster.core.broker.maintenance import DELETION_TIMER
from sim.checkers.base import Jury
from sim.disk.handles import SimFile, SimFileSystem
from sim.hosts.node import Node
from sim.left_logs import owes_deletions
from storage.disk.filesystem import dirname

NAME = "held-files"


@final
class HeldFiles:
    """Judges that a broker with nothing to do holds only files of the logs that it has, each of them once.

    A file that was deleted and is still open keeps its bytes on the disk, and takes one of the descriptors that the
    process may have, until the process ends.
    """

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        self._told: dict[tuple[str, int, str], None] = {}

    def look_at_rest(self, nodes: Iterable[Node]) -> None:
        """Look at the brokers that have no job and wait for no deletion of a segment, which stays open until then.

        One that has just started has not read yet which of its logs it is to have.
        """
        for node in nodes:
            core = node.core
            if not isinstance(core, Broker) or not core.lifecycle.is_unfenced or node.is_damaged:
                continue
            if not node.is_at_leisure or DELETION_TIMER in node.pending_timers or owes_deletions(node):
                continue
            directories = {replica.log.directory for replica in core.replicas().values()}
            for what in needless(node.file_system, directories):
                key = (node.name, node.life_number, what)
                if key not in self._told:
                    self._told[key] = None
                    self._jury.report(NAME, f"{node.name} {what}")


def needless(file_system: SimFileSystem, directories: set[str]) -> Iterator[str]:
    """Yields, in words, each file and map that is held without need by the process that sees its disk so.

    `directories` are those of its logs.
    """
    named = file_system.numbers()
    seen: set[tuple[bool, int]] = set()
    for held in file_system.held:
        is_file = isinstance(held, SimFile)
        kind = "open" if is_file else "mapped"
        if held.number not in named:
            yield f"still holds {held.path} {kind}, which is deleted"
        elif dirname(held.path) not in directories:
            yield f"still holds {held.path} {kind}, which is of no log that it has"
        elif (is_file, held.number) in seen:
            yield f"holds {held.path} {kind} twice"
        seen.add((is_file, held.number))
