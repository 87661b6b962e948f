"""Answers to requests that came by mistake: a node that grants one is reported."""

from __future__ import annotations

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    FetchPartitionResponse,
    FetchResponse,
    ResponseBody,
    TopicPartition,
)
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.strays import Strays

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
REQUEST = BrokerHeartbeatRequest(broker_id=1, broker_epoch=7, metadata_offset=0)


def fetched(*errors: ErrorCode) -> FetchResponse:
    partitions = [
        FetchPartitionResponse(topic_partition=each, error=error)
        for each, error in zip((T0, T1), errors, strict=True)
    ]
    return FetchResponse(partitions=tuple(partitions))


@pytest.mark.parametrize(
    ("why", "body", "count"),
    [
        ("of another cluster", BrokerHeartbeatResponse(error=ErrorCode.INCONSISTENT_CLUSTER_ID), 0),
        ("of another cluster", BrokerHeartbeatResponse(), 1),
        # It need not be refused.
        ("", BrokerHeartbeatResponse(), 0),
        ("in an epoch that never was", FetchResponse(error=ErrorCode.INVALID_REQUEST), 0),
        ("in an epoch that never was", fetched(*[ErrorCode.UNKNOWN_LEADER_EPOCH] * 2), 0),
        ("in an epoch that never was", fetched(ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NONE), 1),
    ],
)
def test_g4_who_grants_a_stray_is_reported(why: str, body: ResponseBody, count: int) -> None:
    jury = Jury(Ghost(), (), now_us=lambda: 0, on_violation=lambda violation: None)
    Strays(jury).on_answer("broker-1", REQUEST, why, body)
    assert [each.checker for each in jury.violations] == ["strays"] * count
