"""What the answer to a produce request says about each batch, and what it leaves open."""

from __future__ import annotations

from cluster.core.client.accumulator import ProducerBatch
from cluster.core.client.effects import Delivered, ProducerEffect
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import ProducePartitionResponse, ProduceResponse, ResponseBody, TopicPartition
from storage.values import maker

# As a call of the class, in less time: one is made for each record.
_delivered = maker(Delivered)

# The batch is in the log.
DUPLICATES = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
LOST_SEQUENCES = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
NO_NEWS_OF_LEADERS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CORRUPT_MESSAGE,
)


def leaves_doubt(error: ErrorCode) -> bool:
    """Whether a batch with this answer may be in the log, or reach it yet; only a final refusal leaves no doubt.

    With some errors the leader has appended the batch (PRO-4). With the other retriable ones it has not; but it may
    append a second copy of the request, which the network made, once the reason of the refusal is over.
    """
    return error.is_retriable or error is ErrorCode.UNKNOWN_SERVER_ERROR


def results_of(body: ResponseBody | TransportError) -> dict[TopicPartition, ProducePartitionResponse]:
    if not isinstance(body, ProduceResponse) or body.error is not ErrorCode.NONE:
        return {}
    return {result.topic_partition: result for result in body.partitions}


def missing_result(
    topic_partition: TopicPartition, body: ResponseBody | TransportError
) -> ProducePartitionResponse:
    """Returns the result of a batch that the answer does not mention.

    Its error is that of the whole answer, else that of a missing answer.
    """
    error = ErrorCode.NETWORK_EXCEPTION
    if isinstance(body, ProduceResponse) and body.error is not ErrorCode.NONE:
        error = body.error
    message = body.reason if isinstance(body, TransportError) else ""
    return ProducePartitionResponse(topic_partition=topic_partition, error=error, message=message)


def delivered_of(batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> list[ProducerEffect]:
    """Returns the outcomes of the records of a batch that is in the log from `base_offset` on, -1 if that is unknown.

    `log_append_time_ms` is -1 where the records have kept their own times.
    """
    return [
        _delivered(
            ticket=entry.ticket,
            topic_partition=batch.topic_partition,
            offset=base_offset + index if base_offset >= 0 else -1,
            timestamp_ms=log_append_time_ms if log_append_time_ms >= 0 else entry.timestamp_ms,
        )
        for index, entry in enumerate(batch.entries)
    ]


def failed_of(batch: ProducerBatch, error: ErrorCode, message: str) -> list[ProducerEffect]:
    """Returns the outcomes of the records of a batch that failed, or of which nobody knows whether they are there."""
    return [
        Delivered(
            ticket=entry.ticket,
            topic_partition=batch.topic_partition,
            timestamp_ms=entry.timestamp_ms,
            error=error,
            message=message,
            is_unknown=batch.may_be_appended,
        )
        for entry in batch.entries
    ]
