"""Whole clusters in virtual time: three brokers, a controller, disks that forget."""

from __future__ import annotations

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    CONTROLLER_ID,
    LATEST_TIMESTAMP,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProducePartition,
    ProduceRequest,
    RequestBody,
    ResponseBody,
    TopicPartition,
)
from storage.log import Isolation
from tests.cluster.broker.cluster_by_hand import Cluster, batch


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(3)
    cluster.start()
    return cluster


def make_topic(cluster: Cluster, **configs: str) -> TopicPartition:
    return cluster.create_topic("t", replicas=(1, 2, 3), **{"min_insync_replicas": "2", **configs})


def log_bytes(cluster: Cluster, number: int, topic_partition: TopicPartition) -> bytes:
    log = cluster.replica(number, topic_partition).log
    return log.read(0, max_size=1 << 20, isolation=Isolation.HIGH_WATERMARK).records


def check_replicas_equal(cluster: Cluster, topic_partition: TopicPartition, *numbers: int) -> None:
    images = [log_bytes(cluster, number, topic_partition) for number in numbers]
    assert images[0] and all(image == images[0] for image in images), [len(image) for image in images]


def test_acks_all_is_on_all_three(cluster: Cluster) -> None:
    topic_partition = make_topic(cluster)
    for number in range(20):
        answer = cluster.produce(1, topic_partition, b"%d" % number)
        assert (answer.error, answer.base_offset) == (ErrorCode.NONE, number)
    cluster.run(600)
    for number in (1, 2, 3):
        assert cluster.values(number, topic_partition) == [b"%d" % index for index in range(20)]
        assert cluster.replica(number, topic_partition).log.high_watermark == 20
    check_replicas_equal(cluster, topic_partition, 1, 2, 3)


@pytest.mark.parametrize("index_bytes", ["4", "7", "8", "11", "12", "23"])
def test_s1_the_least_settings_of_a_topic_end_no_broker(cluster: Cluster, index_bytes: str) -> None:
    topic_partition = make_topic(
        cluster,
        segment_index_bytes=index_bytes,
        index_interval_bytes="0",
        segment_ms="1",
        retention_bytes="-9223372036854775808",
        file_delete_delay_ms="9223372036854775807",
    )
    for number in range(10):
        assert cluster.produce(1, topic_partition, b"%d" % number).error is ErrorCode.NONE
    cluster.run(600)
    check_replicas_equal(cluster, topic_partition, 1, 2, 3)
    cluster.brokers[2].kill()
    cluster.brokers[2].start()
    cluster.run_until(lambda: topic_partition in cluster.core(2).replicas())
    cluster.run_until(lambda: cluster.replica(1, topic_partition).committed_isr == (1, 2, 3))
    check_replicas_equal(cluster, topic_partition, 1, 2, 3)
    assert all(node.stopped is None for node in cluster.brokers.values())


def test_a_killed_leader_is_replaced_and_nothing_acknowledged_is_lost(cluster: Cluster) -> None:
    topic_partition = make_topic(cluster)
    for number in range(5):
        cluster.produce(1, topic_partition, b"%d" % number)
    cluster.brokers[1].kill()
    cluster.run_until(lambda: cluster.leader_of(topic_partition) == 2)
    cluster.run(50)
    assert cluster.values(2, topic_partition) == [b"%d" % index for index in range(5)]
    assert cluster.produce(2, topic_partition, b"5").error is ErrorCode.NONE
    cluster.brokers[1].start()
    cluster.run(3_000)
    assert cluster.replica(2, topic_partition).committed_isr == (1, 2, 3)
    check_replicas_equal(cluster, topic_partition, 1, 2, 3)


def test_a_retry_across_a_fail_over_duplicates_nothing(cluster: Cluster) -> None:
    topic_partition = make_topic(cluster)
    identity = cluster.request(3, InitProducerIdRequest(), InitProducerIdResponse)
    first = cluster.produce(1, topic_partition, b"a", producer_id=identity.producer_id, base_sequence=0)
    # The answer to the second produce counts as lost with the broker.
    cluster.brokers[1].kill()
    cluster.run_until(lambda: cluster.leader_of(topic_partition) == 2)
    cluster.run(50)
    again = cluster.produce(2, topic_partition, b"a", producer_id=identity.producer_id, base_sequence=0)
    following = cluster.produce(2, topic_partition, b"b", producer_id=identity.producer_id, base_sequence=1)
    assert (again.error, again.base_offset) == (ErrorCode.NONE, first.base_offset)
    assert following.base_offset == 1
    assert cluster.values(2, topic_partition) == [b"a", b"b"]


