"""Turns what the nodes tell, what they answer and what lies on their disks into sightings for the checkers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, final, runtime_checkable

from cluster.controller.controller import Controller
from cluster.controller.observations import observations
from cluster.effects import Observe
from cluster.errors import ErrorCode
from cluster.messages import (
    CONTROLLER_ID,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
    ResponseBody,
    TopicPartition,
)
from cluster.metadata import MetadataImage
from sim.checkers.base import Jury
from sim.checkers.chain import Mark, marks_of
from sim.checkers.sightings import (
    Acknowledged,
    Appended,
    BecameFollower,
    BecameLeader,
    Created,
    Died,
    Elected,
    EpochsSeen,
    Fetched,
    HighWatermark,
    IsrChanged,
    Loaded,
    Served,
    Truncated,
)
from sim.compacted import CompactedPartition
from sim.disk import SimDisk
from sim.log_reader import DiskEye, LogReader
from sim.network import Exchange
from storage.batch import Record
from storage.filesystem import join

Values = dict[str, int | str]
Marks = tuple[Mark, ...]


class ReplicaLog(Protocol):
    @property
    def log_end_offset(self) -> int: ...

    @property
    def epochs(self) -> EpochCache: ...


class EpochCache(Protocol):
    @property
    def entries(self) -> Iterable[tuple[int, int]]: ...


class ReplicaView(Protocol):
    @property
    def log(self) -> ReplicaLog: ...


@runtime_checkable
class HasReplicas(Protocol):
    def replicas(self) -> Mapping[TopicPartition, ReplicaView]: ...


class Member(Protocol):
    """What the witness knows of a node that tells something."""

    @property
    def node_id(self) -> int: ...

    @property
    def core(self) -> object: ...


def isr_of(text: int | str) -> tuple[int, ...]:
    return tuple(int(member) for member in str(text).split(",") if member)


@final
class Witness:
    """Sees for the jury. `disks` are the brokers' by number, `directories` hold the logs on each of them."""

    def __init__(self, jury: Jury, disks: Mapping[int, SimDisk], directories: tuple[str, ...]) -> None:
        self.jury = jury
        self._directories = directories
        self._eyes = {broker: DiskEye(disk) for broker, disk in disks.items()}
        # What is below this offset of the controller's log was told when it was committed.
        self._told_metadata_end = 0
        self._readers: dict[tuple[int, str], LogReader] = {}
        self._names: dict[str, TopicPartition] = {}
        self._compacted: dict[str, CompactedPartition] = {}
        self._handlers: dict[str, Callable[[Member, str, Values], None]] = {
            "replica.appended": self._on_appended,
            "replica.high_watermark": self._on_high_watermark,
            "replica.truncated": self._on_truncated,
            "replica.became_leader": self._on_became_leader,
            "replica.became_follower": self._on_became_follower,
            "log.compacted": self._on_compacted,
        }

    def expect(
        self,
        topic_partition: TopicPartition,
        *,
        min_isr: int,
        flush_promised: bool,
        is_compacted: bool = False,
    ) -> None:
        """A partition that the scenario creates."""
        name = str(topic_partition)
        self._names[name] = topic_partition
        if is_compacted:
            self._compacted[name] = CompactedPartition(self.jury.ghost.partition(name).truth)
        self.jury.see(Created(name, min_isr, flush_promised))

    def reader(self, broker: int, partition: str) -> LogReader:
        reader = self._readers.get((broker, partition))
        if reader is None or reader.directory != self._directory_of(broker, partition):
            reader = self._readers[broker, partition] = self._new_reader(broker, partition)
        return reader

    def _new_reader(self, broker: int, partition: str) -> LogReader:
        directory = self._directory_of(broker, partition)
        return LogReader(self._eyes[broker], directory, is_compacted=partition in self._compacted)

    def _directory_of(self, broker: int, partition: str) -> str:
        """Where its files are; before there are any, the first place where they may come to be."""
        places = [join(directory, partition) for directory in self._directories]
        if len(places) == 1:
            return places[0]
        file_system = self._eyes[broker].file_system
        return next((place for place in places if file_system.exists(place)), places[0])

    def whole(self, broker: int, partition: str, marks: Sequence[Mark], start: int | None = None) -> Marks:
        """What `marks`, from `start` or the log's start on, were before compaction."""
        compacted = self._compacted.get(partition)
        if compacted is None:
            return tuple(marks)
        if start is None:
            start = self.jury.ghost.partition(partition).image(broker).chain.start
        return compacted.whole(marks, start)

    def judge_compaction(self, broker: int, partition: str) -> None:
        """Whether compaction took nothing from this replica that is still of worth; nothing for other logs."""
        compacted = self._compacted.get(partition)
        if compacted is None:
            return
        reader = self._new_reader(broker, partition)
        reader.read_all()
        what = compacted.judge(reader, self.jury.ghost.partition(partition).image(broker).chain.start)
        if what is not None:
            self.jury.report("compaction", f"{partition}: broker {broker}: {what}")

    def content(self, partition: str, marks: Sequence[Mark]) -> dict[int, Record]:
        """What a compacted log held before, by offset; nothing of other logs."""
        compacted = self._compacted.get(partition)
        return {} if compacted is None else compacted.content(marks)

    def on_observes(self, node: Member, observes: list[Observe]) -> None:
        """Turn all that one step of a node told into sightings."""
        if node.node_id == CONTROLLER_ID:
            self._on_controller_step(node.core, observes)
            return
        looked_at: dict[str, None] = {}
        for observe in observes:
            handler = self._handlers.get(observe.kind)
            if handler is not None:
                values = dict(observe.fields)
                partition = str(values["topic_partition"])
                if partition in self._names:
                    if observe.kind.startswith(("replica.became", "replica.truncated")):
                        looked_at[partition] = None
                    handler(node, partition, values)
            elif observe.kind == "broker.started":
                self._on_loaded(node.node_id)
        for partition in looked_at:
            self._look_at_epochs(node, partition)

    def _on_controller_step(self, core: object, observes: list[Observe]) -> None:
        assert isinstance(core, Controller), core
        if any(observe.kind == "controller.started" for observe in observes):
            self._on_controller_started(core)
        self._on_controller(observes)
        self._told_metadata_end = core.log.committed_offset

    def _on_controller_started(self, controller: Controller) -> None:
        """What its last life appended and was killed before it could tell counts from now on: it is committed."""
        image = MetadataImage()
        for offset, record in controller.log.replay():
            if offset >= self._told_metadata_end:
                self._on_controller(observations(record, offset, image))
            image.apply(record, offset)

    def _on_controller(self, observes: list[Observe]) -> None:
        elected = [
            dict(observe.fields)["topic_partition"]
            for observe in observes
            if observe.kind == "controller.leader_elected"
        ]
        for observe in observes:
            values = dict(observe.fields)
            partition = str(values.get("topic_partition", ""))
            if partition not in self._names:
                continue
            match observe.kind:
                case "controller.leader_elected":
                    self.jury.see(
                        Elected(
                            partition, int(values["leader"]), int(values["leader_epoch"]),
                            isr_of(values["isr"]), bool(values["clean"]),
                        )
                    )  # fmt: skip
                case "controller.leader_lost":
                    self.jury.see(
                        Elected(partition, -1, int(values["leader_epoch"]), isr_of(values["isr"]), True)
                    )
                case "controller.isr_changed" if partition not in elected:
                    self.jury.see(IsrChanged(partition, isr_of(values["isr"])))

    def _on_appended(self, node: Member, partition: str, values: Values) -> None:
        broker = node.node_id
        reader = self.reader(broker, partition)
        seen = reader.read_on(last_offset=int(values["last_offset"]))
        if seen:
            chain = self.jury.ghost.partition(partition).image(broker).chain
            if partition in self._compacted:
                self._compacted[partition].remember(reader, seen)
            marks = self.whole(broker, partition, seen, chain.end)
            is_new_epoch = not chain.marks or chain.marks[-1].epoch != marks[-1].epoch
            self.jury.see(Appended(broker, partition, int(values["leader_epoch"]), marks))
            if is_new_epoch:
                self._look_at_epochs(node, partition)

    def _on_high_watermark(self, node: Member, partition: str, values: Values) -> None:
        self.jury.see(
            HighWatermark(
                node.node_id, partition, int(values["leader_epoch"]), int(values["high_watermark"]),
                values["role"] == "leader",
            )
        )  # fmt: skip

    def _on_truncated(self, node: Member, partition: str, values: Values) -> None:
        to_offset = int(values["to_offset"])
        self.reader(node.node_id, partition).truncated(to_offset)
        self.jury.see(Truncated(node.node_id, partition, to_offset, int(values["leader_epoch"])))

    def _on_became_leader(self, node: Member, partition: str, values: Values) -> None:
        epoch = int(values["leader_epoch"])
        self.jury.see(BecameLeader(node.node_id, partition, epoch, int(values["log_end_offset"])))

    def _on_became_follower(self, node: Member, partition: str, values: Values) -> None:
        epoch = int(values["leader_epoch"])
        self.jury.see(BecameFollower(node.node_id, partition, epoch, int(values["leader"])))

    def _on_compacted(self, node: Member, partition: str, values: Values) -> None:
        self.judge_compaction(node.node_id, partition)

    def _look_at_epochs(self, node: Member, partition: str) -> None:
        """Show the epoch cache, if the log is as the checkers believe it to be at this moment.

        A follower that copies a compacted log knows of an epoch only what is left of it.
        """
        broker, core = node.node_id, node.core
        if not isinstance(core, HasReplicas) or partition in self._compacted:
            return
        replica = core.replicas().get(self._names[partition])
        chain = self.jury.ghost.partition(partition).image(broker).chain
        if replica is not None and replica.log.log_end_offset == chain.end:
            starts = tuple((entry[0], entry[1]) for entry in replica.log.epochs.entries)
            self.jury.see(EpochsSeen(broker, partition, starts))

    def on_died(self, broker: int, *, lost_power: bool) -> None:
        """What a crash or a power loss left of each log."""
        for partition in self._names:
            reader = self.reader(broker, partition)
            reader.power_lost()
            marks = self.whole(broker, partition, reader.read_all())
            self.jury.see(Died(broker, partition, lost_power, marks))

    def _on_loaded(self, broker: int) -> None:
        for partition in self._names:
            reader = self.reader(broker, partition)
            marks = self.whole(broker, partition, reader.read_all())
            self.jury.see(Loaded(broker, partition, marks, reader.unsound))
            self.judge_compaction(broker, partition)

    def on_reply(self, node_id: int, exchange: Exchange, body: ResponseBody) -> None:
        request = exchange.body
        if isinstance(request, ProduceRequest) and isinstance(body, ProduceResponse):
            self._on_produced(node_id, request.acks, body)
        elif isinstance(request, FetchRequest) and isinstance(body, FetchResponse):
            self._on_fetched(node_id, request, body)
            if request.replica_id < 0:
                self._on_served(node_id, body)

    def _on_produced(self, broker: int, acks: int, body: ProduceResponse) -> None:
        for answer in body.partitions:
            if answer.error is ErrorCode.NONE and answer.base_offset >= 0:
                name = str(answer.topic_partition)
                durable_on: tuple[int, ...] = ()
                if acks == -1 and self.jury.ghost.partition(name).flush_promised:
                    durable_on = tuple(
                        each
                        for each in self._eyes
                        if self.reader(each, name).durable_end() > answer.last_offset
                    )
                self.jury.see(
                    Acknowledged(broker, name, answer.base_offset, answer.last_offset, acks, durable_on)
                )

    def _on_fetched(self, broker: int, request: FetchRequest, body: FetchResponse) -> None:
        for asked, answer in zip(request.partitions, body.partitions, strict=False):
            epoch = asked.current_leader_epoch
            if epoch >= 0 and answer.error is ErrorCode.NONE:
                name = str(answer.topic_partition)
                self.jury.see(Fetched(broker, name, request.replica_id, epoch, answer.leader_epoch))

    def _on_served(self, broker: int, body: FetchResponse) -> None:
        for answer in body.partitions:
            if answer.records:
                partition, marks = str(answer.topic_partition), marks_of(answer.records)
                if compacted := self._compacted.get(partition):
                    marks = tuple([compacted.original(mark) for mark in marks])
                self.jury.see(Served(broker, partition, answer.high_watermark, marks))
