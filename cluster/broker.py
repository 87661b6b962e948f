"""A broker: `start`, then one `step` an event; everything it wants done comes back as effects.

It joins the parts: logs, replicas, the observer of metadata, the life cycle. Kafka: BrokerServer, KafkaApis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import assert_never, final

from cluster.broker_forwarding import Forwarding, ProducerIds
from cluster.broker_lifecycle import BrokerState, Lifecycle
from cluster.broker_logs import BrokerLogs
from cluster.broker_metadata import MetadataObserver
from cluster.config import BrokerConfig
from cluster.effects import Effect
from cluster.errors import ClusterError, ErrorCode
from cluster.events import Event, JobDone, Request, Response, Shutdown, TimerFired
from cluster.log_maintenance import LogMaintenance
from cluster.messages import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AlterTopicConfigsRequest,
    BrokerHeartbeatRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    DescribeReplicasRequest,
    FetchMetadataRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
    RegisterBrokerRequest,
    RequestBody,
    TopicPartition,
)
from cluster.metadata import MetadataImage
from cluster.refusals import refusal
from cluster.replica.manager import ReplicaManager
from cluster.replica.outbox import Outbox
from cluster.replica.replica import Replica
from storage.draws import Draws
from storage.errors import StorageError
from storage.filesystem import FileSystem

NO_PREVIOUS_EPOCH = -1
ACKS_NONE = 0


@final
class Broker:
    """One life of a broker, over its log directories on `fs`, a single one or several. One thread calls it."""

    def __init__(
        self, config: BrokerConfig, fs: FileSystem, directories: str | Sequence[str], draws: Draws
    ) -> None:
        self.config = config
        self.node_id = config.node_id
        self.image = MetadataImage()
        self._outbox = Outbox()
        self._logs = BrokerLogs(config, fs, directories, draws, self._outbox)
        self.manager = ReplicaManager(config, self.image, self._outbox, self._logs, self.on_fatal)
        self._context = self.manager.context
        self.maintenance = LogMaintenance(self._context, self._logs)
        self._logs.on_offline = self._on_directory_offline
        self.metadata = MetadataObserver(self._context, self.manager.roles)
        self.lifecycle = Lifecycle(self._context, self, draws)
        self.metadata.attach(self.lifecycle)
        self._forwarding = Forwarding(self._context)
        self._producer_ids = ProducerIds(self._context)
        self._is_stopped = False

    def replicas(self) -> Mapping[TopicPartition, Replica]:
        """For tables and checkers, which only read."""
        return MappingProxyType(self._context.replicas)

    @property
    def state(self) -> BrokerState:
        return self.lifecycle.state

    # start and step

    def start(self, now_ms: int) -> list[Effect]:
        """Loads the logs, then asks for registration and metadata. Raises DirectoryInUse, StorageError, OSError."""
        self._logs.open(now_ms)
        self._outbox.observe("broker.started", clean=int(self._logs.directories.was_clean))
        self._logs.start_checkpoints(now_ms)
        self.maintenance.start(now_ms)
        self.manager.isr_changes.start(now_ms)
        self.manager.flushes.start(now_ms)
        self.lifecycle.start(now_ms)
        self.metadata.start(now_ms)
        return self._outbox.take()

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        return self.steps(now_ms, (event,))

    def steps(self, now_ms: int, events: Sequence[Event]) -> list[Effect]:
        """Several events that arrived together; who waits for what they moved is looked at once, at the end.

        Under load this makes of five produced batches one answer to each follower instead of five.
        """
        for event in events:
            self._survive(partial(self._dispatch, now_ms, event))
        if self.state is not BrokerState.SHUTTING_DOWN:
            self._survive(partial(self.manager.settle, now_ms))
            if self._context.has_newly_offline and not self._is_stopped:
                self._context.has_newly_offline = False
                self._survive(partial(self.manager.settle, now_ms))
                self.lifecycle.beat(now_ms)
        return self._outbox.take()

    def _survive(self, work: Callable[[], None]) -> None:
        """Does it, unless the broker has ended. A disk that fails ends the broker only with its last log directory."""
        if self._is_stopped:
            return
        try:
            work()
        except (StorageError, OSError) as error:
            try:
                self._logs.on_disk_failed(self._logs.find_offline_log(), error)
            except (StorageError, OSError) as last:
                self.on_fatal(str(last))

    def _on_directory_offline(self, directory: str) -> None:
        self.manager.on_directory_offline(directory)
        self.maintenance.on_directory_offline(directory)

    def _dispatch(self, now_ms: int, event: Event) -> None:
        match event:
            case Request():
                self._on_request(now_ms, event)
            case Response():
                self._outbox.on_response(now_ms, event)
            case TimerFired():
                self._outbox.on_timer(now_ms, event.key)
            case JobDone():
                self._outbox.on_job_done(now_ms, event)
            case Shutdown():
                self.lifecycle.leave(now_ms)
            case _:
                assert_never(event)

    # requests

    def _on_request(self, now_ms: int, request: Request) -> None:
        call, body = request.call, request.body
        if self.state is BrokerState.SHUTTING_DOWN:
            self._refuse(call, body, ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is shutting down")
            return
        match body:
            case FetchRequest() | ProduceRequest() | ListOffsetsRequest():
                self.manager.on_request(now_ms, call, body)
            case MetadataRequest():
                self._describe_metadata(call, body)
            case DescribeReplicasRequest():
                self._outbox.reply(call, self.manager.describe(body, self.state.value))
            case InitProducerIdRequest():
                self._producer_ids.on_request(call)
            case CreateTopicRequest() | DeleteTopicRequest() | AlterTopicConfigsRequest():
                self._forwarding.forward(call, body)
            case (
                AllocateProducerIdsRequest()
                | RegisterBrokerRequest()
                | BrokerHeartbeatRequest()
                | AlterPartitionRequest()
                | FetchMetadataRequest()
            ):
                self._refuse(
                    call, body, ErrorCode.NOT_CONTROLLER, f"{type(body).__name__} is the controller's"
                )
            case _:
                assert_never(body)

    def _describe_metadata(self, call: int, body: MetadataRequest) -> None:
        """Half an image would tell clients of topics that do not exist any more, or not of those that do."""
        if not self.metadata.is_published:
            self._refuse(call, body, ErrorCode.BROKER_NOT_AVAILABLE, "the broker is starting")
            return
        self._outbox.reply(call, self.image.describe(body.topics))

    def _refuse(self, call: int, body: RequestBody, code: ErrorCode, detail: str) -> None:
        if isinstance(body, ProduceRequest) and body.acks == ACKS_NONE:
            return
        self._outbox.reply(call, refusal(body, ClusterError(code, detail)))

    # what the life cycle asks

    def cluster_id(self) -> str:
        return self._logs.cluster_id

    def previous_broker_epoch(self) -> int:
        """-1 unless the last stop was clean (ELE-9)."""
        directories = self._logs.directories
        epoch = directories.previous_broker_epoch
        return epoch if directories.was_clean and epoch is not None else NO_PREVIOUS_EPOCH

    def offline_partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(sorted(self._context.offline))

    def metadata_offset(self) -> int:
        return self.image.next_offset

    def has_caught_up(self) -> bool:
        return self.metadata.has_caught_up()

    def on_registered(self, now_ms: int, cluster_id: str) -> None:
        self._logs.remember_cluster(cluster_id)
        self.metadata.maybe_publish_first(now_ms)

    # the end

    def on_leave_granted(self, now_ms: int) -> None:
        """Nobody is served from here on; then flush, close, and the mark of a clean stop, in one job."""
        self.metadata.stop()
        self.manager.stop(now_ms)
        self._outbox.forget_all()
        stop_maintenance = self.maintenance.prepare_stop()
        close_logs = self._logs.prepare_shutdown(self._context.broker_epoch, now_ms)

        def shut_down() -> None:
            stop_maintenance()
            close_logs()

        self._outbox.run_job("shutdown", shut_down, self._on_shut_down)

    def _on_shut_down(self, now_ms: int, error: Exception | None) -> None:
        self._is_stopped = True
        self._outbox.stop("shutdown" if error is None else f"shutdown: {error}")

    def on_fatal(self, reason: str) -> None:
        """The state of the disk or of the cluster is not known any more: no word of this life counts from here."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._outbox.stop(reason)
        self._logs.close_handles()
