"""The replica layer of broker 1 over a simulated disk, with a metadata image that a test writes by hand.

Set up, one step, look at the effects: each call returns what the step asked of the shell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar, final

from cluster.core.bounds import StepBounds
from cluster.core.broker.logs import BrokerLogs, DirectoryFailures
from cluster.core.broker.maintenance import LogMaintenance
from cluster.core.config import BrokerConfig
from cluster.core.effects import Effect, Observe, Reply, RunJob, Send
from cluster.core.errors import ErrorCode
from cluster.core.events import JobDone, Response, TransportError
from cluster.core.messages import (
    NO_EPOCH,
    AlterPartitionRequest,
    AlterPartitionResponse,
    EpochEnd,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    RequestBody,
    ResponseBody,
    TopicPartition,
)
from cluster.core.metadata.delta import MetadataDelta
from cluster.core.metadata.image import (
    BrokerRegistration,
    CurrentImage,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from cluster.core.metadata.records import MetadataRecord
from cluster.core.metadata.shared_map import SharedMap
from cluster.core.outbox import Outbox
from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.leader import Leader
from cluster.core.replica.manager import ReplicaManager
from cluster.core.replica.replica import Replica
from sim.disk import SimDisk
from sim.disk.life import Life
from storage.batch import iterate_batches, stamp
from storage.draws import Draws
from tests.cluster.broker.cluster_by_hand import batch, values_of

T0 = TopicPartition("t", 0)
NO_CONFIGS: Mapping[str, str] = {}
EffectKind = TypeVar("EffectKind", bound=Effect)


def broker_epoch_of(broker_id: int) -> int:
    return 100 + broker_id


@final
class Setup:
    """Broker 1. Brokers 1 to 3 are registered and unfenced, with epochs 101 to 103."""

    def __init__(self, *more_directories: str, **settings: int | StepBounds) -> None:
        self.now_ms = 1_000_000
        self.failures: list[str] = []
        self.disk = SimDisk(Draws(1), lambda: self.now_ms)
        self.outbox = Outbox()
        self.metadata = CurrentImage()
        config = replace(BrokerConfig(node_id=1), **settings)  # type: ignore[arg-type]
        file_system = self.disk.file_system(Life("1"))
        directories = ["data", *more_directories]
        failures = DirectoryFailures()
        self.logs = BrokerLogs(config, file_system, directories, Draws(1), self.outbox, failures)
        self.logs.open(self.now_ms)
        context = ReplicaContext(config, self.metadata, self.outbox, self.logs)
        maintenance = LogMaintenance(context, self.logs)
        maintenance.start(self.now_ms)
        self.manager = ReplicaManager(context, maintenance, self.failures.append)
        failures.listen(self.manager.on_directory_offline)
        failures.listen(maintenance.on_directory_offline)
        self.manager.context.broker_epoch = broker_epoch_of(1)
        self._next_call = 0
        for broker_id in (1, 2, 3):
            self.register(broker_id)
        self.manager.isr_changes.start(self.now_ms)
        self.outbox.take()

    # Metadata

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def set_topic(self, topic: TopicImage) -> None:
        """Put a topic into the image, in place of the one of its name."""
        topics = self.image.topics.changed_by({topic.name: topic})
        self.metadata.image = replace(self.image, topics=topics)

    def set_partition(self, registration: PartitionRegistration) -> None:
        """Put a partition of a topic that exists into the image."""
        topic = self.image.topics[registration.topic_partition.topic]
        changed = {registration.topic_partition.partition: registration}
        self.set_topic(replace(topic, partitions=topic.partitions.changed_by(changed)))

    def clear_topics(self) -> None:
        self.metadata.image = replace(self.image, topics=SharedMap())

    def replay(self, *records: MetadataRecord) -> list[Effect]:
        """Apply the records as the next delta: to the image, then to the roles."""
        delta = MetadataDelta(self.image)
        for offset, record in enumerate(records, self.image.next_offset):
            delta.apply(record, offset)
        self.metadata.image = delta.after()
        self.manager.roles.apply_delta(self.now_ms, delta)
        return self.settle()

    def register(self, broker_id: int, *, broker_epoch: int | None = None, fenced: bool = False) -> None:
        """Put a broker into the image, by default unfenced and with its usual epoch."""
        registration = BrokerRegistration(
            broker_id=broker_id,
            broker_epoch=broker_epoch_of(broker_id) if broker_epoch is None else broker_epoch,
            incarnation="0" * 32,
            host="h",
            port=9000 + broker_id,
            fenced=fenced,
            in_controlled_shutdown=False,
        )
        brokers = {**self.image.brokers, broker_id: registration}
        self.metadata.image = replace(self.image, brokers=brokers)

    def place(
        self,
        *,
        leader: int,
        replicas: tuple[int, ...] = (1, 2, 3),
        isr: tuple[int, ...] = (1, 2, 3),
        leader_epoch: int = 0,
        partition_epoch: int = 0,
        topic_partition: TopicPartition = T0,
        configs: Mapping[str, str] = NO_CONFIGS,
    ) -> list[Effect]:
        """Put a state of the partition into the image and apply it to the roles."""
        name = topic_partition.topic
        dotted = tuple(sorted(configs.items()))
        known = self.image.topics.get(name)
        if known is None:
            self.set_topic(TopicImage(name=name, topic_id="1f" * 16, configs=dotted))
        registration = PartitionRegistration(
            topic_partition=topic_partition,
            replicas=replicas,
            isr=isr,
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
        )
        self.set_partition(registration)
        self.manager.roles.apply(self.now_ms, registration)
        return self.settle()

    def settle(self) -> list[Effect]:
        self.manager.settle(self.now_ms)
        return self.outbox.take()

    # Looking

    @property
    def replica(self) -> Replica:
        return self.manager.context.replicas[T0]

    @property
    def leader(self) -> Leader:
        leader = self.replica.leader
        assert leader is not None
        return leader

    @property
    def high_watermark(self) -> int:
        return self.replica.log.high_watermark

    @property
    def end(self) -> int:
        return self.replica.log.log_end_offset

    def values(self) -> list[bytes]:
        return values_of(self.replica)

    # Asking

    def call(self) -> int:
        self._next_call += 1
        return self._next_call

    def request(self, body: FetchRequest | ProduceRequest | ListOffsetsRequest) -> list[Effect]:
        """Give the replica layer a request. Returns the effects."""
        match body:
            case FetchRequest():
                self.manager.fetches.on_request(self.now_ms, self.call(), body)
            case ProduceRequest():
                self.manager.produces.on_request(self.now_ms, self.call(), body)
            case ListOffsetsRequest():
                self.manager.list_offsets.on_request(self.call(), body)
        return self.settle()

    def append(self, *values: bytes) -> int:
        """Append one batch, as a client with acks=1 does. Returns the new log end offset."""
        answer = self.produce(*values, acks=1)
        assert answer is not None and answer.error is ErrorCode.NONE, answer
        return self.end

    def request_append(self, *values: bytes, acks: int = 1) -> list[Effect]:
        asked = ProducePartition(topic_partition=T0, records=batch(*values))
        return self.request(ProduceRequest(acks=acks, partitions=(asked,)))

    def produce(
        self,
        *values: bytes,
        acks: int = -1,
        timeout_ms: int = 30_000,
        producer_id: int = -1,
        base_sequence: int = -1,
        topic_partition: TopicPartition = T0,
    ) -> ProducePartitionResponse | None:
        """Produce one batch. Returns the answer, or None while it is parked."""
        records = batch(*values, producer_id=producer_id, base_sequence=base_sequence)
        return self.produce_bytes(records, acks=acks, timeout_ms=timeout_ms, topic_partition=topic_partition)

    def produce_bytes(
        self,
        records: bytes,
        *,
        acks: int = -1,
        timeout_ms: int = 30_000,
        topic_partition: TopicPartition = T0,
    ) -> ProducePartitionResponse | None:
        asked = ProducePartition(topic_partition=topic_partition, records=records)
        return produced(self.request(ProduceRequest(acks=acks, timeout_ms=timeout_ms, partitions=(asked,))))

    def fetch_effects(
        self,
        broker_id: int,
        fetch_offset: int,
        *,
        leader_epoch: int | None = None,
        last_fetched_epoch: int | None = None,
        broker_epoch: int | None = None,
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        topic_id: str | None = None,
    ) -> list[Effect]:
        """Fetch as broker `broker_id`, or as a consumer with -1. Epochs are the right ones unless given."""
        log = self.replica.log
        if last_fetched_epoch is None:
            known = log.epochs.epoch_for_offset(fetch_offset - 1) if fetch_offset > 0 else None
            last_fetched_epoch = NO_EPOCH if known is None else known
        if broker_epoch is None:
            broker_epoch = broker_epoch_of(broker_id) if broker_id >= 0 else -1
        asked = FetchPartition(
            topic_partition=T0,
            topic_id=self.replica.topic_id if topic_id is None else topic_id,
            fetch_offset=fetch_offset,
            current_leader_epoch=self.replica.leader_epoch if leader_epoch is None else leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
            max_bytes=max_bytes,
        )
        return self.request(
            FetchRequest(
                replica_id=broker_id,
                broker_epoch=broker_epoch,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                partitions=(asked,),
            )
        )

    def fetch(self, broker_id: int, fetch_offset: int, **asked: Any) -> FetchPartitionResponse:
        answer = fetched(self.fetch_effects(broker_id, fetch_offset, **asked))
        assert answer is not None, "parked"
        return answer

    def consume(self, fetch_offset: int, **asked: Any) -> FetchPartitionResponse:
        return self.fetch(-1, fetch_offset, **{"last_fetched_epoch": NO_EPOCH, **asked})

    def list_offsets(self, timestamp: int, *, leader_epoch: int = NO_EPOCH) -> ListOffsetsResponse:
        effects = self.request(
            ListOffsetsRequest(topic_partition=T0, timestamp=timestamp, current_leader_epoch=leader_epoch)
        )
        body = only(effects, Reply).body
        assert isinstance(body, ListOffsetsResponse)
        return body

    # Answering

    def answer(self, call: int, body: ResponseBody | TransportError) -> list[Effect]:
        self.outbox.on_response(self.now_ms, Response(call=call, body=body))
        return self.settle()

    def answer_alter(self, send: Send, **changes: object) -> list[Effect]:
        """Answer as a controller that accepts the proposal, with `changes` to the answer."""
        body = send.body
        assert isinstance(body, AlterPartitionRequest)
        accepted = AlterPartitionResponse(
            topic_partition=body.topic_partition,
            leader=body.broker_id,
            leader_epoch=body.leader_epoch,
            partition_epoch=body.partition_epoch + 1,
            isr=tuple(member.broker_id for member in body.new_isr),
        )
        return self.answer(send.call, replace(accepted, **changes))  # type: ignore[arg-type]

    def answer_fetch(self, send: Send, **fields: object) -> list[Effect]:
        """Answer the follower's fetch of its one partition."""
        body = send.body
        assert isinstance(body, FetchRequest)
        known: dict[str, object] = {"high_watermark": 0, "log_start_offset": 0, "log_end_offset": 0}
        answer = FetchPartitionResponse(
            topic_partition=body.partitions[0].topic_partition,
            **{**known, **fields},  # type: ignore[arg-type]
        )
        return self.answer(send.call, FetchResponse(partitions=(answer,)))

    def wait(self, for_ms: int, timer: str) -> list[Effect]:
        """Let time pass and fire that timer."""
        self.now_ms += for_ms
        self.outbox.on_timer(self.now_ms, timer)
        return self.settle()

    def run_jobs(self, effects: list[Effect]) -> list[Effect]:
        """Run the jobs that `effects` ask for, and those that follow. Returns the effects of all."""
        after: list[Effect] = []
        jobs = of(effects, RunJob)
        while jobs:
            job = jobs.pop(0)
            job.work()
            self.outbox.on_job_done(self.now_ms, JobDone(job=job.job))
            done = self.settle()
            after += done
            jobs += of(done, RunJob)
        return after


