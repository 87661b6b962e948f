"""A leader's answer to a fetch: first the checks, then the read, then the follower's progress.

The order protects committed records: a fetch that fails a check must not count as progress (LED-1 to LED-7).
Kafka: ReplicaManager.fetchMessages, Partition.fetchRecords.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from cluster.core import fencing
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.fencing import LogView
from cluster.core.messages import (
    NO_EPOCH,
    NO_TOPIC_ID,
    EpochEnd,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    TopicPartition,
)
from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.isr_changes import IsrChanges
from cluster.core.replica.leader import Leader
from cluster.core.replica.purgatory import Purgatory
from cluster.core.replica.replica import Replica
from cluster.core.replica.shared_read import SharedRead
from storage.errors import OffsetOutOfRange, ReadGoesOn, StorageError
from storage.log import FetchData, Isolation, PartitionLog
from storage.segment.place import LogOffsetMetadata
from storage.values import maker, quickly_made

EXPIRY_TIMER = "fetch.expiry"


_NO_LOG: LogView = (NO_TOPIC_ID, NO_EPOCH)
_NO_SEARCH = (-1, None)


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedFetch:
    """A fetch that waits until there are enough records, or until its time is over."""

    call: int
    request: FetchRequest
    # The topic ids and leader epochs of the replicas when the fetch was parked, in the order of its partitions.
    views: tuple[LogView, ...]
    # The fetches of its kind that are parked, itself too: their numbers by call.
    parked: dict[int, int]


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    answers: tuple[FetchPartitionResponse, ...]
    size_bytes: int
    # Whether it holds an error or a divergence, which the reader must learn at once (PRO-8).
    is_final: bool


_parked_fetch, _reading = maker(ParkedFetch), maker(_Reading)
_response, _partition_response = maker(FetchResponse), maker(FetchPartitionResponse)


@final
class FetchHandler:
    """Answers the fetches of followers and consumers, at once or when there are enough records."""

    def __init__(self, context: ReplicaContext, isr_changes: IsrChanges) -> None:
        self._context = context
        self._isr_changes = isr_changes
        self._shared = SharedRead()
        spare = context.config.steps.spare_deadlines
        self.purgatory: Purgatory[ParkedFetch] = Purgatory(
            context.outbox, EXPIRY_TIMER, self._on_expired, spare=spare
        )
        # The numbers of the parked fetches by call.
        self._consumers: dict[int, int] = {}
        self._followers: dict[int, int] = {}
        # The calls whose read goes on with a search in a later step, parked or not: the job before that step, and what
        # they ask for.
        self._searching: dict[int, tuple[int, FetchRequest]] = {}

    def on_request(self, now_ms: int, call: int, request: FetchRequest) -> None:
        """Answers the fetch, or parks it if there is less than `min_bytes` to read and it may wait.

        Raises StorageError if the disk under the last log directory fails.
        """
        try:
            reading = self._read_all(now_ms, request, counts=request.replica_id >= 0)
        except ReadGoesOn:
            self._go_on(call, request, lambda at_ms: self.on_request(at_ms, call, request))
            return
        may_wait = request.max_wait_ms > 0 and request.partitions
        parked = self.parked_beside(request)
        has_room = len(parked) < self._context.config.max_parked_requests
        if reading.is_final or self._is_enough(request, reading) or not may_wait or not has_room:
            self._answer(call, reading)
            return
        operation = _parked_fetch(call=call, request=request, views=self._views(request), parked=parked)
        watched = [asked.topic_partition for asked in request.partitions]
        wait_ms = min(request.max_wait_ms, self._context.config.max_fetch_wait_ms)
        parked[call] = self.purgatory.park(operation, watched, now_ms + wait_ms)

    def _go_on(self, call: int, request: FetchRequest, read: Callable[[int], None]) -> None:
        """Reads again in a step of its own, which goes on with the search that was too long for this one.

        Does nothing while a search of that call goes on.
        """
        if call in self._searching:
            return

        def then(now_ms: int, _: Exception | None) -> None:
            # Who has left wants no answer, and who has got one no other.
            if self._searching.get(call, _NO_SEARCH)[0] == job:
                del self._searching[call]
                read(now_ms)

        # A job without work: whatever waits for a step comes first.
        job = self._context.outbox.run_job("search", _do_nothing, then)
        self._searching[call] = (job, request)

    def is_searching(self, call: int) -> bool:
        """Returns whether the read of that fetch goes on in a later step, for checkers."""
        return call in self._searching

    def parked_beside(self, request: FetchRequest) -> dict[int, int]:
        """Returns the parked fetches that share their room with this one.

        Consumers have no part in the room of followers: a follower that cannot wait would ask without rest.
        """
        return self._followers if request.replica_id >= 0 else self._consumers

    def forget(self, call: int) -> None:
        """Drops a fetch whose sender has left; does nothing if it has been answered."""
        self._searching.pop(call, None)
        for parked in (self._consumers, self._followers):
            number = parked.pop(call, None)
            if number is not None:
                self.purgatory.take(number)

    def _is_enough(self, request: FetchRequest, reading: _Reading) -> bool:
        """Whether the answer need not wait for more: an answer that may hold less than `min_bytes` never would have it.

        Kafka: KafkaApis.handleFetchRequest, where the limits of single partitions do not count.
        """
        least = request.min_bytes
        if least > 1:
            of_partitions = sum([asked.max_bytes for asked in request.partitions])
            least = min(least, request.max_bytes, self._context.config.fetch_max_bytes, of_partitions)
        if reading.size_bytes >= max(0, least):
            return True
        return reading.size_bytes > 0 and self._ends_in_newer_segment(request, reading)

    def _ends_in_newer_segment(self, request: FetchRequest, reading: _Reading) -> bool:
        """Whether a log goes on in a newer segment than the one that was read: no read goes beyond its segment (PRO-8).

        Kafka: DelayedFetch.tryComplete, case F.
        """
        for asked, answer in zip(request.partitions, reading.answers, strict=True):
            replica = self._context.replicas.get(asked.topic_partition)
            if answer.records and replica is not None:
                log = replica.log
                end = log.local.log_end_offset if request.replica_id >= 0 else log.marks.high_watermark
                if log.local.segments.floor(asked.fetch_offset) is not log.local.segments.floor(end):
                    return True
        return False

    def _views(self, request: FetchRequest) -> tuple[LogView, ...]:
        views: list[LogView] = []
        for asked in request.partitions:
            replica = self._context.replicas.get(asked.topic_partition)
            views.append(_NO_LOG if replica is None else replica.view)
        return tuple(views)

    def _answer(self, call: int, reading: _Reading) -> None:
        if self._searching:
            self._searching.pop(call, None)
        self._context.outbox.reply(call, _response(partitions=reading.answers))

    def on_touched(self, now_ms: int, topic_partition: TopicPartition) -> None:
        """Answers the parked fetches that are ready now (PRO-8).

        Called after the partition's log end, high watermark or role changed, or the partition was removed.
        """
        replica = self._context.replicas.get(topic_partition)
        # A broker that was superseded keeps its replicas, in the epochs that they had, and without a role.
        has_role = replica is not None and (replica.leader is not None or replica.follower is not None)
        for number, parked in self.purgatory.watching(topic_partition):
            if replica is None or not has_role or not self._is_quiet(replica, parked):
                self._look_again(now_ms, number, parked)

    def _is_quiet(self, replica: Replica, parked: ParkedFetch) -> bool:
        """Returns whether there is nothing new in this partition for the parked fetch; finds out without a read."""
        request = parked.request
        for asked, view in zip(request.partitions, parked.views, strict=True):
            if asked.topic_partition == replica.topic_partition:
                log = replica.log
                log_end_offset = log.local.log_end_offset
                end = log_end_offset if request.replica_id >= 0 else log.marks.high_watermark
                is_waiting = max(end, log.marks.log_start_offset) <= asked.fetch_offset <= log_end_offset
                return is_waiting and fencing.is_same_log(view, replica.view)
        return False

    def _look_again(self, now_ms: int, number: int, parked: ParkedFetch) -> None:
        """Reads again, and answers if there is enough now.

        The follower's progress was counted when the fetch came, and is not counted a second time (LED-6).
        """
        try:
            reading = self._read_all(now_ms, parked.request, counts=False)
        except ReadGoesOn:
            # It waits on, as one of those that may be answered by then.
            self._go_on(parked.call, parked.request, lambda at_ms: self._look_on(at_ms, number, parked))
            return
        is_ready = reading.is_final or self._is_enough(parked.request, reading)
        if is_ready or not all(map(fencing.is_same_log, parked.views, self._views(parked.request))):
            self.purgatory.take(number)
            del parked.parked[parked.call]
            self._answer(parked.call, reading)

    def _look_on(self, now_ms: int, number: int, parked: ParkedFetch) -> None:
        if parked.parked.get(parked.call) == number:
            self._look_again(now_ms, number, parked)

    def _on_expired(self, now_ms: int, parked: ParkedFetch) -> None:
        del parked.parked[parked.call]
        self._searching.pop(parked.call, None)
        self._answer_now(now_ms, parked.call, parked.request)

    def _answer_now(self, now_ms: int, call: int, request: FetchRequest) -> None:
        """Answers with what there is, as soon as its place is found."""
        try:
            reading = self._read_all(now_ms, request, counts=False)
        except ReadGoesOn:
            self._go_on(call, request, lambda at_ms: self._answer_now(at_ms, call, request))
            return
        self._answer(call, reading)

    def waiting(self, topic_partition: TopicPartition) -> list[LogView]:
        """Returns the views of the partition under which its fetches wait, in order of arrival, for checkers."""
        return [
            view
            for _, parked in self.purgatory.watching(topic_partition)
            for asked, view in zip(parked.request.partitions, parked.views, strict=True)
            if asked.topic_partition == topic_partition
        ]

    def answer_all(self, now_ms: int) -> None:
        """Answers all fetches that wait with what there is, because the broker is ending; refuses those that search."""
        for number in self.purgatory.numbers():
            parked = self.purgatory.take(number)
            if parked is not None:
                self._on_expired(now_ms, parked)
        for call, (_, request) in list(self._searching.items()):
            refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
            answers = tuple([self._refuse(None, asked, refused) for asked in request.partitions])
            self._answer(call, _reading(answers=answers, size_bytes=0, is_final=True))

    def _read_all(self, now_ms: int, request: FetchRequest, *, counts: bool) -> _Reading:
        """Reads the partitions in the order of the request: at least one batch in all, even above the limits (KIP-74).

        `counts` says whether this is a follower's fetch whose progress has not been counted yet: it counts once all is
        read. Raises ReadGoesOn if the read must go on in another step; nothing has counted then.
        """
        answers: list[FetchPartitionResponse] = []
        progress: list[tuple[Replica, FetchPartition, LogOffsetMetadata | None]] = []
        size_bytes, is_final = 0, False
        limit = min(request.max_bytes, self._context.config.fetch_max_bytes)
        for asked in request.partitions:
            answer, replica, place = self._read_partition(
                request, asked, room=limit - size_bytes, is_first=size_bytes == 0
            )
            is_final = is_final or answer.error is not ErrorCode.NONE or answer.diverging is not None
            size_bytes += len(answer.records)
            answers.append(answer)
            if counts and replica is not None and self.is_promise(answer):
                progress.append((replica, asked, place))
        for counted, asked, place in progress:
            self.count_progress(now_ms, counted, request, asked, place)
        return _reading(answers=tuple(answers), size_bytes=size_bytes, is_final=is_final)

    def _read_partition(
        self, request: FetchRequest, asked: FetchPartition, *, room: int, is_first: bool
    ) -> tuple[FetchPartitionResponse, Replica | None, LogOffsetMetadata | None]:
        """Returns the answer for one partition, its replica, and the place of the fetch offset if that was found.

        `room` is how many bytes are left of the whole answer's limit; if `is_first`, one batch may exceed it. Errors
        become answers, but StorageError is raised if the disk under the last log directory fails, and ReadGoesOn if the
        read must go on in another step.
        """
        replica: Replica | None = None
        place: LogOffsetMetadata | None = None
        try:
            replica = self._context.replica(asked.topic_partition, asked.topic_id)
            self._check(replica, request, asked)
            diverging = self.find_divergence(replica, asked)
            if diverging is None:
                answer, place = self._read(replica, request, asked, room=room, is_first=is_first)
            else:
                answer = self._report(replica, asked, diverging=diverging)
        except ClusterError as error:
            answer = self._refuse(replica, asked, error.code)
        except OffsetOutOfRange:
            answer = self._refuse(replica, asked, ErrorCode.OFFSET_OUT_OF_RANGE)
        except ReadGoesOn:
            raise
        except StorageError as error:
            self._context.check_online(asked.topic_partition, error)
            answer = self._refuse(replica, asked, ErrorCode(error.code))
        return answer, replica, place

    def _check(self, replica: Replica, request: FetchRequest, asked: FetchPartition) -> None:
        # Epochs of another topic say nothing; then the leader epoch is checked before everything else (LED-1).
        topic_partition, is_follower = replica.topic_partition, request.replica_id >= 0
        fencing.check_topic_id(topic_partition, asked.topic_id, replica.topic_id, may_omit=not is_follower)
        fencing.check_leader_epoch(topic_partition, asked.current_leader_epoch, replica.leader_epoch)
        if is_follower:
            leader = replica.check_leads()
            self.check_is_replica(leader, request)
            known = self._context.metadata.image.brokers.get(request.replica_id)
            if known is not None:
                fencing.check_fetch_of_present_life(
                    request.replica_id, request.broker_epoch, known.broker_epoch
                )
        else:
            self.check_serves_consumers(replica)

    def is_promise(self, answer: FetchPartitionResponse) -> bool:
        """Returns whether the fetch offset promises anything about the follower's log (LED-6).

        An offset that was refused (KAFKA-8400), or that diverges (KAFKA-13141), promises nothing.
        """
        return answer.error is ErrorCode.NONE and answer.diverging is None

    def check_is_replica(self, leader: Leader, request: FetchRequest) -> None:
        """Raises ClusterError for a broker that is no replica of the partition (LED-2).

        The follower or the leader has old metadata, so the error is retriable (KAFKA-13837).
        """
        if request.replica_id not in leader.followers:
            raise ClusterError(
                ErrorCode.UNKNOWN_LEADER_EPOCH, f"broker {request.replica_id} is no replica of the partition"
            )

    def check_serves_consumers(self, replica: Replica) -> None:
        """Raises ClusterError before the first role; a follower serves too, up to its own high watermark (CON-4)."""
        if replica.leader is None and replica.follower is None:
            raise ClusterError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{replica.topic_partition} has no role yet")

    def find_divergence(self, replica: Replica, asked: FetchPartition) -> EpochEnd | None:
        """Returns the end of the last epoch that both logs may share; None if they do not diverge (LED-4).

        Raises OffsetOutOfRange if the fetch is below the log start, even if it also diverges (LED-3, KAFKA-12996), or
        if the log has no epoch as old as the last fetched one.
        """
        log = replica.log
        if asked.fetch_offset < log.marks.log_start_offset:
            raise OffsetOutOfRange(asked.fetch_offset, log.marks.log_start_offset, log.local.log_end_offset)
        if asked.last_fetched_epoch == NO_EPOCH:
            return None
        epoch, end_offset = log.reads.end_offset_for_epoch(asked.last_fetched_epoch)
        if epoch < 0:
            raise OffsetOutOfRange(asked.fetch_offset, log.marks.log_start_offset, log.local.log_end_offset)
        if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
            return EpochEnd(epoch=epoch, end_offset=end_offset)
        return None

    def _read(
        self, replica: Replica, request: FetchRequest, asked: FetchPartition, *, room: int, is_first: bool
    ) -> tuple[FetchPartitionResponse, LogOffsetMetadata | None]:
        """Returns the answer, and the place of the fetch offset if the read has found it.

        The marks in the answer are those from before the read, and are not updated later (LED-5, CON-6).
        """
        log, offset = replica.log, asked.fetch_offset
        log_end_offset = log.local.log_end_offset
        if not log.marks.log_start_offset <= offset <= log_end_offset:
            raise OffsetOutOfRange(offset, log.marks.log_start_offset, log_end_offset)
        max_bytes = max(0, min(room, asked.max_bytes))
        if max_bytes == 0 and not is_first:
            return self._report(replica, asked), None
        is_follower = request.replica_id >= 0
        end = log_end_offset if is_follower else log.marks.high_watermark
        # Most partitions of a fetch have nothing new.
        if offset == end and log.online.reason is None:
            bound = log.local.log_end if is_follower else log.marks.high_watermark_metadata
            # A high watermark may move as its place is looked up.
            if offset == bound.offset:
                return self._report_quiet(replica, asked), bound
        data = self._read_log(log, offset, max_bytes, is_first=is_first, is_follower=is_follower)
        # If the offset was compacted away, the place belongs to a later offset and is of no use.
        place = data.offset_metadata if data.offset_metadata.offset == offset else None
        # Of a batch that does not fit a follower could append nothing; a consumer learns that it must ask for more.
        records = b"" if is_follower and data.first_entry_incomplete else data.records
        return self._report(replica, asked, records=records), place

    def _read_log(
        self, log: PartitionLog, offset: int, max_bytes: int, *, is_first: bool, is_follower: bool
    ) -> FetchData:
        if is_follower:
            return self._shared.read(log, offset, max_size=max_bytes, min_one_message=is_first)
        return log.read(
            offset,
            max_size=max_bytes,
            isolation=Isolation.HIGH_WATERMARK,
            min_one_message=is_first,
            in_step=True,
        )

    def count_progress(
        self,
        now_ms: int,
        replica: Replica,
        request: FetchRequest,
        asked: FetchPartition,
        place: LogOffsetMetadata | None,
    ) -> None:
        """Notes that the follower's log holds everything below the fetch offset as this log does (LED-6, LED-8).

        The follower may then join the ISR, and the high watermark may rise.
        """
        leader = replica.leader
        follower = None if leader is None else leader.followers.get(request.replica_id)
        if follower is None:
            return
        before = follower.log_end_offset
        follower.reached(
            LogOffsetMetadata(asked.fetch_offset) if place is None else place,
            log_start_offset=asked.log_start_offset,
            leader_end_offset=replica.log.local.log_end_offset,
            broker_epoch=request.broker_epoch,
            now_ms=now_ms,
        )
        self._isr_changes.maybe_expand(now_ms, replica, follower)
        if follower.log_end_offset > before:
            self._context.advance_high_watermark(replica, now_ms)

    def _report(
        self,
        replica: Replica,
        asked: FetchPartition,
        *,
        error: ErrorCode = ErrorCode.NONE,
        records: bytes = b"",
        diverging: EpochEnd | None = None,
    ) -> FetchPartitionResponse:
        log = replica.log
        return _partition_response(
            topic_partition=asked.topic_partition,
            error=error,
            high_watermark=log.marks.high_watermark,
            log_start_offset=log.marks.log_start_offset,
            log_end_offset=log.local.log_end_offset,
            diverging=diverging,
            leader_id=replica.leader_id,
            leader_epoch=replica.leader_epoch,
            records=records,
        )

    def _report_quiet(self, replica: Replica, asked: FetchPartition) -> FetchPartitionResponse:
        """Returns the answer for a partition with nothing new: the one before while no mark has moved."""
        log, known = replica.log, replica.quiet_answer
        if (
            known is None
            or known.log_end_offset != log.local.log_end_offset
            or known.high_watermark != log.marks.high_watermark
            or known.log_start_offset != log.marks.log_start_offset
        ):
            known = replica.quiet_answer = self._report(replica, asked)
        return known

    def _refuse(
        self, replica: Replica | None, asked: FetchPartition, error: ErrorCode
    ) -> FetchPartitionResponse:
        """Returns the answer with the error; OFFSET_OUT_OF_RANGE carries the marks that a follower needs (FET-11)."""
        if replica is not None and error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._report(replica, asked, error=error)
        leader_id, leader_epoch = self._context.leader_hint(asked.topic_partition, error)
        return FetchPartitionResponse(
            topic_partition=asked.topic_partition, error=error, leader_id=leader_id, leader_epoch=leader_epoch
        )


def _do_nothing() -> None:
    """Does nothing."""