def test_divergence_after_an_unclean_stop_is_cut_by_epoch(cluster: Cluster) -> None:
    topic_partition = make_topic(cluster)
    cluster.produce(1, topic_partition, b"common")
    for other in (2, 3, CONTROLLER_ID):
        cluster.cut(1, other)
    cluster.run(20)
    for number in range(3):
        stray = cluster.produce(1, topic_partition, b"stray%d" % number, acks=1)
        # A leader that is cut off does not know that it is.
        assert stray.error is ErrorCode.NONE
    cluster.run_until(lambda: cluster.leader_of(topic_partition) == 2)
    cluster.run(50)
    cluster.produce(2, topic_partition, b"new")
    assert cluster.replica(1, topic_partition).log.log_end_offset == 4
    for other in (2, 3, CONTROLLER_ID):
        cluster.heal(1, other)
    cluster.brokers[1].kill()
    cluster.brokers[1].start()
    cluster.run(15_000)
    assert cluster.values(1, topic_partition) == [b"common", b"new"]
    truncated = [
        dict(effect.fields) for node, effect in cluster.observed if effect.kind == "replica.truncated"
    ]
    assert [(each["from_log_end_offset"], each["to_offset"]) for each in truncated] == [(4, 1)]
    check_replicas_equal(cluster, topic_partition, 1, 2, 3)


def test_a_follower_that_misses_one_answer_keeps_what_is_committed(cluster: Cluster) -> None:
    """B-01's schedule: the next leader has the record, but its high watermark is still below it."""
    topic_partition = make_topic(cluster, min_insync_replicas="1")
    cluster.produce(1, topic_partition, b"m1")
    cluster.run(20)

    def drops(sender: int, receiver: int, body: RequestBody | ResponseBody) -> bool:
        return sender == 1 and isinstance(body, FetchResponse) and body.partitions[0].high_watermark == 2

    cluster.lost.append(drops)
    answer = cluster.produce(1, topic_partition, b"m2")
    assert answer.error is ErrorCode.NONE
    cluster.brokers[1].kill()
    cluster.run_until(lambda: cluster.leader_of(topic_partition) == 2)
    cluster.run(2_000)
    for number in (2, 3):
        assert cluster.values(number, topic_partition) == [b"m1", b"m2"]


def test_with_flush_messages_1_what_is_acknowledged_survives_a_power_loss_of_all(cluster: Cluster) -> None:
    topic_partition = make_topic(cluster, flush_messages="1")
    for number in range(4):
        assert cluster.produce(1, topic_partition, b"%d" % number).error is ErrorCode.NONE
    asked = ProducePartition(topic_partition=topic_partition, records=batch(b"unanswered"))
    cluster.brokers[1].ask(ProduceRequest(acks=-1, partitions=(asked,)))
    for broker in cluster.brokers.values():
        broker.lose_power()
    for broker in cluster.brokers.values():
        broker.start()
    cluster.run(15_000)
    leader = cluster.leader_of(topic_partition)
    assert cluster.values(leader, topic_partition)[:4] == [b"0", b"1", b"2", b"3"]
    check_replicas_equal(cluster, topic_partition, 1, 2, 3)


def test_without_a_flush_a_power_loss_of_all_may_lose_but_the_logs_agree(cluster: Cluster) -> None:
    topic_partition = make_topic(cluster)
    for number in range(4):
        cluster.produce(1, topic_partition, b"%d" % number)
    for broker in cluster.brokers.values():
        broker.lose_power()
    for broker in cluster.brokers.values():
        broker.start()
    cluster.run(15_000)
    leader = cluster.leader_of(topic_partition)
    assert cluster.produce(leader, topic_partition, b"next").error is ErrorCode.NONE
    cluster.run(600)
    check_replicas_equal(cluster, topic_partition, 1, 2, 3)


def test_a_silent_follower_leaves_the_isr_and_comes_back(cluster: Cluster) -> None:
    topic_partition = make_topic(cluster)
    cluster.cut(1, 3)
    # The request waits until 3 has left the ISR.
    cluster.produce(1, topic_partition, b"a", timeout_ms=60_000)
    assert cluster.replica(1, topic_partition).committed_isr == (1, 2)
    cluster.heal(1, 3)
    cluster.run_until(lambda: cluster.replica(1, topic_partition).committed_isr == (1, 2, 3), 60_000)
    check_replicas_equal(cluster, topic_partition, 1, 2, 3)


