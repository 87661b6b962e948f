"""Retention, compaction and settings on a broker's timers.

Kafka: LogManagerTest, LogCleanerIntegrationTest, LogCleanerLagIntegrationTest,
LogCleanerParameterizedIntegrationTest.
"""

from __future__ import annotations

import pytest

from cluster.core.effects import Effect, RunJob
from cluster.core.events import JobDone
from cluster.core.messages import ProducePartition, ProduceRequest, TopicPartition
from cluster.core.metadata.records import PartitionRecord, TopicConfigRecord, TopicRecord
from sim.disk.life import Life
from storage.batch import Record, build_batch
from storage.codec.compression import Compression
from storage.disk.filesystem import OpenMode
from storage.errors import CorruptBatch, OffsetOutOfRange
from storage.log import PartitionLog
from tests.cluster.broker.setup import BrokerSetup
from tests.cluster.replica.setup import observed, of

HOUR_MS = 3_600_000
T0 = TopicPartition("t", 0)
SMALL = {"segment.bytes": "400", "message.timestamp.type": "LogAppendTime"}
COMPACT = {**SMALL, "cleanup.policy": "compact"}


def broker_with(configs: dict[str, str], *topics: str) -> BrokerSetup:
    setup = BrokerSetup()
    setup.boot()
    for number, name in enumerate(topics or ("t",), 1):
        topic = TopicRecord(name=name, topic_id=f"{number:x}" * 32, configs=tuple(configs.items()))
        setup.metadata(topic, PartitionRecord(topic=name, partition=0, replicas=(1,), isr=(1,), leader=1))
    return setup


def log_of(setup: BrokerSetup, topic: str = "t") -> PartitionLog:
    return setup.broker.replicas()[TopicPartition(topic, 0)].log


def produce(
    setup: BrokerSetup,
    *puts: tuple[int, int],
    topic: str = "t",
    codec: Compression = Compression.NONE,
) -> None:
    """Produce one batch for each pair of key and value."""
    for key, value in puts:
        record = Record(0, setup.now_ms, b"%d" % key, b"%020d" % value)
        data = build_batch([record], compression=codec)
        asked = ProducePartition(topic_partition=TopicPartition(topic, 0), records=data)
        setup.ask(ProduceRequest(acks=1, partitions=(asked,)))


def duplicates(keys: int, rounds: int, start: int = 0) -> list[tuple[int, int]]:
    return [(key, start + turn * keys + key) for turn in range(rounds) for key in range(keys)]


def run_jobs(setup: BrokerSetup, effects: list[Effect]) -> list[Effect]:
    """Run jobs until no more are asked for. Damage that a job finds comes back to the broker as its error."""
    everything = list(effects)
    while jobs := of(effects, RunJob):
        effects = [each for job in jobs for each in finish(setup, job)]
        everything += effects
    return everything


def finish(setup: BrokerSetup, job: RunJob) -> list[Effect]:
    try:
        job.work()
    except CorruptBatch as error:
        return setup.broker.step(setup.now_ms, JobDone(job=job.job, error=error))
    return setup.broker.step(setup.now_ms, JobDone(job=job.job, error=None))


def clean(setup: BrokerSetup, after_ms: int = 0) -> list[Effect]:
    return run_jobs(setup, setup.fire("logs.cleaner", after_ms))


def last_values(log: PartitionLog) -> dict[bytes | None, bytes | None]:
    return {
        record.key: record.value
        for segment in log.local.segments
        for batch in segment.records.batches()
        for record in batch.records()
    }


def names(setup: BrokerSetup, topic: str = "t") -> list[str]:
    return setup.disk.file_system(Life("eye")).list(f"data/{topic}-0")


# Retention


@pytest.mark.covers("LogManagerTest.testCleanupExpiredSegments")
def test_rt5_expired_segments_and_their_files_are_deleted_and_their_offsets_out_of_range() -> None:
    setup = broker_with({**SMALL, "retention.ms": "60000", "file.delete.delay.ms": "1000"})
    produce(setup, *duplicates(5, 8))
    log = log_of(setup)
    assert len(log.local.segments) > 5
    setup.fire("logs.retention", 60_001)
    run_jobs(setup, setup.fire("logs.deletion", 1_000))
    assert len(log.local.segments) == 1
    kept = {f"{40:020d}.{suffix}" for suffix in ("log", "index", "timeindex", "snapshot")}
    assert set(names(setup)) <= kept | {"leader-epoch-checkpoint", "partition.metadata"}
    with pytest.raises(OffsetOutOfRange):
        log.read(0, max_size=1024)
    produce(setup, (1, 1))
    assert log.log_end_offset == 41


