"""Reads the controller's log from its disk, and holds what controller and brokers claim against it."""

from __future__ import annotations

from typing import final

from cluster.core.broker.broker import Broker
from cluster.core.controller.controller import Controller
from cluster.core.effects import Observe
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    CONTROLLER_ID,
    FetchMetadataResponse,
    MetadataRequest,
    MetadataResponse,
    RequestBody,
    ResponseBody,
)
from cluster.core.metadata.image import MetadataImage
from sim.checkers.base import Jury
from sim.checkers.described import NAME as DESCRIBED
from sim.checkers.described import description_difference
from sim.checkers.metadata import NAME, ChangeGatherer, Replay, Role, config_difference, role_difference
from sim.checkers.snapshots import NAME as SNAPSHOTS
from sim.checkers.snapshots import snapshot_difference
from sim.disk import SimDisk
from sim.hosts.node import Node
from sim.witness.ends import STEP_BACK
from sim.witness.log_reader import DiskEye, LogReader
from storage.batch import RecordBatch, iterate_batches
from storage.disk.filesystem import join, read_file


@final
class _Claimant:
    """One life of a node, and the log replayed as far as the node says that it has replayed it."""

    def __init__(self, life: int) -> None:
        self.life = life
        self.replay = Replay()
        self.image: MetadataImage | None = None
        # The topic ids of the partitions that are offline.
        self.offline: dict[str, str] = {}
        # The end of the log, the roles and the offline partitions that were compared last.
        self.compared: tuple[int, dict[str, Role], dict[str, str], frozenset[str]] | None = None
        # One violation of a life is enough: what follows from it says nothing new.
        self.is_wrong = False


