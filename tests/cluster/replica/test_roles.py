"""Role changes, each in one place (ROL)."""

from __future__ import annotations

from cluster.core.effects import Send
from cluster.core.messages import NO_LEADER, DescribeReplicasRequest, FetchRequest, TopicPartition
from cluster.core.metadata.records import PartitionRecord, RemoveTopicRecord, TopicConfigRecord, TopicRecord
from cluster.core.replica.replica import Role
from tests.cluster.replica.setup import T0, Setup, observed, of, only_sent, sent, stamped


def test_rol1_older_metadata_changes_no_role() -> None:
    setup = Setup()
    setup.place(leader=1, leader_epoch=2, partition_epoch=5)
    setup.place(leader=2, leader_epoch=1, partition_epoch=4)
    assert setup.replica.role is Role.LEADER
    assert setup.replica.leader_epoch == 2


def test_rol1_the_same_metadata_again_changes_nothing() -> None:
    setup = Setup()
    setup.place(leader=1, leader_epoch=2, partition_epoch=5)
    leader = setup.leader
    assert setup.place(leader=1, leader_epoch=2, partition_epoch=5) == []
    assert setup.leader is leader


def test_rol2_a_new_leader_starts_its_epoch_at_its_end() -> None:
    setup = Setup()
    send = only_sent(setup.place(leader=2), FetchRequest)
    setup.answer_fetch(send, records=stamped(0, 0, b"a"), high_watermark=0)
    effects = setup.place(leader=1, leader_epoch=1, partition_epoch=1)
    assert observed(effects, "replica.became_leader") == [
        {"topic_partition": "t-0", "leader_epoch": 1, "log_end_offset": 1}
    ]
    assert setup.leader.epoch_start_offset == 1
    assert setup.replica.log.reads.end_offset_for_epoch(0) == (0, 1)
    assert sent(effects, FetchRequest) == []


def test_rol2_an_isr_change_alone_keeps_what_the_leader_knows() -> None:
    setup = Setup()
    setup.place(leader=1, isr=(1, 2))
    setup.append(b"a")
    setup.fetch(2, 1)
    setup.place(leader=1, isr=(1, 2, 3), partition_epoch=1)
    assert setup.leader.followers[2].log_end_offset == 1
    assert setup.replica.committed_isr == (1, 2, 3)


def test_rol3_a_follower_does_not_know_the_isr() -> None:
    setup = Setup()
    setup.place(leader=1)
    effects = setup.place(leader=2, leader_epoch=1, partition_epoch=1)
    assert observed(effects, "replica.became_follower") == [
        {"topic_partition": "t-0", "leader_epoch": 1, "leader": 2, "log_end_offset": 0}
    ]
    assert setup.replica.committed_isr == setup.replica.maximal_isr == ()
    described = setup.manager.describe(DescribeReplicasRequest(), "running").replicas[0]
    assert (described.role, described.leader, described.isr) == ("follower", 2, ())


def test_rol3_the_fetcher_restarts_iff_the_leader_epoch_grew() -> None:
    setup = Setup()
    setup.place(leader=2)
    assert sent(setup.place(leader=2, isr=(2, 3), partition_epoch=1), FetchRequest) == []
    assert len(sent(setup.place(leader=2, leader_epoch=1, partition_epoch=2), FetchRequest)) == 1


def test_rol4_without_a_leader_the_log_stays_and_nothing_is_fetched() -> None:
    setup = Setup()
    send = only_sent(setup.place(leader=2), FetchRequest)
    setup.answer_fetch(send, records=stamped(0, 0, b"a"))
    effects = setup.place(leader=NO_LEADER, leader_epoch=1, partition_epoch=1)
    assert of(effects, Send) == []
    assert setup.replica.role is Role.OFFLINE
    assert setup.values() == [b"a"]


def test_rol5_removed_from_the_replicas_the_copy_is_deleted() -> None:
    setup = Setup()
    setup.place(leader=2)
    setup.place(leader=2, replicas=(2, 3), isr=(2, 3), partition_epoch=1)
    assert setup.manager.context.replicas == {}
    assert setup.logs.directories.online[0].logs == {}


def test_rol5_a_topic_made_again_in_one_delta_begins_empty() -> None:
    setup = Setup()
    setup.place(leader=1, isr=(1,))
    setup.append(b"old")
    new_id = "2e" * 16
    setup.replay(
        RemoveTopicRecord(name="t", topic_id="1f" * 16),
        TopicRecord(name="t", topic_id=new_id),
        PartitionRecord(topic="t", partition=0, replicas=(1,), isr=(1,), leader=1),
    )
    assert setup.replica.topic_id == new_id
    assert setup.values() == []


def test_rol5_what_the_first_image_does_not_place_here_is_set_aside() -> None:
    setup = Setup()
    setup.place(leader=1, isr=(1,), topic_partition=TopicPartition("stray", 0))
    setup.manager.context.replicas.clear()
    setup.clear_topics()
    setup.place(leader=1, isr=(1,))
    setup.manager.context.replicas.clear()
    setup.manager.roles.apply_image(setup.now_ms)
    assert list(setup.logs.directories.online[0].logs) == ["t-0"]
    assert list(setup.manager.context.replicas) == [T0]
    aside = observed(setup.outbox.take(), "replica.set_aside")
    assert [each["topic_partition"] for each in aside] == ["stray-0"]


def test_rol6_on_its_way_out_it_does_not_fetch_what_it_has_left() -> None:
    setup = Setup()
    setup.place(leader=1)
    setup.manager.context.is_shutting_down = True
    effects = setup.place(leader=2, isr=(2, 3), leader_epoch=1, partition_epoch=1)
    assert sent(effects, FetchRequest) == []
    # The replica is demoted all the same (KAFKA-14296).
    assert setup.replica.role is Role.FOLLOWER


def test_a_changed_topic_config_reaches_the_log() -> None:
    setup = Setup()
    setup.place(leader=1, isr=(1,))
    setup.replay(TopicConfigRecord(topic="t", configs=(("min.insync.replicas", "2"),)))
    assert setup.leader.min_isr == 2
    answer = setup.produce(b"a")
    assert answer is not None and answer.error.name == "NOT_ENOUGH_REPLICAS"


def test_ctl5_skipped_epochs_are_as_good_as_seen_ones() -> None:
    setup = Setup()
    send = only_sent(setup.place(leader=2), FetchRequest)
    setup.answer_fetch(send, records=stamped(0, 0, b"a"))
    setup.place(leader=1, isr=(1,), leader_epoch=7, partition_epoch=12)
    assert setup.high_watermark == 1
    assert setup.replica.log.epochs.latest_epoch == 7
