"""The log says who sent what was refused, and it is not flooded by it."""

from __future__ import annotations

import logging

import pytest

from cluster.core.connection.codec import Malformed
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    Header,
    TopicPartition,
)
from cluster.shell import refused
from cluster.shell.refused import MOST_LINES_OF_SENDER, PERIOD_S, RefusalLog, kind_and_header
from tests.cluster.shell import echo_core
from tests.cluster.shell.test_server import Client, Node, run

SENDER, OTHER = "ipv4:127.0.0.1:4711", "ipv4:127.0.0.1:4712"
HEADER = Header(cluster_id="c", broker_id=3, broker_epoch=7, incarnation="0" * 32)
FETCH = FetchRequest(replica_id=3, broker_epoch=7, header=HEADER, partitions=())
HEARTBEAT = BrokerHeartbeatRequest(header=HEADER, broker_id=3, broker_epoch=7, metadata_offset=0)


class Now:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


def test_a_refusal_by_fencing_is_logged_with_sender_kind_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = RefusalLog(Now())
    log.on_answer(
        SENDER, *kind_and_header(HEARTBEAT), BrokerHeartbeatResponse(error=ErrorCode.STALE_BROKER_EPOCH)
    )
    named = FetchPartitionResponse(
        topic_partition=TopicPartition("t", 1), error=ErrorCode.INCONSISTENT_TOPIC_ID
    )
    log.on_answer(SENDER, *kind_and_header(FETCH), FetchResponse(partitions=(named,)))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "INFO",
            f"request refused: sender={SENDER} broker=3 broker_epoch=7 BrokerHeartbeatRequest: STALE_BROKER_EPOCH",
        ),
        (
            "INFO",
            f"request refused: sender={SENDER} broker=3 broker_epoch=7 FetchRequest: INCONSISTENT_TOPIC_ID "
            "topic_partition=t-1",
        ),
    ]


def test_what_is_answered_or_refused_for_another_reason_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    log = RefusalLog(Now())
    log.on_answer(SENDER, *kind_and_header(HEARTBEAT), BrokerHeartbeatResponse())
    for code in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE):
        item = FetchPartitionResponse(topic_partition=TopicPartition("t", 1), error=code)
        log.on_answer(SENDER, *kind_and_header(FETCH), FetchResponse(partitions=(item,)))
    assert not caplog.records


def test_many_refusals_are_few_lines_and_the_others_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = Now()
    log = RefusalLog(now)
    for _ in range(MOST_LINES_OF_SENDER + 500):
        log.on_answer(SENDER, *kind_and_header(FETCH), FetchResponse(error=ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert len(caplog.records) == MOST_LINES_OF_SENDER
    # Lines of the other level, and of another sender, have limits of their own.
    log.on_wrong(SENDER, Malformed("no request"))
    log.on_answer(OTHER, *kind_and_header(FETCH), FetchResponse(error=ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert [record.levelname for record in caplog.records[MOST_LINES_OF_SENDER:]] == ["WARNING", "INFO"]
    now.s = PERIOD_S
    log.on_answer(SENDER, *kind_and_header(FETCH), FetchResponse(error=ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert caplog.records[-2].getMessage() == "request refused: left_out=500"
    assert "INCONSISTENT_CLUSTER_ID" in caplog.records[-1].getMessage()


def test_the_lines_of_many_senders_are_limited_together(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(refused, "MOST_LINES", 7)
    log = RefusalLog(Now())
    for number in range(50):
        log.on_wrong(f"ipv4:127.0.0.1:{number}", Malformed("no request"))
    assert len(caplog.records) == 7


def test_the_log_of_a_node_names_the_sender_of_what_its_core_refuses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answer = DeleteTopicResponse(error=ErrorCode.INCONSISTENT_CLUSTER_ID)
    monkeypatch.setattr(echo_core, "answer_to", lambda _: answer)

    async def check(_: Node, asking: Client) -> None:
        assert await asking.send(DeleteTopicRequest(name="t", header=HEADER)) == answer

    run(check)
    (line,) = [text for record in caplog.records if "refused" in (text := record.getMessage())]
    assert "sender=ipv4:127.0.0.1:" in line
    assert line.endswith("broker=3 broker_epoch=7 DeleteTopicRequest: INCONSISTENT_CLUSTER_ID")
