"""Judges what requests state: what the settings of their sender say, and what it has and knows at that moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import final

from cluster.core.client.config import ConsumerConfig, ProducerConfig
from cluster.core.client.consumer import CONSUMER_REPLICA_ID
from cluster.core.config import BrokerConfig
from cluster.core.messages import (
    FetchPartition,
    FetchRequest,
    ProduceRequest,
    TopicPartition,
)
from cluster.core.replica.replica import Replica
from sim.checkers.base import Jury
from storage.batch import Compression, RecordBatch

_Stated = tuple[object, ...]
_OF_FETCH = ("replica_id", "max_wait_ms", "min_bytes", "max_bytes")
_OF_PARTITION = (
    "topic_id", "fetch_offset", "current_leader_epoch", "log_start_offset", "max_bytes"
)  # fmt: skip
_OF_PRODUCE = ("acks", "timeout_ms")


@final
class StatedFields:
    """Five rules for each request of a step, before a point of the run changes anything of it.

    It goes to the leader of each of its partitions that the sender knows. A fetch waits for as long and asks for as
    many bytes as the settings say. That of a follower states of each partition the topic, the leader epoch, and the
    end and the start of the log as they are (FET-1); what it says of the epoch of its last record is judged by
    where its log is cut. A set is sent with the acks and the codec of the producer's settings. It has no more bytes
    than `batch.size`, unless it is one record, and a request no more than `max.request.size`, unless it is one set;
    where records are compressed only the former is known.
    """

    name = "stated-fields"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury

    def on_follower_fetch(
        self,
        broker: int,
        config: BrokerConfig,
        body: FetchRequest,
        replicas: Mapping[TopicPartition, Replica],
    ) -> None:
        """Receives a fetch of followers at the end of the step that asks for it."""
        who = f"broker {broker}"
        stated = (body.replica_id, body.max_wait_ms, body.min_bytes, body.max_bytes)
        due = (
            broker, config.replica_fetch_wait_max_ms, config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
        )  # fmt: skip
        self._compare(who, "a fetch", _OF_FETCH, stated, due)
        for asked in body.partitions:
            replica = replicas.get(asked.topic_partition)
            # A disk that fails takes the replica away in the step.
            if replica is not None and replica.log.online.reason is None:
                due_of_log = _of_log(replica, config.replica_fetch_max_bytes)
                self._compare(who, str(asked.topic_partition), _OF_PARTITION, _of_asked(asked), due_of_log)

    def on_consumer_fetch(self, consumer: str, config: ConsumerConfig, body: FetchRequest) -> None:
        """Receives a fetch of a consumer; of a partition it may ask for more than its settings say (KIP-74)."""
        stated = (body.replica_id, body.max_wait_ms, body.min_bytes, body.max_bytes)
        due = (
            CONSUMER_REPLICA_ID, config.fetch_max_wait_ms, config.fetch_min_bytes, config.fetch_max_bytes
        )  # fmt: skip
        self._compare(consumer, "a fetch", _OF_FETCH, stated, due)
        for asked in body.partitions:
            least = config.max_partition_fetch_bytes
            if asked.max_bytes < least:
                what = f"asks for {asked.max_bytes} bytes; max.partition.fetch.bytes is {least}"
                self._jury.report(self.name, f"{asked.topic_partition}: {consumer} {what}")

    def on_produce(self, producer: str, config: ProducerConfig, body: ProduceRequest) -> None:
        """Receives a request of a producer."""
        stated, due = (body.acks, body.timeout_ms), (config.acks, config.replication_timeout_ms)
        self._compare(producer, "a set", _OF_PRODUCE, stated, due)
        sizes = 0
        for asked in body.partitions:
            batch, size = RecordBatch(asked.records, 0, len(asked.records)), len(asked.records)
            sizes += size
            where = f"{asked.topic_partition}: {producer} sends a batch"
            if batch.compression is not config.compression_type:
                what = f"compressed with {batch.compression.name}, not {config.compression_type.name}"
                self._jury.report(self.name, f"{where} {what}")
            if batch.record_count > 1 and size > config.batch_size:
                what = f"of {batch.record_count} records and {size} bytes; batch.size is {config.batch_size}"
                self._jury.report(self.name, f"{where} {what}")
        is_plain = config.compression_type is Compression.NONE
        if is_plain and len(body.partitions) > 1 and sizes > config.max_request_size:
            what = f"sends {len(body.partitions)} sets of {sizes} bytes in one request"
            limit = f"max.request.size is {config.max_request_size}"
            self._jury.report(self.name, f"{producer} {what}; {limit}")

    def on_asked(
        self, who: str, to: int, asked: Iterable[TopicPartition], leader_of: Callable[[TopicPartition], int]
    ) -> None:
        """Receives whom a request is sent to; `leader_of` says who leads a partition as far as the sender knows."""
        for topic_partition in asked:
            if (leader := leader_of(topic_partition)) != to:
                what = f"{who} asks broker {to}, and knows broker {leader} as the leader"
                self._jury.report(self.name, f"{topic_partition}: {what}")

    def _compare(self, who: str, what: str, names: tuple[str, ...], stated: _Stated, due: _Stated) -> None:
        if stated != due:
            wrong = [
                f"{name} {found}, not {right}"
                for name, found, right in zip(names, stated, due, strict=True)
                if found != right
            ]
            self._jury.report(self.name, f"{who} asks with {'; '.join(wrong)}: {what}")


def _of_asked(asked: FetchPartition) -> _Stated:
    return (
        asked.topic_id, asked.fetch_offset, asked.current_leader_epoch, asked.log_start_offset, asked.max_bytes,
    )  # fmt: skip


def _of_log(replica: Replica, max_bytes: int) -> _Stated:
    log = replica.log
    return (
        replica.topic_id, log.local.log_end_offset, replica.leader_epoch, log.marks.log_start_offset, max_bytes,
    )  # fmt: skip
