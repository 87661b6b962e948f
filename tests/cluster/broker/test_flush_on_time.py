"""The setting flush.ms: a topic's records are synced within this time. Kafka: LogManager.flushDirtyLogs."""

from __future__ import annotations

import pytest

from cluster.core.effects import RunJob, SetTimer
from cluster.core.events import JobDone
from cluster.core.messages import ProducePartition, ProduceRequest, TopicPartition
from cluster.core.metadata.records import PartitionRecord, TopicRecord
from storage.batch import Record, build_batch
from tests.cluster.broker.setup import BrokerSetup
from tests.cluster.replica.setup import of

T0 = TopicPartition("t", 0)


def broker_with(log_flush_scheduler_interval_ms: int) -> BrokerSetup:
    setup = BrokerSetup(log_flush_scheduler_interval_ms=log_flush_scheduler_interval_ms)
    setup.boot()
    topic = TopicRecord(name="t", topic_id="1" * 32, configs=(("flush.ms", "1000"),))
    setup.metadata(topic, PartitionRecord(topic="t", partition=0, replicas=(1,), isr=(1,), leader=1))
    return setup


def produce(setup: BrokerSetup) -> None:
    records = build_batch([Record(0, setup.now_ms, None, b"v")])
    asked = ProducePartition(topic_partition=T0, records=records)
    setup.ask(ProduceRequest(acks=1, partitions=(asked,)))


def flushes(setup: BrokerSetup, after_ms: int) -> int:
    """Fire the timer and do each sync at once. Returns the number of logs that were synced."""
    jobs = of(setup.fire("logs.flush", after_ms), RunJob)
    for job in jobs:
        job.work()
        setup.broker.step(setup.now_ms, JobDone(job=job.job, error=None))
    return len(jobs)


@pytest.mark.covers("LogManagerTest.testTimeBasedFlush")
def test_fl1_unsynced_records_are_flushed_after_flush_ms() -> None:
    setup = broker_with(log_flush_scheduler_interval_ms=400)
    log = setup.broker.replicas()[T0].log
    produce(setup)
    assert (flushes(setup, 400), log.local.recovery_point) == (0, 0)
    assert (flushes(setup, 400), log.local.recovery_point) == (0, 0)
    assert (flushes(setup, 400), log.local.recovery_point) == (1, 1)
    assert flushes(setup, 1_000) == 0, "nothing is left to sync"
    produce(setup)
    assert (flushes(setup, 400), log.local.recovery_point) == (1, 2), "the last flush is long ago"
    produce(setup)
    assert (flushes(setup, 999), log.local.recovery_point) == (0, 2), "it counts from the last flush"


def test_flush_ms_waits_for_a_scheduler_as_in_kafka() -> None:
    setup = BrokerSetup()
    timers = [each.key for each in of(setup.start(), SetTimer)]
    assert timers and "logs.flush" not in timers
