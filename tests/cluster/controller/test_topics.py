"""Topics at the controller: creation, deletion, configuration."""

from __future__ import annotations

import pytest

from cluster.core.controller.config import ControllerConfig
from cluster.core.controller.topics import stripe
from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    AlterTopicConfigsRequest,
    AlterTopicConfigsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
    MetadataRequest,
    MetadataResponse,
    TopicPartition,
)
from storage.config import LogConfig
from tests.cluster.controller.setup import ControllerBench
from tests.storage.test_config_bounds import NUMBERS, OTHERS, bad_values


def configure(bench: ControllerBench, name: str, *configs: tuple[str, str]) -> AlterTopicConfigsResponse:
    answer = bench.ask(AlterTopicConfigsRequest(name=name, configs=configs))
    assert isinstance(answer, AlterTopicConfigsResponse)
    return answer


def grow(bench: ControllerBench, name: str, count: int) -> CreatePartitionsResponse:
    answer = bench.ask(CreatePartitionsRequest(name=name, count=count))
    assert isinstance(answer, CreatePartitionsResponse)
    return answer


def delete(bench: ControllerBench, name: str) -> DeleteTopicResponse:
    answer = bench.ask(DeleteTopicRequest(name=name))
    assert isinstance(answer, DeleteTopicResponse)
    return answer


def test_created_topic_is_led_and_in_sync() -> None:
    bench = ControllerBench().unfenced(1, 2, 3)
    answer = bench.create(partitions=6, replication_factor=3)
    assert answer.error is ErrorCode.NONE and len(answer.topic_id) == 32
    partitions = list(bench.controller.image.partitions())
    assert sorted(each.leader for each in partitions) == [1, 1, 2, 2, 3, 3]
    assert all(sorted(each.isr) == [1, 2, 3] and each.leader == each.replicas[0] for each in partitions)
    assert bench.observed("controller.topic_created") == [{"topic": "t", "topic_id": answer.topic_id}]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a" * 250, "sp ace"])
def test_bad_topic_name_is_refused(name: str) -> None:
    assert ControllerBench().unfenced(1).create(name).error is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_metadata_topic_is_not_a_users() -> None:
    """A user may not create it. Kafka: ControllerApis.createTopics."""
    answer = ControllerBench().unfenced(1).create("__cluster_metadata")
    assert answer.error is ErrorCode.INVALID_REQUEST


def test_existing_topic_is_refused() -> None:
    bench = ControllerBench().unfenced(1)
    bench.create()
    assert bench.create().error is ErrorCode.TOPIC_ALREADY_EXISTS


def test_name_that_collides_in_metrics_is_refused() -> None:
    bench = ControllerBench().unfenced(1)
    bench.create("a.b")
    assert bench.create("a_b").error is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_topic_that_is_not_committed_yet_exists_already() -> None:
    """Later changes build on what is appended."""
    bench = ControllerBench().unfenced(1)
    first, _ = bench.step(CreateTopicRequest(name="t"))
    second, _ = bench.step(CreateTopicRequest(name="t"))
    replies = {
        each.call: each.body.error
        for each in bench.run_jobs()
        if isinstance(each, Reply) and isinstance(each.body, CreateTopicResponse)
    }
    assert replies == {first: ErrorCode.NONE, second: ErrorCode.TOPIC_ALREADY_EXISTS}


@pytest.mark.parametrize("partitions", [0, -2, 10_001])
def test_bad_partition_count_is_refused(partitions: int) -> None:
    assert ControllerBench().unfenced(1).create(partitions=partitions).error is ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("factor", [0, -2, 3])
def test_bad_replication_factor_is_refused(factor: int) -> None:
    bench = ControllerBench().unfenced(1, 2)
    assert bench.create(replication_factor=factor).error is ErrorCode.INVALID_REPLICATION_FACTOR


def test_fenced_brokers_take_no_new_replicas() -> None:
    bench = ControllerBench().unfenced(1, 2)
    bench.fence(2)
    assert bench.create(replication_factor=2).error is ErrorCode.INVALID_REPLICATION_FACTOR


