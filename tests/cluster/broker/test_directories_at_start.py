"""Log directories as a broker starts: where partitions go, what is refused, what is offline. KIP-112; LL1, LL4."""

from __future__ import annotations

import pytest

from cluster.core.effects import Stop
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from cluster.core.metadata.records import (
    ClusterRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from sim.disk import SimDisk
from sim.disk.faults import READ_OR_MUTATE
from sim.disk.life import Life
from storage.disk.checkpoints import MetaProperties, MetaPropertiesFile
from storage.draws import Draws
from storage.errors import DirectoryFailed, ForeignDirectory, NoLogDirectory, StorageError
from tests.cluster.broker.setup import BrokerSetup
from tests.cluster.broker.two_directories import (
    IN_TWO,
    PARTITIONS,
    TOPIC_ID,
    TWO,
    booted,
    leading,
    outcomes,
    placed,
    produce,
    restarted,
    topic,
)
from tests.cluster.replica.setup import observed, only_sent


def test_new_partitions_go_where_the_fewest_are() -> None:
    setup = leading()
    assert placed(setup) == {"one": ["t-0", "t-2"], "two": ["t-1", "t-3"]}
    assert outcomes(produce(setup, *PARTITIONS)) == dict.fromkeys(range(4), ErrorCode.NONE)


def test_ll1_a_directory_that_fails_at_start_is_offline_and_named_and_the_other_serves() -> None:
    disk = SimDisk(Draws(3), lambda: 0)
    disk.break_directory("two")
    setup = BrokerSetup(disk, directories=TWO)
    (told,) = observed(setup.start(), "log_directory.offline")
    assert told["directory"] == "two" and "two" in str(told["reason"])
    setup = BrokerSetup(restarted(setup).disk, life=3, directories=TWO)
    setup.boot()
    setup.metadata(*topic())
    assert placed(setup) == {"one": ["t-0", "t-1", "t-2", "t-3"]}
    assert outcomes(produce(setup, *PARTITIONS)) == dict.fromkeys(range(4), ErrorCode.NONE)


def test_ll1_a_directory_where_the_cleaners_checkpoint_cannot_be_made_is_offline_and_the_other_serves() -> (
    None
):
    setup = BrokerSetup(directories=TWO)
    setup.disk.fail(1, verbs={"create"}, path_suffix="two/cleaner-offset-checkpoint")
    (told,) = observed(setup.start(), "log_directory.offline")
    assert told["directory"] == "two"
    assert list(setup.broker.maintenance.cleaners) == ["one"]


def test_ll1_the_only_directory_where_the_cleaners_checkpoint_cannot_be_made_ends_the_start() -> None:
    setup = BrokerSetup(directories="one")
    setup.disk.fail(1, verbs={"create"}, path_suffix="one/cleaner-offset-checkpoint")
    with pytest.raises(DirectoryFailed, match=r"one: open failed: .*Input/output error"):
        setup.start()


def test_ll2_a_cleaners_checkpoint_that_cannot_be_read_counts_as_empty() -> None:
    setup = leading()
    setup.broker.maintenance.cleaners["two"]._update(("t", 1), 1)
    again = restarted(setup)
    again.disk.fail(1, verbs={"read"}, path_suffix="two/cleaner-offset-checkpoint")
    again.boot(*topic())
    assert placed(again) == placed(setup)
    assert again.broker.maintenance.cleaners["two"].checkpoints == {}


def used_disk() -> SimDisk:
    """Return the disk of a broker that has ended, with one directory and a log in it."""
    setup = BrokerSetup(directories="one")
    setup.boot()
    setup.metadata(
        TopicRecord(name="t", topic_id=TOPIC_ID),
        PartitionRecord(topic="t", partition=0, replicas=(1,), isr=(1,), leader=1),
    )
    produce(setup, PARTITIONS[0])
    setup.disk.crash_process()
    return setup.disk


def error_of_start(disk: SimDisk) -> StorageError | None:
    """Start a broker on the disk. Return the error that ended the start; None if it is up."""
    try:
        BrokerSetup(disk, life=2, directories="one").start()
    except StorageError as error:
        return error
    return None


def test_ll1_the_only_directory_ends_the_start_with_its_name_and_the_error_whatever_call_fails() -> None:
    used, errors, number, is_struck = used_disk(), list[StorageError](), 0, True
    while is_struck:
        number += 1
        disk = used.snapshot()
        disk.fail(number, verbs=READ_OR_MUTATE)
        error = error_of_start(disk)
        errors += [] if error is None else [error]
        is_struck = not disk.has_faults
    for error in errors:
        assert str(error).startswith("one") and "Input/output error" in str(error), error
        assert isinstance(error.__cause__, OSError), error
    # A checkpoint that cannot be read counts as empty (LL2); the last start met no failure.
    assert number > 20 and len(errors) == number - 2, (number, len(errors))


def test_ll1_with_no_directory_left_there_is_no_start() -> None:
    disk = SimDisk(Draws(3), lambda: 0)
    for directory in TWO:
        disk.break_directory(directory)
    with pytest.raises(NoLogDirectory, match=r"no log directory can be used: one: .*; two: "):
        BrokerSetup(disk, directories=TWO).start()


def test_a_partition_that_may_be_in_an_offline_directory_is_not_made_again() -> None:
    """KIP-112: an empty log would pass for all that this broker ever had."""
    setup = leading()
    produce(setup, *PARTITIONS)
    setup.disk.break_directory("two")
    again = restarted(setup)
    again.boot(*topic())
    assert placed(again) == {"one": ["t-0", "t-2"]}
    assert set(again.broker._context.offline) == set(IN_TWO)
    assert outcomes(produce(again, PARTITIONS[1])) == {1: ErrorCode.KAFKA_STORAGE_ERROR}
    # The topic is made in this life, so it is in no offline directory.
    again.metadata(*topic("u", "2f" * 16))
    assert placed(again) == {"one": ["t-0", "t-2", "u-0", "u-1", "u-2", "u-3"]}


def test_ll4_a_log_that_is_half_made_when_its_directory_fails_is_offline_until_the_directory_is_back() -> (
    None
):
    """A second log in the other directory would be refused at the next start, or pass for the first."""
    setup = booted()
    setup.disk.fail(1, verbs={"sync"}, path_suffix="one/t-0/partition.metadata.tmp")
    setup.metadata(*topic())
    assert placed(setup) == {"two": ["t-1", "t-2", "t-3"]}
    assert list(setup.broker._context.offline) == [PARTITIONS[0]]
    again = restarted(setup)
    again.boot(*topic())
    assert placed(again) == {"one": ["t-0"], "two": ["t-1", "t-2", "t-3"]}
    assert outcomes(produce(again, *PARTITIONS)) == dict.fromkeys(range(4), ErrorCode.NONE)


def test_the_controller_hears_of_it_before_it_lets_the_broker_in() -> None:
    setup = leading()
    setup.disk.break_directory("two")
    again = restarted(setup)
    registration = only_sent(again.start(), RegisterBrokerRequest)
    effects = again.answer(registration.call, RegisterBrokerResponse(broker_epoch=1, cluster_id="c"))
    again.answer(only_sent(effects, BrokerHeartbeatRequest).call, BrokerHeartbeatResponse(is_fenced=True))
    effects = again.metadata(ClusterRecord(cluster_id="c"), again.own_registration(), *topic())
    body = only_sent(effects, BrokerHeartbeatRequest).body
    assert isinstance(body, BrokerHeartbeatRequest)
    assert not body.want_fence and [each.topic_partition for each in body.offline_partitions] == list(IN_TWO)


def test_ll4_a_partition_in_two_directories_is_refused() -> None:
    setup = leading()
    for directory in TWO:
        one = BrokerSetup(setup.disk, life=2, directories=directory)
        setup.disk.crash_process()
        one = BrokerSetup(setup.disk, life=3, directories=directory)
        one.boot()
        one.metadata(*topic())
    with pytest.raises(StorageError, match=r"t-\d is in two log directories: one/t-\d and two/t-\d"):
        restarted(setup, life=9).start()


def test_ll4_of_two_logs_of_one_name_the_one_of_a_deleted_topic_is_set_aside() -> None:
    """Its directory was offline when the topic was deleted and created again."""
    setup = leading()
    setup.disk.break_directory("two")
    lost = restarted(setup)
    lost.boot(*topic())
    lost.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID), *topic(topic_id="2f" * 16))
    assert placed(lost) == {"one": [str(each) for each in PARTITIONS]}
    setup.disk.mend()
    again = restarted(setup, life=9)
    again.boot(*topic(topic_id="2f" * 16))
    assert placed(again) == {"one": [str(each) for each in PARTITIONS], "two": []}
    names = setup.disk.file_system(Life("eye")).list("two")
    aside = sorted(name.partition(".")[0] for name in names if name.endswith("-stray"))
    assert aside == [str(each) for each in IN_TWO]


