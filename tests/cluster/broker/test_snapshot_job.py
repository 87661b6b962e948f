"""The snapshot of a roll with many producers is written by a job of the broker: rules PS15, T12."""

from __future__ import annotations

import errno

import pytest

from cluster.core.effects import Effect, RunJob, Stop
from cluster.core.messages import ProducePartition, ProduceRequest, TopicPartition
from cluster.core.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from storage.batch import Record, build_batch
from storage.log import PartitionLog
from tests.cluster.broker.setup import BrokerSetup
from tests.cluster.replica.setup import of

T0 = TopicPartition("t", 0)


def produce(setup: BrokerSetup, producer_id: int) -> list[Effect]:
    records = build_batch(
        [Record(0, setup.now_ms, None, b"v")], producer_id=producer_id, producer_epoch=0, base_sequence=0
    )
    return setup.ask(
        ProduceRequest(acks=1, partitions=(ProducePartition(topic_partition=T0, records=records),))
    )


def rolled() -> tuple[BrokerSetup, PartitionLog, RunJob]:
    """A broker that has just rolled a log of two producers, and the job that it started."""
    setup = BrokerSetup()
    topic = TopicRecord(name="t", topic_id="1" * 32)
    setup.boot(topic, PartitionRecord(topic="t", partition=0, replicas=(1,), isr=(1,), leader=1))
    log = setup.broker.replicas()[T0].log
    assert log.flushes.most_in_a_roll == 20_000
    log.flushes.most_in_a_roll = 1
    for producer_id in (1, 2):
        assert of(produce(setup, producer_id), RunJob) == []
    log.flushes.roll(now_ms=setup.now_ms)
    (job,) = of(produce(setup, 3), RunJob)
    return setup, log, job


def test_ps15_the_append_after_a_roll_starts_the_job_once() -> None:
    setup, log, job = rolled()
    assert of(produce(setup, 4), RunJob) == []
    assert log.producers.snapshots.offsets == []
    setup.finish(job)
    assert log.producers.snapshots.offsets == [2]
    assert log.online.reason is None


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_pro9_a_snapshot_that_cannot_be_written_ends_the_broker_of_the_disk(number: int) -> None:
    setup, _, job = rolled()
    (stop,) = of(setup.finish(job, OSError(number, "write failed")), Stop)
    assert "snapshot of t-0" in stop.reason


@pytest.mark.parametrize(
    ("number", "is_disks"),
    [(errno.EIO, True), (errno.ENOSPC, True), (errno.ENOENT, False), (errno.EMFILE, False)],
)
def test_ap16_a_snapshot_that_fails_tells_of_its_disk_although_its_topic_was_deleted_meanwhile(
    number: int, *, is_disks: bool
) -> None:
    setup, _, job = rolled()
    setup.metadata(RemoveTopicRecord(name="t", topic_id="1" * 32))
    assert len(of(setup.finish(job, OSError(number, "write failed")), Stop)) == is_disks


def test_ps15_without_a_descriptor_there_is_no_snapshot_and_the_log_goes_on() -> None:
    setup, log, job = rolled()
    setup.finish(job, OSError(errno.EMFILE, "too many open files"))
    assert log.online.reason is None
    assert (log.flushes.snapshot, log.producers.snapshots.offsets) == (None, [])
    assert of(produce(setup, 4), RunJob) == []