def test_minus_one_takes_the_configured_counts() -> None:
    bench = ControllerBench(ControllerConfig(num_partitions=4, default_replication_factor=2)).unfenced(1, 2)
    bench.create(partitions=-1, replication_factor=-1)
    assert [len(each.replicas) for each in bench.controller.image.partitions()] == [2] * 4


def test_an_assignment_decides_the_counts() -> None:
    bench = ControllerBench(ControllerConfig(num_partitions=4)).unfenced(1, 2)
    bench.ask(CreateTopicRequest(name="t", assignment=((1, 2), (2, 1))))
    assert [each.replicas for each in bench.controller.image.partitions()] == [(1, 2), (2, 1)]


@pytest.mark.parametrize(
    "config", [("no.such", "1"), ("segment.bytes", "many"), ("min.insync.replicas", "0")]
)
def test_bad_config_is_refused_with_its_name(config: tuple[str, str]) -> None:
    answer = ControllerBench().unfenced(1).create(configs=(config,))
    assert answer.error is ErrorCode.INVALID_CONFIG
    assert config[0] in answer.message


@pytest.mark.parametrize("name", [*NUMBERS, *OTHERS])
def test_s1_a_setting_beyond_its_bounds_is_refused_at_creation_and_at_alteration(name: str) -> None:
    bench = ControllerBench().unfenced(1)
    bench.create()
    for value in bad_values(name):
        answer = bench.create("u", configs=((name, value),))
        assert answer.error is ErrorCode.INVALID_CONFIG and name in answer.message, (name, value)
        # An empty value restores the default.
        altered = configure(bench, "t", (name, value))
        assert altered.error is (ErrorCode.INVALID_CONFIG if value else ErrorCode.NONE), (name, value)
    assert bench.controller.image.topics["t"].configs == () and "u" not in bench.controller.image.topics


def test_a_lag_that_contradicts_the_brokers_defaults_is_refused_as_in_kafka() -> None:
    bench = ControllerBench(config=ControllerConfig(log=LogConfig(max_compaction_lag_ms=100))).unfenced(1)
    answer = bench.create(configs=(("min.compaction.lag.ms", "200"),))
    assert answer.error is ErrorCode.INVALID_CONFIG and "max.compaction.lag.ms=100" in answer.message
    assert bench.create(configs=(("min.compaction.lag.ms", "100"),)).error is ErrorCode.NONE


@pytest.mark.parametrize("assignment", [((1, 1),), ((1,), (1, 2)), ((9,),), ((),)])
def test_bad_assignment_is_refused(assignment: tuple[tuple[int, ...], ...]) -> None:
    bench = ControllerBench().unfenced(1, 2)
    assert bench.create(assignment=assignment).error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_assignment_to_a_fenced_broker_begins_outside_the_isr() -> None:
    bench = ControllerBench().unfenced(1, 2)
    bench.fence(1)
    bench.create(assignment=((1, 2),))
    assert (bench.partition().leader, bench.partition().isr) == (2, (2,))


def test_stripes_spread_leaders_and_followers() -> None:
    placed = [stripe([1, 2, 3, 4], 0, number, 2) for number in range(12)]
    assert sorted(placed) == sorted((a, b) for a in range(1, 5) for b in range(1, 5) if a != b)


def test_placement_is_a_function_of_the_seed() -> None:
    images = []
    for _ in range(2):
        bench = ControllerBench().unfenced(1, 2, 3)
        bench.create(partitions=3, replication_factor=2)
        images.append([each.replicas for each in bench.controller.image.partitions()])
    assert images[0] == images[1]


def test_partitions_are_added_as_at_creation_and_the_old_ones_stay() -> None:
    bench = ControllerBench().unfenced(1, 2, 3)
    bench.create(partitions=2, replication_factor=2)
    before = [bench.partition(TopicPartition("t", number)) for number in range(2)]
    assert grow(bench, "t", 5).error is ErrorCode.NONE
    after = list(bench.controller.image.partitions())
    assert after[:2] == before
    assert [each.topic_partition.partition for each in after] == [0, 1, 2, 3, 4]
    assert sorted(each.leader for each in after[2:]) == [1, 2, 3]
    for each in after[2:]:
        assert each.replicas == each.isr and len(each.replicas) == 2 and each.leader == each.replicas[0]


