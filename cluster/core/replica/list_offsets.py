"""ListOffsets: where a log begins, where its committed part ends, and where a time begins in it.

Kafka: ReplicaManager.fetchOffset, Partition.fetchOffsetForTimestamp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from cluster.core import fencing
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.fencing import LogView
from cluster.core.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_EPOCH,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.leader import Leader
from cluster.core.replica.replica import Replica
from storage.directory.directories import is_late_disk_error
from storage.errors import ReadGoesOn, ReadTakesLong, StorageError
from storage.segment.file_records import TimestampAndOffset


@final
class ListOffsetsHandler:
    """Answers which offset a partition has at a point in time: at once, or after steps and a job of a long search."""

    def __init__(self, context: ReplicaContext) -> None:
        self._context = context

    def on_request(self, call: int, request: ListOffsetsRequest) -> None:
        """Answers with the offset or with the error. Raises StorageError if the last log directory fails."""
        try:
            answer = self._look_up(request)
        except ClusterError as error:
            answer = ListOffsetsResponse(topic_partition=request.topic_partition, error=error.code)
        except ReadGoesOn:
            # A job without work: whatever waits for a step comes before the next one of this search.
            self._context.outbox.run_job("search", _do_nothing, lambda _, __: self.on_request(call, request))
            return
        except ReadTakesLong:
            self._search_in_job(call, request)
            return
        except StorageError as error:
            answer = self._failed(request, error)
        self._context.outbox.reply(call, answer)

    def _failed(self, request: ListOffsetsRequest, error: StorageError) -> ListOffsetsResponse:
        self._context.check_online(request.topic_partition, error)
        return ListOffsetsResponse(topic_partition=request.topic_partition, error=ErrorCode(error.code))

    def _search_in_job(self, call: int, request: ListOffsetsRequest) -> None:
        """Searches off the step thread. Jobs run in order, so no file of the segment is deleted meanwhile."""
        replica = self._context.replicas[request.topic_partition]
        search = replica.log.reads.search_for_timestamp(request.timestamp)
        assert search is not None, replica.name
        found: list[TimestampAndOffset | None] = []
        view = replica.view

        def work() -> None:
            found.append(search(None))

        def then(now_ms: int, error: Exception | None) -> None:
            self._on_searched(call, request, replica, view, found, error)

        self._context.outbox.run_job("search", work, then)

    def _on_searched(
        self,
        call: int,
        request: ListOffsetsRequest,
        replica: Replica,
        view: LogView,
        found: list[TimestampAndOffset | None],
        error: Exception | None,
    ) -> None:
        """Answers as far as the replica still leads in the epoch in which the search began.

        What was found may have been cut off since, and what the search has met may be files that were closed under it.
        Any other error is of the disk, whoever leads now (AP16). Raises StorageError as `on_request` does.
        """
        try:
            is_present = self._context.replicas.get(request.topic_partition) is replica
            if not is_present or not fencing.is_same_log(view, replica.view):
                name = replica.name
                if error is not None and is_late_disk_error(error):
                    failure = StorageError(f"search in {name}: {error}")
                    failure.__cause__ = error
                    self._context.logs.on_disk_failed(replica.log, failure)
                raise ClusterError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} was removed, or has another leader"
                )
            if isinstance(error, OSError):
                error = replica.log.reads.failed(error)
            if error is not None:
                raise error
            answer = self._look_up(request, found)
        except ClusterError as refused:
            answer = ListOffsetsResponse(topic_partition=request.topic_partition, error=refused.code)
        except StorageError as failed:
            answer = self._failed(request, failed)
        self._context.outbox.reply(call, answer)

    def _look_up(
        self, request: ListOffsetsRequest, searched: Sequence[TimestampAndOffset | None] = ()
    ) -> ListOffsetsResponse:
        replica = self._context.replica(request.topic_partition, request.topic_id)
        topic_partition = replica.topic_partition
        fencing.check_topic_id(topic_partition, request.topic_id, replica.topic_id)
        fencing.check_leader_epoch(topic_partition, request.current_leader_epoch, replica.leader_epoch)
        leader = replica.check_leads()
        log = replica.log
        timestamp = -1
        if request.timestamp == EARLIEST_TIMESTAMP:
            offset = log.marks.log_start_offset
            epoch = log.epochs.epoch_for_offset(offset)
        elif request.timestamp == LATEST_TIMESTAMP:
            self.check_knows_committed_end(leader)
            offset = log.marks.high_watermark
            epoch = log.epochs.epoch_for_offset(offset)
        else:
            # The batch itself names its epoch, also where the epochs of a log that came back begin later (Kafka too).
            if searched:
                (found,) = searched
            else:
                found = log.reads.offset_for_timestamp(
                    request.timestamp, self._context.config.steps.searched_bytes
                )
            if found is None or found.offset >= log.marks.high_watermark:
                self.check_knows_committed_end(leader)
                return ListOffsetsResponse(topic_partition=request.topic_partition)
            offset, timestamp, epoch = found.offset, found.timestamp, found.leader_epoch
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


def _do_nothing() -> None:
    """Does nothing."""
