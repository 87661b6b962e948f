"""A broker: `start`, then one `step` for each event; both return what the broker wants done as effects.

It joins the parts: logs, replicas, the observer of metadata, the life cycle. Kafka: BrokerServer, KafkaApis.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import assert_never, final

from cluster.core import fencing
from cluster.core.broker.ending import Ending, OrderlyStop
from cluster.core.broker.forwarding import Forwarding, ProducerIds
from cluster.core.broker.lifecycle import BrokerState, Lifecycle
from cluster.core.broker.logs import BrokerLogs, DirectoryFailures
from cluster.core.broker.maintenance import LogMaintenance
from cluster.core.broker.metadata_observer import MetadataObserver
from cluster.core.broker.publication import Publication
from cluster.core.config import BrokerConfig
from cluster.core.effects import Effect
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.events import Event, JobDone, Request, Response, Shutdown, TimerFired
from cluster.core.fencing import LogView
from cluster.core.messages import (
    NO_BROKER_EPOCH,
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AlterTopicConfigsRequest,
    BrokerHeartbeatRequest,
    CreatePartitionsRequest,
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
from cluster.core.metadata.image import CurrentImage, MetadataImage
from cluster.core.outbox import Outbox
from cluster.core.refusals import refusal
from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.leader_appends import WaitingAppend
from cluster.core.replica.manager import ReplicaManager
from cluster.core.replica.replica import Replica
from storage.disk.filesystem import FileSystem
from storage.disk.lack import is_lack
from storage.draws import Draws
from storage.errors import StorageError

logger = logging.getLogger(__name__)

ACKS_NONE = 0


@final
class Broker:
    """One life of a broker with one or several log directories on `fs`. Only one thread calls it.

    `recovered` are the directories of logs that were recovered for this start already.
    """

    def __init__(
        self,
        config: BrokerConfig,
        fs: FileSystem,
        directories: str | Sequence[str],
        draws: Draws,
        *,
        recovered: Collection[str] = (),
    ) -> None:
        self.config = config
        self.node_id = config.node_id
        metadata = CurrentImage()
        self._outbox = Outbox()
        failures = DirectoryFailures()
        self._logs = BrokerLogs(config, fs, directories, draws, self._outbox, failures, recovered=recovered)
        self._ending = Ending(self._outbox, self._logs)
        self._context = context = ReplicaContext(config, metadata, self._outbox, self._logs)
        self.maintenance = LogMaintenance(context, self._logs)
        self.manager = ReplicaManager(context, self.maintenance, self._ending.fail)
        failures.listen(self.manager.on_directory_offline)
        failures.listen(self.maintenance.on_directory_offline)
        self._publication = Publication(context, self.manager.roles)
        orderly_stop = OrderlyStop(self._ending, self.manager, self.maintenance, self._logs)
        self.lifecycle = Lifecycle(context, self._logs, self._publication, self._ending, orderly_stop, draws)
        self._metadata = MetadataObserver(context, self._publication, self.lifecycle, self._ending)
        self._forwarding = Forwarding(context)
        self._producer_ids = ProducerIds(context)

    @property
    def image(self) -> MetadataImage:
        """The metadata that the broker acts on."""
        return self._context.metadata.image

    @property
    def applied_offset(self) -> int:
        """The offset of the image that the roles of all replicas rest on; -1 while it has none."""
        return self._publication.applied_offset

    def replicas(self) -> Mapping[TopicPartition, Replica]:
        """Returns a view of all replicas, for tables and checkers."""
        return MappingProxyType(self._context.replicas)

    def waiting_appends(self) -> list[tuple[TopicPartition, WaitingAppend]]:
        """Returns all appends that wait, in order of arrival, for checkers. A broker that has ended answers nobody."""
        if self._ending.is_over:
            return []
        return [(each.appended.topic_partition, each) for each in self.manager.appends.waiting()]

    @property
    def waits_for_checks(self) -> bool:
        """Whether any produced set waits for its checks, which are jobs; for checkers."""
        return not self._ending.is_over and self.manager.appends.waits_for_checks

    @property
    def waits_for_ids(self) -> bool:
        """Whether any producer waits for an id of the controller; for checkers."""
        return not self._ending.is_over and self._producer_ids.are_awaited

    @property
    def online_directories(self) -> list[str]:
        """The log directories that the broker goes on with; for checkers."""
        return [manager.directory for manager in self._logs.directories.online]

    def waiting_fetches(self, topic_partition: TopicPartition) -> list[LogView]:
        """Returns the topic id and leader epoch that the replica had when each fetch of it that waits was parked."""
        if self._ending.is_over:
            return []
        return self.manager.fetches.waiting(topic_partition)

    def start(self, now_ms: int) -> list[Effect]:
        """Loads the logs, then asks for registration and metadata. Raises DirectoryInUse, StorageError, OSError."""
        self._logs.open(now_ms)
        self._outbox.observe("broker.started", clean=int(self._logs.directories.was_clean))
        self._logs.start_checkpoints(now_ms)
        self.maintenance.start(now_ms)
        self.manager.isr_changes.start(now_ms)
        self.manager.flushes.start(now_ms)
        self.lifecycle.start(now_ms)
        self._metadata.start(now_ms)
        return self._outbox.take()

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        return self.steps(now_ms, (event,))

    def steps(self, now_ms: int, events: Sequence[Event]) -> list[Effect]:
        """Handles several events that arrived together; waiting requests are looked at once, after the last event.

        Under load, each follower then gets one answer for five produced batches instead of five answers.
        """
        for event in events:
            self._handle(now_ms, event)
        if self.lifecycle.state is not BrokerState.SHUTTING_DOWN:
            self._settle(now_ms)
            if self._context.has_newly_offline and not self._ending.is_over:
                # Without an epoch `beat` would do nothing, and the controller would not learn of them.
                assert self._context.broker_epoch != NO_BROKER_EPOCH, len(self._context.offline)
                self._context.has_newly_offline = False
                self._settle(now_ms)
                self.lifecycle.beat(now_ms)
        return self._outbox.take()

    def hide_observations(self, kinds: Collection[str]) -> None:
        """Makes no observations of these kinds from now on; nothing else changes."""
        self._outbox.hidden = frozenset(kinds)

    def forget(self, call: int) -> None:
        """Drops what waits here for a client that has left: a fetch, a produce, or a request for a producer id."""
        self.manager.fetches.forget(call)
        self.manager.produces.forget(call)
        self._producer_ids.forget(call)

    def _handle(self, now_ms: int, event: Event) -> None:
        """Handles one event, unless the broker has ended."""
        if self._ending.is_over:
            return
        try:
            self._dispatch(now_ms, event)
        except (StorageError, OSError) as error:
            self._survive(error)

    def _settle(self, now_ms: int) -> None:
        """Looks at the requests that wait, unless the broker has ended."""
        if self._ending.is_over:
            return
        try:
            self.manager.settle(now_ms)
        except (StorageError, OSError) as error:
            self._survive(error)

    def _survive(self, error: StorageError | OSError) -> None:
        """Takes the directory offline whose disk fails. The broker ends only with its last directory, and not for want
        of a descriptor.
        """
        offline = self._logs.find_offline_log()
        if offline is None and is_lack(error):
            logger.warning("step cut short: reason=%s", error)
            return
        try:
            self._logs.on_disk_failed(offline, error)
        except (StorageError, OSError) as last:
            self._ending.fail(str(last))

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

    def _on_request(self, now_ms: int, request: Request) -> None:
        call, body = request.call, request.body
        if self.lifecycle.state is BrokerState.SHUTTING_DOWN:
            self._refuse(call, body, ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is shutting down")
            return
        match body:
            case FetchRequest():
                self._on_fetch(now_ms, call, body)
            case ProduceRequest():
                self.manager.produces.on_request(now_ms, call, body)
            case ListOffsetsRequest():
                self.manager.list_offsets.on_request(call, body)
            case MetadataRequest():
                self._describe_metadata(call, body)
            case DescribeReplicasRequest():
                self._outbox.reply(call, self.manager.describe(body, self.lifecycle.state.value))
            case InitProducerIdRequest():
                self._producer_ids.on_request(call)
            case (
                CreateTopicRequest()
                | DeleteTopicRequest()
                | AlterTopicConfigsRequest()
                | CreatePartitionsRequest()
            ):
                self._forwarding.forward(call, body)
            case (
                AllocateProducerIdsRequest()
                | RegisterBrokerRequest()
                | BrokerHeartbeatRequest()
                | AlterPartitionRequest()
                | FetchMetadataRequest()
            ):
                self._refuse(
                    call, body, ErrorCode.NOT_CONTROLLER, f"{type(body).__name__} is for the controller"
                )
            case _:
                assert_never(body)

    def _on_fetch(self, now_ms: int, call: int, body: FetchRequest) -> None:
        """Compares the sender of a follower's fetch before anything else (G-4); a consumer has no header."""
        if body.replica_id >= 0:
            try:
                self._check_sender(body)
            except ClusterError as error:
                self._outbox.reply(call, refusal(body, error))
                return
        self.manager.fetches.on_request(now_ms, call, body)

    def _check_sender(self, body: FetchRequest) -> None:
        fencing.check_names_itself(body.header, body.replica_id, body.broker_epoch)
        assert body.header is not None, body.replica_id
        fencing.check_cluster(body.replica_id, body.header.cluster_id, self._context.header.cluster_id)
        known = self._context.metadata.image.brokers.get(body.replica_id)
        if known is not None:
            named = (body.broker_epoch, body.header.incarnation)
            fencing.check_life(body.replica_id, named, (known.broker_epoch, known.incarnation))

    def _describe_metadata(self, call: int, body: MetadataRequest) -> None:
        """Answers with the metadata, once the image is published.

        Half an image would show clients topics that do not exist any more, and hide topics that do.
        """
        if not self._publication.is_published:
            self._refuse(call, body, ErrorCode.BROKER_NOT_AVAILABLE, "the broker is starting")
            return
        self._outbox.reply(call, self._context.metadata.image.describe(body.topics))

    def _refuse(self, call: int, body: RequestBody, code: ErrorCode, detail: str) -> None:
        if isinstance(body, ProduceRequest) and body.acks == ACKS_NONE:
            return
        self._outbox.reply(call, refusal(body, ClusterError(code, detail)))
