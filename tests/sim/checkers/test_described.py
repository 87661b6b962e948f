"""What a broker describes to clients is what the metadata log says, as far as the broker acts on it (CTL-5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    BrokerEndpoint,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from sim.checkers.described import description_difference
from sim.checkers.metadata import Broker, Partition, Replay, Topic

ASKED = MetadataRequest(topics=("t", "u"))
LED = PartitionMetadata(partition=0, leader=1, leader_epoch=4, replicas=(1, 2), isr=(1,))
KNOWN = TopicMetadata(name="t", topic_id="ab", partitions=(LED,))
UNKNOWN = TopicMetadata(name="u", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
ANSWER = MetadataResponse(
    brokers=(BrokerEndpoint(broker_id=1, host="h", port=9),), topics=(KNOWN, UNKNOWN), metadata_offset=7
)


def replay() -> Replay:
    log = Replay()
    log.next_offset = 7
    log.brokers = {2: Broker(3, "j", True, False, "h", 9), 1: Broker(2, "i", False, True, "h", 9)}
    log.topics["t"] = Topic("ab", (), {0: Partition((1, 2), (1,), 1, 4, 9)})
    return log


def test_what_the_log_says_may_be_described() -> None:
    assert description_difference(replay(), ASKED, ANSWER, 7) == ""
    every = replace(ANSWER, topics=(KNOWN,))
    assert description_difference(replay(), MetadataRequest(topics=None), every, 7) == ""


@pytest.mark.parametrize("applied_offset", [-1, 6, 8])
def test_nothing_is_described_that_the_broker_does_not_act_on(applied_offset: int) -> None:
    assert "acts on that below" in description_difference(replay(), ASKED, ANSWER, applied_offset)


WRONG = (
    replace(ANSWER, brokers=()),
    replace(ANSWER, topics=(KNOWN,)),
    replace(ANSWER, topics=(replace(UNKNOWN, name="t"), UNKNOWN)),
    replace(ANSWER, topics=(KNOWN, replace(UNKNOWN, error=ErrorCode.LEADER_NOT_AVAILABLE))),
    replace(ANSWER, topics=(KNOWN, replace(KNOWN, name="u"))),
    replace(ANSWER, topics=(replace(KNOWN, topic_id="cd"), UNKNOWN)),
    replace(ANSWER, topics=(replace(KNOWN, partitions=()), UNKNOWN)),
    replace(ANSWER, topics=(replace(KNOWN, partitions=(replace(LED, leader=2),)), UNKNOWN)),
    replace(ANSWER, topics=(replace(KNOWN, partitions=(replace(LED, leader_epoch=3),)), UNKNOWN)),
)


@pytest.mark.parametrize("answer", WRONG)
def test_brokers_topics_and_leaders_are_those_of_the_log(answer: MetadataResponse) -> None:
    assert description_difference(replay(), ASKED, answer, 7)