@pytest.mark.covers("LogManagerTest.testCleanupSegmentsToMaintainSize")
def test_rt6_segments_are_deleted_while_the_rest_is_at_least_retention_bytes() -> None:
    setup = broker_with({**SMALL, "retention.bytes": "1500"})
    produce(setup, *duplicates(5, 12))
    log = log_of(setup)
    first = log.local.segments.first
    assert first is not None
    segment_bytes, before = first.size_bytes, log.local.segments.size_bytes
    setup.fire("logs.retention", 1)
    assert 1500 <= log.local.segments.size_bytes < 1500 + segment_bytes < before
    with pytest.raises(OffsetOutOfRange):
        log.read(0, max_size=1024)


@pytest.mark.covers(
    "LogManagerTest.testDoesntCleanLogsWithCompactDeletePolicy",
    "LogManagerTest.testDoesntCleanLogsWithCompactPolicy",
)
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_cl6_the_check_of_retention_leaves_compacted_logs_to_the_cleaner(policy: str) -> None:
    setup = broker_with({**SMALL, "cleanup.policy": policy, "retention.ms": "1", "retention.bytes": "1"})
    produce(setup, *duplicates(30, 1))
    count = len(log_of(setup).local.segments)
    setup.fire("logs.retention", HOUR_MS)
    assert len(log_of(setup).local.segments) == count > 3


def test_kafka_15047_a_log_without_new_appends_expires_whole() -> None:
    setup = broker_with({**SMALL, "retention.ms": "60000"})
    produce(setup, (1, 1), (2, 2))
    setup.fire("logs.retention", 60_001)
    log = log_of(setup)
    assert (log.local.segments.base_offsets, log.log_start_offset, log.log_end_offset) == ([2], 2, 2)


# Settings


@pytest.mark.covers("LogManagerTest.testTopicConfigChangeUpdatesLogConfig")
def test_a_change_of_a_topics_settings_reaches_its_logs_and_no_others() -> None:
    setup = broker_with(SMALL, "t", "u")
    changed = {**SMALL, "segment.bytes": "800", "retention.ms": "7"}
    setup.metadata(TopicConfigRecord(topic="t", configs=tuple(changed.items())))
    assert (log_of(setup).config.segment_bytes, log_of(setup).config.retention_ms) == (800, 7)
    assert log_of(setup, "u").config.segment_bytes == 400
    produce(setup, *duplicates(6, 1))
    produce(setup, *duplicates(6, 1), topic="u")
    assert (len(log_of(setup).local.segments), len(log_of(setup, "u").local.segments)) == (1, 2)


# Compaction


@pytest.mark.covers("LogCleanerParameterizedIntegrationTest.cleanerTest")
@pytest.mark.parametrize("codec", list(Compression))
def test_cl15_compaction_keeps_the_last_value_of_each_key_in_every_codec(codec: Compression) -> None:
    setup = broker_with({**COMPACT, "compression.type": "producer"})
    puts = duplicates(10, 3)
    produce(setup, *puts, codec=codec)
    log = log_of(setup)
    before, expected = log.local.segments.size_bytes, last_values(log)
    assert expected == {b"%d" % key: b"%020d" % value for key, value in puts}
    clean(setup, 15_000)
    assert log.local.segments.size_bytes < before and last_values(log) == expected
    produce(setup, *duplicates(10, 3, start=100), codec=codec)
    expected = last_values(log)
    clean(setup, 15_000)
    assert last_values(log) == expected
    assert {each.compression for segment in log.local.segments for each in segment.records.batches()} == {
        codec
    }


@pytest.mark.covers("LogCleanerParameterizedIntegrationTest.testCleansCombinedCompactAndDeleteTopic")
def test_cl6_with_both_policies_old_segments_are_deleted_and_later_ones_compacted() -> None:
    setup = broker_with({**COMPACT, "cleanup.policy": "compact,delete", "retention.ms": str(HOUR_MS)})
    log = log_of(setup)
    produce(setup, *duplicates(10, 3))
    clean(setup, 15_000)
    assert log.log_start_offset == 0
    clean(setup, HOUR_MS + 1)
    assert log.log_start_offset == log.log_end_offset == 30 and len(log.local.segments) == 1
    produce(setup, *duplicates(10, 3, start=100))
    expected, before = last_values(log), log.local.segments.size_bytes
    clean(setup, 15_000)
    assert (
        log.log_start_offset == 30 and last_values(log) == expected and log.local.segments.size_bytes < before
    )


