"""Decides which batch of a partition a producer may send now, and to whom.

Kafka: RecordAccumulator.ready and drain, TransactionManager.
"""

from __future__ import annotations

from typing import final

from cluster.core.client.accumulator import ProducerBatch
from cluster.core.client.config import ProducerConfig
from cluster.core.client.metadata_cache import LeaderAndEpoch, MetadataUpdater
from cluster.core.client.partition_queue import PartitionQueue
from cluster.core.client.producer_identity import IdentityKeeper


@final
class DueBatches:
    """Judges the first batch of a queue; asks for metadata where a due one has no leader."""

    def __init__(self, config: ProducerConfig, metadata: MetadataUpdater, identity: IdentityKeeper) -> None:
        self._config, self._metadata, self._identity = config, metadata, identity

    def leader_for(self, queue: PartitionQueue, now_ms: int, *, is_pressed: bool) -> LeaderAndEpoch | None:
        """Returns the leader to which the first batch of the partition may be sent now; None if it has to wait.

        With `is_pressed` no batch lingers.
        """
        if not self._is_due(queue, now_ms, is_pressed=is_pressed):
            return None
        cache, topic_partition = self._metadata.cache, queue.topic_partition
        leader = cache.leader(topic_partition)
        if leader is None:
            self._metadata.request()
            return None
        return leader if queue.is_free_for(leader, cache.topic_id(topic_partition.topic)) else None

    def _is_due(self, queue: PartitionQueue, now_ms: int, *, is_pressed: bool) -> bool:
        if not queue.queue:
            return False
        batch = queue.queue[0]
        if batch.attempts or batch.is_sequenced:
            is_due = batch.retry_at_ms <= now_ms
        else:
            has_lingered = batch.created_ms + self._config.linger_ms <= now_ms
            is_due = has_lingered or is_pressed or batch.is_full or len(queue.queue) > 1
        return is_due and self._keeps_order(queue, batch)

    def _keeps_order(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Whether sending `batch` now keeps the order.

        A repetition waits for all batches before it; behind one that was refused for certain, it waits for the outcomes
        of all in flight, because only a new epoch helps. A new batch waits for an identity, for sequences to be
        resolved, and while the oldest batch without an outcome is too far back.
        """
        if batch.is_sequenced:
            if queue.is_after_refused(batch):
                return False
            return all(other.number > batch.number for other in queue.in_flight)
        if not self._config.is_idempotent:
            return len(queue.in_flight) < self._config.max_in_flight_requests_per_connection
        if self._identity.current is None or queue.needs_resolution:
            return False
        return queue.has_room_for_new(self._config.max_in_flight_requests_per_connection)
