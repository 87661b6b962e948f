"""Reads the controller's metadata log from its disk, and shows what it says, and what its answers make of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from typing import NamedTuple, final

from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Request
from cluster.core.messages import (
    NO_BROKER_EPOCH,
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    CreateTopicResponse,
    FetchMetadataRequest,
    FetchMetadataResponse,
    Header,
    MetadataResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RequestBody,
    ResponseBody,
    TopicMetadata,
)
from cluster.core.metadata.batches import MORE_HEADER
from cluster.core.metadata.image import MetadataImage
from cluster.core.metadata.records import (
    AbortTransactionRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_record,
)
from sim.checkers.base import Jury
from sim.checkers.fail_over import FailOver
from sim.checkers.metadata_replay import MetadataReplay
from sim.checkers.named_leaders import NamedLeaders
from sim.checkers.shutdowns import is_refused, is_signed
from sim.checkers.sightings import Accepted, Described, Elected, IsrChanged, Recorded, Settled
from sim.disk import SimDisk
from sim.witness.log_reader import DiskEye, LogReader
from storage.batch import RecordBatch
from storage.disk.filesystem import join
from storage.topics import METADATA_TOPIC

# What a broker asks in its own name, once it is registered.
_OfBroker = (AllocateProducerIdsRequest, AlterPartitionRequest, BrokerHeartbeatRequest, FetchMetadataRequest)
COMMITTED = "committed-metadata"
BROKER_LIVES = "broker-lives"
INELIGIBLE = "refused-members"
# Is called with (topic, topic id) of a new topic, or with (topic, None) of a deleted one.
OnTopic = Callable[[str, str | None], None]


class Heard(NamedTuple):
    """A heartbeat that the controller has taken; all that it has decided since is at `offset` or above."""

    offset: int
    at_us: int
    broker: int
    # The partitions that the broker cannot read, and the ids of their topics.
    offline: tuple[tuple[str, str], ...]


@final
class ControllerLog:
    """The decisions that the controller's disk keeps for good, replayed in order.

    A record is committed once it is durable on the disk of the only controller: no claim of the controller counts.
    A decision in several batches counts once its last batch is durable.
    `names` are the partitions that the checkers judge; `on_topic` hears of topics before anything in them is shown.
    """

    def __init__(
        self, jury: Jury, disk: SimDisk, directory: str, names: Container[str], on_topic: OnTopic,
        fail_over: FailOver,
    ) -> None:  # fmt: skip
        self.replay = MetadataReplay()
        # The offset of the last election of each partition.
        self.elected_at: dict[str, int] = {}
        self._jury, self._names, self._on_topic = jury, names, on_topic
        self._fail_over = fail_over
        self.named = NamedLeaders(jury)
        self._reader = LogReader(DiskEye(disk), join(directory, f"{METADATA_TOPIC}-0"))
        self._durable_end = 0
        # When each registration was replaced that is not the present one of its broker, by broker epoch.
        self._replaced_us: dict[int, int] = {}
        # By broker: the partitions and topic ids that it cannot read, as its last heartbeat said, and since when.
        self._offline: dict[int, dict[tuple[str, str], int]] = {}
        # The heartbeats after decisions that were not read yet, in order.
        self._heard: deque[Heard] = deque()
        # The end of the metadata after the controller's last step, durable or not; None before the first one of a life.
        self._decided_end: int | None = None
        # Whether a heartbeat has ever named such a partition, also one that the controller has not answered.
        self._may_be_offline = False
        # The brokers that have ever named a partition so, by partition and topic id.
        self._named_by: dict[tuple[str, str], set[int]] = {}
        # The records of a decision whose last batch was not read yet.
        self._open: list[tuple[int, MetadataRecord]] = []

    def read_on(self) -> None:
        """Show the decisions that became durable since the last call."""
        reader = self._reader
        fresh = len(reader.read_on())
        if not fresh:
            return
        durable_end = reader.durable_end()
        for place, data in list(reader.batches(last=fresh)):
            if place.mark.next_offset <= durable_end:
                self._on_batch(RecordBatch(data, 0, len(data)))
        # What is not durable may be lost and replaced: it is read again.
        reader.truncated(durable_end)
        self._durable_end = durable_end

    def _on_batch(self, batch: RecordBatch) -> None:
        """Keep the batch's records until their decision is whole, or given up by the controller's next life."""
        is_last = True
        for record in batch.records():
            decoded = decode_record(record.value)
            if isinstance(decoded, AbortTransactionRecord):
                self._open.clear()
            self._open.append((record.offset, decoded))
            is_last = is_last and all(name != MORE_HEADER for name, _ in record.headers)
        if is_last:
            decision, self._open = self._open, []
            self._on_decision(decision)

    def _on_decision(self, decision: list[tuple[int, MetadataRecord]]) -> None:
        for offset, record in decision:
            self._note_heard(offset)
            if isinstance(record, TopicRecord):
                self._on_topic(record.name, record.topic_id)
            elif isinstance(record, RemoveTopicRecord):
                self._on_topic(record.name, None)
            elif isinstance(record, RegisterBrokerRecord):
                self._on_replaced(record.broker_id)
                self._offline.pop(record.broker_id, None)
            for found in self.replay.apply(offset, record):
                if isinstance(found, str):
                    self._jury.report(BROKER_LIVES, found)
                    continue
                self.named.on_recorded(found.partition, found.after.leader, found.after.leader_epoch)
                if found.partition in self._names:
                    self._on_recorded(found)
        for settled in self.replay.settled():
            if settled.partition in self._names:
                self._jury.see(self._with_knowledge(settled))
        self._note_heard(self.replay.next_offset)

    def _with_knowledge(self, settled: Settled) -> Settled:
        """Returns the sighting with what heartbeats have said of logs that cannot be read."""
        if not self._may_be_offline:
            return settled
        named = (settled.partition, self.replay.partitions[settled.partition][-1].topic_id)
        named_by = tuple(sorted(self._named_by.get(named, ())))
        return settled._replace(may_be_offline=True, named_by=named_by)

    def _on_replaced(self, broker: int) -> None:
        """Note that the broker's registration, if it has one, is about to be replaced by a later one."""
        life = self.replay.lives.get(broker)
        if life is not None:
            assert life.epoch not in self._replaced_us, (broker, life)
            self._replaced_us[life.epoch] = self._jury.now_us()

    def on_died(self) -> None:
        """Note the end of the controller's process, which has forgotten what brokers cannot read."""
        self._offline.clear()
        self._heard.clear()
        self._decided_end = None

    def on_step(self, events: Sequence[Event], effects: Sequence[object], image: MetadataImage) -> None:
        """Receive a step of the controller; `image` has all that it has decided, durable or not.

        What a heartbeat says of logs that cannot be read counts from the step that takes it. It need not be answered:
        one that another has overtaken may come when its sender has given it up.
        """
        end = image.next_offset if self._decided_end is None else self._decided_end
        self._decided_end = image.next_offset
        event = events[0]
        if type(event) is Request and isinstance(event.body, AlterPartitionRequest) and len(events) == 1:
            self._judge_ineligible(event.call, event.body, effects, image)
        if type(event) is not Request or not isinstance(event.body, BrokerHeartbeatRequest):
            return
        if is_signed(event.body, image) and not is_refused(event.call, effects):
            named = tuple(
                [(str(each.topic_partition), each.topic_id) for each in event.body.offline_partitions]
            )
            self._heard.append(Heard(end, self._jury.now_us(), event.body.broker_id, named))
            self._note_heard(self.replay.next_offset)

    def _note_heard(self, offset: int) -> None:
        """Note what the heartbeats have said on which decisions from `offset` on rest."""
        while self._heard and self._heard[0].offset <= offset:
            heard = self._heard.popleft()
            known = self._offline.get(heard.broker, {})
            self._offline[heard.broker] = {each: known.get(each, heard.at_us) for each in heard.offline}

    def _judge_ineligible(
        self, call: int, asked: AlterPartitionRequest, effects: Sequence[object], image: MetadataImage
    ) -> None:
        """Judge a refusal for a member that may not be in sync: one is not active, in another life or cannot read."""
        replies = [effect.body for effect in effects if type(effect) is Reply and effect.call == call]
        if not any(
            isinstance(body, AlterPartitionResponse) and body.error is ErrorCode.INELIGIBLE_REPLICA
            for body in replies
        ):
            return
        partition = str(asked.topic_partition)
        members = {each.broker_id: each.broker_epoch for each in asked.new_isr}
        may_not_read = {
            *self.unreadable(partition),
            *[heard.broker for heard in self._heard if heard.offline],
        }
        are_fit = all(
            image.is_active(each) and image.broker_epoch(each) == epoch for each, epoch in members.items()
        )
        if are_fit and not may_not_read & members.keys():
            what = f"the ISR {list(members)} was refused as ineligible; all are active, and can read it"
            self._jury.report(INELIGIBLE, f"{partition}: {what}")

    def unreadable(self, partition: str) -> dict[int, int]:
        """Returns the brokers that have said that they cannot read the partition that exists now, and since when."""
        return {
            broker: since_us
            for broker, named in sorted(self._offline.items())
            for (name, topic_id), since_us in named.items()
            if name == partition and self.replay.is_present(partition, topic_id)
        }

    def _on_recorded(self, found: Recorded) -> None:
        offline = tuple(self.unreadable(found.partition))
        found = found._replace(offline=offline, may_be_offline=self._may_be_offline)
        self._jury.see(found)
        before, after = found.before, found.after
        if before is None or before.leader_epoch != after.leader_epoch:
            self.elected_at[found.partition] = self.replay.next_offset - 1
            clean = before is None or after.leader < 0 or after.leader in before.isr
            self._jury.see(
                Elected(
                    found.partition, after.leader, after.leader_epoch, after.isr, clean,
                    clean or found.allows_unclean,
                )
            )  # fmt: skip
        elif before.isr != after.isr:
            self._jury.see(IsrChanged(found.partition, after.isr))

    def on_request(self, request: RequestBody) -> None:
        """Note a heartbeat that the controller got from the present life of a broker."""
        if not isinstance(request, BrokerHeartbeatRequest):
            return
        self._may_be_offline = self._may_be_offline or bool(request.offline_partitions)
        for each in request.offline_partitions:
            named = (str(each.topic_partition), each.topic_id)
            self._named_by.setdefault(named, set()).add(request.broker_id)
        if self._is_of_present_life(request):
            self._fail_over.on_taken(request.broker_id, self._jury.now_us())

    def _is_of_present_life(self, request: BrokerHeartbeatRequest) -> bool:
        life = self.replay.lives.get(request.broker_id)
        return life is not None and life.epoch == request.broker_epoch

    def on_answer(self, request: RequestBody, body: ResponseBody, *, asked_us: int) -> None:
        """Judge an answer of the controller by the log as it is now (C3): it must not be ahead of it.

        `asked_us` is when the controller got the request.
        """
        what: str | None = None
        # Most answers are to heartbeats, and to fetches for which there is nothing new.
        if not isinstance(body, BrokerHeartbeatResponse) and not self._is_known(body):
            self.read_on()
        match request, body:
            case (AlterPartitionRequest(), AlterPartitionResponse(error=ErrorCode.NONE)):
                self._on_accepted(request, body)
            case (RegisterBrokerRequest(), RegisterBrokerResponse(error=ErrorCode.NONE)):
                what = self._wrong_registration(request, body.broker_epoch, asked_us)
            case (BrokerHeartbeatRequest(), BrokerHeartbeatResponse(error=ErrorCode.NONE)):
                self._on_heartbeat(request, body)
            case (BrokerHeartbeatRequest(), BrokerHeartbeatResponse()) if self._is_of_present_life(request):
                self._fail_over.on_refused(request.broker_id)
            case (_, FetchMetadataResponse(error=ErrorCode.NONE)):
                if body.high_watermark > self._durable_end:
                    what = f"metadata up to {body.high_watermark} was handed out"
            case (_, CreateTopicResponse(error=ErrorCode.NONE)):
                if body.topic_id not in self.replay.topic_names:
                    what = f"a topic of id {body.topic_id} was reported as created"
        if not _is_refused(body) and (header := _sender(request)) is not None:
            self._judge_sender(header, type(request).__name__, asked_us)
        if what is not None:
            self._jury.report(COMMITTED, f"{what}; durable are the offsets below {self._durable_end}")

    def _judge_sender(self, header: Header, asked: str, asked_us: int) -> None:
        """Report that the controller obeyed a process whose registration was over when it was asked (KR-CTL-4)."""
        epoch, sender = header.broker_epoch, (header.broker_id, header.incarnation)
        registered = self.replay.registrations.get(epoch)
        text = f"{asked} of broker {header.broker_id} in epoch {epoch}, incarnation {header.incarnation}, was obeyed"
        if registered is not None and registered != sender:
            self._jury.report(BROKER_LIVES, f"{text}; registered is incarnation {registered[1]}")
        elif self._replaced_us.get(epoch, asked_us) < asked_us:
            self._jury.report(
                BROKER_LIVES,
                f"{text}; its next life was registered {asked_us - self._replaced_us[epoch]} us before",
            )

    def _wrong_registration(self, request: RegisterBrokerRequest, epoch: int, asked_us: int) -> str | None:
        """Returns what is wrong with the epoch that a broker was told, if anything.

        The epoch is that of a registration of this incarnation, which was the present one at some time since the
        request came. Registrations share a flush, and their answers leave after it in order, as Kafka's do: one may be
        replaced when its broker is told of it.
        """
        broker, incarnation = request.broker_id, request.incarnation
        told = f"broker {broker} was told epoch {epoch} in incarnation {incarnation}"
        if self.replay.registrations.get(epoch) != (broker, incarnation):
            return f"{told}; the log has {self.replay.lives.get(broker)}"
        if self._replaced_us.get(epoch, asked_us) < asked_us:
            return f"{told}; it was replaced before it asked, by {self.replay.lives[broker]}"
        return None

    def _is_known(self, body: ResponseBody) -> bool:
        """Whether an answer to a fetch of metadata names no offset beyond those that were read."""
        return isinstance(body, FetchMetadataResponse) and body.high_watermark <= self.replay.next_offset

    def _on_heartbeat(self, request: BrokerHeartbeatRequest, body: BrokerHeartbeatResponse) -> None:
        broker, offset = request.broker_id, request.metadata_offset
        self._fail_over.on_heartbeat(broker, request.broker_epoch, offset, self._jury.now_us())
        if not body.is_fenced and offset <= request.broker_epoch:
            text = f"broker {broker} was unfenced at metadata offset {offset}"
            self._jury.report(BROKER_LIVES, f"{text}, before its registration at {request.broker_epoch}")

    def _on_accepted(self, request: AlterPartitionRequest, body: AlterPartitionResponse) -> None:
        name = str(request.topic_partition)
        if name not in self._names:
            return
        history = self.replay.history(name, request.topic_id)
        base = None if history is None else history.at_epoch(request.partition_epoch)
        result = None if history is None else history.at_epoch(body.partition_epoch)
        self._jury.see(
            Accepted(
                name, request.broker_id, request.broker_epoch, request.leader_epoch,
                tuple([(member.broker_id, member.broker_epoch) for member in request.new_isr]),
                None if base is None else base.state,
                None if result is None else result.state,
                () if result is None else result.broker_epochs,
                (body.leader, body.leader_epoch, body.isr),
            )
        )  # fmt: skip

    def on_described(self, node: int, body: MetadataResponse) -> None:
        """Show each partition of an answer about metadata beside what the log has below the answer's offset."""
        if body.metadata_offset > self.replay.next_offset:
            self.read_on()
        if body.metadata_offset > self.replay.next_offset:
            what = f"node {node} describes metadata offset {body.metadata_offset}"
            self._jury.report(COMMITTED, f"{what}; durable are the offsets below {self.replay.next_offset}")
            return
        for topic in body.topics:
            if topic.error is ErrorCode.NONE:
                for described in self._described(node, topic, body.metadata_offset):
                    self._jury.see(described)

    def _described(self, node: int, topic: TopicMetadata, offset: int) -> Iterator[Described]:
        for each in topic.partitions:
            name = f"{topic.name}-{each.partition}"
            if name in self._names:
                history = self.replay.history(name, topic.topic_id)
                recorded = None if history is None else history.below(offset)
                said = (each.replicas, each.isr, each.leader, each.leader_epoch)
                yield Described(node, name, offset, said, recorded)


def _sender(request: RequestBody) -> Header | None:
    """Returns the header of a request of a registered broker, None for any other request."""
    header = request.header if isinstance(request, _OfBroker) else None
    return header if header is not None and header.broker_epoch != NO_BROKER_EPOCH else None


def _is_refused(body: ResponseBody) -> bool:
    return getattr(body, "error", ErrorCode.NONE) is not ErrorCode.NONE