def test_added_partitions_are_there_after_a_power_loss() -> None:
    bench = ControllerBench().unfenced(1)
    bench.create()
    grow(bench, "t", 3)
    bench.lose_power_and_restart()
    assert len(bench.controller.image.topics["t"].partitions) == 3


@pytest.mark.parametrize("count", [3, 2, 1, 0, -1, 10_001])
def test_a_topic_only_grows_and_not_beyond_the_limit(count: int) -> None:
    """Kafka: the same count and a smaller one are INVALID_PARTITIONS, too."""
    bench = ControllerBench().unfenced(1)
    bench.create(partitions=3)
    assert grow(bench, "t", count).error is ErrorCode.INVALID_PARTITIONS
    assert len(bench.controller.image.topics["t"].partitions) == 3


def test_an_unknown_topic_does_not_grow() -> None:
    assert grow(ControllerBench().unfenced(1), "t", 2).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_are_not_added_with_fewer_replicas_than_the_others_have() -> None:
    bench = ControllerBench().unfenced(1, 2)
    bench.create(replication_factor=2)
    bench.fence(2)
    assert grow(bench, "t", 2).error is ErrorCode.INVALID_REPLICATION_FACTOR


def test_two_growths_in_a_row_build_on_each_other() -> None:
    bench = ControllerBench().unfenced(1)
    bench.create()
    first, _ = bench.step(CreatePartitionsRequest(name="t", count=3))
    second, _ = bench.step(CreatePartitionsRequest(name="t", count=3))
    replies = {
        each.call: each.body.error
        for each in bench.run_jobs()
        if isinstance(each, Reply) and isinstance(each.body, CreatePartitionsResponse)
    }
    assert replies == {first: ErrorCode.NONE, second: ErrorCode.INVALID_PARTITIONS}


def test_deleted_topic_is_gone_and_its_name_is_free_under_another_id() -> None:
    bench = ControllerBench().unfenced(1)
    first = bench.create()
    assert delete(bench, "t").error is ErrorCode.NONE
    assert not bench.controller.image.topics
    assert bench.create().topic_id != first.topic_id


def test_deleting_an_unknown_topic_is_refused() -> None:
    assert delete(ControllerBench(), "t").error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_altered_configs_are_merged_and_an_empty_value_restores_the_default() -> None:
    bench = ControllerBench().unfenced(1)
    bench.create(configs=(("flush.messages", "1"), ("segment.bytes", "1000000")))
    configure(bench, "t", ("flush.messages", ""), ("min.insync.replicas", "2"))
    configs = bench.controller.image.topics["t"].configs
    assert configs == (("min.insync.replicas", "2"), ("segment.bytes", "1000000"))


def test_bad_alteration_changes_nothing() -> None:
    bench = ControllerBench().unfenced(1)
    bench.create()
    answer = configure(bench, "t", ("flush.messages", "1"), ("no.such", "1"))
    assert answer.error is ErrorCode.INVALID_CONFIG
    assert bench.controller.image.topics["t"].configs == ()


def test_allowing_unclean_election_elects_where_there_is_no_leader() -> None:
    bench = ControllerBench().unfenced(1, 2)
    bench.create(assignment=((1, 2),))
    bench.alter(1)
    bench.fence(1)
    configure(bench, "t", ("unclean.leader.election.enable", "true"))
    assert (bench.partition().leader, bench.partition().isr) == (2, (2,))


def test_metadata_is_answered_with_unfenced_brokers_and_the_controller() -> None:
    bench = ControllerBench(ControllerConfig(host="c", port=1)).unfenced(1, 2)
    bench.fence(2)
    answer = bench.ask(MetadataRequest())
    assert isinstance(answer, MetadataResponse)
    assert [broker.broker_id for broker in answer.brokers] == [1]
    assert answer.controller is not None and answer.controller.host == "c"
