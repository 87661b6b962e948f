"""Judges which sets a leader takes: those that its topic allows, and no other ones (AP2, AP6, LV3, LV13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from cluster.core.errors import ErrorCode
from cluster.core.messages import ProduceRequest, ProduceResponse, TopicPartition
from cluster.core.replica.replica import Replica
from sim.checkers.base import Jury, Life
from storage.batch import Compression, Record, RecordBatch
from storage.batch.format import CODEC_MASK, LOG_APPEND_TIME_FLAG
from storage.config import LogConfig

NAME = "produced-sets"
# A leader compares times with its clock at the append, which is earlier than at the answer.
SLACK_MS = 2_000
# What a set can be refused with for good, whatever becomes of its leader.
_FINAL = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)  # fmt: skip


@final
class ProducedSets:
    """Two rules for each answer to a producer, by the properties of the topic while the leader had its request.

    What is refused for good has a reason: the set is larger than `max.message.bytes` or `segment.bytes`, a record's
    time is too far from the leader's clock, or a record without a key goes to a compacted topic. What has one is not
    appended.
    """

    name = NAME

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # By broker, life and partition: the properties, and since when at the latest they have been these.
        self._known: dict[tuple[Life, TopicPartition], tuple[LogConfig, int]] = {}

    def on_reply(
        self,
        life: Life,
        replicas: Mapping[TopicPartition, Replica],
        asked_us: int,
        now_ms: int,
        request: ProduceRequest,
        body: ProduceResponse,
    ) -> None:
        """Receives an answer as it leaves a broker, at the time of its clock; the request came at `asked_us`."""
        for asked, answer in zip(request.partitions, body.partitions, strict=False):
            replica = replicas.get(answer.topic_partition)
            if replica is None or asked.topic_id not in ("", replica.topic_id):
                continue
            config = replica.log.local.config
            if not self._was_in_effect(life, answer.topic_partition, config, asked_us):
                continue
            batch = RecordBatch(asked.records, 0, len(asked.records))
            if answer.error is ErrorCode.NONE:
                if why := _why_not(config, batch, now_ms):
                    self._report(life, answer.topic_partition, f"has taken a set although {why}")
            elif answer.error in _FINAL and not _may_refuse(answer.error, config, batch, now_ms):
                what = f"refuses a set with {answer.error.name}, and nothing speaks against it"
                self._report(life, answer.topic_partition, f"{what}: {answer.message}")

    def _was_in_effect(
        self, life: Life, topic_partition: TopicPartition, config: LogConfig, asked_us: int
    ) -> bool:
        """Whether the properties have not changed since the request came, as far as the answers before it show."""
        key = (life, topic_partition)
        known = self._known.get(key)
        if known is None or known[0] is not config:
            if known is None:
                # Earlier lives of the broker have ended.
                self._known = {
                    other: each
                    for other, each in self._known.items()
                    if other[0][0] != life[0] or other[0] == life
                }
            self._known[key] = config, self._jury.now_us()
            return False
        return asked_us >= known[1]

    def _report(self, life: Life, topic_partition: TopicPartition, what: str) -> None:
        self._jury.report(self.name, f"{topic_partition}: broker {life[0]} {what}")


def _is_kept(config: LogConfig, batch: RecordBatch) -> bool:
    """Whether the leader keeps the batch as it is compressed: its size is known then."""
    kept = config.compression_type
    name = "uncompressed" if batch.compression is Compression.NONE else batch.compression.name.lower()
    return kept in ("producer", name)


def _is_too_late(config: LogConfig, newest_ms: int, now_ms: int) -> bool:
    return newest_ms - now_ms > config.message_timestamp_after_max_ms


def _why_not(config: LogConfig, batch: RecordBatch, now_ms: int) -> str:
    """Returns what speaks against the set by its header; empty if nothing does for certain."""
    if _is_kept(config, batch) and batch.size_bytes > config.max_message_bytes:
        return f"it has {batch.size_bytes} bytes, and max.message.bytes is {config.max_message_bytes}"
    is_created = config.message_timestamp_type == "CreateTime"
    if is_created and _is_too_late(config, batch.max_timestamp, now_ms + SLACK_MS):
        ahead_ms = batch.max_timestamp - now_ms
        limit = f"message.timestamp.after.max.ms is {config.message_timestamp_after_max_ms}"
        return f"its newest record is {ahead_ms} ms ahead, and {limit}"
    return ""


def _may_refuse(error: ErrorCode, config: LogConfig, batch: RecordBatch, now_ms: int) -> bool:
    """Whether the set is what the error says, or may be."""
    match error:
        case ErrorCode.MESSAGE_TOO_LARGE:
            return not _is_kept(config, batch) or batch.size_bytes > config.max_message_bytes
        case ErrorCode.RECORD_LIST_TOO_LARGE:
            return not _is_kept(config, batch) or batch.size_bytes > config.segment_bytes
        case ErrorCode.INVALID_TIMESTAMP:
            return _has_odd_time(config, list(batch.records()), now_ms)
        case ErrorCode.INVALID_RECORD:
            return config.is_compacted and any(record.key is None for record in batch.records())
        case _:
            return False


def _has_odd_time(config: LogConfig, records: Sequence[Record], now_ms: int) -> bool:
    times = [record.timestamp for record in records]
    is_old = now_ms - min(times) > config.message_timestamp_before_max_ms - SLACK_MS
    return is_old or _is_too_late(config, max(times) + SLACK_MS, now_ms)


def form_finding(config: LogConfig, attributes: int) -> str:
    """Returns what is wrong with the form in which a leader has appended a batch; empty if nothing is.

    It is compressed as `compression.type` says, and its records have the leader's time where
    `message.timestamp.type` says so, and only there (AP7, LV15).
    """
    codec = Compression(attributes & CODEC_MASK)
    name = "uncompressed" if codec is Compression.NONE else codec.name.lower()
    if config.compression_type not in ("producer", name):
        return f"has appended a batch that is {name}; compression.type is {config.compression_type}"
    is_stamped = bool(attributes & LOG_APPEND_TIME_FLAG)
    if is_stamped is not (config.message_timestamp_type == "LogAppendTime"):
        whose = "the leader's time" if is_stamped else "times of their own"
        return f"has appended records with {whose}; message.timestamp.type is {config.message_timestamp_type}"
    return ""
