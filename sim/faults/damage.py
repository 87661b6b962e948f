"""Damage to what disks hold: bytes that change at rest, and writes that are lost or land elsewhere.

Each verb returns False while there is nothing to damage.
No broker can know of it before it reads what is damaged, so the partitions that it may touch are judged no further, but
for three rules that no damage excuses: nobody returns, copies or recovers a batch whose checksum is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, final

from sim.checkers.ghost import ASTRAY, ROTTEN
from sim.faults.targets import Site, Targets
from sim.hosts.node import Node
from sim.scenario.disk_steps import LoseWrites, MisdirectWrites, Rot
from sim.scenario.values import Target
from sim.world.time import Actor
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

    def __init__(self, site: Site, targets: Targets, actor: Actor) -> None:
        self._site, self._targets, self._actor = site, targets, actor
        # By node, the number of the last step that lets its writes be lost: the end of an earlier one must not end it.
        self._numbers: dict[str, int] = {}
        self._steps = self._strays = 0

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

    def lose_writes(self, step: LoseWrites) -> bool:
        """Let writes be acknowledged and never arrive."""
        return self._begin(step, step.lose_writes, "is lost", is_astray=False)

    def misdirect_writes(self, step: MisdirectWrites) -> bool:
        """Let writes land in another place."""
        return self._begin(step, step.misdirect_writes, "lands in another place", is_astray=True)

    def _begin(
        self, step: LoseWrites | MisdirectWrites, target: Target, what: str, *, is_astray: bool
    ) -> bool:
        nodes = self._targets.nodes(target, step)
        self._targets.bind(step, nodes)
        for node in nodes:
            self._site.tell(f"{step.share}% of what {node.name} writes {what}")
            node.disk.lose_writes(step.share, partial(self._go_astray, node) if is_astray else None)
            self._steps += 1
            self._numbers[node.name] = self._steps
            if step.lasting is not None:
                self._site.world.after(self._actor, step.lasting, self._end, (node, self._steps))
        return bool(nodes)

    def _end(self, token: tuple[Node, int]) -> None:
        node, number = token
        if self._numbers.get(node.name) == number:
            del self._numbers[node.name]
            self._site.tell(f"what {node.name} writes arrives again")
            node.disk.lose_writes(0)

    def _go_astray(self, node: Node, path: str, data: bytes) -> None:
        """Put the bytes of a write over a drawn place of the same file, or of another one of the node."""
        self._strays += 1
        draws = self._site.world.draws.child("stray", node.name, self._strays)
        others = [each for each in self._all_files(node) if node.disk.synced_bytes(each)]
        if node.disk.synced_bytes(path) and draws.below(2, "same file"):
            others = [path]
        if not others:
            return
        victim = others[draws.below(len(others), "file")]
        place = node.disk.overwrite(victim, data, draws)
        assert place is not None, victim
        self._site.tell(
            f"a write of {node.name} to {path} landed in {victim}, over bytes {place[0]} to {place[1] - 1}"
        )
        partition = victim.split("/")[-2]
        if partition in self._partitions(node):
            self._give_up(node, [partition], ASTRAY)
        else:
            self._give_up(node, self._partitions(node), WRONG_CHECKPOINT)

    def _all_files(self, node: Node) -> list[str]:
        """Returns the paths of the files in the node's log directories and in the logs there."""
        folders = list(node.directories)
        folders += [path for name in self._partitions(node) if (path := node.log_path(name))]
        found = [join(folder, name) for folder in folders for name in node.disk.names_in(folder)]
        return [path for path in found if path not in folders]

    def heal_all(self) -> None:
        """Let all writes arrive; `NodeFaults.heal_all` restarts the machines that lack some."""
        self._numbers.clear()
        for node in self._site.brokers.values():
            node.disk.lose_writes(0)

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
            # With a wrong recovery point a start may recover nothing, so rot does not take the place of that.
            before = partition.image(node.node_id).damage
            partition.damages[damage] = None
            is_worse = before == ASTRAY or (damage == ROTTEN and before == WRONG_CHECKPOINT)
            ghost.give_up_at_once(partition, node.node_id, before if is_worse else damage)
