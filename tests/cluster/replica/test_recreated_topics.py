"""A topic that is deleted and created again under its name: nothing of the one counts for the other (C1, KIP-516).

Leader epochs begin at 0 in both, so only the topic id tells them apart.
"""

from __future__ import annotations

import pytest

from cluster.core.effects import Effect
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    EARLIEST_TIMESTAMP,
    NO_EPOCH,
    NO_LEADER,
    NO_TOPIC_ID,
    AlterPartitionRequest,
    FetchRequest,
    ListOffsetsRequest,
    ProducePartition,
    ProduceRequest,
)
from cluster.core.metadata.image import TopicImage
from cluster.core.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from sim.disk.life import Life
from storage.disk.checkpoints import PartitionMetadataFile
from tests.cluster.broker.cluster_by_hand import batch
from tests.cluster.replica.setup import (
    T0,
    Setup,
    asked_of,
    fetched,
    observed,
    only_sent,
    produced,
    sent,
    stamped,
)

OLD, NEW = "1f" * 16, "2e" * 16


def recreate(setup: Setup, *, leader: int = 1, isr: tuple[int, ...] = (1, 2)) -> list[Effect]:
    """Let the broker replay the deletion of the topic and its second creation, in one delta."""
    return setup.replay(
        RemoveTopicRecord(name="t", topic_id=OLD),
        TopicRecord(name="t", topic_id=NEW),
        PartitionRecord(topic="t", partition=0, replicas=(1, 2), isr=isr, leader=leader),
    )


def leading(*, isr: tuple[int, ...] = (1, 2)) -> Setup:
    setup = Setup()
    setup.place(leader=1, replicas=(1, 2), isr=isr)
    return setup


def test_c1_a_fetch_for_the_deleted_topic_is_refused_and_counts_for_nothing() -> None:
    setup = leading()
    recreate(setup)
    setup.append(b"new")
    answer = setup.fetch(2, 1, topic_id=OLD, last_fetched_epoch=0)
    assert answer.error is ErrorCode.INCONSISTENT_TOPIC_ID and answer.records == b""
    assert setup.leader.followers[2].log_end_offset == -1 and setup.high_watermark == 0
    assert setup.fetch(2, 1, topic_id=NEW).error is ErrorCode.NONE
    assert setup.high_watermark == 1


def test_c1_a_follower_that_lags_is_not_told_to_truncate_by_the_next_topic() -> None:
    setup = leading()
    setup.append(b"a", b"b", b"c")
    recreate(setup)
    answer = setup.fetch(2, 3, topic_id=OLD, last_fetched_epoch=0)
    assert answer.diverging is None and answer.error is ErrorCode.INCONSISTENT_TOPIC_ID


def test_c1_a_fetch_of_a_follower_without_a_topic_id_is_refused() -> None:
    setup = leading()
    assert setup.fetch(2, 0, topic_id=NO_TOPIC_ID).error is ErrorCode.INCONSISTENT_TOPIC_ID
    assert setup.fetch(-1, 0, topic_id=NO_TOPIC_ID, last_fetched_epoch=-1).error is ErrorCode.NONE


def test_c1_a_leader_that_lags_refuses_the_fetch_for_the_topic_it_does_not_know_yet() -> None:
    setup = leading()
    assert setup.fetch(2, 0, topic_id=NEW).error is ErrorCode.INCONSISTENT_TOPIC_ID
    assert setup.leader.followers[2].log_end_offset == -1


def test_kip_951_a_broker_that_lags_names_no_leader_of_the_topic_that_it_knows() -> None:
    """A client that believed its epoch, which may be higher, would never again ask the leader of the new topic."""
    setup = leading()
    asked = ProducePartition(topic_partition=T0, topic_id=NEW, records=batch(b"a"))
    refused = produced(setup.request(ProduceRequest(acks=-1, timeout_ms=1_000, partitions=(asked,))))
    assert refused is not None
    for answer in (refused, setup.fetch(-1, 0, topic_id=NEW)):
        assert answer.error is ErrorCode.INCONSISTENT_TOPIC_ID
        assert (answer.leader_id, answer.leader_epoch) == (NO_LEADER, NO_EPOCH)


def test_c1_a_refused_follower_waits_and_asks_again() -> None:
    setup = Setup()
    send = only_sent(setup.place(leader=2), FetchRequest)
    assert asked_of(send).topic_id == OLD
    assert sent(setup.answer_fetch(send, error=ErrorCode.INCONSISTENT_TOPIC_ID), FetchRequest) == []
    again = only_sent(setup.wait(1_000, "replica.fetch:2"), FetchRequest)
    assert asked_of(again).topic_id == OLD


