"""A client's knowledge of brokers and leaders, and how it asks for more."""

from __future__ import annotations

from dataclasses import replace

from cluster.core.client.metadata_cache import MetadataCache, MetadataUpdater
from cluster.core.effects import BOOTSTRAP
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import (
    BrokerEndpoint,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    ProducePartitionResponse,
    TopicMetadata,
    TopicPartition,
)

T0 = TopicPartition("t", 0)
TOPIC_ID = "1f" * 16
BROKERS = tuple(BrokerEndpoint(broker_id=number, host="h", port=number) for number in (1, 2))


def answer(
    leader: int, leader_epoch: int, *, metadata_offset: int = -1, topic_id: str = TOPIC_ID
) -> MetadataResponse:
    partition = PartitionMetadata(
        partition=0, leader=leader, leader_epoch=leader_epoch, replicas=(1, 2), isr=(1, 2)
    )
    return MetadataResponse(
        brokers=BROKERS,
        topics=(TopicMetadata(name="t", topic_id=topic_id, partitions=(partition,)),),
        metadata_offset=metadata_offset,
    )


def refusal(leader: int, leader_epoch: int) -> ProducePartitionResponse:
    return ProducePartitionResponse(
        topic_partition=T0,
        error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        leader_id=leader,
        leader_epoch=leader_epoch,
    )


def cache_of(*answers: MetadataResponse) -> MetadataCache:
    cache = MetadataCache()
    for each in answers:
        cache.update(each)
    return cache


def updater() -> MetadataUpdater:
    return MetadataUpdater(retry_backoff_ms=100, request_timeout_ms=1000, max_age_ms=5000)


def leader_of(cache: MetadataCache) -> int | None:
    known = cache.leader(T0)
    return None if known is None else known.leader


def test_older_leader_epoch_of_a_lagging_broker_is_ignored() -> None:
    """The newest epoch that the client has seen stays (KIP-320)."""
    assert leader_of(cache_of(answer(2, 5, metadata_offset=9), answer(1, 4, metadata_offset=8))) == 2


def test_older_leader_epoch_in_a_newer_view_is_that_of_a_topic_created_again_only() -> None:
    created_again = answer(1, 0, metadata_offset=10, topic_id="2e" * 16)
    assert leader_of(cache_of(answer(2, 5, metadata_offset=9), created_again)) == 1
    assert leader_of(cache_of(answer(2, 5, metadata_offset=9), answer(1, 0, metadata_offset=10))) == 2


def test_kip_951_a_leader_that_a_refusal_has_named_is_not_taken_back_by_a_view_from_before_its_election() -> (
    None
):
    cache = cache_of(answer(1, 0, metadata_offset=9))
    assert cache.hint(refusal(2, 1), TOPIC_ID)
    cache.update(answer(1, 0, metadata_offset=10))
    assert leader_of(cache) == 2


def test_kip_516_a_broker_that_lags_does_not_bring_back_a_deleted_topic_with_higher_epochs() -> None:
    new = answer(1, 0, metadata_offset=10, topic_id="2e" * 16)
    cache = cache_of(answer(2, 5, metadata_offset=8), new, answer(2, 6, metadata_offset=9))
    assert (leader_of(cache), cache.topic_id("t")) == (1, "2e" * 16)
    assert cache.topic_id("u") == ""


def test_a_hint_is_new_only_with_a_newer_epoch() -> None:
    """A produce or fetch answer may name the new leader (KIP-951)."""
    cache = cache_of(answer(1, 3))
    assert not cache.hint(refusal(2, 3), TOPIC_ID)
    assert cache.hint(refusal(2, 4), TOPIC_ID)
    assert leader_of(cache) == 2


def test_kip_951_no_other_refusal_names_a_leader() -> None:
    """A broker that lags refuses a topic that was created again: the leader that it knows is the earlier one's."""
    cache = cache_of(answer(1, 0))
    assert not cache.hint(replace(refusal(2, 4), error=ErrorCode.INCONSISTENT_TOPIC_ID), TOPIC_ID)
    assert leader_of(cache) == 1


def test_kip_516_the_leader_of_a_topic_that_was_asked_for_before_it_was_created_again_is_no_news() -> None:
    cache = cache_of(answer(1, 0, metadata_offset=10, topic_id="2e" * 16))
    assert not cache.hint(refusal(2, 4), TOPIC_ID)
    assert leader_of(cache) == 1


def test_leader_without_an_address_is_none() -> None:
    assert cache_of(answer(9, 0)).leader(T0) is None


def test_partitions_without_a_leader_are_avoided_while_another_has_one() -> None:
    cache = MetadataCache()
    partitions = tuple(
        PartitionMetadata(partition=number, leader=leader, leader_epoch=0, replicas=(1,), isr=(1,))
        for number, leader in enumerate((-1, 1))
    )
    topics = (TopicMetadata(name="t", partitions=partitions),)
    cache.update(MetadataResponse(brokers=BROKERS, topics=topics))
    assert cache.available_partitions("t") == [1]


