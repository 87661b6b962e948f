"""Appends to partitions that are led here, each with a function that is called once when its outcome is known.

Produce requests of clients use it, and so can any part of a broker that keeps records in a partition.

Kafka: ReplicaManager.appendRecords, DelayedProduce.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import final

from cluster.core import fencing
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.fencing import LogView
from cluster.core.messages import NO_TOPIC_ID, TopicPartition
from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.flushes import Flushes
from cluster.core.replica.isr import committed_isr, maximal_isr
from cluster.core.replica.leader import Leader, promises_flush
from cluster.core.replica.outcomes import Appended, NotCommitted, OnDone, Outcome
from cluster.core.replica.purgatory import Purgatory
from cluster.core.replica.replica import Replica
from cluster.core.replica.sliced_appends import SlicedAppend, SlicedAppends
from storage.batch import iterate_batches
from storage.batch.format import ATTRIBUTES_AT, HEADER_SIZE, TRANSACTIONAL_FLAG
from storage.config import LONG_MAX
from storage.errors import StorageError, ValidationTakesLong
from storage.log import AppendInfo
from storage.validation.sliced import SlicedValidation
from storage.validation.work import APPEND_WORK, STEP_RECORDS, StepWork
from storage.values import maker, quickly_made

EXPIRY_TIMER = "produce.expiry"
# Where a batch of magic 2 says how many records it has.
RECORD_COUNT_AT = HEADER_SIZE - 4
# Where it has its flags: the attributes are two bytes, of which only the low one is used.
FLAGS_AT = ATTRIBUTES_AT + 1
ACKS_ALL, ACKS_LEADER, ACKS_NONE = -1, 1, 0
# The most rounds of callbacks at the end of a broker; each round calls what the one before it has appended.
MAX_LAST_ROUNDS = 1_000


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingAppend:
    """Records that are in the log and not yet as safe as `acks` asks.

    They can become so only in the topic and leader epoch of the append: in another epoch, the same offset may hold
    another record (PRO-5, KAFKA-1148), and another topic of the same name begins with epoch 0 too (C1).
    """

    view: LogView
    acks: int
    appended: Appended
    on_done: OnDone

    @property
    def last_offset(self) -> int:
        return self.appended.last_offset


_waiting_append, _appended = maker(WaitingAppend), maker(Appended)


@final
class LeaderAppends:
    """Appends as leader, and calls `on_done` of each append once: when its records are safe, or cannot be any more.

    `on_done` is never called from inside `append`. It is called at the end of the step that decides the outcome, or of
    the append's own step, before the fetches that the same change makes ready. It may append again. Of one partition,
    appends that end by the same event are called in the order of their offsets; those whose time is over, in the order
    of their deadlines. A broker whose last log directory fails is lost at once, and calls nothing.
    """

    def __init__(self, context: ReplicaContext, flushes: Flushes) -> None:
        self._context = context
        self._flushes = flushes
        spare = context.config.steps.spare_deadlines
        self._purgatory: Purgatory[WaitingAppend] = Purgatory(
            context.outbox, EXPIRY_TIMER, self._on_expired, spare=spare
        )
        # What is called at the end of this step, with what.
        self.done: deque[tuple[OnDone, Outcome]] = deque()
        self._is_stopped = False
        # Whoever ends a step renews it for the next one.
        self.work = StepWork()
        self._sliced = SlicedAppends(context.outbox, self._begin, self._finish)

    def append(
        self,
        now_ms: int,
        topic_partition: TopicPartition,
        records: bytes,
        on_done: OnDone,
        *,
        timeout_ms: int,
        acks: int = ACKS_ALL,
        topic_id: str = NO_TOPIC_ID,
        leader_epoch: int | None = None,
    ) -> int | None:
        """Appends a batch; `on_done` is called once its records are as safe as `acks` asks, or with the reason why not.

        Nothing is appended in another leader epoch than `leader_epoch`, or to another topic of the name than
        `topic_id`, where these are given. Returns the number of what waits now, None if the outcome is known. The
        caller limits how many wait. Raises StorageError if the disk under the last log directory fails.
        """
        work = self.work
        # What comes for a partition stays in order.
        if work.left > 0 and topic_partition not in self._sliced.queues:
            work.left -= APPEND_WORK + _checked_records(records)
            try:
                return self._attempt(
                    now_ms, topic_partition, records, on_done, timeout_ms, acks, topic_id, leader_epoch, None
                )
            except ValidationTakesLong:
                pass
        if not self._sliced.has_room_for(len(records)):
            full = f"{self._sliced.waiting_bytes} bytes wait for their checks"
            self._refuse(topic_partition, ClusterError(ErrorCode.REQUEST_TIMED_OUT, full), on_done)
            return None
        return self._sliced.add(
            now_ms,
            SlicedAppend(
                topic_partition,
                records,
                arrived_ms=now_ms,
                deadline_ms=now_ms + max(0, timeout_ms),
                acks=acks,
                topic_id=topic_id,
                leader_epoch=leader_epoch,
                on_done=on_done,
            ),
        )

    def _attempt(
        self,
        now_ms: int,
        topic_partition: TopicPartition,
        records: bytes,
        on_done: OnDone,
        timeout_ms: int,
        acks: int,
        topic_id: str,
        leader_epoch: int | None,
        checked: SlicedValidation | None,
    ) -> int | None:
        """Appends in this step, after its checks if there were any. Returns what `append` returns.

        Raises ValidationTakesLong, having done nothing, for records that have to be checked in slices first.
        """
        try:
            replica = self._context.replica(topic_partition, topic_id)
            fencing.check_topic_id(topic_partition, topic_id, replica.topic_id)
            # In the same step as the append, so that leadership cannot end in between (PRO-6).
            leader = replica.check_leads()
            self.check_may_append(leader, leader_epoch)
            if acks == ACKS_ALL:
                self.check_enough_in_sync(leader)
            # In a message of magic 0 or 1 this byte is part of the key or of the time.
            if len(records) >= HEADER_SIZE and records[FLAGS_AT] & TRANSACTIONAL_FLAG:
                self.check_not_transactional(records)
            epoch = leader.leader_epoch
            if checked is None:
                info = replica.log.append_as_leader(
                    records, leader_epoch=epoch, now_ms=now_ms, work=self.work
                )
            else:
                info = replica.log.appends.validated_as_leader(checked, leader_epoch=epoch, now_ms=now_ms)
            self.check_not_empty(info)
        except ClusterError as error:
            self._refuse(topic_partition, error, on_done)
            return None
        except ValidationTakesLong:
            raise
        except StorageError as error:
            self._context.check_online(topic_partition, error)
            self.done.append((on_done, self._failed(topic_partition, error)))
            return None
        if not info.is_duplicate:
            self._context.report_appended(replica, info.first_offset, info.last_offset, "leader")
            self._flushes.maybe_flush(replica)
        # If no follower is waited for, the append alone commits the records. One that had been caught up may be waited
        # for no more, which nothing else tells: the retry of an append looks again (HWM-5).
        self._context.advance_high_watermark(replica, now_ms)
        return self._wait(now_ms, replica, leader, info, acks, timeout_ms, on_done)

    def _refuse(self, topic_partition: TopicPartition, error: ClusterError, on_done: OnDone) -> None:
        refused = NotCommitted(
            topic_partition=topic_partition, error=error.code, detail=error.detail, is_in_doubt=False
        )
        self.done.append((on_done, refused))

    def _begin(self, append: SlicedAppend) -> SlicedValidation | None:
        """Returns the checks of an append by the rules of its topic; None if nothing of its partition is led here."""
        replica = self._led(append.topic_partition)
        return None if replica is None else replica.log.appends.validation(append.records, append.arrived_ms)

    def _led(self, topic_partition: TopicPartition) -> Replica | None:
        """Returns the replica of a partition that is led here."""
        replica = self._context.replicas.get(topic_partition)
        return None if replica is None or replica.leader is None else replica

    def _finish(self, now_ms: int, append: SlicedAppend) -> bool:
        """Appends what has been checked, or needs no slices. Returns False if it needs slices first."""
        if append.failure is not None:
            self.done.append(
                (partial(self._sliced.tell, append), self._failed(append.topic_partition, append.failure))
            )
            return True
        if append.is_late(now_ms):
            late = ClusterError(ErrorCode.REQUEST_TIMED_OUT, "its time was over before it could be checked")
            self._refuse(append.topic_partition, late, partial(self._sliced.tell, append))
            return True
        timeout_ms = append.deadline_ms - now_ms
        # What is only refused is no work: it would wait for checks that never begin.
        if append.validation is None and self._led(append.topic_partition) is not None:
            if self.work.left <= 0:
                return False
            self.work.left -= APPEND_WORK + _checked_records(append.records)
        try:
            append.parked = self._attempt(
                now_ms,
                append.topic_partition,
                append.records,
                partial(self._sliced.tell, append),
                timeout_ms,
                append.acks,
                append.topic_id,
                append.leader_epoch,
                append.validation,
            )
        except ValidationTakesLong:
            return False
        return True

    def check_may_append(self, leader: Leader, leader_epoch: int | None) -> None:
        """Raises ClusterError if the broker is ending, or if the caller's leader epoch is over or has not begun.

        What the caller knows of the partition holds in its own epoch only.
        """
        if self._is_stopped:
            raise ClusterError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is shutting down")
        if leader_epoch is not None and not fencing.is_same_leader_epoch(leader_epoch, leader.leader_epoch):
            raise ClusterError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"leader epoch {leader.leader_epoch}, not {leader_epoch}"
            )

    def check_enough_in_sync(self, leader: Leader) -> None:
        """Raises ClusterError if too few replicas are in sync to commit the records (PRO-2)."""
        size = len(committed_isr(leader.isr).isr)
        if size < leader.min_isr:
            raise ClusterError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{size} in sync replicas, min.insync.replicas is {leader.min_isr}",
            )

    def check_not_transactional(self, records: bytes) -> None:
        """Raises ClusterError for a transactional batch: without a transaction coordinator nobody could end what it
        begins, and the last stable offset would stay below it for good (TXN-9).

        What is damaged, and a marker, is left to the checks of the log, which refuse it for that. Of several batches
        the first one decides: such a set is refused anyway. Raises CorruptBatch.
        """
        batch = next(iterate_batches(records), None)
        if batch is None or not batch.is_transactional or batch.is_control or not batch.is_valid():
            return
        raise ClusterError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {batch.producer_id} sends a transactional batch: there is no transaction coordinator that could"
            " end its transaction",
        )

    def check_not_empty(self, info: AppendInfo) -> None:
        if info.is_empty:
            raise ClusterError(ErrorCode.INVALID_RECORD, "no whole batch in the request")

    def _failed(self, topic_partition: TopicPartition, error: StorageError) -> NotCommitted:
        code = ErrorCode(error.code)
        # A write that failed may have stored a whole batch, which the next start finds.
        is_in_doubt = code is ErrorCode.KAFKA_STORAGE_ERROR
        return NotCommitted(
            topic_partition=topic_partition, error=code, detail=str(error), is_in_doubt=is_in_doubt
        )

    def _wait(
        self,
        now_ms: int,
        replica: Replica,
        leader: Leader,
        info: AppendInfo,
        acks: int,
        timeout_ms: int,
        on_done: OnDone,
    ) -> int | None:
        """Parks the append if its outcome is open. Returns its number, None if it is not parked.

        A duplicate waits for the offsets of its first append (PRO-7).
        """
        waiting = _waiting_append(
            view=replica.view,
            acks=acks,
            on_done=on_done,
            appended=_appended(
                topic_partition=replica.topic_partition,
                base_offset=info.first_offset,
                last_offset=info.last_offset,
                log_append_time_ms=info.log_append_time_ms,
                log_start_offset=replica.log.marks.log_start_offset,
                leader_id=replica.leader_id,
                leader_epoch=replica.leader_epoch,
            ),
        )
        assert info.last_offset < replica.log.local.log_end_offset, (replica.name, info)
        assert leader.leader_epoch == replica.leader_epoch, (replica.name, leader.leader_epoch)
        outcome = self._outcome_in_epoch(leader, waiting)
        if outcome is not None:
            if acks != ACKS_ALL or not self._purgatory.watching(replica.topic_partition):
                self.done.append((on_done, outcome))
                return None
            # One that waits may be ready too, and has the lower offset: they end together.
            self._context.touch(replica.topic_partition)
        watched = (replica.topic_partition,)
        return self._purgatory.park(waiting, watched, now_ms + max(0, timeout_ms))

    def outcome_of(self, waiting: WaitingAppend) -> Outcome | None:
        """Returns the outcome of an append that waits, None while it is open."""
        topic_partition = waiting.appended.topic_partition
        replica = self._context.replicas.get(topic_partition)
        leader = None if replica is None else replica.leader
        if self._is_stopped:
            return self._in_doubt(waiting, ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is shutting down")
        if topic_partition in self._context.offline:
            return self._in_doubt(
                waiting, ErrorCode.KAFKA_STORAGE_ERROR, "its log directory failed while it waited"
            )
        if self.has_lost_leadership(replica, waiting):
            if not fencing.is_same_topic(waiting.view[0], self._context.topic_id(topic_partition.topic)):
                return self._in_doubt(
                    waiting, ErrorCode.UNKNOWN_TOPIC_ID, "the topic was deleted while it waited"
                )
            return self._in_doubt(
                waiting, ErrorCode.NOT_LEADER_OR_FOLLOWER, "leadership ended while it waited"
            )
        return None if leader is None else self._outcome_in_epoch(leader, waiting)

    def _outcome_in_epoch(self, leader: Leader, waiting: WaitingAppend) -> Outcome | None:
        """Returns the outcome as far as the leader of the append's own epoch decides it."""
        if not self.is_safe(waiting.acks, leader, waiting.appended.last_offset + 1):
            return None
        if waiting.acks == ACKS_ALL and len(maximal_isr(leader.isr)) < leader.min_isr:
            # The record is in the log, and may or may not survive (PRO-3).
            return self._in_doubt(
                waiting, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "the ISR shrank while it waited"
            )
        return waiting.appended

    def _in_doubt(self, waiting: WaitingAppend, error: ErrorCode, detail: str) -> NotCommitted:
        topic_partition = waiting.appended.topic_partition
        return NotCommitted(topic_partition=topic_partition, error=error, detail=detail, is_in_doubt=True)

    def has_lost_leadership(self, replica: Replica | None, waiting: WaitingAppend) -> bool:
        """Returns whether the epoch of the append is over: no other may acknowledge its records (PRO-5, E4, B-13).

        It is also over if the topic was deleted, whatever the next topic of that name has at the offset.
        """
        return (
            replica is None or replica.leader is None or not fencing.is_same_log(waiting.view, replica.view)
        )

    def is_safe(self, acks: int, leader: Leader, required_offset: int) -> bool:
        """Returns whether all below `required_offset` is as safe as `acks` asks (PRO-1).

        Where a flush is promised, even acks=1 waits for the leader's own.
        """
        if acks == ACKS_ALL:
            return leader.log.marks.high_watermark >= required_offset
        if acks == ACKS_LEADER and promises_flush(leader.log):
            return leader.own_end.offset >= required_offset
        return True

    def on_touched(self, now_ms: int, topic_partition: TopicPartition) -> None:
        """Ends the appends whose outcome is known after the partition's high watermark, flush, ISR or role moved."""
        if self._end_known(topic_partition, LONG_MAX):
            self.call_back(now_ms)

    def _end_known(self, topic_partition: TopicPartition, below_offset: int) -> bool:
        """Ends the appends below the offset whose outcome is known, in order. Returns whether there are any."""
        known: list[tuple[int, int, Outcome]] = []
        for number, waiting in self._purgatory.watching(topic_partition):
            outcome = self.outcome_of(waiting) if waiting.last_offset < below_offset else None
            if outcome is not None:
                known.append((waiting.appended.last_offset, number, outcome))
        # By offset, and a retry after the first append: two numbers are never equal.
        known.sort()
        for _, number, outcome in known:
            ended = self._purgatory.take(number)
            assert ended is not None, (number, outcome)
            self.done.append((ended.on_done, outcome))
        return bool(known)

    def call_back(self, now_ms: int) -> None:
        """Calls back whoever's outcome is known, in order. What is appended and refused meanwhile is left in `done`."""
        for _ in range(len(self.done)):
            on_done, outcome = self.done.popleft()
            on_done(now_ms, outcome)

    def _on_expired(self, now_ms: int, waiting: WaitingAppend) -> None:
        """Ends an append after its timeout: the outcome of its records is unknown (PRO-4).

        But an event that was handled just before, in the same step, may have decided it.
        """
        outcome = self.outcome_of(waiting)
        if outcome is None:
            outcome = self._in_doubt(
                waiting, ErrorCode.REQUEST_TIMED_OUT, "its replication took longer than timeout_ms"
            )
        else:
            # That event has decided those before it in the log too, which have more time.
            self._end_known(waiting.appended.topic_partition, waiting.last_offset)
        self.done.append((waiting.on_done, outcome))

    def forget(self, number: int) -> None:
        """Drops the append of that number, whose caller has left: its records stay or come, and nothing is called."""
        parked = self._sliced.forget(number) if number < 0 else number
        if parked is not None:
            self._purgatory.take(parked)

    @property
    def waits_for_checks(self) -> bool:
        """Whether any set waits for its checks, or behind one that does."""
        return bool(self._sliced.queues)

    @property
    def purgatory(self) -> Purgatory[WaitingAppend]:
        """The appends that wait for their replicas."""
        return self._purgatory

    def waiting(self) -> list[WaitingAppend]:
        """Returns the appends that wait, in order of arrival."""
        return self._purgatory.operations()

    def stop(self, now_ms: int) -> None:
        """Ends all that waits with the reason that the broker is ending; nothing is appended from now on."""
        self._is_stopped = True
        for append in self._sliced.take_all():
            error = ClusterError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is shutting down")
            self._refuse(append.topic_partition, error, partial(self._sliced.tell, append))
        for topic_partition in self._purgatory.watched():
            self.on_touched(now_ms, topic_partition)
        for _ in range(MAX_LAST_ROUNDS):
            if not self.done:
                break
            self.call_back(now_ms)
        assert not self.done, len(self.done)
        assert not self._purgatory.operations(), self._purgatory.operations()


def _checked_records(records: bytes) -> int:
    """Returns how many records of a set a step is charged for: those that its first header of magic 2 names."""
    return min(int.from_bytes(records[RECORD_COUNT_AT:HEADER_SIZE]), STEP_RECORDS)
