"""A flush that finds no descriptor is tried again: no disk has failed (rules AP16, FL2)."""

from __future__ import annotations

import errno
from dataclasses import replace

from cluster.core.effects import Effect, Reply, RunJob, SetTimer, Stop
from cluster.core.messages import ProducePartition, ProduceRequest, TopicPartition
from cluster.core.metadata.records import PartitionRecord, TopicRecord
from cluster.core.replica.flushes import RETRY_MS, RETRY_TIMER
from storage.batch import Record, build_batch
from storage.errors import OutOfHandles
from storage.log import PartitionLog
from tests.cluster.broker.setup import BrokerSetup
from tests.cluster.replica.setup import of, only

T0 = TopicPartition("t", 0)
LACK = OutOfHandles("too many open files")


def flushing() -> tuple[BrokerSetup, PartitionLog, RunJob]:
    """A broker that waits for the flush of its first record before it acknowledges it, and the job of that flush."""
    setup = BrokerSetup()
    topic = TopicRecord(name="t", topic_id="1" * 32)
    setup.boot(topic, PartitionRecord(topic="t", partition=0, replicas=(1,), isr=(1,), leader=1))
    log = setup.broker.replicas()[T0].log
    log.update_config(replace(log.config, flush_messages=1))
    return setup, log, only(produce(setup), RunJob)


def produce(setup: BrokerSetup) -> list[Effect]:
    records = build_batch([Record(0, setup.now_ms, None, b"v")])
    return setup.ask(
        ProduceRequest(acks=1, partitions=(ProducePartition(topic_partition=T0, records=records),))
    )


def test_fl2_a_flush_without_a_descriptor_keeps_the_log_online_and_the_promise_waiting() -> None:
    setup, log, job = flushing()
    effects = setup.finish(job, LACK)
    assert log.online.reason is None
    assert (of(effects, Stop), of(effects, Reply)) == ([], [])
    assert (log.local.recovery_point, log.high_watermark) == (0, 0)
    timer = only(effects, SetTimer)
    assert (timer.key, timer.at_ms) == (f"{RETRY_TIMER}t-0", setup.now_ms + RETRY_MS)


def test_fl2_it_is_tried_again_after_a_second_and_the_record_is_acknowledged() -> None:
    setup, log, job = flushing()
    setup.finish(job, LACK)
    again = only(setup.fire(f"{RETRY_TIMER}t-0", RETRY_MS), RunJob)
    assert again.kind == "flush"
    assert len(of(setup.finish(again), Reply)) == 1
    assert (log.local.recovery_point, log.high_watermark) == (1, 1)


def test_fl2_the_next_append_tries_it_again_at_once() -> None:
    setup, log, job = flushing()
    setup.finish(job, LACK)
    again = only(produce(setup), RunJob)
    assert of(setup.fire(f"{RETRY_TIMER}t-0", RETRY_MS), RunJob) == []
    assert len(of(setup.finish(again), Reply)) == 2
    assert log.local.recovery_point == 2


def test_pro9_a_flush_that_met_a_failed_disk_ends_the_broker_of_that_disk() -> None:
    setup, _, job = flushing()
    (stop,) = of(setup.finish(job, OSError(errno.EIO, "sync failed")), Stop)
    assert "flush of t-0" in stop.reason
