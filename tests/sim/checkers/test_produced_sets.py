"""A leader takes the sets that its topic allows, refuses the others, and appends them in the topic's form."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    TopicPartition,
)
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.produced_sets import ProducedSets, form_finding
from storage.batch import Compression, Record, RecordBatch, build_batch
from storage.batch.format import LOG_APPEND_TIME_FLAG
from storage.config import LogConfig

T0 = TopicPartition("t", 0)
LIFE = (1, 1)
NOW_MS = 10_000_000
CONFIG = LogConfig()
COMPACTED = replace(CONFIG, cleanup_policy="compact")


def batch(*records: Record, codec: Compression = Compression.NONE) -> bytes:
    return build_batch(list(records), compression=codec)


def record(*, at_ms: int = NOW_MS, key: bytes | None = b"k", size: int = 5) -> Record:
    return Record(0, at_ms, key, b"v" * size)


class Broker:
    """A broker that has answered to one set under the properties `config` before."""

    def __init__(self, config: LogConfig = CONFIG) -> None:
        self.jury = Jury(Ghost(), [], now_us=lambda: 50, on_violation=lambda violation: None)
        self.sets, self.config = ProducedSets(self.jury), config
        self.answers(batch(record()), ErrorCode.NONE)

    def answers(self, data: bytes, error: ErrorCode, *, asked_us: int = 60, topic_id: str = "id") -> bool:
        """Returns whether it breaks a rule to answer so."""
        log: Any = SimpleNamespace(local=SimpleNamespace(config=self.config))
        replica: Any = SimpleNamespace(topic_id="id", log=log)
        asked = ProducePartition(topic_partition=T0, topic_id=topic_id, records=data)
        answer = ProducePartitionResponse(topic_partition=T0, error=error)
        self.sets.on_reply(
            LIFE, {T0: replica}, asked_us, NOW_MS, ProduceRequest(acks=-1, partitions=(asked,)),
            ProduceResponse(partitions=(answer,)),
        )  # fmt: skip
        return bool(self.jury.violations)


SMALL = batch(record())
LARGE = batch(record(size=3_000))
LIMITED = replace(CONFIG, max_message_bytes=1_000, segment_bytes=2_000)
AHEAD = batch(record(at_ms=NOW_MS + CONFIG.message_timestamp_after_max_ms + 5_000))
OLD = batch(record(at_ms=NOW_MS - 20_000))
YOUNG_ONLY = replace(CONFIG, message_timestamp_before_max_ms=10_000)
KEYLESS = batch(record(key=None))


@pytest.mark.parametrize(
    ("config", "data", "error"),
    [
        (LIMITED, LARGE, ErrorCode.MESSAGE_TOO_LARGE),
        (LIMITED, LARGE, ErrorCode.RECORD_LIST_TOO_LARGE),
        (CONFIG, AHEAD, ErrorCode.INVALID_TIMESTAMP),
        (YOUNG_ONLY, OLD, ErrorCode.INVALID_TIMESTAMP),
        (COMPACTED, KEYLESS, ErrorCode.INVALID_RECORD),
    ],
)
def test_what_is_refused_for_good_has_a_reason(config: LogConfig, data: bytes, error: ErrorCode) -> None:
    assert not Broker(config).answers(data, error)
    assert Broker(config).answers(SMALL, error)
    assert Broker(config).answers(SMALL, ErrorCode.UNKNOWN_SERVER_ERROR)
    # Who leads, and how many are in sync, is judged elsewhere.
    assert not Broker(config).answers(SMALL, ErrorCode.NOT_ENOUGH_REPLICAS)


def test_what_a_topic_does_not_allow_is_not_taken() -> None:
    assert Broker(LIMITED).answers(LARGE, ErrorCode.NONE)
    assert Broker(CONFIG).answers(AHEAD, ErrorCode.NONE)
    assert not Broker(replace(CONFIG, message_timestamp_type="LogAppendTime")).answers(AHEAD, ErrorCode.NONE)


def test_how_large_a_set_is_that_is_compressed_otherwise_is_not_known() -> None:
    config = replace(LIMITED, compression_type="gzip")
    assert not Broker(config).answers(LARGE, ErrorCode.NONE)
    assert not Broker(config).answers(SMALL, ErrorCode.MESSAGE_TOO_LARGE)
    packed = batch(record(), codec=Compression.GZIP)
    assert Broker(config).answers(packed, ErrorCode.MESSAGE_TOO_LARGE)


def test_properties_that_have_changed_since_the_request_judge_nothing() -> None:
    broker = Broker()
    assert not broker.answers(SMALL, ErrorCode.MESSAGE_TOO_LARGE, asked_us=49)
    broker.config = replace(CONFIG, retention_ms=1)
    assert not broker.answers(SMALL, ErrorCode.MESSAGE_TOO_LARGE)
    assert broker.answers(SMALL, ErrorCode.MESSAGE_TOO_LARGE)


def test_a_set_for_another_topic_of_the_name_is_not_judged() -> None:
    assert not Broker().answers(SMALL, ErrorCode.MESSAGE_TOO_LARGE, topic_id="other")


@pytest.mark.parametrize(
    ("setting", "codec", "is_wrong"),
    [
        ("producer", Compression.LZ4, False), ("lz4", Compression.LZ4, False), ("lz4", Compression.NONE, True),
        ("uncompressed", Compression.NONE, False), ("uncompressed", Compression.ZSTD, True),
    ],
)  # fmt: skip
def test_ap7_a_leader_appends_in_the_codec_of_the_topic(
    setting: str, codec: Compression, is_wrong: bool
) -> None:
    data = batch(record(), codec=codec)
    attributes = RecordBatch(data, 0, len(data)).attributes
    assert bool(form_finding(replace(CONFIG, compression_type=setting), attributes)) is is_wrong


@pytest.mark.parametrize("setting", ["CreateTime", "LogAppendTime"])
def test_lv15_a_leader_stamps_records_where_the_topic_says_so(setting: str) -> None:
    config = replace(CONFIG, message_timestamp_type=cast(Any, setting))
    found = [bool(form_finding(config, attributes)) for attributes in (0, LOG_APPEND_TIME_FLAG)]
    assert found == [setting == "LogAppendTime", setting == "CreateTime"]