def test_an_orderly_stop_moves_the_leader_before_it_ends(cluster: Cluster) -> None:
    topic_partition = make_topic(cluster)
    cluster.produce(1, topic_partition, b"a")
    cluster.shut_down(1)
    cluster.run_until(lambda: cluster.brokers[1].stopped is not None)
    assert cluster.brokers[1].stopped == "shutdown"
    assert cluster.leader_of(topic_partition) == 2
    cluster.run(20)
    assert cluster.produce(2, topic_partition, b"b").error is ErrorCode.NONE
    cluster.brokers[1].start()
    cluster.run(2_000)
    starts = [dict(effect.fields) for node, effect in cluster.observed if effect.kind == "broker.started"]
    assert starts[-1] == {"clean": 1}
    check_replicas_equal(cluster, topic_partition, 1, 2, 3)


def test_all_stop_in_order_although_no_broker_is_left_to_lead(cluster: Cluster) -> None:
    topic_partition = make_topic(cluster)
    cluster.produce(1, topic_partition, b"a")
    for number in cluster.brokers:
        cluster.shut_down(number)
    cluster.run_until(lambda: all(broker.stopped for broker in cluster.brokers.values()))
    assert {broker.stopped for broker in cluster.brokers.values()} == {"shutdown"}


def test_a_restarted_broker_waits_for_its_old_session_to_end(cluster: Cluster) -> None:
    topic_partition = make_topic(cluster)
    killed_ms = cluster.now_ms
    cluster.brokers[1].kill()
    cluster.brokers[1].start()
    cluster.run_until(lambda: cluster.core(1).lifecycle.is_unfenced)
    # The controller answers DUPLICATE_BROKER_REGISTRATION until then.
    assert cluster.now_ms - killed_ms > 5_000
    assert cluster.replica(1, topic_partition).role == "follower"


def test_a_restarted_controller_finds_the_cluster_as_it_was(cluster: Cluster) -> None:
    topic_partition = make_topic(cluster)
    cluster.produce(1, topic_partition, b"a")
    cluster.controller.lose_power()
    # The data path needs no controller.
    assert cluster.produce(1, topic_partition, b"b").error is ErrorCode.NONE
    cluster.run(1_000)
    cluster.controller.start()
    cluster.run(15_000)
    assert cluster.leader_of(topic_partition) == 1
    assert cluster.produce(1, topic_partition, b"c").error is ErrorCode.NONE


def test_partitions_that_are_added_are_replicated_and_take_records(cluster: Cluster) -> None:
    make_topic(cluster)
    answer = cluster.request(2, CreatePartitionsRequest(name="t", count=3), CreatePartitionsResponse)
    assert answer.error is ErrorCode.NONE
    cluster.run(50)
    for number in (1, 2):
        added = TopicPartition("t", number)
        leader = cluster.leader_of(added)
        assert cluster.produce(leader, added, b"a").error is ErrorCode.NONE
        assert all(cluster.values(each, added) == [b"a"] for each in cluster.brokers)


def test_a_deleted_topic_is_gone_everywhere_and_its_name_free(cluster: Cluster) -> None:
    topic_partition = make_topic(cluster)
    cluster.produce(1, topic_partition, b"old")
    cluster.request(2, DeleteTopicRequest(name="t"), DeleteTopicResponse)
    cluster.run(50)
    assert all(not cluster.core(number).replicas() for number in cluster.brokers)
    again = make_topic(cluster)
    answer = cluster.produce(1, again, b"new")
    assert (answer.error, answer.base_offset) == (ErrorCode.NONE, 0)
    assert cluster.values(1, again) == [b"new"]


def test_consumers_see_the_committed_end_after_a_fail_over(cluster: Cluster) -> None:
    topic_partition = make_topic(cluster)
    cluster.produce(1, topic_partition, b"a", b"b")
    cluster.brokers[1].kill()
    cluster.run_until(lambda: cluster.leader_of(topic_partition) == 2)
    cluster.run(1_000)
    asked = ListOffsetsRequest(topic_partition=topic_partition, timestamp=LATEST_TIMESTAMP)
    assert cluster.request(2, asked, ListOffsetsResponse).offset == 2


def test_a_run_is_a_function_of_its_seed() -> None:
    def run() -> list[tuple[int, str, tuple[tuple[str, int | str], ...]]]:
        cluster = Cluster(3, seed=9)
        cluster.start()
        topic_partition = make_topic(cluster)
        for number in range(3):
            cluster.produce(1, topic_partition, b"%d" % number)
        cluster.brokers[2].kill()
        cluster.run(12_000)
        return [(node, effect.kind, effect.fields) for node, effect in cluster.observed]

    assert run() == run()