@final
class MetadataWitness:
    """Follows the metadata log on the controller's disk. What brokers were shown of it must stay.

    It judges five claims: an answer to an observer holds durable batches of the log; an image is what the log says up
    to its offset, which ends a change; the roles of a broker are those of the image that it says they rest on; so
    is what it describes to clients; and a snapshot has all that the log says below its end.
    """

    def __init__(self, jury: Jury, disk: SimDisk, directory: str) -> None:
        self._jury = jury
        self._eye, self._directory = DiskEye(disk), directory
        self._reader = LogReader(self._eye, directory)
        self._log = ChangeGatherer()
        self._claimants: dict[tuple[int, str], _Claimant] = {}
        self._must_read_again = False
        # The end of what observers were shown, and the checksums of its batches by base offset.
        self._shown_end = 0
        self._shown: dict[int, int] = {}

    def on_observes(self, node: Node, observes: list[Observe]) -> None:
        """Compare each role that a broker takes with the log at the offset that it rests on."""
        if node.node_id == CONTROLLER_ID:
            for observe in observes:
                if observe.kind == "controller.started":
                    self._read_on()
                elif observe.kind == "metadata.snapshot_written" and not node.is_damaged:
                    self._judge_snapshot(node, int(dict(observe.fields)["end_offset"]))
            return
        for observe in observes:
            if observe.kind in ("replica.became_leader", "replica.became_follower"):
                self._judge_role(node, observe)
            elif observe.kind == "replica.offline":
                self._note_offline(node, str(dict(observe.fields)["topic_partition"]))

    def _note_offline(self, node: Node, name: str) -> None:
        """Note that a disk failed under the partition of the topic that has the name in the broker's image."""
        topic = node.core.image.topics.get(name.rpartition("-")[0]) if isinstance(node.core, Broker) else None
        if topic is not None:
            self._claimant(node, "image").offline[name] = topic.topic_id

    def _judge_role(self, node: Node, observe: Observe) -> None:
        values = dict(observe.fields)
        claimant = self._claimant(node, "image")
        if claimant.is_wrong:
            return
        if what := claimant.replay.advance(self._log.changes, observe.metadata_offset):
            self._report(node, claimant, f"{observe.kind} rests on metadata: {what}")
            return
        partition = claimant.replay.partition(str(values["topic_partition"]))
        leader = values.get("leader", node.node_id)
        if partition is None or (partition.leader, partition.leader_epoch) != (
            leader,
            values["leader_epoch"],
        ):
            self._report(
                node,
                claimant,
                f"{observe.kind} {values}, the log says {partition} at {observe.metadata_offset}",
            )

    def on_reply(self, node: Node, asked: RequestBody, body: ResponseBody) -> None:
        """Judge an answer to an observer at the moment when it leaves the controller, and what brokers describe."""
        if isinstance(asked, MetadataRequest) and isinstance(body, MetadataResponse):
            self._judge_description(node, asked, body)
        if node.node_id != CONTROLLER_ID or not isinstance(body, FetchMetadataResponse):
            return
        self._read_on()
        durable_end = self._reader.durable_end()
        end = body.high_watermark
        for batch in iterate_batches(body.records):
            end = max(end, batch.next_offset)
            self._shown[batch.base_offset] = batch.crc
            mark = self._reader.at(batch.base_offset)
            if mark is None or mark.crc != batch.crc:
                self._jury.report(NAME, f"the answer at offset {batch.base_offset} is not what the log has")
        if end > durable_end:
            self._jury.report(
                NAME, f"an answer shows metadata up to {end}, only {durable_end} of the log is durable"
            )
        self._shown_end = max(self._shown_end, end)

    def _judge_description(self, node: Node, asked: MetadataRequest, body: MetadataResponse) -> None:
        """Compare what a broker describes with the log, where that was replayed as far for this broker."""
        claimant, core = self._claimant(node, "image"), node.core
        if body.error is not ErrorCode.NONE or not isinstance(core, Broker) or claimant.is_wrong:
            return
        applied_offset = core.applied_offset
        if applied_offset in (-1, claimant.replay.next_offset):
            what = description_difference(claimant.replay, asked, body, applied_offset)
            if what:
                self._jury.report(DESCRIBED, f"{node.name} {what}")

    def on_metadata(self, node: Node) -> None:
        """Judge what a node has made of the log, after a step that may have changed it."""
        core = node.core
        if isinstance(core, Controller):
            committed, pending = self._claimant(node, "image"), self._claimant(node, "pending")
            if core.image is committed.image and core.pending_image is pending.image:
                return
            self._read_on()
            self._judge_image(node, committed, core.image)
            self._judge_image(node, pending, core.pending_image)
        elif isinstance(core, Broker):
            claimant = self._claimant(node, "image")
            self._judge_image(node, claimant, core.image)
            if core.applied_offset >= 0 and _is_superseded(core) and not claimant.is_wrong:
                what = "goes on in its roles, although another process is registered as this broker since"
                self._report(node, claimant, what)
            if core.applied_offset >= 0 and not claimant.is_wrong:
                self._judge_roles(node, claimant, core)

    def _judge_image(self, node: Node, claimant: _Claimant, image: MetadataImage) -> None:
        if claimant.image is image or claimant.is_wrong:
            return
        claimant.image = image
        what = claimant.replay.advance(self._log.changes, image.next_offset)
        what = what or claimant.replay.difference(image)
        if what:
            self._report(node, claimant, f"the image at {image.next_offset} is wrong: {what}")

    def _judge_roles(self, node: Node, claimant: _Claimant, core: Broker) -> None:
        if core.applied_offset != claimant.replay.next_offset:
            what = f"the roles rest on {core.applied_offset}, the image is at {claimant.replay.next_offset}"
            self._report(node, claimant, what)
            return
        roles = {
            replica.name: Role(
                replica.topic_id, replica.leader is not None, replica.leader_epoch, replica.partition_epoch
            )
            for replica in core.replicas().values()
        }
        # What lacks a descriptor is done later.
        postponed = [str(each) for each in core.manager.roles.postponed] if node.was_short else []
        compared = (core.applied_offset, roles, dict(claimant.offline), frozenset(postponed))
        if compared == claimant.compared:
            return
        claimant.compared = compared
        what = role_difference(claimant.replay, node.node_id, roles, claimant.offline, frozenset(postponed))
        used = {replica.name: replica.log.local.config for replica in core.replicas().values()}
        what = what or config_difference(claimant.replay, core.config.log, used)
        if what:
            self._report(node, claimant, f"after the metadata below {core.applied_offset}: {what}")

    def _judge_snapshot(self, node: Node, end_offset: int) -> None:
        """Compare the snapshot that was just written with the log below its end."""
        self._read_on()
        claimant, files = self._claimant(node, "snapshot"), self._eye.file_system
        names = [each for each in files.list(self._directory) if each.startswith(f"{end_offset:020d}-")]
        name = next((each for each in names if each.endswith(".checkpoint")), "")
        what = claimant.replay.advance(self._log.changes, end_offset)
        if not what and not name:
            what = "was written, and is not there"
        elif not what:
            what = snapshot_difference(read_file(files, join(self._directory, name)), claimant.replay)
        if what:
            self._jury.report(SNAPSHOTS, f"the snapshot at {end_offset}: {what}")

    def on_controller_died(self, *, lost_power: bool) -> None:
        """Read the log from its start again as soon as the next life has recovered it.

        Where a power loss makes that recovery empty a segment, as Kafka's would, no cluster can keep what it promised:
        nothing is judged any more.
        """
        self._reader.power_lost()
        self._must_read_again = True
        if lost_power:
            self._reader.read_all()
            if self._reader.step_back is not None and self._reader.step_back < self._shown_end:
                self._jury.adjourned = f"the controller's log is lost: {STEP_BACK}"

    def _read_on(self) -> None:
        if self._must_read_again:
            self._must_read_again = False
            self._log = ChangeGatherer()
            self._reader.read_all()
            count = len(self._reader.places)
            self._check_shown_stays()
        else:
            count = len(self._reader.read_on())
        for place, data in self._reader.batches(last=count):
            self._log.add(RecordBatch(data, 0, place.size_bytes))

    def _check_shown_stays(self) -> None:
        on_disk = {place.mark.base_offset: place.mark.crc for place in self._reader.places}
        end = self._reader.places[-1].mark.next_offset if self._reader.places else 0
        changed = [at for at, crc in self._shown.items() if on_disk.get(at) != crc]
        if changed or end < self._shown_end:
            self._jury.report(
                NAME,
                f"brokers were shown metadata up to {self._shown_end}; after a restart the log ends at {end}, and "
                f"{len(changed)} batches of it are not the same",
            )

    def _claimant(self, node: Node, what: str) -> _Claimant:
        claimant = self._claimants.get((node.node_id, what))
        if claimant is None or claimant.life != node.starts:
            claimant = self._claimants[node.node_id, what] = _Claimant(node.starts)
        return claimant

    def _report(self, node: Node, claimant: _Claimant, what: str) -> None:
        claimant.is_wrong = True
        self._jury.report(NAME, f"{node.name}: {what}")


def _is_superseded(core: Broker) -> bool:
    """Whether the metadata that the broker has read names another process, of a later life, as this broker (BRK-3)."""
    known, own = core.image.brokers.get(core.node_id), core.manager.context
    if known is None or known.incarnation == own.header.incarnation:
        return False
    return known.broker_epoch > own.broker_epoch
