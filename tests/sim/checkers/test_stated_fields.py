"""Requests state what the settings of their sender say, and what it has and knows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.core.client.config import ConsumerConfig, ProducerConfig
from cluster.core.config import BrokerConfig
from cluster.core.messages import (
    FetchPartition,
    FetchRequest,
    ProducePartition,
    ProduceRequest,
    TopicPartition,
)
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.stated_fields import StatedFields
from storage.batch import Compression, Record, build_batch

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BROKER = BrokerConfig(node_id=2)
LOG: Any = SimpleNamespace(
    online=SimpleNamespace(reason=None),
    epochs=SimpleNamespace(latest_epoch=4),
    local=SimpleNamespace(log_end_offset=9),
    marks=SimpleNamespace(log_start_offset=3),
)
REPLICA: Any = SimpleNamespace(topic_id="id", leader_epoch=5, log=LOG)
ASKED = FetchPartition(
    topic_partition=T0, topic_id="id", fetch_offset=9, current_leader_epoch=5, last_fetched_epoch=4,
    log_start_offset=3, max_bytes=BROKER.replica_fetch_max_bytes,
)  # fmt: skip
OF_FOLLOWER = FetchRequest(
    replica_id=2, max_wait_ms=BROKER.replica_fetch_wait_max_ms, min_bytes=BROKER.replica_fetch_min_bytes,
    max_bytes=BROKER.replica_fetch_response_max_bytes, partitions=(ASKED,),
)  # fmt: skip
CONSUMER = ConsumerConfig()
OF_CONSUMER = FetchRequest(
    replica_id=-1, max_wait_ms=CONSUMER.fetch_max_wait_ms, min_bytes=CONSUMER.fetch_min_bytes,
    max_bytes=CONSUMER.fetch_max_bytes, partitions=(ASKED,),
)  # fmt: skip


class Judged:
    def __init__(self) -> None:
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self.fields = StatedFields(self.jury)

    @property
    def found(self) -> list[str]:
        return [each.what for each in self.jury.violations]


def of_follower(body: FetchRequest) -> list[str]:
    judged = Judged()
    judged.fields.on_follower_fetch(2, BROKER, body, {T0: REPLICA})
    return judged.found


def of_consumer(body: FetchRequest) -> list[str]:
    judged = Judged()
    judged.fields.on_consumer_fetch("c", CONSUMER, body)
    return judged.found


@pytest.mark.parametrize("field", ["replica_id", "max_wait_ms", "min_bytes", "max_bytes"])
def test_a_fetch_waits_and_asks_as_the_settings_say(field: str) -> None:
    assert not of_follower(OF_FOLLOWER) and not of_consumer(OF_CONSUMER)
    wrong: dict[str, Any] = {field: 77}
    assert [field in what for what in of_follower(replace(OF_FOLLOWER, **wrong))] == [True]
    assert [field in what for what in of_consumer(replace(OF_CONSUMER, **wrong))] == [True]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("topic_id", "other"), ("fetch_offset", 8), ("current_leader_epoch", 4),
        ("log_start_offset", 0), ("max_bytes", 1),
    ],
)  # fmt: skip
def test_fet1_a_follower_states_its_log_and_its_epochs_as_they_are(field: str, value: object) -> None:
    wrong: dict[str, Any] = {field: value}
    (what,) = of_follower(replace(OF_FOLLOWER, partitions=(replace(ASKED, **wrong),)))
    assert what.startswith(f"broker 2 asks with {field} {value}, not ")


def test_a_consumer_may_ask_for_more_of_a_partition_and_not_for_less() -> None:
    least = CONSUMER.max_partition_fetch_bytes
    for max_bytes, is_wrong in ((least, False), (least + 1, False), (least - 1, True)):
        asked = replace(ASKED, max_bytes=max_bytes)
        assert bool(of_consumer(replace(OF_CONSUMER, partitions=(asked,)))) is is_wrong


def produced(
    config: ProducerConfig, *sizes: int, acks: int = -1, codec: Compression = Compression.NONE
) -> bool:
    """Returns whether a request of sets of so many records of 100 bytes breaks a rule."""
    judged = Judged()
    parts = []
    for number, size in enumerate(sizes):
        records = [Record(offset, 0, None, b"v" * 100) for offset in range(size)]
        data = build_batch(records, compression=codec)
        parts.append(ProducePartition(topic_partition=TopicPartition("t", number), records=data))
    timeout_ms = config.replication_timeout_ms
    body = ProduceRequest(acks=acks, timeout_ms=timeout_ms, partitions=tuple(parts))
    judged.fields.on_produce("p", config, body)
    return bool(judged.found)


def test_a_set_is_sent_with_the_acks_and_the_codec_of_the_settings() -> None:
    config = ProducerConfig(compression_type=Compression.GZIP)
    assert not produced(config, 2, codec=Compression.GZIP)
    assert produced(config, 2) and produced(config, 2, codec=Compression.GZIP, acks=1)


def test_a_batch_has_no_more_bytes_than_batch_size_unless_it_is_one_record() -> None:
    config = ProducerConfig(batch_size=150)
    assert not produced(config, 1) and not produced(ProducerConfig(batch_size=1), 1)
    assert produced(config, 2)


def test_a_request_has_no_more_bytes_than_its_limit_unless_it_is_one_set() -> None:
    config = ProducerConfig(max_request_size=300)
    assert not produced(config, 2) and not produced(config, 1)
    assert produced(config, 1, 1)


def test_who_is_asked_is_the_leader_that_the_sender_knows() -> None:
    for leader, is_wrong in ((2, False), (3, True)):
        judged = Judged()
        judged.fields.on_asked("c", 2, (T0, T1), {T0: 2, T1: leader}.__getitem__)
        assert bool(judged.found) is is_wrong
