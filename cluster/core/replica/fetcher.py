"""The fetch loops of a broker's followers: one request in flight to each broker, for all partitions that it leads.

Kafka: AbstractFetcherThread, ReplicaFetcherThread; rules FET-1 to FET-13.
"""

from __future__ import annotations

from functools import partial
from typing import final

from cluster.core import fencing
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import (
    NO_EPOCH,
    NO_LEADER,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    ResponseBody,
    TopicPartition,
)
from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.flushes import Flushes
from cluster.core.replica.follower import FetchState, Follower
from cluster.core.replica.replica import Replica
from cluster.core.replica.truncation import Truncations
from storage.errors import CorruptBatch, OutOfHandles, StorageError, UnexpectedAppendOffset
from storage.log import PartitionLog
from storage.values import maker

_fetch_request, _fetch_partition = maker(FetchRequest), maker(FetchPartition)
WAIT_TIMER = "replica.fetch:"


@final
class Fetcher:
    """The partitions followed from one leader broker, in the order of the next fetch."""

    def __init__(self, leader_id: int) -> None:
        self.leader_id = leader_id
        self.replicas: dict[TopicPartition, Replica] = {}
        self.is_in_flight = False
        # No fetch is sent before this time: the last one was lost, or every partition waits.
        self.delayed_until_ms = 0

    def move_to_end(self, replica: Replica) -> None:
        """Puts a replica whose log has grown last, so that large partitions do not starve the others (KIP-74)."""
        assert replica.topic_partition in self.replicas, replica.name
        self.replicas[replica.topic_partition] = self.replicas.pop(replica.topic_partition)


