"""Stray logs: those on the disk that the first metadata image does not place on this broker.

Kafka: LogManager.isStrayKraftReplica and its tests in LogManagerTest; rules ROL-5, LL4.
"""

from __future__ import annotations

import pytest

from cluster.core.messages import TopicPartition
from cluster.core.metadata.image import PartitionRegistration, TopicImage
from sim.disk.life import Life
from tests.cluster.replica.setup import Setup, observed

FOO0, FOO1 = TopicPartition("foo", 0), TopicPartition("foo", 1)
BAR0, BAR1 = TopicPartition("bar", 0), TopicPartition("bar", 1)
ON_DISK = (FOO0, FOO1, BAR0, BAR1)
FIRST_ID, LATER_ID = "1f" * 16, "2e" * 16
HERE, ELSEWHERE = (1, 2, 3), (2, 3)


def strays(image: dict[TopicPartition, tuple[int, ...]], *, foo_id: str = FIRST_ID) -> set[TopicPartition]:
    """Return the logs that broker 1 sets aside.

    It has the logs of ON_DISK, then learns that `image`, each partition with its replicas, is all there is.
    """
    setup = Setup()
    for each in ON_DISK:
        setup.place(leader=1, isr=(1,), topic_partition=each)
    # The state of a start: only the logs are known.
    setup.manager.context.replicas.clear()
    setup.clear_topics()
    for each, replicas in image.items():
        topic_id = foo_id if each.topic == "foo" else FIRST_ID
        if each.topic not in setup.image.topics:
            setup.set_topic(TopicImage(name=each.topic, topic_id=topic_id, configs=()))
        setup.set_partition(
            PartitionRegistration(
                topic_partition=each,
                replicas=replicas,
                isr=replicas,
                leader=2,
                leader_epoch=1,
                partition_epoch=1,
            )
        )
    setup.outbox.take()
    setup.manager.roles.apply_image(setup.now_ms)
    told = observed(setup.outbox.take(), "replica.set_aside")
    found = {each for each in ON_DISK if str(each) in {one["topic_partition"] for one in told}}
    left = {name for name in setup.disk.file_system(Life("eye")).list("data") if name.endswith("-stray")}
    assert len(left) == len(told) == len(found)
    return found


@pytest.mark.covers(
    "LogManagerTest.testIsStrayKraftReplicaWithEmptyImage", "LogManagerTest.testFindStrayReplicasInEmptyLAIR"
)
def test_ll4_in_an_empty_image_every_log_is_a_stray() -> None:
    assert strays({}) == set(ON_DISK)


@pytest.mark.covers("LogManagerTest.testFindNoStrayReplicasInFullLAIR")
def test_ll4_a_log_that_the_image_places_here_is_no_stray() -> None:
    assert strays(dict.fromkeys(ON_DISK, HERE)) == set()


@pytest.mark.covers(
    "LogManagerTest.testIsStrayKraftReplicaInImage", "LogManagerTest.testFindSomeStrayReplicasInFullLAIR"
)
def test_kafka_13127_exactly_the_logs_that_the_image_does_not_have_are_strays() -> None:
    assert strays({FOO0: HERE, BAR0: HERE, BAR1: HERE}) == {FOO1}


@pytest.mark.covers("LogManagerTest.testIsStrayKraftReplicaInImageWithRemoteReplicas")
def test_ll4_a_log_that_the_image_places_on_other_brokers_only_is_a_stray() -> None:
    assert strays({FOO0: HERE, FOO1: ELSEWHERE, BAR0: ELSEWHERE, BAR1: HERE}) == {FOO1, BAR0}


@pytest.mark.covers("LogManagerTest.testTopicRecreationInFullLAIR")
def test_ll4_the_logs_of_an_earlier_topic_of_the_name_are_strays() -> None:
    assert strays(dict.fromkeys(ON_DISK, HERE), foo_id=LATER_ID) == {FOO0, FOO1}
