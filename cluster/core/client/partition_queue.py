"""The batches of one partition on their way, in order, and what is known of their fate. Kafka: TxnPartitionEntry.

A partition's batches are in `queue` (never sent, or to be sent again) or in `in_flight`, each in order of
sending.
"""

from __future__ import annotations

from collections import deque
from typing import final

from cluster.core import fencing
from cluster.core.client.accumulator import NO_SEQUENCE, ProducerBatch, ProducerIdentity
from cluster.core.client.metadata_cache import LeaderAndEpoch
from cluster.core.messages import NO_TOPIC_ID, TopicPartition
from storage.batch.record import add_to_sequence


@final
class PartitionQueue:
    """The batches of one partition, and the sequences under which its broker knows them."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.queue: deque[ProducerBatch] = deque()
        # The batches without an answer, by number.
        self.in_flight: list[ProducerBatch] = []
        # The leader to which the batches in flight were sent, and the topic id in their requests.
        self.leader = LeaderAndEpoch(leader=-1, leader_epoch=-1)
        self.topic_id = NO_TOPIC_ID
        # That leader has acknowledged a batch of this identity in this epoch, so it knows the producer.
        self._is_known = False
        self.identity: ProducerIdentity | None = None
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self._last_acked_number = -1
        self._next_ordinal = 0
        # The least number of a batch of this identity that is not in the log and will not be: no batch after it can be
        # appended without a new producer epoch, except after one that a leader without the producer's state accepted.
        self._refused_number: int | None = None
        # A batch that was given up may be in the log.
        self.is_unresolved = False
        # Its replication timed out, and nothing was acknowledged since: it shares no request with others.
        self.is_slow = False

    def is_free_for(self, leader: LeaderAndEpoch, topic_id: str) -> bool:
        """Whether a batch may be sent to `leader`: two leaders at a time could append batches out of order.

        Nor may it be sent to a topic that was created again while batches to the deleted one are in flight: their
        acknowledgements would prove nothing of the new one's log. An idempotent producer sends its first batch alone in
        each leader epoch: a leader that knows nothing of a producer accepts any sequence, as Kafka's does, because its
        state may have expired, and one that copied the log after the producer's records were deleted knows nothing. A
        second batch that arrived without the first would be appended before it, or although the first is refused.
        """
        if not self.in_flight:
            return True
        if (self.leader.leader, self.topic_id) != (leader.leader, topic_id):
            return False
        return self.identity is None or (self._is_known and self.leader == leader)

    @property
    def oldest_waiting(self) -> ProducerBatch | None:
        """The batch of `queue` that was made first: those that keep their sequences may come before older ones."""
        for batch in self.queue:
            if not batch.is_sequenced:
                return min(self.queue[0], batch, key=_number)
        return self.queue[0] if self.queue else None

    @property
    def oldest_outstanding(self) -> ProducerBatch | None:
        """The first batch without an outcome that a broker may know: in flight, or to be sent again."""
        waiting = self.queue[0] if self.queue and self.queue[0].is_sequenced else None
        if not self.in_flight:
            return waiting
        first = self.in_flight[0]
        return first if waiting is None or first.number < waiting.number else waiting

    def has_room_for_new(self, limit: int) -> bool:
        """Whether a new batch is within `limit` batches, counted from the oldest one without an outcome.

        The answers may come in any order. If only the unanswered batches counted, any number of later ones could be
        acknowledged before an old one is repeated, and the broker, which remembers five batches, would no longer know
        the old one.
        """
        oldest = self.oldest_outstanding
        return oldest is None or self._next_ordinal - oldest.ordinal < limit

    def sequence(self, batch: ProducerBatch, producer: ProducerIdentity) -> None:
        """Seals `batch` before it is first sent, with the partition's next sequence: 0 for a new producer."""
        assert batch.record_count > 0, batch.number
        if self.identity is None:
            self.restart(producer)
        assert self.identity is not None
        batch.seal_as(self.identity, self.next_sequence)
        self.next_sequence = add_to_sequence(self.next_sequence, batch.record_count)
        batch.ordinal = self._next_ordinal
        self._next_ordinal += 1

    def sent(self, batch: ProducerBatch, leader: LeaderAndEpoch, topic_id: str) -> None:
        """Moves the first batch of `queue` to `in_flight`: it was sent to `leader`, for the topic of that id."""
        assert self.queue[0] is batch, batch.number
        assert self.is_free_for(leader, topic_id), (self.topic_partition, leader, topic_id)
        if not fencing.is_topic_of_batches(topic_id, self.topic_id):
            self._begin_topic(topic_id)
        if self.leader != leader:
            self.leader, self._is_known = leader, False
        self.queue.popleft()
        in_flight = self.in_flight
        batch.was_sent_in_turn = not in_flight or batch.number < in_flight[0].number
        # A batch that is sent for the first time comes after all others.
        is_last = not in_flight or batch.number > in_flight[-1].number
        assert is_last or all(other.number != batch.number for other in in_flight), batch.number
        in_flight.append(batch)
        if not is_last:
            in_flight.sort(key=_number)
        batch.attempts += 1

    def _begin_topic(self, topic_id: str) -> None:
        """Forgets what the old topic acknowledged: the log of a topic that was created again has none of it."""
        assert not self.in_flight, len(self.in_flight)
        self.topic_id = topic_id
        self.last_acked_sequence, self._is_known = NO_SEQUENCE, False

    def answered(self, batch: ProducerBatch) -> None:
        """Removes the batch from `in_flight`, whatever the answer was."""
        self.in_flight.remove(batch)

    def acked(self, batch: ProducerBatch) -> None:
        """Notes that the batch is in the log.

        That proves nothing of an earlier batch without an outcome: a leader that has forgotten the producer meanwhile
        (producer.id.expiration.ms) takes a later one although it has refused that.
        """
        is_news = batch.is_sequenced and batch.identity == self.identity
        if not is_news or batch.number <= self._last_acked_number:
            return
        self.last_acked_sequence, self._last_acked_number = batch.last_sequence, batch.number
        self._is_known = True

    def put_back(self, batch: ProducerBatch) -> None:
        """Queues a batch again, by its number: before all that came after it.

        Those that keep their sequences come first: the others wait for a new epoch, and so for the outcomes of these.
        """
        assert not batch.is_done, batch.number
        position, place = 0, _place(batch)
        while position < len(self.queue) and _place(self.queue[position]) < place:
            position += 1
        following = self.queue[position].number if position < len(self.queue) else None
        assert following != batch.number, batch.number
        self.queue.insert(position, batch)

    def given_up(self, batch: ProducerBatch) -> None:
        """Notes that a batch will not be sent again under its sequence: no new batch may follow it in this epoch."""
        if not batch.is_sequenced:
            return
        if batch.may_be_appended:
            self.is_unresolved = True
            return
        refused = self._refused_number
        if refused is None or self._is_passed or self._last_acked_number < batch.number < refused:
            self._refused_number = batch.number

    def leave_cluster(self) -> list[ProducerBatch]:
        """Returns the batches without an outcome of which only the cluster before knows; no sequence of it goes on."""
        sent = [*self.in_flight, *(batch for batch in self.queue if batch.is_sequenced)]
        self.queue = deque(batch for batch in self.queue if not batch.is_sequenced)
        if self.identity is not None:
            self._refused_number = -1
        return sent

    @property
    def has_gap(self) -> bool:
        """Whether a sequence of this identity was lost for certain."""
        return self._refused_number is not None

    def is_after_refused(self, batch: ProducerBatch) -> bool:
        """Whether an earlier batch of the identity was refused for certain, and none after that one was accepted.

        A leader that has lost all records of the producer takes any sequence, and those that follow it.
        """
        refused = self._refused_number
        return refused is not None and batch.number > refused and not self._is_passed

    def is_cut_off(self, batch: ProducerBatch) -> bool:
        """Whether no copy of the batch, however late, can be appended: its leader misses a predecessor for good.

        As long as any batch is in flight, its answer may show that the leader has taken another one as the first.
        """
        return not self.in_flight and self.is_after_refused(batch)

    @property
    def _is_passed(self) -> bool:
        """Whether a batch was accepted after the one that was refused for certain."""
        return self._refused_number is not None and self._last_acked_number > self._refused_number

    def is_old_news(self, batch: ProducerBatch) -> bool:
        """Whether an answer that the leader misses a predecessor may be out of date.

        It is where a predecessor had no outcome yet when the batch was sent: the network may have overtaken it. It may
        have arrived since, and after it a second copy of this batch, which the network made.
        """
        return not batch.was_sent_in_turn

    def is_in_doubt(self, batch: ProducerBatch) -> bool:
        """Whether the batch may be in the log, or reach it yet: under another sequence it would be there twice."""
        return batch.may_be_appended and not self.is_cut_off(batch)

    @property
    def needs_resolution(self) -> bool:
        return self._refused_number is not None or self.is_unresolved

    @property
    def may_resolve(self) -> bool:
        """Whether sequences may restart: no batch is left that the broker may know under an old one."""
        if not self.needs_resolution or self.in_flight:
            return False
        return not any(batch.is_sequenced for batch in self.queue)

    def unsequence_cut_off(self) -> None:
        """Takes the sequences away from the queued batches after one that was refused for certain."""
        cut_off = [batch for batch in self.queue if batch.is_sequenced and self.is_cut_off(batch)]
        for batch in cut_off:
            batch.unsequence()
        if cut_off:
            self.queue = deque(sorted(self.queue, key=_place))

    @property
    def is_complete(self) -> bool:
        """Whether the last sequence in use was acknowledged: then the batch given up is in the log after all."""
        expected = 0 if self.last_acked_sequence < 0 else add_to_sequence(self.last_acked_sequence, 1)
        return not self.has_gap and self.next_sequence == expected

    def resolved(self) -> None:
        self._refused_number, self.is_unresolved = None, False

    def restart(self, producer: ProducerIdentity) -> None:
        """Begins again at sequence 0 under a new id or epoch: the broker refuses late batches of the old one."""
        assert not self.in_flight, len(self.in_flight)
        assert not any(batch.is_sequenced for batch in self.queue), self.topic_partition
        self.identity = producer
        self.next_sequence, self.last_acked_sequence = 0, NO_SEQUENCE
        self._last_acked_number, self._is_known = -1, False
        self.resolved()


def _number(batch: ProducerBatch) -> int:
    return batch.number


def _place(batch: ProducerBatch) -> tuple[bool, int]:
    """Returns what puts the batches that wait in their order."""
    return not batch.is_sequenced, batch.number