def test_ll4_a_log_half_made_while_the_deleted_topics_was_offline_does_not_stop_the_start() -> None:
    """Drawn seed 570260: the next start found one t-0 of the deleted topic and one without a topic id, and gave up."""
    setup = leading()
    setup.disk.break_directory("two")
    lost = restarted(setup)
    lost.boot(*topic())
    setup.disk.fail(1, verbs={"sync"}, path_suffix="one/t-1/partition.metadata.tmp")
    effects = lost.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID), *topic(topic_id="2f" * 16))
    assert isinstance(effects[-1], Stop)
    setup.disk.mend()
    again = restarted(setup, life=9)
    again.boot(*topic(topic_id="2f" * 16))
    assert sorted(name for names in placed(again).values() for name in names) == [
        str(each) for each in PARTITIONS
    ]
    assert outcomes(produce(again, *PARTITIONS)) == dict.fromkeys(range(4), ErrorCode.NONE)


def test_all_directories_are_the_same_nodes() -> None:
    setup = booted()
    eye = setup.disk.file_system(Life("eye"))
    owners = [MetaPropertiesFile(eye, directory).read() for directory in TWO]
    assert owners[0] is not None and owners[0] == owners[1] and owners[0].node_id == 1
    MetaPropertiesFile(eye, "two").write(MetaProperties(node_id=2, cluster_id=owners[0].cluster_id))
    with pytest.raises(
        ForeignDirectory, match=r"different nodes or clusters: one of node 1 .*, two of node 2"
    ):
        restarted(setup).start()


def test_a_directory_that_is_added_is_marked_as_this_clusters() -> None:
    one = BrokerSetup(directories="one")
    one.boot()
    setup = restarted(one)
    setup.boot()
    owner = MetaPropertiesFile(setup.disk.file_system(Life("eye")), "two").read()
    assert owner is not None and owner.cluster_id == setup.broker._logs.cluster_id
