"""Two directories with logs of one name, of which one is of an earlier topic, at a broker without descriptors (LL4)."""

from __future__ import annotations

from cluster.core.broker.logs import HIGH_WATERMARK_TIMER
from cluster.core.messages import TopicPartition
from cluster.core.metadata.records import RemoveTopicRecord
from sim.disk.life import Life
from tests.cluster.broker.setup import BrokerSetup
from tests.cluster.broker.test_lack_of_handles import lack, retry
from tests.cluster.broker.two_directories import (
    IN_ONE,
    IN_TWO,
    PARTITIONS,
    TOPIC_ID,
    leading,
    placed,
    produce,
    restarted,
    topic,
)

OTHER_ID = "2f" * 16


def with_strays_in(directory: str) -> BrokerSetup:
    """Returns a new process: `directory` was offline as its topic was deleted and another one of its name created."""
    setup = leading()
    produce(setup, *PARTITIONS)
    setup.disk.break_directory(directory)
    produce(setup, *(IN_ONE if directory == "one" else IN_TWO))
    setup.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID), *topic(topic_id=OTHER_ID))
    produce(setup, *PARTITIONS)
    setup.disk.mend()
    return restarted(setup)


def goes_on_later(setup: BrokerSetup) -> None:
    """Let the broker find descriptors again, and do what it has left."""
    setup.disk.end_refusal()
    setup.fire(HIGH_WATERMARK_TIMER)
    retry(setup)


def names_in(setup: BrokerSetup, directory: str) -> list[str]:
    return sorted(setup.disk.file_system(Life("hand")).list(directory))


def test_ll4_a_stray_is_set_aside_later_although_another_directory_has_the_right_log_of_its_name() -> None:
    for directory in ("one", "two"):
        setup = with_strays_in(directory)
        lack(setup, "reserve")
        setup.boot(*topic(topic_id=OTHER_ID))
        goes_on_later(setup)
        assert placed(setup)[directory] == []
        assert len([name for name in names_in(setup, directory) if name.endswith("-stray")]) == 2


def test_ll4_a_deletion_that_waits_takes_no_stray_of_the_name_once_its_own_directory_is_offline() -> None:
    setup = with_strays_in("two")
    lack(setup, "reserve")
    setup.boot(*topic(topic_id=OTHER_ID))
    setup.metadata(RemoveTopicRecord(name="t", topic_id=OTHER_ID))
    setup.disk.break_directory("one")
    setup.broker._logs.directories.fail("one", OSError(5, "io", "one/t-0"))
    goes_on_later(setup)
    assert len([name for name in names_in(setup, "two") if name.endswith("-stray")]) == 2


def test_kip112_a_stray_is_not_taken_for_the_log_that_is_in_an_offline_directory() -> None:
    setup = with_strays_in("one")
    setup.disk.break_directory("two")
    lack(setup, "reserve")
    setup.boot(*topic(topic_id=OTHER_ID))
    goes_on_later(setup)
    # No empty log passes for all that this broker ever had.
    assert placed(setup) == {"one": []}
    assert TopicPartition("t", 1) not in setup.broker.replicas()
