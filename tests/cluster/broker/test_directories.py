"""A broker with two log directories, one of which fails. Kafka: KIP-112, KIP-858; rules LL1, LL4, AP16, PRO-9."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from cluster.core.bounds import StepBounds
from cluster.core.effects import Effect, Reply, RunJob, SetTimer, Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import JobDone
from cluster.core.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    TopicPartition,
)
from cluster.core.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from sim.disk.life import Life
from storage.batch import Record, build_batch
from storage.errors import DirectoryFailed, OutOfHandles
from storage.segment.place import LogOffsetMetadata
from tests.cluster.broker.setup import BrokerSetup
from tests.cluster.broker.two_directories import (
    IN_ONE,
    IN_TWO,
    PARTITIONS,
    TOPIC_ID,
    TWO,
    beaten,
    booted,
    fail_two,
    leading,
    outcomes,
    placed,
    produce,
    restarted,
    told_offline,
    topic,
)
from tests.cluster.replica.setup import observed, of, only, only_sent

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
    fails: bool,
) -> None:
    setup = booted(steps=StepBounds(deleted_segments=1))
    setup.metadata(*topic())
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


@pytest.mark.parametrize(
    ("error", "is_disks"),
    [
        (OSError(errno.EIO, "input/output error"), True),
        (FileNotFoundError(errno.ENOENT, "no such file"), False),
        (OutOfHandles("not flushed"), False),
        (OSError(errno.EBADF, "bad file descriptor"), False),
    ],
)
def test_ap16_a_flush_that_fails_tells_of_its_disk_although_its_topic_was_deleted_meanwhile(
    error: Exception, *, is_disks: bool
) -> None:
    setup = leading(flush_messages="1")
    effects = produce(setup, PARTITIONS[1])
    (flush,) = [job for job in of(effects, RunJob) if job.kind == "flush"]
    setup.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID))
    effects = setup.finish(flush, error)
    assert of(effects, Stop) == []
    assert [each["directory"] for each in observed(effects, "log_directory.offline")] == ["two"] * is_disks


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


def test_a_compaction_of_a_deleted_log_whose_disk_fails_is_dropped_and_the_next_one_is_due() -> None:
    setup = booted()
    setup.metadata(*topic(segment_bytes="200", cleanup_policy="compact"), *topic("u", "2f" * 16))
    for _ in range(9):
        produce(setup, PARTITIONS[1])
    job = only(setup.fire("logs.cleaner", 15_000), RunJob)
    setup.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID))
    setup.disk.break_directory("two")
    produce(setup, TopicPartition("u", 1))
    assert list(setup.broker.maintenance.cleaners) == ["one"]
    effects = setup.broker.step(setup.now_ms, JobDone(job=job.job, error=OSError(errno.EIO, "gone")))
    assert of(effects, Stop) == []
    assert "logs.cleaner" in [each.key for each in of(effects, SetTimer)]


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


@pytest.mark.parametrize("has_records", [True, False], ids=["fetched", "out-of-range"])
def test_rt16_a_follower_whose_cleaner_checkpoint_fails_as_it_starts_again_takes_its_directory_only(
    has_records: bool,
) -> None:
    """The role ends within the answer to a fetch: neither the append nor the flush behind it finds one."""
    setup = booted()
    configs = (("cleanup.policy", "compact"), ("flush.messages", "1"))
    effects = setup.metadata(
        TopicRecord(name="t", topic_id=TOPIC_ID, configs=configs),
        *(
            PartitionRecord(topic="t", partition=each, replicas=(1, 2), isr=(2,), leader=2)
            for each in range(4)
        ),
    )
    effects = answered(
        setup, effects, error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=7, log_end_offset=20
    )
    cleaner = setup.broker.maintenance.cleaner_of(setup.broker.replicas()[PARTITIONS[1]].log)
    cleaner._checkpoints[("t", 1)] = 70
    setup.disk.fail(1, path_suffix="two/cleaner-offset-checkpoint.tmp")
    if has_records:
        batch = build_batch([Record(offset, 0, b"k", b"x") for offset in range(5, 9)])
        effects = answered(setup, effects, records=batch, log_start_offset=7, high_watermark=9)
    else:
        effects = answered(
            setup, effects, error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=50, log_end_offset=60
        )
    assert of(effects, Stop) == []
    assert sorted(setup.broker.replicas()) == list(IN_ONE)


def answered(setup: BrokerSetup, effects: list[Effect], **answer: Any) -> list[Effect]:
    """Answer the fetch among `effects`, all its partitions alike, and return all that comes of it."""
    send = only_sent(effects, FetchRequest)
    assert isinstance(send.body, FetchRequest)
    each = tuple(
        FetchPartitionResponse(topic_partition=asked.topic_partition, **answer)
        for asked in send.body.partitions
    )
    effects = setup.answer(send.call, FetchResponse(partitions=each))
    jobs = [job for job in of(effects, RunJob) if job.kind == "flush"]
    return effects + [more for job in jobs for more in setup.finish(job)]