def test_topic_that_was_deleted_is_forgotten_with_its_error() -> None:
    cache = cache_of(answer(1, 3))
    gone = TopicMetadata(name="t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cache.update(MetadataResponse(brokers=BROKERS, topics=(gone,)))
    assert cache.partitions("t") == []
    assert cache.errors["t"] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_answer_without_brokers_keeps_those_that_are_known() -> None:
    cache = cache_of(answer(1, 0))
    cache.update(MetadataResponse())
    assert sorted(cache.brokers) == [1, 2]


def test_one_request_at_a_time() -> None:
    asking = updater()
    asking.request()
    assert asking.poll(0, 1) is not None
    asking.request()
    assert asking.poll(0, 2) is None


def test_a_request_names_no_topic_that_is_not_wanted_any_more() -> None:
    metadata = updater()
    metadata.watch(("t", "u"))
    first = metadata.poll(0, 1)
    assert first is not None
    assert first.body == MetadataRequest(topics=("t", "u"))
    metadata.on_response(0, answer(1, 0))
    # All that is left is known.
    metadata.watch_only(("u",))
    assert metadata.poll(100, 2) is None
    metadata.watch_only(("u", "v"))
    second = metadata.poll(100, 2)
    assert second is not None
    assert second.body == MetadataRequest(topics=("u", "v"))


def test_failure_is_tried_again_after_the_back_off() -> None:
    asking = updater()
    asking.request()
    asking.poll(0, 1)
    asking.on_response(50, TransportError(reason="cut"))
    assert asking.next_wake_ms() == 150
    assert asking.poll(149, 2) is None
    assert asking.poll(150, 3) is not None


def test_metadata_is_refreshed_when_it_is_old() -> None:
    asking = updater()
    asking.request()
    asking.poll(0, 1)
    asking.on_response(0, answer(1, 0))
    assert asking.poll(4999, 2) is None
    assert asking.poll(5000, 3) is not None


def test_brokers_are_asked_in_turn_and_the_bootstrap_address_when_all_have_failed() -> None:
    asking = updater()
    assert asking.next_node() == BOOTSTRAP
    asking.request()
    asking.poll(0, 1)
    asking.on_response(0, answer(1, 0))
    assert sorted((asking.next_node(), asking.next_node())) == [1, 2]
    asking.count_failure(has_failed=True)
    assert asking.next_node() != BOOTSTRAP
    asking.count_failure(has_failed=True)
    assert asking.next_node() == BOOTSTRAP
    # The brokers have their turns again: the address may be that of a node that is gone for good.
    turns = []
    for _ in range(6):
        asking.count_failure(has_failed=True)
        turns.append(asking.next_node())
    assert turns[2::3] == [BOOTSTRAP, BOOTSTRAP]
    assert sorted(turns[:2]) == sorted(turns[3:5]) == [1, 2]
    asking.count_failure(has_failed=False)
    assert BOOTSTRAP not in (asking.next_node(), asking.next_node(), asking.next_node())


def test_the_bootstrap_address_has_its_turn_however_many_calls_fail_together() -> None:
    """Each call of an admin client asks on its own, and all of them may fail at the same time."""
    for at_a_time in range(1, 7):
        asking = updater()
        asking.request()
        asking.poll(0, 1)
        asking.on_response(0, answer(1, 0))
        asked: list[int] = []
        for _ in range(12):
            asked += [asking.next_node() for _ in range(at_a_time)]
            for _ in range(at_a_time):
                asking.count_failure(has_failed=True)
        assert set(asked) == {1, 2, BOOTSTRAP}, at_a_time


def test_a_cluster_made_anew_at_the_same_address_is_believed_though_its_metadata_is_shorter() -> None:
    """Its topics have other ids, at lower offsets and epochs than those of the one before."""
    old = replace(answer(1, 7, metadata_offset=500), cluster_id="old")
    new = replace(answer(2, 0, metadata_offset=20, topic_id="2e" * 16), cluster_id="new")
    cache = cache_of(old, new)
    assert (cache.cluster_id, cache.topic_id("t"), leader_of(cache)) == ("new", "2e" * 16, 2)


def test_a_broker_that_knows_no_cluster_yet_makes_a_client_forget_nothing() -> None:
    known = replace(answer(1, 7, metadata_offset=500), cluster_id="c")
    cache = cache_of(known, MetadataResponse(cluster_id=""))
    assert (cache.cluster_id, leader_of(cache)) == ("c", 1)
    behind = replace(answer(2, 0, metadata_offset=20, topic_id="2e" * 16), cluster_id="c")
    assert leader_of(cache_of(known, MetadataResponse(cluster_id=""), behind)) == 1
