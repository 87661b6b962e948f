"""Faults of the disks of brokers. Each verb returns False while there is no broker yet that it could strike."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from functools import partial
from typing import Final, final

from cluster.core.metadata.snapshots import SNAPSHOT_SUFFIX
from sim.disk import SimDisk
from sim.disk.faults import MUTATING, OPENING, READ_OR_MUTATE
from sim.faults.nodes import WIPED, NodeFaults
from sim.faults.targets import Site, Targets
from sim.hosts.node import Node
from sim.scenario.disk_steps import FailDisk, FailSync, LieSyncs, RestoreDisk, SaveDisk, SyncedFile, WipeDisk
from sim.scenario.steps import LackDescriptors
from sim.world.time import Actor
from storage.disk.checkpoints import PARTITION_METADATA_FILE
from storage.producers.prepared_snapshot import UNFINISHED_SUFFIX
from storage.segment.names import CLEANED_SUFFIX

_SYNCS: Final = frozenset({"sync", "sync_directory"})
_GROWING: Final = frozenset({"append", "create", "make_directory", "write_at"})
_CALLS: Final = {
    "reads": frozenset({"read"}),
    "writes": MUTATING - _SYNCS,
    "syncs": _SYNCS,
    "all": READ_OR_MUTATE,
    None: READ_OR_MUTATE - _SYNCS,
}
# How the names of the files end that are synced before anyone is told of them.
_SYNCED: Final[Mapping[SyncedFile, str]] = {
    "cleaned": CLEANED_SUFFIX,
    "checkpoint": "-checkpoint.job.tmp",
    "snapshot": UNFINISHED_SUFFIX,
    "metadata": f"{SNAPSHOT_SUFFIX}.tmp",
    "partition": f"{PARTITION_METADATA_FILE}.tmp",
}
_LEFT: Final = {"few": "few descriptors", "none": "no descriptor"}
_LACKING: Final = {"few": frozenset({"reserve"}), "none": OPENING}
_ERRORS: Final = {"io": errno.EIO, "full": errno.ENOSPC, "read-only": errno.EROFS}

SET_BACK: Final = "a disk was set back to an older image"


def _verbs(step: FailDisk) -> frozenset[str]:
    """Returns the calls that fail."""
    if step.error == "io":
        return _CALLS[step.calls]
    return _GROWING if step.error == "full" else MUTATING - _SYNCS


@final
class DiskFaults:
    """Lets calls fail and syncs lie for a while, replaces disks, and brings back brokers that ended because of it."""

    def __init__(self, site: Site, targets: Targets, actor: Actor, nodes: NodeFaults) -> None:
        self._site, self._targets, self._actor, self._nodes = site, targets, actor, nodes
        # The number of the last step that struck a node's disk: the end of an earlier one must not end it.
        self._numbers: dict[tuple[str, str], int] = {}
        self._steps = 0
        self._images: dict[str, SimDisk] = {}

    def _begin(self, what: str, node: Node) -> int:
        self._steps += 1
        self._numbers[what, node.name] = self._steps
        return self._steps

    def fail_disk(self, step: FailDisk) -> bool:
        """Let calls fail until `for` is over or everything is healed."""
        nodes = self._targets.nodes(step.fail_disk, step)
        self._targets.bind(step, nodes)
        for node in nodes:
            path = node.directories[step.directory - 1] if step.directory is not None else ""
            what = f"fails with {step.error}" + (f" in directory {step.directory}" if path else "")
            self._site.tell(f"the disk of {node.name} {what}")
            node.disk.refuse(_ERRORS[step.error], _verbs(step), path=path, free_bytes=step.free or 0)
            number = self._begin(step.verb, node)
            if step.lasting is not None:
                self._site.world.after(self._actor, step.lasting, self._end_failing, (node, number))
        return bool(nodes)

    def _end_failing(self, token: tuple[Node, int]) -> None:
        node, number = token
        if self._numbers.get((FailDisk.verb, node.name)) != number:
            return
        del self._numbers[FailDisk.verb, node.name]
        self._site.tell(f"the disk of {node.name} works again")
        node.disk.end_refusal()
        if node.disk.has_refused:
            self._nodes.begin_again(node)

    def fail_sync(self, step: FailSync) -> bool:
        """Arm the failure of one sync; the process starts again `down` after it."""

        def arm(node: Node) -> None:
            what = f"a sync of {node.name} fails"
            number = self._site.misses.wait(what)

            def struck() -> None:
                self._site.misses.struck(number)
                self._site.tell(what)
                if step.down is not None:
                    token = (node, node.starts, step.page_cache)
                    self._site.world.after(node.actor, step.down, self._after_sync, token)

            if step.file is not None:
                path = _SYNCED[step.file]
            else:
                path = node.segment_path("-".join(step.log.rsplit("/", 1))) if step.log is not None else ""
            node.disk.fail_next_sync(path, struck, keeps_pages=step.pages == "dirty")

        return self._nodes.each(step, step.fail_sync, "the next sync fails at", arm)

    def _after_sync(self, token: tuple[Node, int, str]) -> None:
        node, starts, page_cache = token
        if node.starts == starts and self._nodes.is_striking:
            self._nodes.begin_again(node, keeps_cache=page_cache == "kept")

    def lie_syncs(self, step: LieSyncs) -> bool:
        """Let syncs lie until `for` is over or everything is healed."""
        nodes = self._targets.nodes(step.lie_syncs, step)
        self._targets.bind(step, nodes)
        for node in nodes:
            self._site.tell(f"syncs of {node.name} write nothing from now on")
            node.disk.let_syncs_lie(True)
            number = self._begin(step.verb, node)
            if step.lasting is not None:
                self._site.world.after(self._actor, step.lasting, self._end_lies, (node, number))
        return bool(nodes)

    def lack_descriptors(self, step: LackDescriptors) -> bool:
        """Leave processes no descriptor until `for` is over, everything is healed, or they end."""
        nodes = [each for each in self._targets.nodes(step.lack_descriptors, step) if each.is_up]
        self._targets.bind(step, nodes)
        for node in nodes:
            self._site.tell(f"{node.name} has {_LEFT[step.left]} left")
            node.disk.lack_descriptors(_LACKING[step.left])
            number = self._begin(step.verb, node)
            if step.lasting is not None:
                self._site.world.after(self._actor, step.lasting, self._end_lack, (node, number))
        return bool(nodes)

    def _end_lack(self, token: tuple[Node, int]) -> None:
        node, number = token
        if self._numbers.get((LackDescriptors.verb, node.name)) == number:
            del self._numbers[LackDescriptors.verb, node.name]
            self._give_descriptors(node)

    def _give_descriptors(self, node: Node) -> None:
        if node.disk.lacks_descriptors:
            self._site.tell(f"{node.name} has descriptors again")
            node.disk.lack_descriptors(())
            node.short_ended_us = node.world.now_us

    def _end_lies(self, token: tuple[Node, int]) -> None:
        node, number = token
        if self._numbers.get((LieSyncs.verb, node.name)) == number:
            del self._numbers[LieSyncs.verb, node.name]
            self._site.tell(f"syncs of {node.name} write again")
            node.disk.let_syncs_lie(False)

    def wipe_disk(self, step: WipeDisk) -> bool:
        """Leave the target an empty disk, whether it is up or not."""
        nodes = self._targets.nodes(step.wipe_disk, step)
        self._targets.bind(step, nodes)
        for node in nodes:
            self._site.tell(f"{node.name} loses power, and its disk is replaced by an empty one")
            node.change_disk(node.disk.wipe, WIPED)
            self._nodes.start_after(node, step.down)
        return bool(nodes)

    def save_disk(self, step: SaveDisk) -> bool:
        """Keep an image of each disk of the target, without what is not durable yet."""
        nodes = self._targets.nodes(step.save_disk, step)
        self._targets.bind(step, nodes)
        for node in nodes:
            self._site.tell(f"the disk of {node.name} is saved")
            image = node.disk.snapshot()
            image.lose_power("none")
            self._images[node.name] = image
        return bool(nodes)

    def restore_disk(self, step: RestoreDisk) -> bool:
        """Set each disk of the target back to its image. Returns False while there is none."""
        nodes = [each for each in self._targets.nodes(step.restore_disk, step) if each.name in self._images]
        self._targets.bind(step, nodes)
        for node in nodes:
            self._site.tell(f"{node.name} loses power, and its disk is set back to the saved image")
            node.change_disk(partial(node.disk.restore, self._images[node.name]), SET_BACK)
            self._nodes.start_after(node, step.down)
        return bool(nodes)

    def heal_all(self) -> None:
        """End what lasts; `NodeFaults.heal_all` starts again what ended because of it."""
        self._numbers.clear()
        for node in (self._site.controller, *self._site.brokers.values()):
            node.disk.let_syncs_lie(False)
            self._give_descriptors(node)
            node.disk.end_refusal()
