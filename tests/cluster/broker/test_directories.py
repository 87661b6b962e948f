"""A broker with two log directories, one of which fails. Kafka: KIP-112, KIP-858; rules LL1, LL4, AP16, PRO-9."""

from __future__ import annotations

import errno

import pytest

from cluster.core.broker import logs
from cluster.core.effects import Effect, Reply, RunJob, Send, Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import JobDone
from cluster.core.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    TopicPartition,
)
from cluster.core.metadata.records import (
    ClusterRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from sim.disk import SimDisk
from sim.disk.faults import READ_OR_MUTATE
from sim.disk.life import Life
from storage.batch import Record, build_batch
from storage.disk.checkpoints import MetaProperties, MetaPropertiesFile
from storage.draws import Draws
from storage.errors import DirectoryFailed, ForeignDirectory, NoLogDirectory, StorageError
from storage.segment.place import LogOffsetMetadata
from tests.cluster.broker.setup import CLUSTER_ID, BrokerSetup
from tests.cluster.replica.setup import observed, of, only, only_sent

TWO = ("one", "two")
TOPIC_ID = "1f" * 16
PARTITIONS = tuple(TopicPartition("t", number) for number in range(4))
# Where the broker places the partitions.
IN_ONE, IN_TWO = PARTITIONS[::2], PARTITIONS[1::2]


def topic(name: str = "t", topic_id: str = TOPIC_ID, **configs: str) -> list[MetadataRecord]:
    """Return the records of a topic with four partitions, all led by broker 1, the only one in sync."""
    dotted = tuple((key.replace("_", "."), value) for key, value in configs.items())
    return [
        TopicRecord(name=name, topic_id=topic_id, configs=dotted),
        *(
            PartitionRecord(topic=name, partition=number, replicas=(1, 2), isr=(1,), leader=1)
            for number in range(4)
        ),
    ]


def booted(disk: SimDisk | None = None, *, life: int = 1, **settings: int) -> BrokerSetup:
    setup = BrokerSetup(disk, life=life, directories=TWO, **settings)
    setup.boot()
    return setup


def leading(**configs: str) -> BrokerSetup:
    setup = booted()
    setup.metadata(*topic(**configs))
    return setup


def produce(setup: BrokerSetup, *partitions: TopicPartition, acks: int = 1) -> list[Effect]:
    records = build_batch([Record(0, setup.now_ms, b"k", b"x"), Record(1, setup.now_ms, b"k", b"y")])
    asked = tuple(ProducePartition(topic_partition=each, records=records) for each in partitions)
    return setup.ask(ProduceRequest(acks=acks, timeout_ms=1_000, partitions=asked))


def outcomes(effects: list[Effect]) -> dict[int, ErrorCode]:
    """Return the errors of the answered produce requests, by partition."""
    bodies = [reply.body for reply in of(effects, Reply)]
    return {
        each.topic_partition.partition: each.error
        for body in bodies
        if isinstance(body, ProduceResponse)
        for each in body.partitions
    }


def placed(setup: BrokerSetup) -> dict[str, list[str]]:
    return {manager.directory: list(manager.logs) for manager in setup.broker._logs.directories.online}


def told_offline(effects: list[Effect]) -> tuple[TopicPartition, ...]:
    body = only_sent(effects, BrokerHeartbeatRequest).body
    assert isinstance(body, BrokerHeartbeatRequest)
    return tuple([each.topic_partition for each in body.offline_partitions])


def beaten(setup: BrokerSetup) -> None:
    """Answer the heartbeat that is in flight."""
    for send in of(setup.fire("broker.heartbeat", 2_000), Send):
        if isinstance(send.body, BrokerHeartbeatRequest):
            setup.answer(send.call, BrokerHeartbeatResponse(is_fenced=False, is_caught_up=True))


def fail_two(setup: BrokerSetup) -> list[Effect]:
    """Break the disk of the second directory, and produce to it: the write reports the failure."""
    setup.disk.break_directory("two")
    return produce(setup, PARTITIONS[1])


def restarted(setup: BrokerSetup, *, life: int = 2) -> BrokerSetup:
    setup.disk.crash_process()
    again = BrokerSetup(setup.disk, life=life, directories=TWO)
    return again


# Placement and start


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


# A directory that fails at run time


def test_ap16_a_disk_error_takes_the_directory_offline_and_the_others_continue() -> None:
    setup = leading()
    effects = fail_two(setup)
    assert of(effects, Stop) == []
    assert outcomes(effects) == {1: ErrorCode.KAFKA_STORAGE_ERROR}
    (told,) = observed(effects, "log_directory.offline")
    assert told["directory"] == "two" and "t-1: append failed" in str(told["reason"])
    assert [each["topic_partition"] for each in observed(effects, "replica.offline")] == ["t-1", "t-3"]
    assert sorted(setup.broker.replicas()) == list(IN_ONE)
    effects = produce(setup, *PARTITIONS)
    error = ErrorCode.KAFKA_STORAGE_ERROR
    assert outcomes(effects) == {0: ErrorCode.NONE, 1: error, 2: ErrorCode.NONE, 3: error}


def test_ap16_in_one_request_the_later_partitions_of_the_directory_are_refused() -> None:
    """KAFKA-10778: no append is taken after the one that failed."""
    setup = leading()
    setup.disk.fail(1, verbs={"append", "write_at"}, path_suffix=f"two/t-1/{0:020d}.log")
    error = ErrorCode.KAFKA_STORAGE_ERROR
    expected = {0: ErrorCode.NONE, 1: error, 2: ErrorCode.NONE, 3: error}
    assert outcomes(produce(setup, *PARTITIONS)) == expected


def test_ap16_the_next_and_every_heartbeat_names_the_offline_partitions() -> None:
    setup = leading()
    beaten(setup)
    effects = fail_two(setup)
    assert told_offline(effects) == IN_TWO
    beat = only_sent(effects, BrokerHeartbeatRequest)
    setup.answer(beat.call, BrokerHeartbeatResponse(is_fenced=False, is_caught_up=True))
    assert told_offline(setup.fire("broker.heartbeat", 2_000)) == IN_TWO


def test_ap16_requests_that_wait_for_a_partition_are_answered_when_it_goes_offline() -> None:
    setup = booted()
    in_sync = (
        PartitionRecord(topic="t", partition=number, replicas=(1, 2), isr=(1, 2), leader=1)
        for number in range(4)
    )
    setup.metadata(TopicRecord(name="t", topic_id=TOPIC_ID), *in_sync)
    assert outcomes(produce(setup, *PARTITIONS[2:], acks=-1)) == {}
    effects = fail_two(setup)
    # One request still waits for the other directory.
    assert outcomes(effects) == {1: ErrorCode.KAFKA_STORAGE_ERROR}
    effects = setup.fire("produce.expiry", 1_000)
    assert outcomes(effects) == {2: ErrorCode.REQUEST_TIMED_OUT, 3: ErrorCode.KAFKA_STORAGE_ERROR}


def test_ap16_reads_and_lookups_are_refused_too() -> None:
    setup = leading()
    produce(setup, *PARTITIONS)
    setup.disk.break_directory("two")
    asked = tuple(FetchPartition(topic_partition=each, fetch_offset=0) for each in PARTITIONS)
    effects = setup.ask(FetchRequest(replica_id=-1, max_wait_ms=0, partitions=asked))
    body = only(effects, Reply).body
    assert isinstance(body, FetchResponse)
    error = ErrorCode.KAFKA_STORAGE_ERROR
    assert [each.error for each in body.partitions] == [ErrorCode.NONE, error, ErrorCode.NONE, error]
    effects = setup.ask(ListOffsetsRequest(topic_partition=PARTITIONS[3], timestamp=-1))
    body = only(effects, Reply).body
    assert isinstance(body, ListOffsetsResponse) and body.error is error


def test_ap16_metadata_does_not_bring_a_partition_back_in_this_life() -> None:
    setup = leading()
    fail_two(setup)
    setup.disk.mend()
    setup.metadata(PartitionChangeRecord(topic="t", partition=1, leader=2, isr=None))
    assert sorted(setup.broker.replicas()) == list(IN_ONE)
    setup.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID))
    setup.metadata(*topic(topic_id="2f" * 16))
    assert placed(setup) == {"one": ["t-0", "t-1", "t-2", "t-3"]}
    assert sorted(setup.broker.replicas()) == list(PARTITIONS)


