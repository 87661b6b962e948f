"""The lives of a topic's name: promises of a deleted topic bind nobody."""

from __future__ import annotations

import pytest

from cluster.core.broker.logs import text_topic_id
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.disk import SimDisk
from sim.disk.life import Life
from sim.witness.disk_logs import DiskLogs
from sim.witness.topic_lives import TopicLives
from storage.disk.checkpoints import PartitionMetadataFile
from storage.disk.filesystem import OpenMode
from storage.draws import Draws

OLD, NEW = "1f" * 16, "2e" * 16


def recreated() -> TopicLives:
    """Return the lives of a topic of which broker 2 still has the deleted one."""
    lives = TopicLives()
    lives.begin("t", OLD)
    for broker in (1, 2):
        assert not lives.hold(broker, "t-0", OLD)
    lives.note_acknowledged(1, "t-0", "old")
    lives.note_served(1, "t-0", 0, "old")
    lives.end("t")
    lives.begin("t", NEW)
    assert lives.hold(1, "t-0", NEW)
    lives.note_acknowledged(1, "t-0", "new")
    lives.note_served(1, "t-0", 0, "new")
    return lives


def test_a_replica_of_the_deleted_topic_is_not_judged() -> None:
    lives = recreated()
    assert lives.is_present(1, "t-0") and not lives.is_present(2, "t-0")
    lives.end("t")
    assert not lives.is_present(1, "t-0") and not lives.exists("t")


def test_a_log_is_of_the_topic_whose_id_lies_beside_it() -> None:
    lives = recreated()
    assert lives.may_be_present("t-0", text_topic_id(NEW)) and lives.may_be_present("t-0", None)
    assert not lives.may_be_present("t-0", text_topic_id(OLD))


def test_only_what_the_present_topic_acknowledged_or_served_must_stay() -> None:
    lives = recreated()
    assert lives.was_acknowledged_by_present("t-0", "new") and lives.was_read_from_present("t-0", 0, "new")
    assert not lives.was_acknowledged_by_present("t-0", "old")
    assert not lives.was_read_from_present("t-0", 0, "old")


def test_an_answer_is_of_the_topic_that_its_request_names() -> None:
    """In the turn of the answer the broker's replica has become one of the next topic."""
    lives = recreated()
    lives.note_acknowledged(1, "t-0", "late", OLD)
    assert not lives.was_acknowledged_by_present("t-0", "late")
    assert not lives.is_named("t-0", OLD)
    assert lives.is_named("t-0", NEW) and lives.is_named("t-0", "") and lives.is_named("u-0", OLD)


def test_a_value_that_both_acknowledged_must_be_in_the_present_topic() -> None:
    lives = recreated()
    lives.note_acknowledged(1, "t-0", "old")
    assert lives.was_acknowledged_by_present("t-0", "old")


def test_a_topic_that_was_never_reported_is_compared_with_nothing() -> None:
    lives = TopicLives()
    assert lives.is_present(1, "t-0") and lives.may_be_present("t-0", None) and not lives.exists("t")
    assert lives.was_acknowledged_by_present("t-0", "a")


def test_the_ghost_of_a_deleted_topic_leaves_nothing_to_the_next() -> None:
    ghost = Ghost()
    first = ghost.partition("t-0")
    first.leader, first.epoch = 1, 7
    for name in ("t-0~2", "t-0~3"):
        ghost.begin_again("t-0")
        present = ghost.partition("t-0")
        assert (present.name, present.leader, present.epoch) == (name, -1, -1)
    assert first.leader == 1


def test_the_log_of_a_topic_is_not_that_of_a_deleted_one_in_a_directory_that_was_offline() -> None:
    disk = SimDisk(Draws(1), lambda: 0)
    file_system = disk.file_system(Life())
    for directory, topic_id in (("one", "1f" * 16), ("two", "2f" * 16)):
        file_system.make_directory(f"{directory}/t-0")
        PartitionMetadataFile(file_system, f"{directory}/t-0").write(text_topic_id(topic_id))
    logs = DiskLogs(
        Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda _: None), {1: disk}, ("one", "two")
    )
    logs.lives.begin("t", "2f" * 16)
    assert logs.reader(1, "t-0").directory == "two/t-0"
    logs.lives.end("t")
    assert logs.reader(1, "t-0").directory == "one/t-0"


def test_of_two_directories_the_one_with_a_damaged_topic_id_does_not_have_the_log() -> None:
    """One was offline when the topic was deleted, and a write had come to the wrong place in it."""
    disk = SimDisk(Draws(1), lambda: 0)
    file_system = disk.file_system(Life())
    for directory in ("one", "two"):
        file_system.make_directory(f"{directory}/t-0")
        file = file_system.open(f"{directory}/t-0/{0:020d}.log", OpenMode.CREATE)
        file.append(b"\x00" * 61)
        file.close()
    file = file_system.open("one/t-0/partition.metadata", OpenMode.CREATE)
    file.append(b"0\n")
    file.close()
    PartitionMetadataFile(file_system, "two/t-0").write(text_topic_id("2f" * 16))
    logs = DiskLogs(
        Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda _: None), {1: disk}, ("one", "two")
    )
    logs.lives.begin("t", "2f" * 16)
    assert logs.reader(1, "t-0").directory == "two/t-0"


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_directory_that_failed_while_the_log_was_made_in_it_does_not_have_the_log(
    *, is_damaged: bool
) -> None:
    disk = SimDisk(Draws(1), lambda: 0)
    file_system = disk.file_system(Life())
    for directory, data in (("one", b""), ("two", b"\x00" * 61)):
        file_system.make_directory(f"{directory}/t-0")
        file = file_system.open(f"{directory}/t-0/{0:020d}.log", OpenMode.CREATE)
        file.append(data)
        file.close()
    # A write that came to the wrong place may have struck the topic id of the log.
    directories = ("one",) if is_damaged else ("two",)
    for directory in directories:
        PartitionMetadataFile(file_system, f"{directory}/t-0").write(text_topic_id("2f" * 16))
    logs = DiskLogs(
        Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda _: None), {1: disk}, ("one", "two")
    )
    logs.lives.begin("t", "2f" * 16)
    assert logs.reader(1, "t-0").directory == "two/t-0"


def test_a_topic_id_that_a_disk_has_damaged_is_none() -> None:
    """A write that came to the wrong place may have struck it."""
    disk = SimDisk(Draws(1), lambda: 0)
    file_system = disk.file_system(Life())
    file_system.make_directory("one/t-0")
    file = file_system.open("one/t-0/partition.metadata", OpenMode.CREATE)
    file.append(b"0\n")
    file.close()
    logs = DiskLogs(
        Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda _: None), {1: disk}, ("one", "two")
    )
    assert logs.written_topic_id(1, "t-0") is None


def test_a_log_is_read_where_its_directory_has_moved() -> None:
    disk = SimDisk(Draws(1), lambda: 0)
    file_system = disk.file_system(Life())
    file_system.make_directory("one/t-0")
    file_system.make_directory("two")
    logs = DiskLogs(
        Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda _: None), {1: disk}, ("one", "two")
    )
    assert logs.reader(1, "t-0").directory == "one/t-0"
    assert logs.reader(1, "t-0") is logs.reader(1, "t-0")
    file_system.rename("one/t-0", "two/t-0")
    assert logs.reader(1, "t-0").directory == "two/t-0"
