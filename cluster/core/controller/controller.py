"""The controller: one decision at a time, answered only when it is on disk (CTL-3). Kafka: QuorumController.

| event | what happens |
| --- | --- |
| a request that changes something | checked on the pending image, appended as a batch; the reply waits for a flush |
| a request that changes nothing | its reply waits until the appended records that it depends on are committed |
| the flush is done | the committed image is updated; replies, observations, parked fetches follow in order |
| FetchMetadata | answered with committed records from an offset on, or parked until there are some |
| the session timer | one expired broker is fenced (BRK-4) |

A failed write or flush ends the node: recovery at the next start finds out what the log holds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import final

from cluster.core.controller.brokers import BrokerControl
from cluster.core.controller.config import ControllerConfig
from cluster.core.controller.decisions import Decision
from cluster.core.controller.elections import LeaderElection
from cluster.core.controller.metadata_damage import DamagedMetadataLog
from cluster.core.controller.metadata_log import StoredMetadataLog
from cluster.core.controller.observations import observe
from cluster.core.controller.observers import ParkedFetches
from cluster.core.controller.partitions import PartitionControl
from cluster.core.controller.pending import NO_CALL, PendingChanges
from cluster.core.controller.senders import check_sender
from cluster.core.controller.sessions import Sessions
from cluster.core.controller.topics import TopicControl
from cluster.core.effects import Effect, Observe, Reply, RunJob, SetTimer, Stop
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.events import Event, JobDone, Request, Response, Shutdown, TimerFired
from cluster.core.messages import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AlterTopicConfigsRequest,
    BrokerEndpoint,
    BrokerHeartbeatRequest,
    CreatePartitionsRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    FetchMetadataRequest,
    MetadataRequest,
    RegisterBrokerRequest,
    RequestBody,
    ResponseBody,
)
from cluster.core.metadata.changes import ChangeReader
from cluster.core.metadata.delta import MetadataDelta
from cluster.core.metadata.image import MetadataImage
from cluster.core.metadata.log import MetadataLog, committed_changes
from cluster.core.metadata.records import AbortTransactionRecord, ClusterRecord, MetadataRecord
from cluster.core.metadata.snapshots import image_of_snapshot, records_of_image
from cluster.core.refusals import refusal
from storage.disk.filesystem import FileSystem, Lock, join, make_directory_durably
from storage.draws import Draws
from storage.errors import DirectoryInUse, OutOfHandles, StorageError
from storage.log import RecoveryCut

logger = logging.getLogger(__name__)

SESSION_TIMER = "controller.session"
FETCH_TIMER = "controller.fetch:"
FLUSH_RETRY_TIMER = "controller.flush"
# What lacked a descriptor is tried again after so long.
LACK_RETRY_MS = 1_000


@final
class Controller:
    """One life of a controller: `start`, then one `step` for each event, from one thread.

    The parts that decide are attributes, and can be replaced from outside.
    """

    def __init__(self, config: ControllerConfig, fs: FileSystem, directory: str, draws: Draws) -> None:
        self.config = config
        self.node_id = config.node_id
        self._changes = PendingChanges()
        self._file_system = fs
        self._directory = directory
        self._draws = draws
        self.sessions = Sessions(config.broker_session_timeout_ms)
        self.election = LeaderElection()
        pending = self._changes.pending
        self.partitions = PartitionControl(pending, self.election)
        self.brokers = BrokerControl(config, pending, self.partitions, self.sessions)
        self.topics = TopicControl(config, pending, self.partitions, draws)
        self._fetches = ParkedFetches(config.max_parked_fetches, config.max_fetch_wait_ms)
        # The flush that runs: its job, and the end offset (exclusive) that it makes durable.
        self._flushing: tuple[int, int] | None = None
        # The snapshot that is written: its job and its end offset.
        self._snapshot: tuple[int, int] | None = None
        self._next_job = 0
        self._armed_ms: int | None = None
        # No broker is fenced before, because a decision has lacked a descriptor.
        self._fences_after_ms = 0
        self._is_closing = False
        self._is_stopped = False
        self._log: MetadataLog | None = None
        self._lock: Lock | None = None

    @property
    def image(self) -> MetadataImage:
        """The metadata as committed."""
        return self._changes.committed

    @property
    def pending_image(self) -> MetadataImage:
        """The metadata with all that is appended, also what waits for its flush."""
        return self._changes.pending.image

    @property
    def log(self) -> MetadataLog:
        assert self._log is not None, "not started"
        return self._log

    def start(self, now_ms: int) -> list[Effect]:
        """Opens, recovers and replays the log; sessions of unfenced brokers begin again with their full time (BRK-3).

        Raises DirectoryInUse if another process has the directory, OSError, StorageError.
        """
        assert self._log is None, "started twice"
        make_directory_durably(self._file_system, self._directory)
        self._lock = self._take_lock()
        cuts: list[RecoveryCut] = []
        self._log = StoredMetadataLog.open(
            self._file_system,
            self._directory,
            now_ms=now_ms,
            draws=self._draws.child("metadata_log"),
            report=cuts.append,
            max_batch_bytes=self.config.metadata_max_batch_bytes,
        )
        effects: list[Effect] = [self._observe_cut(cut) for cut in cuts]
        skipped: list[str] = []
        reader = self._load(self._log, skipped.append)
        effects += [observe("metadata.snapshot_skipped", reason=reason) for reason in skipped]
        for broker in self.image.unfenced_brokers():
            self.sessions.begin(broker.broker_id, now_ms)
        effects.append(observe("controller.started", metadata_offset=self._log.end_offset))
        if reader.is_within_a_change:
            reason = f"a crash cut the change at offset {reader.boundary}"
            effects += self._append((AbortTransactionRecord(reason=reason),), now_ms)
        if not self.image.cluster_id:
            effects += self._append((ClusterRecord(cluster_id=self._new_cluster_id()),), now_ms)
        return [*effects, *self._arm_sessions(now_ms)]

    def _load(self, log: MetadataLog, skip: Callable[[str], None]) -> ChangeReader:
        """Makes the image from the newest sound snapshot and the changes after it. Returns the reader at the log's end.

        `skip` is called with what is wrong with each damaged snapshot. Raises StorageError.
        """
        snapshot = log.newest_snapshot(skip)
        image = MetadataImage() if snapshot is None else image_of_snapshot(snapshot)
        reader, delta = ChangeReader(image.next_offset), MetadataDelta(image)
        for change in committed_changes(log, reader):
            delta.apply_change(change)
        self._changes.begin(delta.after())
        assert self.image.next_offset == reader.boundary, (self.image.next_offset, reader.boundary)
        if reader.next_offset != log.committed_offset:
            raise DamagedMetadataLog(
                f"{self._directory}: the metadata log ends at offset {log.committed_offset}, and its records at "
                f"{reader.next_offset}: the controller's log is damaged"
            )
        return reader

    def _take_lock(self) -> Lock:
        try:
            return self._file_system.lock(join(self._directory, ".lock"))
        except BlockingIOError as error:
            raise DirectoryInUse(f"{self._directory} is in use by another process") from error

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        """Handles one event. A disk that fails ends the controller with the effect `Stop`; later events do nothing."""
        if self._is_stopped:
            return []
        effects: list[Effect]
        try:
            effects = self._dispatch(now_ms, event)
        except (StorageError, OSError) as error:
            return self._break(f"metadata log: {error}")
        if not self._is_stopped:
            effects += self._arm_sessions(now_ms)
        return effects

    def forget(self, call: int) -> None:
        """Drops a waiting fetch whose sender has left."""
        self._fetches.forget(call)

    def _dispatch(self, now_ms: int, event: Event) -> list[Effect]:
        assert self._lock is not None, "an event before the start"
        assert not self._is_stopped, event
        match event:
            case Request():
                return self._on_request(now_ms, event)
            case JobDone(job=job) if self._snapshot is not None and job == self._snapshot[0]:
                return self._on_snapshot(now_ms, event)
            case JobDone():
                return self._on_flushed(now_ms, event)
            case TimerFired(key=key) if key == SESSION_TIMER:
                return self._on_session_timer(now_ms)
            case TimerFired(key=key) if key == FLUSH_RETRY_TIMER:
                return self._flush()
            case TimerFired(key=key) if key.startswith(FETCH_TIMER):
                return self._fetches.expire(int(key.removeprefix(FETCH_TIMER)), self.log)
            case Shutdown():
                self._is_closing = True
                return self._maybe_close(now_ms)
            case TimerFired() | Response():
                return []

    def _break(self, reason: str) -> list[Effect]:
        """Ends the controller. What is not committed is dropped: the next start finds out what the log has of it."""
        self._changes.drop()
        self._is_stopped = True
        return [Stop(reason=reason)]

    def _maybe_close(self, now_ms: int) -> list[Effect]:
        """Ends the controller if nothing waits for the disk: answers observers, closes the log, releases the lock."""
        if not self._changes.is_empty or self._flushing is not None or self._snapshot is not None:
            return []
        assert self.log.committed_offset == self.log.end_offset, (
            self.log.committed_offset,
            self.log.end_offset,
        )
        effects = self._fetches.answer_all(self.log)
        self.log.close(now_ms)
        assert self._lock is not None
        self._lock.release()
        self._is_stopped = True
        return [*effects, Stop(reason="shutdown")]

    def _observe_cut(self, cut: RecoveryCut) -> Observe:
        return observe(
            "log.recovered_cut",
            topic_partition="__cluster_metadata-0",
            segment=cut.path.rsplit("/", 1)[-1],
            position=cut.position,
            removed_bytes=cut.removed_bytes,
            reason=cut.reason,
        )

    def _new_cluster_id(self) -> str:
        if self.config.cluster_id:
            return self.config.cluster_id
        return "".join(f"{self._draws.bits('cluster_id', half):016x}" for half in range(2))

    def _on_request(self, now_ms: int, request: Request) -> list[Effect]:
        body = request.body
        if self._is_closing:
            closing = ClusterError(ErrorCode.NOT_CONTROLLER, "the controller is shutting down")
            return [Reply(call=request.call, body=refusal(body, closing))]
        try:
            # By the pending image, as decisions are made: a registration that is not committed yet counts.
            check_sender(body, self.pending_image)
        except ClusterError as error:
            # A broker steps down for it, so what it rests on must not be lost any more (CTL-3).
            return self._append((), now_ms, call=request.call, reply=refusal(body, error))
        match body:
            case FetchMetadataRequest():
                return self._fetches.fetch(request.call, body, self.log, now_ms, FETCH_TIMER)
            case MetadataRequest():
                described = self.image.describe(body.topics, controller=self._endpoint())
                return [Reply(call=request.call, body=described)]
            case DescribeReplicasRequest():
                state = DescribeReplicasResponse(broker_id=self.node_id, state="running")
                return [Reply(call=request.call, body=state)]
            case _:
                return self._change(request.call, body, now_ms)

    def _change(self, call: int, body: RequestBody, now_ms: int) -> list[Effect]:
        """Decides on the request and appends the decision.

        Refused is one that is too large for the log, or that lacks a descriptor: nothing is written then, and the
        sender may try again.
        """
        undo = self.brokers.undo_of(body)
        decision = self._decide(body, now_ms)
        try:
            return self._append(decision.records, now_ms, call=call, reply=decision.reply)
        except OutOfHandles as lack:
            refused = ClusterError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"the controller lacks a descriptor: {lack}"
            )
        except ClusterError as error:
            refused = error
        undo()
        logger.warning("decision refused: request=%s reason=%s", type(body).__name__, refused)
        return self._append((), now_ms, call=call, reply=refusal(body, refused))

    def _decide(self, body: RequestBody, now_ms: int) -> Decision:
        try:
            match body:
                case BrokerHeartbeatRequest():
                    return self.brokers.heartbeat(body, now_ms)
                case RegisterBrokerRequest():
                    return self.brokers.register(body, now_ms)
                case AllocateProducerIdsRequest():
                    return self.brokers.allocate_producer_ids(body)
                case AlterPartitionRequest():
                    return self.partitions.alter_partition(body)
                case CreateTopicRequest():
                    return self.topics.create(body)
                case DeleteTopicRequest():
                    return self.topics.delete(body)
                case AlterTopicConfigsRequest():
                    return self.topics.alter_configs(body)
                case CreatePartitionsRequest():
                    return self.topics.create_partitions(body)
                case _:
                    raise ClusterError(ErrorCode.INVALID_REQUEST, f"{type(body).__name__} is for a broker")
        except ClusterError as error:
            return Decision(reply=refusal(body, error))

    def _endpoint(self) -> BrokerEndpoint | None:
        if not self.config.host:
            return None
        return BrokerEndpoint(broker_id=self.node_id, host=self.config.host, port=self.config.port)

    def _on_session_timer(self, now_ms: int) -> list[Effect]:
        """Fences one broker whose session is over; the timer of the next one is due at once.

        Each decision so sees the one before (BRK-4). One that lacks a descriptor is made again later.
        """
        self._armed_ms = None
        broker_id = self.sessions.expired(now_ms)
        if broker_id is None:
            return []
        assert not self.sessions.is_live(broker_id, now_ms), (broker_id, now_ms)
        undo = self.sessions.restorer(broker_id)
        try:
            return self._append(self.brokers.records_for_fencing(broker_id), now_ms)
        except OutOfHandles as lack:
            undo()
            logger.warning("broker not fenced: broker=%d reason=%s", broker_id, lack)
            self._fences_after_ms = now_ms + LACK_RETRY_MS
            return []

    def _arm_sessions(self, now_ms: int) -> list[Effect]:
        first = self.sessions.longest_silent()
        due_ms = None if first is None else max(first[0], self._fences_after_ms)
        if due_ms is None or (self._armed_ms is not None and self._armed_ms <= due_ms):
            # A timer that fires too early finds no expired session, and is set again.
            return []
        self._armed_ms = max(due_ms, now_ms)
        return [SetTimer(key=SESSION_TIMER, at_ms=self._armed_ms)]

    def _append(
        self,
        records: Sequence[MetadataRecord],
        now_ms: int,
        *,
        call: int = NO_CALL,
        reply: ResponseBody | None = None,
    ) -> list[Effect]:
        """Appends the records and parks the reply. Later decisions build on the records, which are not public yet.

        Raises ClusterError if a record is too large for a batch; nothing is changed then.
        """
        self._changes.append(self.log, records, now_ms, call=call, reply=reply)
        return self._commit() if self.is_committed(self.log.end_offset) else self._flush()

    def is_committed(self, end_offset: int) -> bool:
        """Returns whether all below `end_offset` is on disk: only then a decision on it may be answered (CTL-3)."""
        return end_offset <= self.log.committed_offset

    def _flush(self) -> list[Effect]:
        """Starts a flush unless one runs; what is appended meanwhile shares the next one."""
        if self._flushing is not None or self.log.end_offset == self.log.committed_offset:
            return []
        appended, committed = self.log.end_offset, self.log.committed_offset
        assert committed < appended, (committed, appended)
        # Only decisions append, and each waits for its flush.
        assert not self._changes.is_empty, (committed, appended)
        self._next_job += 1
        self._flushing = (self._next_job, self.log.end_offset)
        return [RunJob(job=self._next_job, kind="flush", work=self.log.prepare_flush())]

    def _on_flushed(self, now_ms: int, done: JobDone) -> list[Effect]:
        assert self._flushing is not None and done.job == self._flushing[0], (done, self._flushing)
        if isinstance(done.error, OutOfHandles):
            return self._flush_later(now_ms, done.error)
        if done.error is not None:
            return self._break(f"flush of the metadata log: {done.error}")
        self.log.flushed(self._flushing[1])
        self._flushing = None
        effects = [*self._commit(), *self._fetches.wake(self.log), *self._flush()]
        effects += self._maybe_snapshot(now_ms)
        applied, committed = self.image.next_offset, self.log.committed_offset
        assert applied == committed, (applied, committed)
        return [*effects, *self._maybe_close(now_ms)] if self._is_closing else effects

    def _flush_later(self, now_ms: int, lack: OutOfHandles) -> list[Effect]:
        """Sets the timer of another flush after one that could not open a file: no disk has failed."""
        logger.warning("metadata log not flushed: reason=%s", lack)
        self.log.flush_failed()
        self._flushing = None
        return [SetTimer(key=FLUSH_RETRY_TIMER, at_ms=now_ms + LACK_RETRY_MS)]

    def _maybe_snapshot(self, now_ms: int) -> list[Effect]:
        """Starts a snapshot of what is committed if the log has grown enough since the last one."""
        most = self.config.metadata_log_max_record_bytes_between_snapshots
        if self.log.bytes_since_snapshot < most or self._snapshot is not None or self._is_closing:
            return []
        image = self.image
        assert image.next_offset == self.log.committed_offset, (image.next_offset, self.log.committed_offset)
        self._next_job += 1
        self._snapshot = (self._next_job, image.next_offset)
        work = self.log.prepare_snapshot(records_of_image(image), image.next_offset, now_ms)
        return [RunJob(job=self._next_job, kind="snapshot", work=work)]

    def _on_snapshot(self, now_ms: int, done: JobDone) -> list[Effect]:
        """Notes the end of a snapshot. One that could not be written costs nothing: the log has it all."""
        assert self._snapshot is not None, done.job
        end_offset, self._snapshot = self._snapshot[1], None
        effects: list[Effect] = [observe("metadata.snapshot_written", end_offset=end_offset)]
        if done.error is not None:
            reason = str(done.error)
            logger.error("snapshot not written: end_offset=%d reason=%s", end_offset, reason)
            effects = [observe("metadata.snapshot_failed", end_offset=end_offset, reason=reason)]
        return [*effects, *self._maybe_close(now_ms)] if self._is_closing else effects

    def _commit(self) -> list[Effect]:
        return self._changes.commit(self.log.committed_offset)
