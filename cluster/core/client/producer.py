"""The producer without I/O: records in, requests to leaders and one `Delivered` for each record out.

It is idempotent by default (KIP-98): retries and fail-overs neither reorder nor duplicate records, because

- a partition's batches are sent again in their order, each under the sequence of its first sending, and only
  while no earlier one is in flight;
- at most five are under way, counted from the oldest one without an outcome: a broker remembers five;
- the first batch to a topic, also to one that was deleted and created again, and the first in each leader epoch, is
  alone in flight;
- each batch waits for its own answer: the acknowledgement of a later one proves nothing of it, because a leader that
  has forgotten the producer takes any sequence;
- after a batch was refused, or was given up while its outcome is unknown, no new batch is sent until the
  outcomes of all sent batches are known; then the epoch grows and sequences begin again (KIP-360).

A request is answered whole, as in Kafka, so its slowest partition withholds the answers of the others. This costs
them little: the broker ends its wait before the request times out here, with an answer for each partition; and a
partition whose replication timed out then travels apart, until one of its batches is acknowledged. Kafka has neither:
there a connection handles one request at a time.

Kafka: KafkaProducer, Sender, TransactionManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

from cluster.core.client.accumulator import NUMBER_STEP, Entry, ProducerBatch
from cluster.core.client.config import ACKS_NONE, ProducerConfig
from cluster.core.client.due_batches import DueBatches
from cluster.core.client.effects import Delivered, ProducerEffect
from cluster.core.client.metadata_cache import MetadataUpdater
from cluster.core.client.partition_queue import PartitionQueue
from cluster.core.client.partitioner import StickyPartitioner, partition_for_key
from cluster.core.client.produce_answers import (
    DUPLICATES,
    LOST_SEQUENCES,
    NO_NEWS_OF_LEADERS,
    delivered_of,
    failed_of,
    leaves_doubt,
    missing_result,
    results_of,
)
from cluster.core.client.producer_identity import IdentityKeeper
from cluster.core.client.request_room import MOST_BATCHES_BYTES, fits_in_request
from cluster.core.client.requests_in_flight import RequestsInFlight
from cluster.core.client.unfinished_records import UnfinishedRecords
from cluster.core.client.waiting_records import (
    NO_PARTITION,
    PendingRecord,
    WaitingRecords,
    flaw_of,
    size_bound,
)
from cluster.core.effects import Send, SetTimer, Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, JobDone, Request, Response, Shutdown, TimerFired
from cluster.core.messages import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    TopicPartition,
)
from storage.batch.record import Header, Record
from storage.draws import Draws
from storage.values import maker

_send = maker(Send)
_produce_request, _produce_partition = maker(ProduceRequest), maker(ProducePartition)

WAKE_TIMER = "producer.wake"


@final
class ProducerCore:
    """The producer's state: call `send`, `flush` and `step` on one thread; each returns effects in order."""

    def __init__(self, config: ProducerConfig, draws: Draws) -> None:
        self.config = config
        self.metadata = MetadataUpdater(
            retry_backoff_ms=config.retry_backoff_ms,
            request_timeout_ms=config.request_timeout_ms,
            max_age_ms=config.metadata_max_age_ms,
        )
        self.identity = IdentityKeeper(config.retry_backoff_ms, config.request_timeout_ms)
        self.unfinished = UnfinishedRecords()
        self._due = DueBatches(config, self.metadata, self.identity)
        self._draws = draws
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self.waiting = WaitingRecords(config.max_block_ms, self.metadata.cache)
        self._sticky: dict[str, StickyPartitioner] = {}
        self._requests = RequestsInFlight(config.max_in_flight_requests_per_connection)
        self._next_call = 0
        self._next_number = 0
        self._turn = 0
        self._armed_ms: int | None = None
        self._is_closing = False
        # The size of the largest record whose sender waits for room.
        self._wanted_bytes = 0
        self._is_stopped = False

    def start(self, now_ms: int) -> list[ProducerEffect]:
        """Asks for an id and for the brokers before the first record, so that it need not wait for both."""
        self.metadata.request()
        return self._run(now_ms)

    @property
    def queues(self) -> Iterable[PartitionQueue]:
        """The queues of all partitions to which a record was sent, for checkers."""
        return self._queues.values()

    @property
    def armed_ms(self) -> int | None:
        """The time of the timer that is set, for checkers; None if none is."""
        return self._armed_ms

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    def is_asking(self, leader: int) -> bool:
        """Whether a request to `leader` has no answer yet."""
        return self._requests.is_asking(leader)

    @property
    def has_room(self) -> bool:
        """Whether the buffer has room (buffer.memory); while it has none, the shell makes its user wait."""
        return self.unfinished.size_bytes + max(1, self._wanted_bytes) <= self.config.buffer_memory

    @property
    def _is_pressed(self) -> bool:
        """Whether no batch lingers: the producer closes or is flushed, or its buffer is full."""
        return self._is_closing or self.unfinished.is_flushing or not self.has_room

    def press(self, now_ms: int, size_bytes: int) -> list[ProducerEffect]:
        """Sends without lingering where a record of this size has no room: its sender waits for that.

        Kafka: RecordAccumulator.ready, where a thread waits for the buffer pool.
        """
        self._wanted_bytes = max(self._wanted_bytes, size_bytes)
        return self._run(now_ms)

    def send(
        self,
        now_ms: int,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
        ticket: int,
    ) -> list[ProducerEffect]:
        """Takes one record. Exactly one `Delivered` with its ticket follows: at once if it is refused, else later."""
        header_pairs = tuple(headers)
        record = PendingRecord(
            ticket,
            topic,
            partition,
            key,
            value,
            header_pairs,
            now_ms if timestamp_ms is None else timestamp_ms,
            now_ms,
            self.unfinished.generation,
            size_bound(key, value, header_pairs),
        )
        if refused := self._refusal(record):
            return [refused]
        if self.unfinished.is_empty:
            # Nobody waits for an empty buffer.
            self._wanted_bytes = 0
        self.unfinished.add(record.size_bytes)
        self.metadata.watch((topic,))
        if (place := self.waiting.awaited(record)) is not None:
            self.waiting.add(place, record)
            return self._run(now_ms)
        needs_run = self._accumulate(record) or (self._wanted_bytes > 0 and not self.has_room)
        return self._run(now_ms) if needs_run else []

    def flush(self, now_ms: int, ticket: int) -> list[ProducerEffect]:
        """Sends without lingering; `Flushed(ticket)` follows once all records sent before have their outcome."""
        self.unfinished.begin_flush(ticket)
        for queue in self._queues.values():
            if queue.queue:
                queue.queue[-1].is_full = True
        return self._run(now_ms)

    def step(self, now_ms: int, event: Event) -> list[ProducerEffect]:
        """Takes a response, a timer or `Shutdown`, which ends with `Stop` once all records have their outcome."""
        return self.steps(now_ms, (event,))

    def steps(self, now_ms: int, events: Sequence[Event]) -> list[ProducerEffect]:
        """Takes several events that arrived together, then does once what is due.

        Under load a frame brings five answers, which make room for five batches.
        """
        if self._is_stopped:
            return []
        unfinished = self.unfinished
        assert unfinished.is_empty == (unfinished.size_bytes == 0), (unfinished.count, unfinished.size_bytes)
        effects: list[ProducerEffect] = []
        for event in events:
            match event:
                case Response():
                    effects += self._on_response(now_ms, event)
                case TimerFired():
                    self._armed_ms = None
                case Shutdown():
                    self._is_closing = True
                case Request() | JobDone():
                    pass
        effects += self._run(now_ms)
        # The bytes are those of the records without an outcome.
        assert unfinished.is_empty == (unfinished.size_bytes == 0), (unfinished.count, unfinished.size_bytes)
        return effects

    def abort(self, now_ms: int) -> list[ProducerEffect]:
        """Ends at once: each record without an outcome fails, with `is_unknown` where it was sent."""
        effects: list[ProducerEffect] = []
        for record in self.waiting.take_all():
            effects.append(self._fail_waiting(record, ErrorCode.REQUEST_TIMED_OUT, "the producer was closed"))
        for queue in self._queues.values():
            for batch in queue.in_flight:
                batch.may_be_appended = True
            for batch in [*queue.in_flight, *queue.queue]:
                effects += self._fail(batch, ErrorCode.REQUEST_TIMED_OUT, "the producer was closed")
            queue.queue.clear()
        assert self.unfinished.is_empty, self.unfinished.count
        assert self.unfinished.size_bytes == 0, self.unfinished.size_bytes
        self._is_closing = True
        return [*effects, *self._run(now_ms)]

    def _refusal(self, record: PendingRecord) -> Delivered | None:
        error, message = ErrorCode.NONE, ""
        if self._is_closing:
            error, message = ErrorCode.INVALID_REQUEST, "the producer is closed"
        elif flaw := flaw_of(record, self.config):
            error, message = flaw
        elif self.unfinished.size_bytes + record.size_bytes > self.config.buffer_memory:
            error, message = ErrorCode.REQUEST_TIMED_OUT, "buffer.memory is exhausted"
        if error is ErrorCode.NONE:
            return None
        number = NO_PARTITION if record.partition is None else record.partition
        topic_partition = TopicPartition(record.topic, number)
        return Delivered(ticket=record.ticket, topic_partition=topic_partition, error=error, message=message)

    def _accumulate(self, record: PendingRecord) -> bool:
        """Adds the record to the last batch of its partition; returns whether a batch may be due because of it.

        If two batches were waiting, the first was due already: a third one makes no other due, unless the buffer is
        full.
        """
        number = self._choose_partition(record)
        topic_partition = TopicPartition(record.topic, number)
        assert number in self.metadata.cache.partitions(record.topic), topic_partition
        queue = self._queues.get(topic_partition)
        if queue is None:
            queue = self._queues[topic_partition] = PartitionQueue(topic_partition)
        batch = queue.queue[-1] if queue.queue else None
        if batch is not None and self._try_append(batch, record):
            return batch.is_full
        batch = self._new_batch(queue, record)
        is_taken = self._try_append(batch, record)
        assert is_taken, record.ticket
        return len(queue.queue) <= 2 or not self.has_room

    def _new_batch(self, queue: PartitionQueue, record: PendingRecord) -> ProducerBatch:
        batch = ProducerBatch(
            queue.topic_partition,
            number=self._next_number,
            created_ms=record.arrived_ms,
            generation=record.generation,
            compression=self.config.compression_type,
            limit_bytes=min(self.config.batch_size, MOST_BATCHES_BYTES),
        )
        waiting = queue.queue
        # The queue is in the order of numbers, and so of flushes.
        assert not waiting or waiting[-1].number < batch.number, batch.number
        assert not waiting or waiting[-1].generation <= batch.generation, batch.generation
        self._next_number += NUMBER_STEP
        waiting.append(batch)
        return batch

    def _try_append(self, batch: ProducerBatch, record: PendingRecord) -> bool:
        if batch.data or batch.generation != record.generation:
            assert batch.generation <= record.generation, (batch.generation, record.generation)
            batch.is_full = True
            return False
        return batch.try_append(
            Record(batch.record_count, record.timestamp_ms, record.key, record.value, record.headers),
            Entry(record.ticket, record.timestamp_ms, record.size_bytes),
        )

    def _choose_partition(self, record: PendingRecord) -> int:
        if record.partition is not None:
            return record.partition
        if record.key is not None:
            return partition_for_key(record.key, len(self.metadata.cache.partitions(record.topic)))
        sticky = self._sticky.get(record.topic)
        if sticky is None:
            sticky = StickyPartitioner(record.topic, self.config.batch_size, self._draws)
            self._sticky[record.topic] = sticky
        return sticky.partition(record.size_bytes, self.metadata.cache.available_partitions(record.topic))

    def _run(self, now_ms: int) -> list[ProducerEffect]:
        """Does everything that is due now, then sets the timer for what will be due next."""
        if self._is_stopped:
            return []
        effects = self._take_waiting(now_ms)
        effects += self._expire(now_ms)
        self._resolve()
        effects += self._drain(now_ms)
        if request := self.metadata.poll(now_ms, self._next_call):
            self._next_call += 1
            effects.append(request)
        if self.config.is_idempotent:
            request = self.identity.poll(now_ms, self._next_call, self.metadata.next_node)
            if request is not None:
                self._next_call += 1
                effects.append(request)
        effects += self.unfinished.end_flushes()
        if self._is_closing and self.unfinished.is_empty:
            assert self.unfinished.size_bytes == 0, self.unfinished.size_bytes
            assert not self.unfinished.is_flushing, self.unfinished.generation
            self._is_stopped = True
            return [*effects, Stop(reason="shutdown")]
        return [*effects, *self._arm(now_ms)]

    def _take_waiting(self, now_ms: int) -> list[ProducerEffect]:
        """Accumulates the waiting records whose place is known by now; those that waited too long fail."""
        for record in self.waiting.take_known():
            self._accumulate(record)
        failed = self.waiting.take_failed(now_ms)
        if not self.waiting.is_empty:
            self.metadata.request()
        return [self._fail_waiting(record, error, text) for record, error, text in failed]

    def _expire(self, now_ms: int) -> list[ProducerEffect]:
        """Fails batches older than delivery.timeout.ms; those that were sent may still be in the log, or reach it."""
        effects: list[ProducerEffect] = []
        before_ms = now_ms - self.config.delivery_timeout_ms
        for queue in self._queues.values():
            for batch in queue.in_flight:
                if not batch.is_done and batch.created_ms <= before_ms:
                    assert batch.attempts > 0, batch.number
                    queue.is_unresolved = batch.may_be_appended = True
                    effects += self._fail(batch, ErrorCode.REQUEST_TIMED_OUT, "delivery.timeout.ms passed")
            while (oldest := queue.oldest_waiting) is not None and oldest.created_ms <= before_ms:
                batch = oldest
                queue.queue.remove(batch)
                assert not batch.is_done, batch.number
                queue.given_up(batch)
                effects += self._fail(batch, ErrorCode.REQUEST_TIMED_OUT, "delivery.timeout.ms passed")
        return effects

    def _resolve(self) -> None:
        for queue in self._queues.values():
            if not queue.needs_resolution:
                continue
            queue.unsequence_cut_off()
            if queue.may_resolve:
                if queue.is_complete or not self.config.is_idempotent:
                    queue.resolved()
                elif bumped := self.identity.bump_above(queue.identity):
                    queue.restart(bumped)

    def _drain(self, now_ms: int) -> list[ProducerEffect]:
        """Sends due batches to each leader that may have one more request in flight, until none is due."""
        effects: list[ProducerEffect] = []
        by_leader: dict[tuple[int, bool], list[PartitionQueue]] = {}
        for queue in self._queues.values():
            leader = self._due.leader_for(queue, now_ms, is_pressed=self._is_pressed) if queue.queue else None
            if leader is not None:
                by_leader.setdefault((leader.leader, queue.is_slow), []).append(queue)
        for (leader_id, is_slow), queues in by_leader.items():
            while queues and self._requests.may_ask(leader_id, is_slow=is_slow):
                effects += self._send_to(leader_id, queues, now_ms)
                queues = [
                    queue
                    for queue in queues
                    if self._due.leader_for(queue, now_ms, is_pressed=self._is_pressed)
                ]
        return effects

    def _send_to(self, leader: int, queues: list[PartitionQueue], now_ms: int) -> list[ProducerEffect]:
        """Sends one request with a batch of each partition, as many as fit; another partition is first each time."""
        self._turn += 1
        turn = self._turn % len(queues)
        batches: list[ProducerBatch] = []
        size_bytes = 0
        for queue in [*queues[turn:], *queues[:turn]]:
            batch = queue.queue[0]
            if batches and not fits_in_request(
                size_bytes + batch.size_bytes, len(batches) + 1, self.config.max_request_size
            ):
                continue
            self._seal(queue, batch)
            known = self.metadata.cache.leader(queue.topic_partition)
            assert known is not None and known.leader == leader, (queue.topic_partition, leader, known)
            queue.sent(batch, known, self.metadata.cache.topic_id(queue.topic_partition.topic))
            size_bytes += batch.size_bytes
            batches.append(batch)
        # The first batch fits whatever its size, so that none waits for ever. Packed, the last one may be larger than
        # judged: a codec adds a little to what it cannot make smaller.
        assert batches, (leader, len(queues))
        return self._request(leader, tuple(batches), is_slow=queues[0].is_slow)

    def _seal(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if not self.config.is_idempotent:
            batch.seal()
        elif not batch.is_sequenced:
            assert self.identity.current is not None
            queue.sequence(batch, self.identity.current)

    def _request(
        self, leader: int, batches: tuple[ProducerBatch, ...], *, is_slow: bool
    ) -> list[ProducerEffect]:
        expects_reply = self.config.acks != ACKS_NONE
        call = self._next_call
        self._next_call += 1
        sent = _send(
            to=leader,
            call=call,
            body=_produce_request(
                acks=self.config.acks,
                timeout_ms=self.config.replication_timeout_ms,
                partitions=tuple([self._partition_of(batch) for batch in batches]),
            ),
            timeout_ms=self.config.request_timeout_ms,
            expects_reply=expects_reply,
        )
        if expects_reply:
            self._requests.sent(call, leader, batches, is_slow=is_slow)
            return [sent]
        effects: list[ProducerEffect] = [sent]
        # With acks=0 no answer will come.
        for batch in batches:
            self._queues[batch.topic_partition].answered(batch)
            effects += self._deliver(batch, -1)
        return effects

    def _partition_of(self, batch: ProducerBatch) -> ProducePartition:
        return _produce_partition(
            topic_partition=batch.topic_partition,
            topic_id=self.metadata.cache.topic_id(batch.topic_partition.topic),
            records=batch.data,
        )

    def _on_response(self, now_ms: int, response: Response) -> list[ProducerEffect]:
        call, body = response.call, response.body
        assert call < self._next_call, (call, self._next_call)
        if self.metadata.owns(call):
            before = self.metadata.cache.cluster_id
            effects: list[ProducerEffect] = list(self.metadata.on_response(now_ms, body))
            is_other = before not in ("", self.metadata.cache.cluster_id)
            return [*effects, *self._leave_cluster()] if is_other else effects
        if self.identity.owns(call):
            self.identity.on_response(now_ms, body)
            return []
        batches = self._requests.answered(call)
        # With acks=0 only a failure to send is reported.
        if batches is None:
            self.metadata.request()
            return []
        effects = []
        results = results_of(body)
        for batch in batches:
            result = results.get(batch.topic_partition) or missing_result(batch.topic_partition, body)
            effects += self._on_result(now_ms, batch, result)
        return effects

    def _leave_cluster(self) -> list[ProducerEffect]:
        """Fails what the cluster before may have, and asks for an id of the one that has taken its addresses.

        That one may give the same id to another producer: under it, a batch of this one would pass for one of the
        other's.
        """
        if not self.config.is_idempotent:
            return []
        self.identity.forget()
        effects: list[ProducerEffect] = []
        for queue in self._queues.values():
            for batch in queue.leave_cluster():
                batch.may_be_appended = True
                text = "another cluster has taken the addresses; the one before may have the record"
                effects += self._fail(batch, ErrorCode.INCONSISTENT_CLUSTER_ID, text)
        return effects

    def _on_result(
        self, now_ms: int, batch: ProducerBatch, result: ProducePartitionResponse
    ) -> list[ProducerEffect]:
        assert batch.attempts > 0, batch.number
        assert batch.number < self._next_number, (batch.number, self._next_number)
        queue = self._queues[batch.topic_partition]
        queue.answered(batch)
        error = result.error
        if error in DUPLICATES:
            return self._on_acked(queue, batch, result)
        # The batch was given up while it was in flight.
        if batch.is_done:
            return []
        batch.may_be_appended |= leaves_doubt(error)
        queue.is_slow |= error is ErrorCode.REQUEST_TIMED_OUT
        if error is ErrorCode.MESSAGE_TOO_LARGE and batch.may_split:
            return self._split(queue, batch)
        if batch.is_sequenced and error in LOST_SEQUENCES:
            return self._on_lost_sequence(now_ms, queue, batch, result)
        if error.is_retriable or error is ErrorCode.NETWORK_EXCEPTION:
            self._retry(now_ms, queue, batch, result)
            return []
        queue.given_up(batch)
        return self._fail(batch, error, result.message)

    def _on_acked(
        self, queue: PartitionQueue, batch: ProducerBatch, result: ProducePartitionResponse
    ) -> list[ProducerEffect]:
        queue.is_slow = False
        queue.acked(batch)
        return self._deliver(batch, result.base_offset, result.log_append_time_ms)

    def _retry(
        self, now_ms: int, queue: PartitionQueue, batch: ProducerBatch, result: ProducePartitionResponse
    ) -> None:
        # What is in the log must not be sent again.
        assert result.error not in DUPLICATES, (batch.number, result.error)
        # What was given up must not come after all.
        assert not batch.is_done, batch.number
        batch.retry_at_ms = now_ms + self.config.retry_backoff_ms
        if result.error not in NO_NEWS_OF_LEADERS:
            if self.metadata.cache.hint(result, queue.topic_id):
                # The leader is known, so there is no reason to wait (KIP-951).
                batch.retry_at_ms = now_ms
            else:
                self.metadata.request()
        queue.put_back(batch)

    def _on_lost_sequence(
        self, now_ms: int, queue: PartitionQueue, batch: ProducerBatch, result: ProducePartitionResponse
    ) -> list[ProducerEffect]:
        """Queues a batch again that the leader lacks, because it misses a predecessor.

        Where the answer is old news, the batch follows its predecessors unchanged. If all of them had their outcome
        and the leader still misses one (it was given up, or acknowledged and then lost by an unclean election), only a
        new epoch helps; but a batch in doubt is given up, never sent under a second sequence.
        """
        assert batch.is_sequenced, batch.number
        batch.retry_at_ms = now_ms
        if queue.is_cut_off(batch):
            batch.unsequence()
        elif queue.is_after_refused(batch):
            # The answers to those in flight decide.
            batch.retry_at_ms = now_ms + self.config.retry_backoff_ms
        elif queue.is_old_news(batch):
            batch.may_be_appended = True
            batch.retry_at_ms = now_ms + self.config.retry_backoff_ms
        elif queue.is_in_doubt(batch):
            queue.given_up(batch)
            return self._fail(batch, result.error, result.message)
        else:
            queue.given_up(batch)
            batch.unsequence()
        # A batch that lost its sequence gets another only after a resolution.
        assert batch.is_sequenced or queue.has_gap, batch.number
        queue.put_back(batch)
        return []

    def _split(self, queue: PartitionQueue, batch: ProducerBatch) -> list[ProducerEffect]:
        """Queues the two halves of a batch that is too large for the topic, under the same sequences."""
        for part in batch.split():
            queue.put_back(part)
        return []

    def _deliver(
        self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int = -1
    ) -> list[ProducerEffect]:
        if batch.is_done:
            return []
        delivered = delivered_of(batch, base_offset, log_append_time_ms)
        self._end(batch)
        return delivered

    def _fail(self, batch: ProducerBatch, error: ErrorCode, message: str) -> list[ProducerEffect]:
        if batch.is_done:
            return []
        delivered = failed_of(batch, error, message)
        self._end(batch)
        return delivered

    def _end(self, batch: ProducerBatch) -> None:
        assert not batch.is_done, batch.number
        batch.is_done = True
        size_bytes = sum(entry.size_bytes for entry in batch.entries)
        self.unfinished.end(batch.generation, batch.record_count, size_bytes)

    def _fail_waiting(self, record: PendingRecord, error: ErrorCode, message: str) -> Delivered:
        self.unfinished.end(record.generation, 1, record.size_bytes)
        number = NO_PARTITION if record.partition is None else record.partition
        return Delivered(
            ticket=record.ticket,
            topic_partition=TopicPartition(record.topic, number),
            timestamp_ms=record.timestamp_ms,
            error=error,
            message=message,
        )

    def _arm(self, now_ms: int) -> list[ProducerEffect]:
        wakes = [time_ms for time_ms in self._wakes() if time_ms is not None and time_ms > now_ms]
        wake_ms = min(wakes, default=None)
        if wake_ms is None or (self._armed_ms is not None and self._armed_ms <= wake_ms):
            return []
        self._armed_ms = wake_ms
        return [SetTimer(key=WAKE_TIMER, at_ms=wake_ms)]

    def _wakes(self) -> list[int | None]:
        """Returns the times at which something becomes due by time alone; None where only an answer can bring it."""
        wakes = [self.metadata.next_wake_ms(), self.identity.next_wake_ms(), self.waiting.next_expiry_ms()]
        for queue in self._queues.values():
            for batch in queue.in_flight:
                wakes.append(None if batch.is_done else batch.created_ms + self.config.delivery_timeout_ms)
            oldest = queue.oldest_waiting
            if oldest is not None:
                wakes.append(oldest.created_ms + self.config.delivery_timeout_ms)
                batch = queue.queue[0]
                linger_end_ms = batch.created_ms + self.config.linger_ms
                wakes.append(batch.retry_at_ms if batch.attempts else linger_end_ms)
        return wakes