def test_ap16_the_files_are_closed_after_the_jobs_that_use_them() -> None:
    setup = leading()
    log = setup.broker.replicas()[PARTITIONS[3]].log
    effects = fail_two(setup)
    (close,) = [job for job in of(effects, RunJob) if job.kind == "close"]
    assert log.local.segments.active.records.size_bytes == 0
    close.work()
    with pytest.raises(OSError):
        log.local.segments.active.records.flush()
    assert of(setup.broker.step(setup.now_ms, JobDone(job=close.job)), Stop) == []


def test_pro9_the_last_directory_ends_the_broker() -> None:
    setup = leading()
    fail_two(setup)
    setup.disk.break_directory("one")
    effects = produce(setup, PARTITIONS[0])
    assert "t-0: append failed" in only(effects, Stop).reason
    assert outcomes(effects) == {}


def test_a_topic_whose_deletion_fails_on_one_disk_is_removed_whole() -> None:
    """The failure takes the topic's other replicas in that directory offline before they are deleted in turn."""
    setup = leading()
    setup.disk.fail(1, verbs={"rename"})
    effects = setup.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID))
    assert not of(effects, Stop) and not setup.broker.replicas()
    assert told_offline(effects) == ()
    setup.metadata(*topic(topic_id="2e" * 16))
    assert list(setup.broker.replicas()) == list(PARTITIONS)