@pytest.mark.covers("LogCleanerLagIntegrationTest.cleanerTest")
@pytest.mark.parametrize("codec", list(Compression))
def test_cl2_nothing_is_cleaned_before_min_compaction_lag_ms(codec: Compression) -> None:
    setup = broker_with({**COMPACT, "min.compaction.lag.ms": str(HOUR_MS)})
    log = log_of(setup)
    produce(setup, *duplicates(10, 3), codec=codec)
    young_from = log.local.segments.active.base_offset
    before, old_bytes = (
        log.local.segments.size_bytes,
        sum(each.size_bytes for each in list(log.local.segments)[:-1]),
    )
    clean(setup, HOUR_MS // 2)
    assert log.local.segments.size_bytes == before
    produce(setup, *duplicates(10, 3, start=100), codec=codec)
    expected = last_values(log)
    clean(setup, HOUR_MS // 2 + 1)
    first_part = sum(each.size_bytes for each in log.local.segments if each.base_offset < young_from)
    assert first_part < old_bytes and last_values(log) == expected
    young = [each.base_offset for each in log.local.segments if each.base_offset >= young_from]
    # The second part is too young.
    assert len(young) > 3


@pytest.mark.covers("LogCleanerIntegrationTest.testMaxLogCompactionLag")
def test_cl5_after_max_compaction_lag_ms_a_log_is_cleaned_however_clean_it_is() -> None:
    lags = {"max.compaction.lag.ms": str(6 * HOUR_MS), "min.cleanable.dirty.ratio": "1.0"}
    setup = broker_with({**COMPACT, **lags})
    log = log_of(setup)
    produce(setup, *duplicates(10, 3))
    active, before = log.local.segments.active.base_offset, log.local.segments.size_bytes
    old_bytes = before - log.local.segments.active.size_bytes
    clean(setup, 5 * HOUR_MS)
    assert log.local.segments.size_bytes == before
    produce(setup, *duplicates(10, 1, start=100))
    expected = last_values(log)
    clean(setup, HOUR_MS + 1)
    assert setup.broker.maintenance.cleaners["data"].checkpoints[("t", 0)] >= active
    assert last_values(log) == expected
    assert sum(each.size_bytes for each in log.local.segments if each.base_offset < active) < old_bytes


@pytest.mark.covers("LogManagerTest.testTopicConfigChangeStopCleaningIfCompactIsRemoved")
def test_cl23_a_round_ends_without_effect_when_its_topic_is_no_longer_compacted() -> None:
    setup = broker_with(COMPACT)
    produce(setup, *duplicates(10, 3))
    log = log_of(setup)
    before = log.local.segments.size_bytes
    effects = setup.fire("logs.cleaner", 15_000)
    setup.metadata(TopicConfigRecord(topic="t", configs=(*SMALL.items(), ("cleanup.policy", "delete"))))
    assert not log.config.is_compacted
    assert observed(run_jobs(setup, effects), "log.compacted") == []
    assert log.local.segments.size_bytes == before and not [
        name for name in names(setup) if name.endswith(".cleaned")
    ]


@pytest.mark.covers("LogCleanerIntegrationTest.testMarksPartitionsAsOfflineAndPopulatesUncleanableMetrics")
def test_cl6_logs_with_damage_are_uncleanable_and_the_others_are_cleaned() -> None:
    setup = broker_with(COMPACT, "t", "u", "v")
    for topic in ("t", "u", "v"):
        produce(setup, *duplicates(10, 3), topic=topic)
    for topic in ("t", "u"):
        file = setup.disk.file_system(Life("vandal")).open(f"data/{topic}-0/{0:020d}.log", OpenMode.WRITE)
        file.write_at(0, b"jumbled text" * 20)
        file.close()
    before = {topic: log_of(setup, topic).local.segments.size_bytes for topic in ("t", "u", "v")}
    told = observed(clean(setup, 15_000) + clean(setup, 15_000) + clean(setup, 15_000), "log.uncleanable")
    assert {each["topic_partition"] for each in told} == {"t-0", "u-0"}
    assert setup.broker.maintenance.cleaners["data"].uncleanable == {("t", 0), ("u", 0)}
    after = {topic: log_of(setup, topic).local.segments.size_bytes for topic in ("t", "u", "v")}
    assert after["v"] < before["v"] and (after["t"], after["u"]) == (before["t"], before["u"])
