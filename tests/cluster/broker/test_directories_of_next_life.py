"""Another process takes the id of a broker while one of its log directories is offline. Rules BRK-3, LL1."""

from __future__ import annotations

from cluster.core.effects import Effect
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    TopicPartition,
)
from cluster.core.metadata.records import (
    ClusterRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
)
from sim.disk.life import Life
from tests.cluster.broker.setup import CLUSTER_ID, BrokerSetup
from tests.cluster.broker.two_directories import (
    IN_ONE,
    IN_TWO,
    PARTITIONS,
    TOPIC_ID,
    fail_two,
    leading,
    outcomes,
    placed,
    produce,
    restarted,
    topic,
)
from tests.cluster.replica.setup import observed, only_sent

OTHER_PROCESS = RegisterBrokerRecord(broker_id=1, incarnation="f" * 32, host="elsewhere", port=9001)


def registered_again(setup: BrokerSetup, *records: MetadataRecord) -> list[Effect]:
    """Register another process as this broker, add the records, then register this one again."""
    call = only_sent(setup.metadata(OTHER_PROCESS, *records), RegisterBrokerRequest).call
    answer = RegisterBrokerResponse(broker_epoch=setup.metadata_end, cluster_id=CLUSTER_ID)
    setup.answer(call, answer)
    return setup.metadata(setup.own_registration())


def offline_now(setup: BrokerSetup) -> list[TopicPartition]:
    """Return what the next heartbeat names."""
    return [each.topic_partition for each in setup.broker._context.offline_partitions()]


def test_brk3_what_is_offline_stays_so_when_the_process_is_registered_again() -> None:
    setup = leading()
    fail_two(setup)
    registered_again(setup)
    assert offline_now(setup) == list(IN_TWO)
    assert list(setup.broker.replicas()) == list(IN_ONE)


def test_brk3_an_offline_topic_that_was_deleted_meanwhile_is_not_named_after_the_next_registration() -> None:
    setup = leading()
    fail_two(setup)
    registered_again(setup, RemoveTopicRecord(name="t", topic_id=TOPIC_ID))
    assert offline_now(setup) == []
    assert dict(setup.broker.replicas()) == {}


def test_brk3_a_topic_created_again_meanwhile_is_named_by_its_new_id() -> None:
    setup = leading()
    fail_two(setup)
    deleted = RemoveTopicRecord(name="t", topic_id=TOPIC_ID)
    registered_again(setup, deleted, *topic(topic_id="2e" * 16))
    # As at a start: its logs may be in the directory that cannot be read.
    assert offline_now(setup) == list(PARTITIONS)


def test_brk3_a_directory_that_fails_while_roles_begin_again_takes_its_replicas_only() -> None:
    setup = leading()
    call = only_sent(setup.metadata(OTHER_PROCESS), RegisterBrokerRequest).call
    broker_epoch = setup.metadata_end
    setup.answer(call, RegisterBrokerResponse(broker_epoch=broker_epoch, cluster_id=CLUSTER_ID))
    setup.disk.break_directory("two")
    elected = [PartitionChangeRecord(topic="t", partition=number, leader=1) for number in range(4)]
    effects = setup.metadata(setup.own_registration(), *elected)
    assert {told["topic_partition"] for told in observed(effects, "replica.offline")} == {"t-1", "t-3"}
    assert list(setup.broker.replicas()) == list(IN_ONE)
    assert outcomes(produce(setup, *IN_ONE)) == {0: ErrorCode.NONE, 2: ErrorCode.NONE}
    assert offline_now(setup) == list(IN_TWO)


def test_brk3_a_disk_that_fails_while_strays_are_removed_takes_its_replicas_only() -> None:
    setup = leading()
    setup.metadata(*topic("u", "3c" * 16))
    setup.broker.maintenance.cleaners["two"]._update(("t", 1), 0)
    call = only_sent(
        setup.metadata(OTHER_PROCESS, RemoveTopicRecord(name="t", topic_id=TOPIC_ID)), RegisterBrokerRequest
    ).call
    broker_epoch = setup.metadata_end
    setup.answer(call, RegisterBrokerResponse(broker_epoch=broker_epoch, cluster_id=CLUSTER_ID))
    setup.disk.break_directory("two")
    elected = [PartitionChangeRecord(topic="u", partition=number, leader=1) for number in range(4)]
    setup.metadata(setup.own_registration(), *elected)
    assert [str(each) for each in setup.broker.replicas()] == ["u-0", "u-2"]
    assert [str(each) for each in offline_now(setup)] == ["u-1", "u-3"]
    # The broker goes on to read the metadata.
    setup.metadata(RemoveTopicRecord(name="u", topic_id="3c" * 16))
    assert dict(setup.broker.replicas()) == {} and offline_now(setup) == []


def test_ll1_a_log_that_cannot_be_opened_for_its_role_is_offline_and_not_made_again_elsewhere() -> None:
    setup = leading()
    assert outcomes(produce(setup, *PARTITIONS)) == dict.fromkeys(range(4), ErrorCode.NONE)
    again = restarted(setup)
    # As an older version left it; the id is written when the role begins.
    again.disk.file_system(Life("hand")).unlink("two/t-1/partition.metadata")
    registration = only_sent(again.start(), RegisterBrokerRequest)
    again.answer(registration.call, RegisterBrokerResponse(broker_epoch=1, cluster_id=CLUSTER_ID))
    again.disk.break_directory("two")
    again.metadata(ClusterRecord(cluster_id=CLUSTER_ID), again.own_registration(), *topic())
    assert placed(again) == {"one": ["t-0", "t-2"]}
    assert list(again.broker.replicas()) == list(IN_ONE)
    assert offline_now(again) == list(IN_TWO)