@pytest.mark.parametrize("fails", [False, True])
def test_rt13_the_files_of_a_log_of_many_segments_are_deleted_by_a_job(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    setup = leading()
    monkeypatch.setattr(logs, "SEGMENTS_DELETED_A_STEP", 1)
    log = setup.broker.replicas()[IN_TWO[0]].log
    log.append_as_leader(
        build_batch([Record(offset=0, timestamp=0, key=None, value=b"")], base_offset=0),
        leader_epoch=0,
        now_ms=setup.now_ms,
    )
    log.flushes.roll(now_ms=setup.now_ms)
    effects = setup.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID))
    assert not setup.broker.replicas()
    (job,) = [each for each in of(effects, RunJob) if each.kind == "delete"]
    names = setup.disk.file_system(Life()).list("two")
    assert [name.endswith("-delete") for name in names if name.startswith("t-")] == [True]
    if fails:
        setup.disk.fail(1, verbs={"unlink"}, path_suffix=".log")
        with pytest.raises(DirectoryFailed) as failure:
            job.work()
        effects = setup.finish(job, failure.value)
    else:
        effects = setup.finish(job)
    assert bool(observed(effects, "log_directory.offline")) is fails
    names = setup.disk.file_system(Life()).list("two")
    assert any(name.startswith("t-") for name in names) is fails


def test_pro9_a_flush_that_fails_takes_its_directory_only() -> None:
    setup = leading(flush_messages="1")
    effects = produce(setup, PARTITIONS[1])
    (flush,) = [job for job in of(effects, RunJob) if job.kind == "flush"]
    effects = setup.finish(flush, OSError(errno.EIO, "input/output error"))
    assert of(effects, Stop) == []
    assert outcomes(effects) == {1: ErrorCode.KAFKA_STORAGE_ERROR}
    assert sorted(setup.broker.replicas()) == list(IN_ONE)


@pytest.mark.parametrize("timer", ["checkpoint.high_watermark", "checkpoint.recovery_point"])
def test_a_checkpoint_that_cannot_be_written_takes_its_directory_only(timer: str) -> None:
    setup = leading()
    setup.disk.break_directory("two")
    effects = setup.fire(timer, 60_000)
    for job in of(effects, RunJob):
        if job.kind == "checkpoint":
            effects += setup.finish(job)
    assert of(effects, Stop) == [] and sorted(setup.broker.replicas()) == list(IN_ONE)
    assert [each["directory"] for each in observed(effects, "log_directory.offline")] == ["two"]
    eye = setup.disk.file_system(Life("eye"))
    assert eye.exists("one/recovery-point-offset-checkpoint")
    # The timer stays set.
    assert setup.fire(timer, 60_000) != []


def test_a_role_that_cannot_be_taken_does_not_keep_the_others_from_theirs() -> None:
    setup = leading()
    setup.disk.break_directory("two")
    changes = [
        PartitionChangeRecord(topic="t", partition=number, leader=1, isr=(1, 2)) for number in range(4)
    ]
    effects = setup.metadata(*changes)
    assert of(effects, Stop) == [] and sorted(setup.broker.replicas()) == list(IN_ONE)
    assert [replica.leader_epoch for replica in setup.broker.replicas().values()] == [1, 1]
    assert setup.metadata_fetch >= 0 and told_offline(effects) == IN_TWO


def test_a_partition_is_made_in_the_next_directory_when_the_disk_of_the_first_fails() -> None:
    setup = booted()
    setup.disk.break_directory("one")
    effects = setup.metadata(*topic())
    assert of(effects, Stop) == []
    assert placed(setup) == {"two": ["t-0", "t-1", "t-2", "t-3"]}
    assert sorted(setup.broker.replicas()) == list(PARTITIONS)


# Maintenance, an orderly stop, and the next start


def test_each_directory_has_its_own_cleaner_and_the_filthiest_log_of_all_comes_first() -> None:
    setup = booted()
    setup.metadata(*topic(segment_bytes="200", cleanup_policy="compact"))
    for _ in range(3):
        produce(setup, PARTITIONS[0], PARTITIONS[1])
    for _ in range(9):
        produce(setup, PARTITIONS[1])
    effects = setup.fire("logs.cleaner", 15_000)
    told: list[str] = []
    while jobs := [job for job in of(effects, RunJob) if job.kind == "compact"]:
        effects = [effect for job in jobs for effect in setup.finish(job)]
        told += [str(each["topic_partition"]) for each in observed(effects, "log.compacted")]
    assert told and set(told) <= {"t-0", "t-1"}
    for directory, number in (("one", 0), ("two", 1)):
        cleaned = setup.broker.maintenance.cleaners[directory].checkpoints
        assert set(cleaned) <= {("t", number)}
    assert setup.disk.file_system(Life("eye")).exists("two/cleaner-offset-checkpoint")


