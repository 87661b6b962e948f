"""Damage to what disks hold: bytes that change at rest. Each verb returns False while there is nothing to damage.

No broker can know of it before it reads what is damaged, so the partitions that it may touch are judged no further, but
for three rules that no damage excuses: nobody returns, copies or recovers a batch whose checksum is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from sim.checkers.ghost import ROTTEN
from sim.faults.targets import Site, Targets
from sim.hosts.node import Node
from sim.scenario.disk_steps import Rot
from storage.disk.filesystem import join

WRONG_CHECKPOINT: Final = "has a checkpoint that has changed on its disk"

# The endings of the files of a log that each choice means.
_ENDINGS: Final = {
    "log": (".log",),
    "index": (".index", ".timeindex", ".txnindex"),
    "epochs": ("leader-epoch-checkpoint",),
    "producers": (".snapshot",),
}


@final
class DamageFaults:
    """Damages files of brokers, and lets the partitions that this may touch be judged no further."""

    def __init__(self, site: Site, targets: Targets) -> None:
        self._site, self._targets = site, targets

    def rot(self, step: Rot) -> bool:
        """Change bytes of a file of the target; False while none of its files has synced bytes."""
        nodes = self._targets.nodes(step.rot, step)
        self._targets.bind(step, nodes)
        # All are struck, so that one without such a file hides no other.
        return any([self._rot(step, node) for node in nodes])

    def _rot(self, step: Rot, node: Node) -> bool:
        draws = self._site.world.draws.child("rot", repr(step), node.name)
        files = [(path, name) for path, name in self._files(step, node) if node.disk.synced_bytes(path)]
        if not files:
            return False
        path, name = files[draws.below(len(files), "file")]
        place = node.disk.rot(path, step.extent, draws)
        assert place is not None, path
        self._site.tell(
            f"rot on the disk of {node.name}: {path}, bytes {place[0]} to {place[1] - 1} have changed"
        )
        if name:
            self._give_up(node, [name], ROTTEN)
        else:
            self._give_up(node, self._partitions(node), WRONG_CHECKPOINT)
        return True

    def _files(self, step: Rot, node: Node) -> list[tuple[str, str]]:
        """Returns pairs of a path that may be struck and its partition, empty for a checkpoint of all partitions."""
        if step.file == "checkpoints":
            listed = [(each, node.disk.names_in(each)) for each in node.directories]
            return [
                (join(each, name), "") for each, names in listed for name in names if "checkpoint" in name
            ]
        wanted = [step.log.replace("/", "-")] if step.log is not None else self._partitions(node)
        found: list[tuple[str, str]] = []
        for partition in wanted:
            directory = node.log_path(partition)
            names = node.disk.names_in(directory) if directory else []
            found += [
                (join(directory, each), partition) for each in names if each.endswith(_ENDINGS[step.file])
            ]
        return found

    def _partitions(self, node: Node) -> list[str]:
        """Returns the partitions of the scenario of which the node has a log."""
        names = [
            f"{topic}-{number}"
            for topic, model in self._site.topics.items()
            for number in range(model.partitions)
        ]
        return [name for name in names if node.has_log(name)]

    def _give_up(self, node: Node, partitions: Sequence[str], damage: str) -> None:
        node.is_damaged = True
        ghost = self._site.ghost
        for name in partitions:
            partition = ghost.partition(name)
            # A recovery point that is wrong stays so: a start may recover nothing.
            is_worse = partition.image(node.node_id).damage == WRONG_CHECKPOINT
            ghost.give_up_at_once(partition, node.node_id, WRONG_CHECKPOINT if is_worse else damage)