def of(effects: list[Effect], kind: type[EffectKind]) -> list[EffectKind]:
    return [effect for effect in effects if isinstance(effect, kind)]


def only(effects: list[Effect], kind: type[EffectKind]) -> EffectKind:
    found = of(effects, kind)
    assert len(found) == 1, effects
    return found[0]


def sent(effects: list[Effect], body: type[RequestBody]) -> list[Send]:
    return [effect for effect in of(effects, Send) if isinstance(effect.body, body)]


def only_sent(effects: list[Effect], body: type[RequestBody]) -> Send:
    found = sent(effects, body)
    assert len(found) == 1, effects
    return found[0]


def asked_of(send: Send) -> FetchPartition:
    assert isinstance(send.body, FetchRequest)
    assert len(send.body.partitions) == 1
    return send.body.partitions[0]


def produced(effects: list[Effect]) -> ProducePartitionResponse | None:
    bodies = [reply.body for reply in of(effects, Reply) if isinstance(reply.body, ProduceResponse)]
    assert len(bodies) <= 1, bodies
    return bodies[0].partitions[0] if bodies else None


def fetched(effects: list[Effect]) -> FetchPartitionResponse | None:
    bodies = [reply.body for reply in of(effects, Reply) if isinstance(reply.body, FetchResponse)]
    assert len(bodies) <= 1, bodies
    return bodies[0].partitions[0] if bodies else None


def observed(effects: list[Effect], kind: str) -> list[dict[str, int | str]]:
    return [dict(effect.fields) for effect in of(effects, Observe) if effect.kind == kind]


def stamped(base_offset: int, leader_epoch: int, *values: bytes) -> bytes:
    """Make a batch as it is in the log of that epoch's leader."""
    data = bytearray(batch(*values))
    stamp(data, 0, base_offset=base_offset, partition_leader_epoch=leader_epoch)
    return bytes(data)


def diverging(epoch: int, end_offset: int) -> EpochEnd:
    return EpochEnd(epoch=epoch, end_offset=end_offset)


def first_values(answer: FetchPartitionResponse) -> list[bytes]:
    batches = iterate_batches(answer.records)
    return [record.value or b"" for each in batches for record in each.records()]
