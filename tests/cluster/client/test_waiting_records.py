"""Records that wait for a topic or a partition are looked at once there is news of it, and not with each other one."""

from __future__ import annotations

from cluster.core.client.metadata_cache import MetadataCache
from cluster.core.client.waiting_records import NO_PARTITION, PendingRecord, WaitingRecords
from cluster.core.errors import ErrorCode
from cluster.core.messages import TopicPartition
from tests.cluster.client.fake_cluster import FakeCluster

FIFTH = TopicPartition("t", 5)


def record(ticket: int, partition: int | None = 5) -> PendingRecord:
    return PendingRecord(ticket, "t", partition, None, b"v", (), 0, ticket, 0, 100)


def cache_of(partitions: int) -> MetadataCache:
    cache = MetadataCache()
    cache.update(FakeCluster({"t": partitions}).metadata(("t",)))
    return cache


def tickets(records: list[PendingRecord]) -> list[int]:
    return [each.ticket for each in records]


def test_records_for_an_unknown_partition_stay_as_they_are_until_it_is_known() -> None:
    cache = cache_of(2)
    waiting = WaitingRecords(1_000, cache)
    for ticket in range(1, 4):
        assert waiting.awaited(record(ticket)) == FIFTH
        waiting.add(FIFTH, record(ticket))
    line = waiting._records[FIFTH]
    # Taken out and put back with each record that is sent, they would cost the square of their number.
    assert waiting.take_known() == [] and waiting._records[FIFTH] is line
    cache.update(FakeCluster({"t": 6}).metadata(("t",)))
    assert tickets(waiting.take_known()) == [1, 2, 3] and waiting.is_empty


def test_what_waits_for_the_topic_and_for_a_partition_of_it_is_taken_in_the_order_of_sending() -> None:
    cache = cache_of(2)
    waiting = WaitingRecords(1_000, cache)
    waiting.add(FIFTH, record(1))
    waiting.add(TopicPartition("t", NO_PARTITION), record(2))
    waiting.add(TopicPartition("t", NO_PARTITION), record(3, partition=0))
    assert tickets(waiting.take_known()) == [3]
    assert tickets(list(waiting._records[FIFTH])) == [1, 2]


def test_a_record_fails_after_max_block_and_says_what_it_has_waited_for() -> None:
    waiting = WaitingRecords(1_000, cache_of(2))
    for ticket in (1, 2):
        waiting.add(FIFTH, record(ticket))
    assert waiting.take_failed(1_000) == []
    ((failed, error, text),) = waiting.take_failed(1_001)
    assert (failed.ticket, error) == (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert "has no partition 5" in text and waiting.next_expiry_ms() == 1_002