@final
class Fetchers:
    """All fetch loops of one broker, by the leader's broker id."""

    def __init__(self, context: ReplicaContext, flushes: Flushes, truncations: Truncations) -> None:
        self._context = context
        self._flushes = flushes
        self._truncations = truncations
        self._fetchers: dict[int, Fetcher] = {}
        self._is_stopped = False

    def add(self, replica: Replica) -> None:
        """Starts to follow the replica: the next `pump` fetches it."""
        assert replica.follower is not None, replica.topic_partition
        leader_id = replica.follower.leader_id
        assert leader_id not in (NO_LEADER, self._context.broker_id), (replica.topic_partition, leader_id)
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = Fetcher(leader_id)
        fetcher.replicas[replica.topic_partition] = replica
        # The new replica need not wait until the delay of the others is over.
        fetcher.delayed_until_ms = 0

    def remove(self, topic_partition: TopicPartition) -> None:
        """Stops following the partition; the records that a fetch in flight returns for it are dropped.

        A fetcher without partitions ends, as Kafka's thread and its connection do: a later fetcher for the same leader
        must not wait for an answer that was lost on a cut link.
        """
        for leader_id, fetcher in list(self._fetchers.items()):
            fetcher.replicas.pop(topic_partition, None)
            if not fetcher.replicas:
                del self._fetchers[leader_id]

    def stop(self) -> None:
        self._is_stopped = True
        self._fetchers.clear()

    def pump(self, now_ms: int) -> None:
        """Sends the fetches that can be sent; called at the end of each step."""
        for fetcher in self._fetchers.values():
            # One fetch at a time is on its way to a leader (FET-3).
            if not fetcher.is_in_flight:
                self._maybe_send(now_ms, fetcher)

    def _maybe_send(self, now_ms: int, fetcher: Fetcher) -> None:
        assert not fetcher.is_in_flight, fetcher.leader_id
        if not fetcher.replicas or now_ms < fetcher.delayed_until_ms:
            # A delay ends with its timer.
            return
        ready: list[Replica] = []
        delayed_until_ms: list[int] = []
        for replica in fetcher.replicas.values():
            follower = replica.follower
            if follower is None or follower.state is not FetchState.FETCHING:
                continue
            # The next fetch acknowledges all below its offset, so a promised flush must have ended before.
            if self._flushes.is_behind(replica):
                return
            if follower.is_ready(now_ms):
                ready.append(replica)
            else:
                delayed_until_ms.append(follower.delayed_until_ms)
        if ready:
            self._send(fetcher, ready)
        elif delayed_until_ms:
            self._wait(fetcher, min(delayed_until_ms))

    def _wait(self, fetcher: Fetcher, until_ms: int) -> None:
        assert not fetcher.is_in_flight, (fetcher.leader_id, until_ms)
        assert not self._is_stopped, (fetcher.leader_id, until_ms)
        fetcher.delayed_until_ms = until_ms

        def go_on(now_ms: int) -> None:
            fetcher.delayed_until_ms = min(fetcher.delayed_until_ms, now_ms)

        self._context.outbox.set_timer(f"{WAIT_TIMER}{fetcher.leader_id}", until_ms, go_on)

    def _send(self, fetcher: Fetcher, ready: list[Replica]) -> None:
        assert ready, fetcher.leader_id
        config = self._context.config
        asked: dict[TopicPartition, FetchPartition] = {}
        for replica in ready:
            asked[replica.topic_partition] = self._ask(replica)
        request = _fetch_request(
            header=self._context.header,
            replica_id=self._context.broker_id,
            broker_epoch=self._context.broker_epoch,
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            partitions=tuple(asked.values()),
        )
        assert not fetcher.is_in_flight, fetcher.leader_id
        fetcher.is_in_flight = True
        self._context.outbox.send(
            fetcher.leader_id,
            request,
            timeout_ms=config.replica_socket_timeout_ms,
            then=partial(self._on_answer, fetcher, asked),
        )

    def _ask(self, replica: Replica) -> FetchPartition:
        """Returns what the fetch states about one partition: its log end, log start and epochs (FET-1)."""
        log = replica.log
        return _fetch_partition(
            topic_partition=replica.topic_partition,
            topic_id=replica.topic_id,
            fetch_offset=log.local.log_end_offset,
            current_leader_epoch=replica.leader_epoch,
            last_fetched_epoch=self._truncations.strategy.last_fetched_epoch(log),
            log_start_offset=log.marks.log_start_offset,
            max_bytes=self._context.config.replica_fetch_max_bytes,
        )

    def _on_answer(
        self,
        fetcher: Fetcher,
        asked: dict[TopicPartition, FetchPartition],
        now_ms: int,
        body: ResponseBody | TransportError,
    ) -> None:
        assert fetcher.is_in_flight, fetcher.leader_id
        fetcher.is_in_flight = False
        if self._is_stopped:
            return
        if not isinstance(body, FetchResponse) or body.error is not ErrorCode.NONE:
            self._wait(fetcher, now_ms + self._context.config.replica_fetch_backoff_ms)
            return
        for answer in body.partitions:
            replica = fetcher.replicas.get(answer.topic_partition)
            about = asked.get(answer.topic_partition)
            if replica is not None and about is not None and self.is_current(now_ms, replica, about):
                self.apply(now_ms, fetcher, replica, about, answer)
        # The next one is sent at the end of the step, when the other events of the step are handled too.
        assert not fetcher.is_in_flight, fetcher.leader_id

    def is_current(self, now_ms: int, replica: Replica, asked: FetchPartition) -> bool:
        """Returns whether the replica is still of the topic, in the leader epoch and at the log end of the fetch.

        If not, the answer is not used at all (FET-4, KAFKA-7786).
        """
        follower = replica.follower
        is_same_state = (
            fencing.is_same_log((asked.topic_id, asked.current_leader_epoch), replica.view)
            and replica.log.local.log_end_offset == asked.fetch_offset
        )
        return follower is not None and follower.is_ready(now_ms) and is_same_state

    def apply(
        self,
        now_ms: int,
        fetcher: Fetcher,
        replica: Replica,
        asked: FetchPartition,
        answer: FetchPartitionResponse,
    ) -> None:
        """Handles the answer about one partition; `asked` is what its fetch stated.

        A refused partition waits, is fenced or has failed. Raises StorageError if the last log directory fails.
        """
        follower = replica.follower
        assert follower is not None and follower.leader_id == fetcher.leader_id, replica.topic_partition
        own_epoch, epoch = follower.leader_epoch, replica.leader_epoch
        assert own_epoch == epoch, (replica.name, own_epoch, epoch)
        try:
            match answer.error:
                case ErrorCode.NONE if answer.diverging is not None and answer.diverging.end_offset < 0:
                    # No log ends there. The partition is asked for again, as after a damaged batch.
                    self._delay(now_ms, follower)
                case ErrorCode.NONE if answer.diverging is not None:
                    self.on_diverging(now_ms, replica, answer)
                case ErrorCode.NONE:
                    self.on_records(now_ms, fetcher, replica, asked, answer)
                case ErrorCode.OFFSET_OUT_OF_RANGE:
                    self.on_out_of_range(now_ms, replica, follower, answer)
                case ErrorCode.FENCED_LEADER_EPOCH:
                    # The follower waits until metadata brings a newer epoch (FET-10).
                    follower.state = FetchState.FENCED
                case _:
                    self._delay(now_ms, follower)
        except (CorruptBatch, OutOfHandles):
            # The batch was damaged on the way, or found no descriptor for its file, and is asked for again.
            self._delay(now_ms, follower)
        except StorageError as error:
            self._context.fail_follower(replica, error)

    def _delay(self, now_ms: int, follower: Follower) -> None:
        follower.delayed_until_ms = now_ms + self._context.config.replica_fetch_backoff_ms

    def on_diverging(self, now_ms: int, replica: Replica, answer: FetchPartitionResponse) -> None:
        """Truncates, and adopts nothing of the answer: it describes a log that differs from this one (FET-5a)."""
        assert answer.diverging is not None
        self._truncations.on_diverging(now_ms, replica, answer.diverging, answer.log_start_offset)

    def on_records(
        self,
        now_ms: int,
        fetcher: Fetcher,
        replica: Replica,
        asked: FetchPartition,
        answer: FetchPartitionResponse,
    ) -> None:
        """Appends, then adopts the high watermark, then the log start, in this order (FET-5b to FET-5d).

        The follower learns here what its last fetch has committed (FET-13).
        """
        if answer.records:
            self.append(now_ms, replica, asked, answer.records)
            # A flush that fails takes the replica offline within the append.
            if replica.follower is None:
                return
            # A batch that did not fit behind the records of others comes whole where its partition is the first.
            if replica.log.local.log_end_offset > asked.fetch_offset:
                fetcher.move_to_end(replica)
        self.adopt_high_watermark(replica, answer.high_watermark)
        log = replica.log
        if answer.log_start_offset > log.marks.log_start_offset:
            log.marks.maybe_increment_log_start_offset(min(answer.log_start_offset, log.marks.high_watermark))

    def append(self, now_ms: int, replica: Replica, asked: FetchPartition, records: bytes) -> None:
        """Appends the batches of leader epochs up to that of the fetch; the log skips the rest (FET-9, KAFKA-18723).

        Raises StorageError.
        """
        log, leader_epoch = replica.log, asked.current_leader_epoch
        assert leader_epoch != NO_EPOCH, replica.topic_partition
        try:
            info = log.append_as_follower(
                records, leader_epoch=leader_epoch, now_ms=now_ms, may_exceed_segment=True
            )
        except UnexpectedAppendOffset as error:
            if not _holds_log_start(log, error):
                raise
            self._truncations.truncate_fully(now_ms, replica, error.first_offset)
            info = log.append_as_follower(
                records, leader_epoch=leader_epoch, now_ms=now_ms, may_exceed_segment=True
            )
        if not info.is_empty:
            assert log.local.log_end_offset == info.last_offset + 1, (log.local.log_end_offset, info)
            self._context.report_appended(replica, info.first_offset, info.last_offset, "follower")
            self._flushes.maybe_flush(replica)

    def adopt_high_watermark(self, replica: Replica, leader_high_watermark: int) -> None:
        """Adopts the leader's high watermark, limited to the follower's log (FET-5c); it may go back (FET-6)."""
        before = replica.log.marks.high_watermark
        if (
            leader_high_watermark >= 0
            and replica.log.marks.update_high_watermark(leader_high_watermark) != before
        ):
            self._context.report_high_watermark(replica)

    def on_out_of_range(
        self, now_ms: int, replica: Replica, follower: Follower, answer: FetchPartitionResponse
    ) -> None:
        """Cuts to the leader's end, starts again at the leader's start, or else asks again later (FET-11).

        Being out of range is never fatal, and no reason to start at offset 0 (KAFKA-2143, KAFKA-7414).
        """
        log = replica.log
        if 0 <= answer.log_end_offset < log.local.log_end_offset:
            self._truncations.truncate_or_start_again(
                now_ms, replica, answer.log_end_offset, answer.log_start_offset
            )
        elif answer.log_start_offset > log.local.log_end_offset:
            self._truncations.start_again(now_ms, replica, answer.log_start_offset)
            # The recovery point is below the new start: where a flush is promised, the next fetch waits for one.
            # A checkpoint that the cut lowers and that fails has taken the replica offline.
            if replica.follower is not None:
                self._flushes.maybe_flush(replica)
        else:
            # The leader's log has moved meanwhile, so that it contains the follower's log end.
            self._delay(now_ms, follower)


def _holds_log_start(log: PartitionLog, refused: UnexpectedAppendOffset) -> bool:
    """Returns whether the refused batches reach across the start of an empty log.

    The leader's log then starts within its first batch, which the follower must take whole (KAFKA-6975).
    """
    is_empty = log.marks.log_start_offset == log.local.log_end_offset
    return is_empty and refused.first_offset < log.local.log_end_offset <= refused.last_offset
