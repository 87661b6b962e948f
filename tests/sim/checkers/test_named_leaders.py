"""The leader that an answer names has led in the epoch that it names (KIP-951)."""

from __future__ import annotations

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    FetchPartitionResponse,
    FetchResponse,
    ProducePartitionResponse,
    ProduceResponse,
    ResponseBody,
    TopicPartition,
)
from cluster.core.metadata.delta import MetadataDelta
from cluster.core.metadata.image import MetadataImage
from cluster.core.metadata.records import MetadataRecord, PartitionRecord, TopicRecord
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.named_leaders import NamedLeaders

T0 = TopicPartition("t", 0)


def broken(body: ResponseBody, known: MetadataImage | None = None) -> bool:
    """Returns whether the answer is wrong where broker 1 has led in epoch 0, nobody in 1, and broker 2 leads in 2."""
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    leaders = NamedLeaders(jury)
    for leader, epoch in ((1, 0), (-1, 1), (2, 2)):
        leaders.on_recorded("t-0", leader, epoch)
    leaders.on_answer(3, body, known)
    return [each.checker for each in jury.violations] == ["named-leaders"]


@pytest.mark.parametrize(
    ("leader", "epoch", "is_wrong"),
    [
        (1, 0, False),
        (2, 2, False),
        (-1, 1, False),
        (-1, -1, False),
        (2, 3, True),
        (1, 2, True),
        (2, -1, True),
    ],
)
def test_kip951_a_named_leader_has_led_in_the_named_epoch(leader: int, epoch: int, *, is_wrong: bool) -> None:
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    produced = ProducePartitionResponse(topic_partition=T0, error=error, leader_id=leader, leader_epoch=epoch)
    fetched = FetchPartitionResponse(topic_partition=T0, error=error, leader_id=leader, leader_epoch=epoch)
    assert broken(ProduceResponse(partitions=(produced,))) is is_wrong
    assert broken(FetchResponse(partitions=(fetched,))) is is_wrong


def test_kip951_a_partition_that_never_was_has_no_leader() -> None:
    named = ProducePartitionResponse(topic_partition=TopicPartition("u", 0), leader_id=1, leader_epoch=0)
    assert broken(ProduceResponse(partitions=(named,)))


KNOWN: tuple[MetadataRecord, ...] = (
    TopicRecord(name="t", topic_id="1f" * 16),
    PartitionRecord(topic="t", partition=0, replicas=(1, 2), isr=(2,), leader=2, leader_epoch=2),
)


@pytest.mark.parametrize(
    ("error", "named", "is_wrong"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, (2, 2), False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, (-1, -1), True),
        (ErrorCode.FENCED_LEADER_EPOCH, (-1, -1), True),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, (-1, -1), False),
    ],
)
def test_kip951_who_asks_the_wrong_broker_is_told_of_the_leader(
    error: ErrorCode, named: tuple[int, int], *, is_wrong: bool
) -> None:
    leader, epoch = named
    produced = ProducePartitionResponse(topic_partition=T0, error=error, leader_id=leader, leader_epoch=epoch)
    delta = MetadataDelta(MetadataImage())
    for offset, record in enumerate(KNOWN):
        delta.apply(record, offset)
    assert broken(ProduceResponse(partitions=(produced,)), delta.after()) is is_wrong


def test_kip951_who_knows_no_leader_names_none() -> None:
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    refused = ProducePartitionResponse(topic_partition=T0, error=error, leader_id=-1, leader_epoch=-1)
    assert not broken(ProduceResponse(partitions=(refused,)), MetadataImage())
    # Nor where nothing shows what the broker knows.
    assert not broken(ProduceResponse(partitions=(refused,)))
