"""ListOffsets: where a log begins, where its committed part ends, and where a time begins in it.

Kafka: ReplicaManager.fetchOffset, Partition.fetchOffsetForTimestamp.
"""

from __future__ import annotations

from typing import final

from cluster.core import fencing
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_EPOCH,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.leader import Leader
from storage.errors import StorageError


@final
class ListOffsetsHandler:
    """Answers which offset a partition has at a point in time, always at once."""

    def __init__(self, context: ReplicaContext) -> None:
        self._context = context

    def on_request(self, call: int, request: ListOffsetsRequest) -> None:
        """Answers with the offset or with the error. Raises StorageError if the last log directory fails."""
        try:
            answer = self._look_up(request)
        except ClusterError as error:
            answer = ListOffsetsResponse(topic_partition=request.topic_partition, error=error.code)
        except StorageError as error:
            self._context.check_online(request.topic_partition, error)
            answer = ListOffsetsResponse(topic_partition=request.topic_partition, error=ErrorCode(error.code))
        self._context.outbox.reply(call, answer)

    def _look_up(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        replica = self._context.replica(request.topic_partition, request.topic_id)
        topic_partition = replica.topic_partition
        fencing.check_topic_id(topic_partition, request.topic_id, replica.topic_id)
        fencing.check_leader_epoch(topic_partition, request.current_leader_epoch, replica.leader_epoch)
        leader = replica.check_leads()
        log = replica.log
        timestamp = -1
        if request.timestamp == EARLIEST_TIMESTAMP:
            offset = log.marks.log_start_offset
        elif request.timestamp == LATEST_TIMESTAMP:
            self.check_knows_committed_end(leader)
            offset = log.marks.high_watermark
        else:
            found = log.reads.offset_for_timestamp(request.timestamp)
            if found is None or found.offset >= log.marks.high_watermark:
                self.check_knows_committed_end(leader)
                return ListOffsetsResponse(topic_partition=request.topic_partition)
            offset, timestamp = found.offset, found.timestamp
        epoch = log.epochs.epoch_for_offset(offset)
        return ListOffsetsResponse(
            topic_partition=request.topic_partition,
            offset=offset,
            timestamp=timestamp,
            leader_epoch=NO_EPOCH if epoch is None else epoch,
        )

    def check_knows_committed_end(self, leader: Leader) -> None:
        """Raises ClusterError until the start of the leader's epoch is committed (CON-5, KIP-207).

        Before that, the leader's predecessor may have served a higher end.
        """
        if leader.log.marks.high_watermark < leader.epoch_start_offset:
            raise ClusterError(ErrorCode.OFFSET_NOT_AVAILABLE, "the high watermark lags behind the election")