def test_c1_records_that_were_fetched_for_the_deleted_topic_are_not_appended_to_the_next() -> None:
    setup = Setup()
    send = only_sent(setup.place(leader=2, replicas=(1, 2), isr=(1, 2)), FetchRequest)
    recreate(setup, leader=2)
    assert setup.replica.topic_id == NEW
    setup.answer_fetch(send, records=stamped(0, 0, b"old"), high_watermark=1)
    assert setup.end == 0 and setup.values() == []


def test_c1_a_produce_that_waits_is_not_acknowledged_by_the_next_topic() -> None:
    setup = leading()
    assert setup.produce(b"old") is None
    answer = produced(recreate(setup, isr=(1,)))
    assert answer is not None and answer.error is ErrorCode.UNKNOWN_TOPIC_ID
    assert setup.produce(b"new") is not None and setup.high_watermark == 1


def test_c1_a_fetch_that_waits_is_not_answered_with_the_next_topics_records() -> None:
    setup = leading(isr=(1,))
    setup.fetch_effects(-1, 0, topic_id=OLD, last_fetched_epoch=-1, max_wait_ms=500)
    answer = fetched(recreate(setup, isr=(1,)))
    assert answer is not None and answer.error is ErrorCode.INCONSISTENT_TOPIC_ID


def test_c1_a_consumer_that_names_no_id_does_not_wait_on_into_the_next_topic() -> None:
    setup = leading(isr=(1,))
    setup.fetch_effects(-1, 0, topic_id=NO_TOPIC_ID, last_fetched_epoch=-1, max_wait_ms=500)
    answer = fetched(recreate(setup, isr=(1,)))
    assert answer is not None and answer.records == b""


@pytest.mark.parametrize(("topic_id", "is_known"), [(OLD, False), (NEW, True), (NO_TOPIC_ID, True)])
def test_c1_a_client_appends_only_to_the_topic_that_it_names(topic_id: str, *, is_known: bool) -> None:
    setup = leading(isr=(1,))
    recreate(setup, isr=(1,))
    asked = ProducePartition(topic_partition=T0, topic_id=topic_id, records=batch(b"a"))
    answer = produced(setup.request(ProduceRequest(acks=1, partitions=(asked,))))
    wanted = ErrorCode.NONE if is_known else ErrorCode.INCONSISTENT_TOPIC_ID
    assert answer is not None and answer.error is wanted
    assert setup.end == int(is_known)


def test_c1_offsets_are_those_of_the_topic_that_is_named() -> None:
    setup = leading(isr=(1,))
    recreate(setup, isr=(1,))
    asked = ListOffsetsRequest(topic_partition=T0, topic_id=OLD, timestamp=EARLIEST_TIMESTAMP)
    (reply,) = [effect for effect in setup.request(asked) if hasattr(effect, "body")]
    assert reply.body.error is ErrorCode.INCONSISTENT_TOPIC_ID  # type: ignore[union-attr]


def test_c1_a_proposal_names_the_topic() -> None:
    setup = leading(isr=(1,))
    send = only_sent(setup.fetch_effects(2, 0), AlterPartitionRequest)
    assert isinstance(send.body, AlterPartitionRequest) and send.body.topic_id == OLD


def test_kip_516_a_log_of_another_topic_is_moved_away_when_a_replica_is_made() -> None:
    """Only a failed removal leaves such a log; it is kept for an operator, and the new topic begins empty."""
    setup = leading(isr=(1,))
    setup.append(b"old")
    setup.manager.context.replicas.clear()
    setup.set_topic(TopicImage(name="t", topic_id=NEW, configs=()))
    effects = setup.place(leader=1, replicas=(1, 2), isr=(1,))
    assert setup.values() == []
    assert [each["topic_partition"] for each in observed(effects, "replica.set_aside")] == ["t-0"]


def test_kip_516_a_log_without_partition_metadata_takes_the_topics_id() -> None:
    setup = leading(isr=(1,))
    setup.append(b"kept")
    manager = setup.logs.directories.online[0]
    file_system = setup.disk.file_system(Life("eye"))
    file_system.unlink("data/t-0/partition.metadata")
    manager.topic_ids.clear()
    setup.manager.context.replicas.clear()
    setup.place(leader=1, replicas=(1, 2), isr=(1,))
    assert setup.values() == [b"kept"]
    assert PartitionMetadataFile(file_system, "data/t-0").read() == manager.topic_ids["t-0"]
