"""Looks for a second log of a partition at a broker that has lost a log directory (KIP-112)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import final

from cluster.core.broker.broker import Broker
from sim.checkers.base import Jury
from sim.disk.disk import SimDisk
from sim.disk.life import Life
from sim.hosts.node import Node
from sim.left_logs import is_log_in_use
from storage.disk.checkpoints import PartitionMetadataFile
from storage.disk.filesystem import join
from storage.errors import StorageError

NAME = "twin-logs"


@final
class TwinLogs:
    """Judges that a broker makes no log of a partition whose log is in a directory that it cannot read.

    An empty one would pass for all that the broker ever had, and may lead. The next topic of the name is another one.
    """

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        self._told: dict[tuple[int, str], None] = {}

    def look(self, nodes: Iterable[Node]) -> None:
        """Looks at the disks of the brokers that run without one of their directories."""
        for node in nodes:
            if not isinstance(node.core, Broker) or len(node.core.online_directories) == len(
                node.directories
            ):
                continue
            for name in twins(node.disk, node.directories):
                if (node.node_id, name) not in self._told:
                    self._told[node.node_id, name] = None
                    what = (
                        f"{node.name} has two logs of {name}, of which one is in a directory that is offline"
                    )
                    self._jury.report(NAME, what)


def twins(disk: SimDisk, directories: Iterable[str]) -> Iterator[str]:
    """Yields the names of logs that two directories have for one topic id, whether the directories can be read."""
    file_system = disk.file_system(Life("eye", sees_through=True))
    seen: dict[tuple[str, str], None] = {}
    for directory in directories:
        # A wiped disk may have one directory less.
        for name in filter(is_log_in_use, disk.names_in(directory)):
            try:
                topic_id = PartitionMetadataFile(file_system, join(directory, name)).read()
            except StorageError:
                continue
            if topic_id is None:
                continue
            if (name, topic_id) in seen:
                yield name
            seen[name, topic_id] = None
