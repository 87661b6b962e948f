"""The points that answers show: errors by who asked, and what a leader says of diverging logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    AlterPartitionResponse,
    BrokerHeartbeatResponse,
    CreateTopicResponse,
    FetchRequest,
    FetchResponse,
    ProduceResponse,
    RegisterBrokerResponse,
    RequestBody,
    ResponseBody,
)

_FETCHES: Mapping[ErrorCode, str] = {
    ErrorCode.FENCED_LEADER_EPOCH: "fenced",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "unknown-epoch",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "no-leader",
    ErrorCode.OFFSET_OUT_OF_RANGE: "out-of-range",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "unknown-topic",
    ErrorCode.UNKNOWN_TOPIC_ID: "unknown-topic",
    ErrorCode.INCONSISTENT_TOPIC_ID: "unknown-topic",
}
# NOT_ENOUGH_REPLICAS_AFTER_APPEND is no point, because no run can reach it. A commit needs enough replicas in sync
# (KAFKA-15583), and a core answers what was committed in the same step. Kafka's threads may lose a replica between the
# two; here only a raised min.insync.replicas could, in the same batch of metadata, and no scenario may change that.
_PRODUCES: Mapping[ErrorCode, str] = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "produce-no-leader",
    ErrorCode.NOT_ENOUGH_REPLICAS: "produce-too-few",
    ErrorCode.REQUEST_TIMED_OUT: "produce-timed-out",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "produce-out-of-order",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "produce-unknown-topic",
    ErrorCode.UNKNOWN_TOPIC_ID: "produce-unknown-topic",
    ErrorCode.KAFKA_STORAGE_ERROR: "produce-failed-disk",
}
_PROPOSALS: Mapping[ErrorCode, str] = {
    ErrorCode.INVALID_UPDATE_VERSION: "proposal-outdated",
    ErrorCode.FENCED_LEADER_EPOCH: "proposal-fenced",
    ErrorCode.NEW_LEADER_ELECTED: "proposal-fenced",
    ErrorCode.INELIGIBLE_REPLICA: "proposal-ineligible",
    ErrorCode.STALE_BROKER_EPOCH: "proposal-of-old-life",
}
_OTHERS: Mapping[type, Mapping[ErrorCode, str]] = {
    AlterPartitionResponse: _PROPOSALS,
    BrokerHeartbeatResponse: {ErrorCode.STALE_BROKER_EPOCH: "heartbeat-of-old-life"},
    RegisterBrokerResponse: {ErrorCode.DUPLICATE_BROKER_REGISTRATION: "registered-twice"},
    CreateTopicResponse: {ErrorCode.TOPIC_ALREADY_EXISTS: "topic-exists"},
}


def points_of_answer(request: RequestBody, answer: ResponseBody) -> Iterator[str]:
    """Yields the points that an answer reaches; one with nothing special reaches none."""
    match answer:
        case FetchResponse():
            if isinstance(request, FetchRequest):
                yield from _of_fetch(answer, is_follower=request.replica_id >= 0)
        case ProduceResponse():
            for part in answer.partitions:
                if part.error in _PRODUCES:
                    yield _PRODUCES[part.error]
        case _:
            name = _OTHERS.get(type(answer), {}).get(getattr(answer, "error", ErrorCode.NONE))
            if name is not None:
                yield name
            if isinstance(answer, BrokerHeartbeatResponse) and answer.should_shut_down:
                yield "leave-granted"


def _of_fetch(answer: FetchResponse, *, is_follower: bool) -> Iterator[str]:
    asker = "fetch" if is_follower else "consumer"
    for part in answer.partitions:
        if part.error in _FETCHES:
            yield f"{asker}-{_FETCHES[part.error]}"
        elif part.error is ErrorCode.KAFKA_STORAGE_ERROR and is_follower:
            yield "fetch-failed-disk"
        if part.diverging is not None:
            yield f"{asker}-diverged"
