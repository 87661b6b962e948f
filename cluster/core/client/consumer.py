"""The consumer without I/O: positions in, fetches to leaders out, records below the high watermark to the user.

One fetch is in flight to each leader, for all partitions that it leads. For each partition it names the leader
epoch that the consumer knows and the epoch of the last record that it read (KIP-320). A leader that does not have
that record answers where the two logs diverge, and the position moves back there. Kafka: KafkaConsumer, Fetcher,
SubscriptionState.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

from cluster.core.client.config import ConsumerConfig, OffsetReset
from cluster.core.client.effects import (
    ConsumerEffect,
    EndOfPartition,
    Fetched,
    PartitionDeleted,
    PositionLost,
    PositionReset,
    TopicMissing,
    Truncated,
)
from cluster.core.client.fetched_records import read_fetched
from cluster.core.client.metadata_cache import LeaderAndEpoch, MetadataUpdater
from cluster.core.client.starts import AtTime, BeforeEnd, LookedUp, asked_timestamp, next_step, reason_of
from cluster.core.effects import Observe, Send, SetTimer, Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, JobDone, Request, Response, Shutdown, TimerFired, TransportError
from cluster.core.messages import (
    NO_EPOCH,
    EpochEnd,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ResponseBody,
    TopicPartition,
)
from storage.config import INT_MAX
from storage.errors import CorruptBatch, StorageError
from storage.values import quickly_made

WAKE_TIMER = "consumer.wake"
CONSUMER_REPLICA_ID = -1
OUT_OF_RANGE = "out_of_range"
# How long a consumer fetches a batch again that stays damaged, before its user has to decide. Kafka: not at all, its
# poll raises at once.
DAMAGED_MS = 30_000

Start = int | OffsetReset | AtTime | BeforeEnd


@dataclass(slots=True, kw_only=True)
class Position:
    """The state of reading one partition."""

    topic_partition: TopicPartition
    # The offset of the next record to read; None while it is still to be looked up by `reset`.
    offset: int | None
    reset: LookedUp
    # The reason why the offset is looked up, for PositionReset.
    reason: str = ""
    last_fetched_epoch: int = NO_EPOCH
    high_watermark: int = -1
    retry_at_ms: int = 0
    lookup_call: int | None = None
    # The offset of the batch that was damaged in each of the last answers, and since when; None if none was.
    damaged: tuple[int, int] | None = None
    is_fetching: bool = False
    is_paused: bool = False
    max_bytes: int
    # The offset of the last EndOfPartition, unless other records may come before it.
    reported_end_offset: int = -1


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class _FetchCall:
    leader: int
    # The positions fetched for, each with the offset and the topic's id that were asked for.
    asked: dict[TopicPartition, tuple[Position, int, str]]


@final
class ConsumerCore:
    """The consumer's state: call `assign` or `subscribe`, then `step`, on one thread; each returns effects in order."""

    def __init__(self, config: ConsumerConfig) -> None:
        self.config = config
        self.metadata = MetadataUpdater(
            retry_backoff_ms=config.retry_backoff_ms,
            request_timeout_ms=config.request_timeout_ms,
            max_age_ms=config.metadata_max_age_ms,
        )
        self._positions: dict[TopicPartition, Position] = {}
        self._subscriptions: dict[str, Start] = {}
        self._missing: dict[str, ErrorCode] = {}
        # The id of each topic whose partitions were looked at last.
        self._followed_ids: dict[str, str] = {}
        self._fetches: dict[int, _FetchCall] = {}
        # The call of the fetch in flight, by leader.
        self._busy_leaders: dict[int, int] = {}
        self._next_call = 0
        self._armed_ms: int | None = None
        self._is_stopped = False

    def assign(
        self,
        now_ms: int,
        positions: Iterable[tuple[TopicPartition, Start]],
        *,
        new_partitions: bool = False,
    ) -> list[ConsumerEffect]:
        """Reads these partitions from now on and no others, each from an offset or from an end that is looked up.

        With `new_partitions` also those that their topics get later, each from its start, and a topic that does not
        exist is told, as for `subscribe`.
        """
        self._positions, self._subscriptions, self._missing = {}, {}, {}
        self._followed_ids.clear()
        assigned = list(positions)
        self.metadata.watch_only(topic_partition.topic for topic_partition, _ in assigned)
        for topic_partition, start in assigned:
            self._add(topic_partition, start)
            if new_partitions:
                self._subscriptions[topic_partition.topic] = OffsetReset.EARLIEST
        return self._run(now_ms)

    def subscribe(self, now_ms: int, topics: Sequence[str], start: OffsetReset) -> list[ConsumerEffect]:
        """Reads all partitions of the topics from now on, also those created later, and no others."""
        self._positions, self._subscriptions, self._missing = {}, dict.fromkeys(topics, start), {}
        self._followed_ids.clear()
        self.metadata.watch_only(topics)
        return self._run(now_ms)

    def seek(
        self, now_ms: int, topic_partition: TopicPartition, start: Start, *, leader_epoch: int = NO_EPOCH
    ) -> list[ConsumerEffect]:
        """Moves the position to `start`, an offset or an end of the log.

        The leader checks `leader_epoch`, that of the record before an offset, if given.
        """
        position = self._add(topic_partition, start)
        # The answer to a fetch in flight is that of the old position.
        assert not position.is_fetching, (topic_partition, start)
        position.last_fetched_epoch = leader_epoch
        effects = self._run(now_ms)
        # A subscription must not replace it.
        assert self._positions[topic_partition] is position, (topic_partition, start)
        return effects

    def pause(self, topic_partition: TopicPartition) -> None:
        """Stops fetching the partition; an answer on its way is dropped, and fetched again after `resume`."""
        self._positions[topic_partition].is_paused = True

    def resume(self, now_ms: int, *topic_partitions: TopicPartition) -> list[ConsumerEffect]:
        """Fetches the partitions again: those of one leader with one request, in which none waits for another."""
        for topic_partition in topic_partitions:
            position = self._positions[topic_partition]
            position.is_paused, position.damaged = False, None
        return self._run(now_ms)

    @property
    def places(self) -> Iterable[Position]:
        """The state of reading each partition, for checkers."""
        return self._positions.values()

    @property
    def armed_ms(self) -> int | None:
        """The time of the timer that is set, for checkers; None if none is."""
        return self._armed_ms

    def is_asking(self, leader: int) -> bool:
        """Whether a fetch from `leader` has no answer yet."""
        return leader in self._busy_leaders

    def positions(self) -> dict[TopicPartition, int | None]:
        """The next offset of each partition; None while it is being looked up."""
        return {position.topic_partition: position.offset for position in self._positions.values()}

    def step(self, now_ms: int, event: Event) -> list[ConsumerEffect]:
        """Takes an answer, a timer or `Shutdown`; returns what it leads to, nothing after `Shutdown`."""
        if self._is_stopped:
            return []
        assert len(self._busy_leaders) == len(self._fetches), (self._busy_leaders, len(self._fetches))
        effects: list[ConsumerEffect] = []
        match event:
            case Response():
                effects += self._on_response(now_ms, event.call, event.body)
            case TimerFired():
                self._armed_ms = None
            case Shutdown():
                self._is_stopped = True
                return [Stop(reason="shutdown")]
            case Request() | JobDone():
                pass
        effects += self._run(now_ms)
        # One fetch for each of these leaders.
        assert len(self._busy_leaders) == len(self._fetches), (self._busy_leaders, len(self._fetches))
        return effects

    def _add(self, topic_partition: TopicPartition, start: Start) -> Position:
        offset: int | None = None
        reset: LookedUp = self.config.auto_offset_reset
        reason = ""
        if isinstance(start, int):
            offset = start
        else:
            reset, reason = start, reason_of(start)
        position = Position(
            topic_partition=topic_partition,
            offset=offset,
            reset=reset,
            reason=reason,
            max_bytes=self.config.max_partition_fetch_bytes,
        )
        self._positions[topic_partition] = position
        self.metadata.watch((topic_partition.topic,))
        return position

    def _run(self, now_ms: int) -> list[ConsumerEffect]:
        assert not self._is_stopped, now_ms
        effects = self._follow_subscriptions()
        by_leader: dict[int, list[tuple[Position, LeaderAndEpoch]]] = {}
        for position in self._positions.values():
            if self._is_due(position, now_ms):
                leader = self.metadata.cache.leader(position.topic_partition)
                if leader is None:
                    self.metadata.request()
                elif position.offset is None:
                    effects.append(self._look_up(position, leader))
                elif leader.leader not in self._busy_leaders:
                    by_leader.setdefault(leader.leader, []).append((position, leader))
        effects += [self._fetch(leader_id, asked) for leader_id, asked in by_leader.items()]
        if request := self.metadata.poll(now_ms, self._next_call):
            self._next_call += 1
            assert self.metadata.owns(request.call), (request.call, self._next_call)
            effects.append(request)
        return [*effects, *self._arm(now_ms)]

    def _follow_subscriptions(self) -> list[ConsumerEffect]:
        effects: list[ConsumerEffect] = []
        for topic, start in self._subscriptions.items():
            numbers = self.metadata.cache.partitions(topic)
            for number in numbers:
                if TopicPartition(topic, number) not in self._positions:
                    self._add(TopicPartition(topic, number), start)
            if numbers:
                topic_id = self.metadata.cache.topic_id(topic)
                if self._followed_ids.setdefault(topic, topic_id) != topic_id:
                    self._followed_ids[topic] = topic_id
                    effects += self._drop_beyond(topic, frozenset(numbers))
            error = self.metadata.cache.errors.get(topic, ErrorCode.NONE)
            if error is not ErrorCode.NONE:
                self.metadata.request()
                if self._missing.get(topic) is not error:
                    effects.append(TopicMissing(topic=topic, error=error))
            self._missing[topic] = error
        return effects

    def _drop_beyond(self, topic: str, numbers: frozenset[int]) -> list[ConsumerEffect]:
        """Drops the partitions that a topic has no more, because it was created again with fewer."""
        gone = [each for each in self._positions if each.topic == topic and each.partition not in numbers]
        for topic_partition in gone:
            del self._positions[topic_partition]
        return [PartitionDeleted(topic_partition=each) for each in gone]

    def _is_due(self, position: Position, now_ms: int) -> bool:
        is_idle = not position.is_fetching and position.lookup_call is None and not position.is_paused
        return is_idle and position.retry_at_ms <= now_ms

    def _look_up(self, position: Position, leader: LeaderAndEpoch) -> Send:
        assert position.lookup_call is None, (position.topic_partition, position.lookup_call)
        assert position.offset is None, (position.topic_partition, position.offset)
        position.lookup_call = self._take_call()
        return Send(
            to=leader.leader,
            call=position.lookup_call,
            body=ListOffsetsRequest(
                topic_partition=position.topic_partition,
                topic_id=self.metadata.cache.topic_id(position.topic_partition.topic),
                timestamp=asked_timestamp(position.reset),
                current_leader_epoch=leader.leader_epoch,
            ),
            timeout_ms=self.config.request_timeout_ms,
        )

    def _fetch(self, leader_id: int, asked: list[tuple[Position, LeaderAndEpoch]]) -> Send:
        assert leader_id not in self._busy_leaders, (leader_id, self._busy_leaders)
        call = self._take_call()
        partitions = []
        offsets: dict[TopicPartition, tuple[Position, int, str]] = {}
        for position, leader in asked:
            assert position.offset is not None
            position.is_fetching = True
            topic_id = self.metadata.cache.topic_id(position.topic_partition.topic)
            offsets[position.topic_partition] = (position, position.offset, topic_id)
            partitions.append(
                FetchPartition(
                    topic_partition=position.topic_partition,
                    topic_id=topic_id,
                    fetch_offset=position.offset,
                    current_leader_epoch=leader.leader_epoch,
                    last_fetched_epoch=position.last_fetched_epoch,
                    max_bytes=position.max_bytes,
                )
            )
        assert len(partitions) == len(offsets), (len(partitions), len(offsets))
        self._fetches[call] = _FetchCall(leader=leader_id, asked=offsets)
        self._busy_leaders[leader_id] = call
        return Send(
            to=leader_id,
            call=call,
            body=FetchRequest(
                replica_id=CONSUMER_REPLICA_ID,
                max_wait_ms=self.config.fetch_max_wait_ms,
                min_bytes=self.config.fetch_min_bytes,
                max_bytes=self.config.fetch_max_bytes,
                partitions=tuple(partitions),
            ),
            timeout_ms=self.config.request_timeout_ms,
        )

    def _take_call(self) -> int:
        self._next_call += 1
        return self._next_call - 1

    def _arm(self, now_ms: int) -> list[ConsumerEffect]:
        wakes = [self.metadata.next_wake_ms()]
        wakes += [position.retry_at_ms for position in self._positions.values()]
        wake_ms = min((time for time in wakes if time is not None and time > now_ms), default=None)
        if wake_ms is None or (self._armed_ms is not None and self._armed_ms <= wake_ms):
            return []
        self._armed_ms = wake_ms
        return [SetTimer(key=WAKE_TIMER, at_ms=wake_ms)]

    def _on_response(
        self, now_ms: int, call: int, body: ResponseBody | TransportError
    ) -> list[ConsumerEffect]:
        assert call < self._next_call, (call, self._next_call)
        if self.metadata.owns(call):
            return list(self.metadata.on_response(now_ms, body))
        if fetch := self._fetches.pop(call, None):
            assert self._busy_leaders[fetch.leader] == call, (fetch.leader, call)
            del self._busy_leaders[fetch.leader]
            return self._on_fetched(now_ms, fetch, body)
        for position in self._positions.values():
            if position.lookup_call == call:
                position.lookup_call = None
                return self._on_looked_up(now_ms, position, body)
        # The partition is not assigned any more.
        return []

    def _on_looked_up(
        self, now_ms: int, position: Position, body: ResponseBody | TransportError
    ) -> list[ConsumerEffect]:
        assert position.offset is None, (position.topic_partition, position.offset)
        assert position.reason, position.topic_partition
        error = body.error if isinstance(body, ListOffsetsResponse) else ErrorCode.NETWORK_EXCEPTION
        if error is not ErrorCode.NONE or not isinstance(body, ListOffsetsResponse):
            return self._on_error(now_ms, position, error)
        step = next_step(position.reset, body.offset)
        if not isinstance(step, int):
            # The next look-up is sent at the end of this step.
            position.reset = step
            return []
        if step < 0:
            # A broker that knows no offset says so with an error.
            return self._on_error(now_ms, position, ErrorCode.UNKNOWN_SERVER_ERROR)
        position.offset, position.last_fetched_epoch = step, NO_EPOCH
        return [PositionReset(topic_partition=position.topic_partition, offset=step, reason=position.reason)]

    def _on_fetched(
        self, now_ms: int, fetch: _FetchCall, body: ResponseBody | TransportError
    ) -> list[ConsumerEffect]:
        assert fetch.leader not in self._busy_leaders, (fetch.leader, self._busy_leaders)
        error = body.error if isinstance(body, FetchResponse) else ErrorCode.NETWORK_EXCEPTION
        answers = {}
        if isinstance(body, FetchResponse):
            answers = {answer.topic_partition: answer for answer in body.partitions}
        effects: list[ConsumerEffect] = []
        for topic_partition, (position, asked_offset, topic_id) in fetch.asked.items():
            assert position.is_fetching, (topic_partition, asked_offset)
            position.is_fetching = False
            if not self._is_current(position, asked_offset):
                continue
            answer = answers.get(topic_partition)
            if error is not ErrorCode.NONE:
                effects += self._on_error(now_ms, position, error)
            elif answer is not None:
                # A leader may leave out partitions for which it has nothing new.
                effects += self._on_partition(now_ms, position, topic_id, answer, len(answers))
        return effects

    def _is_current(self, position: Position, asked_offset: int) -> bool:
        """Whether the answer is still valid: it is dropped whole if the position has changed or is paused (FET-4)."""
        is_assigned = self._positions.get(position.topic_partition) is position
        return is_assigned and not position.is_paused and position.offset == asked_offset

    def _on_partition(
        self, now_ms: int, position: Position, topic_id: str, answer: FetchPartitionResponse, shares: int
    ) -> list[ConsumerEffect]:
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._on_out_of_range(position)
        if answer.error is not ErrorCode.NONE:
            is_news = self.metadata.cache.hint(answer, topic_id)
            return [] if is_news else self._on_error(now_ms, position, answer.error)
        if answer.diverging is not None:
            return self._on_diverging(position, answer.diverging)
        return self._on_records(now_ms, position, answer, shares)

    def _on_error(self, now_ms: int, position: Position, error: ErrorCode) -> list[ConsumerEffect]:
        """Tries again later, perhaps at another leader; ends the reading where trying again cannot help."""
        assert error is not ErrorCode.NONE, position.topic_partition
        # Nothing is on its way that would come before the retry.
        assert position.lookup_call is None, (position.topic_partition, position.lookup_call)
        is_lasting = not error.is_retriable and error is not ErrorCode.UNKNOWN_SERVER_ERROR
        if is_lasting:
            return self._lose(position, error)
        position.retry_at_ms = now_ms + self.config.retry_backoff_ms
        self.metadata.request()
        return []

    def _lose(self, position: Position, error: ErrorCode) -> list[ConsumerEffect]:
        offset = -1 if position.offset is None else position.offset
        position.is_paused = True
        return [PositionLost(topic_partition=position.topic_partition, offset=offset, error=error)]

    def _on_out_of_range(self, position: Position) -> list[ConsumerEffect]:
        if self.config.auto_offset_reset is OffsetReset.NONE:
            return self._lose(position, ErrorCode.OFFSET_OUT_OF_RANGE)
        position.offset, position.last_fetched_epoch, position.reported_end_offset = None, NO_EPOCH, -1
        position.reset, position.reason = self.config.auto_offset_reset, OUT_OF_RANGE
        return []

    def _on_diverging(self, position: Position, diverging: EpochEnd) -> list[ConsumerEffect]:
        """Moves the position back to where both logs still agree: the leader lacks the last record read (KIP-320)."""
        # A leader whose oldest epoch is newer than that record's has nothing left to compare with.
        if diverging.end_offset < 0:
            return self._on_out_of_range(position)
        assert position.offset is not None
        from_offset, to_offset = position.offset, min(position.offset, diverging.end_offset)
        position.offset, position.last_fetched_epoch = to_offset, diverging.epoch
        # Other records may come up to the same end.
        position.reported_end_offset = -1
        return [
            Truncated(
                topic_partition=position.topic_partition,
                from_offset=from_offset,
                to_offset=to_offset,
                epoch=diverging.epoch,
            )
        ]

    def _on_records(
        self, now_ms: int, position: Position, answer: FetchPartitionResponse, shares: int
    ) -> list[ConsumerEffect]:
        assert position.offset is not None
        position.high_watermark = answer.high_watermark
        read = read_fetched(
            answer.records,
            position.offset,
            answer.high_watermark,
            check_crcs=self.config.check_crcs,
            shares=shares,
            most_records=self.config.most_read_records,
        )
        effects: list[ConsumerEffect] = []
        # They would be read a second time.
        assert not read.records or read.next_offset > position.offset, (read.next_offset, position.offset)
        if read.next_offset > position.offset:
            position.offset = read.next_offset
            position.last_fetched_epoch = read.last_epoch
            position.max_bytes = self.config.max_partition_fetch_bytes
            # The leader serves a request in its order: those that had nothing of this answer come first now (KIP-74).
            self._positions[position.topic_partition] = self._positions.pop(position.topic_partition)
            effects.append(
                Fetched(
                    topic_partition=position.topic_partition,
                    records=read.records,
                    batches=read.batches,
                    high_watermark=answer.high_watermark,
                    next_offset=read.next_offset,
                    leader_epoch=answer.leader_epoch,
                )
            )
        elif answer.records and read.damage is None:
            # The limit was too small for one whole batch. A message has 31 bits for it.
            position.max_bytes = min(2 * position.max_bytes, INT_MAX)
        if read.damage is not None:
            return [*effects, *self._on_damage(now_ms, position, read.damage)]
        position.damaged = None
        return [*effects, *self._report_end(position)]

    def _on_damage(self, now_ms: int, position: Position, damage: StorageError) -> list[ConsumerEffect]:
        """Fetches a damaged batch again: it may have been damaged on the way. The user sees no record of it.

        One that stays damaged is so in the log: the reading ends there, until the user moves the position past it.
        """
        notice = Observe(
            kind="consumer.damaged_batch",
            fields=(
                ("topic_partition", str(position.topic_partition)),
                ("offset", -1 if position.offset is None else position.offset),
                ("reason", str(damage)),
            ),
        )
        error = ErrorCode.CORRUPT_MESSAGE if isinstance(damage, CorruptBatch) else ErrorCode(damage.code)
        assert position.offset is not None, position.topic_partition
        if position.damaged is None or position.damaged[0] != position.offset:
            position.damaged = (position.offset, now_ms)
        if now_ms - position.damaged[1] >= DAMAGED_MS:
            return [notice, *self._lose(position, error)]
        return [notice, *self._on_error(now_ms, position, error)]

    def _report_end(self, position: Position) -> list[ConsumerEffect]:
        offset = position.offset
        # A leader whose high watermark is below the position learns only later where the end is.
        if offset is None or offset != position.high_watermark or offset == position.reported_end_offset:
            return []
        position.reported_end_offset = offset
        return [EndOfPartition(topic_partition=position.topic_partition, offset=offset)]