def test_a_compaction_whose_disk_fails_is_dropped_and_the_next_one_is_due() -> None:
    setup = booted()
    setup.metadata(*topic(segment_bytes="200", cleanup_policy="compact"))
    for _ in range(9):
        produce(setup, PARTITIONS[1])
    job = only(setup.fire("logs.cleaner", 15_000), RunJob)
    setup.disk.break_directory("two")
    effects = setup.broker.step(setup.now_ms, JobDone(job=job.job, error=OSError(errno.EIO, "gone")))
    assert of(effects, Stop) == [] and list(setup.broker.maintenance.cleaners) == ["one"]
    for _ in range(9):
        produce(setup, PARTITIONS[0])
    assert [each.kind for each in of(setup.fire("logs.cleaner", 15_000), RunJob)] == ["compact"]


def test_ap16_a_fetch_whose_high_watermark_cannot_be_looked_up_is_answered() -> None:
    """A place is looked up in an index that may have to be mapped again; its error is no StorageError."""
    setup = leading(index_interval_bytes="1")
    for _ in range(3):
        produce(setup, PARTITIONS[1])
    log = setup.broker.replicas()[PARTITIONS[1]].log
    log.marks.set_high_watermark(LogOffsetMetadata(4))
    log.local.segments.active.rest()
    setup.disk.break_directory("two")
    asked = FetchPartition(topic_partition=PARTITIONS[1], fetch_offset=4)
    effects = setup.ask(FetchRequest(replica_id=-1, max_wait_ms=500, min_bytes=1, partitions=(asked,)))
    (body,) = [reply.body for reply in of(effects, Reply)]
    assert isinstance(body, FetchResponse) and of(effects, Stop) == []
    assert [each.error for each in body.partitions] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert list(setup.broker.maintenance.cleaners) == ["one"]


@pytest.mark.parametrize("slices", range(5))
def test_cl6_a_compaction_that_cannot_read_an_index_is_dropped_and_the_next_one_is_due(slices: int) -> None:
    """Indexes that rest are mapped again in a step: its error is that of the call, not of a job."""
    setup = booted()
    setup.metadata(*topic(segment_bytes="1000", cleanup_policy="compact", index_interval_bytes="1"))
    for _ in range(50):
        produce(setup, PARTITIONS[1])
    effects = setup.fire("logs.cleaner", 15_000)
    for _ in range(slices):
        effects = setup.finish(only(effects, RunJob))
    job = only(effects, RunJob)
    job.work()
    log = setup.broker.replicas()[PARTITIONS[1]].log
    for segment in log.local.segments:
        segment.rest()
    setup.disk.break_directory("two")
    effects = setup.broker.step(setup.now_ms, JobDone(job=job.job, error=None))
    assert of(effects, Stop) == [] and list(setup.broker.maintenance.cleaners) == ["one"]
    for _ in range(50):
        produce(setup, PARTITIONS[0])
    assert [each.kind for each in of(setup.fire("logs.cleaner", 15_000), RunJob)] == ["compact"]


def test_retention_continues_where_the_disk_works() -> None:
    setup = leading(segment_bytes="200", retention_ms="60000", message_timestamp_type="LogAppendTime")
    for _ in range(4):
        produce(setup, *PARTITIONS)
    setup.disk.break_directory("two")
    effects = setup.fire("logs.retention", 600_000)
    assert of(effects, Stop) == [] and sorted(setup.broker.replicas()) == list(IN_ONE)
    shortened = [each["topic_partition"] for each in observed(effects, "log.segments_deleted")]
    assert shortened == ["t-0", "t-2"]


def test_ll5_only_working_directories_are_marked_and_all_logs_return_with_the_disk() -> None:
    setup = leading()
    produce(setup, *PARTITIONS)
    fail_two(setup)
    setup.broker.lifecycle.end(setup.now_ms)
    (job,) = [job for job in of(setup.broker._outbox.take(), RunJob) if job.kind == "shutdown"]
    job.work()
    eye = setup.disk.file_system(Life("eye"))
    marks = [eye.exists(f"{directory}/.kafka_cleanshutdown") for directory in TWO]
    assert marks == [True, False]
    setup.disk.mend()
    again = restarted(setup)
    again.boot(*topic())
    assert again.broker._logs.previous_broker_epoch == -1
    ends = {each.partition: replica.log.log_end_offset for each, replica in again.broker.replicas().items()}
    assert ends == dict.fromkeys(range(4), 2)
    assert placed(again) == {"one": ["t-0", "t-2"], "two": ["t-1", "t-3"]}


# Another process takes the id of the broker while a directory is offline


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
