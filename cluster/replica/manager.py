"""All replicas of one broker: what clients and other brokers ask of them, and what the metadata makes of them.

Kafka: ReplicaManager.
"""

from __future__ import annotations

from typing import final

from cluster.config import BrokerConfig
from cluster.messages import (
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    FetchRequest,
    ListOffsetsRequest,
    ProduceRequest,
)
from cluster.metadata import MetadataImage
from cluster.replica.context import ReplicaContext
from cluster.replica.fetch import FetchHandler
from cluster.replica.fetcher import Fetchers
from cluster.replica.flushes import Flushes, OnFailure
from cluster.replica.isr_changes import IsrChanges
from cluster.replica.list_offsets import ListOffsetsHandler
from cluster.replica.outbox import Outbox
from cluster.replica.produce import ProduceHandler
from cluster.replica.roles import Logs, Roles
from storage.filesystem import dirname

MAX_SETTLING_ROUNDS = 1_000


@final
class ReplicaManager:
    """`on_failure` is called when the disk has failed: what the logs hold is not known then."""

    def __init__(
        self,
        config: BrokerConfig,
        image: MetadataImage,
        outbox: Outbox,
        logs: Logs,
        on_failure: OnFailure,
    ) -> None:
        self.context = ReplicaContext(config, image, outbox)
        self.context.on_disk_failed = logs.on_disk_failed
        self.flushes = Flushes(self.context, on_failure)
        self.fetchers = Fetchers(self.context, self.flushes)
        self.isr_changes = IsrChanges(self.context)
        self.roles = Roles(self.context, logs, self.fetchers, self.isr_changes, self.flushes)
        self.fetches = FetchHandler(self.context, self.isr_changes)
        self.produces = ProduceHandler(self.context, self.flushes)
        self.list_offsets = ListOffsetsHandler(self.context)

    def on_request(
        self, now_ms: int, call: int, body: FetchRequest | ProduceRequest | ListOffsetsRequest
    ) -> None:
        match body:
            case FetchRequest():
                self.fetches.on_request(now_ms, call, body)
            case ProduceRequest():
                self.produces.on_request(now_ms, call, body)
            case ListOffsetsRequest():
                self.list_offsets.on_request(call, body)

    def describe(self, request: DescribeReplicasRequest, state: str) -> DescribeReplicasResponse:
        replicas = self.context.replicas
        return DescribeReplicasResponse(
            broker_id=self.context.broker_id,
            state=state,
            replicas=tuple(
                replicas[topic_partition].describe()
                for topic_partition in sorted(replicas)
                if request.topics is None or topic_partition.topic in request.topics
            ),
        )

    def settle(self, now_ms: int) -> None:
        """The end of a step: whoever waits for what moved in it is looked at, then the fetchers go on."""
        for _ in range(MAX_SETTLING_ROUNDS):
            touched = self.context.take_touched()
            if not touched:
                break
            for topic_partition, more_than_end in touched.items():
                if more_than_end:
                    self.produces.on_touched(now_ms, topic_partition)
                self.fetches.on_touched(now_ms, topic_partition)
        else:
            raise AssertionError("replicas do not come to rest")
        self.fetchers.pump(now_ms)

    def on_directory_offline(self, directory: str) -> None:
        """AP16: its partitions are neither led nor followed here any more; those of others go on."""
        replicas = self.context.replicas
        for topic_partition in sorted(replicas):
            replica = replicas[topic_partition]
            if dirname(replica.log.directory) == directory:
                self.roles.go_offline(replica)

    def stop(self, now_ms: int) -> None:
        """Nobody is served or followed any more; all who wait are answered."""
        self.fetchers.stop()
        self.produces.fail_all()
        self.fetches.answer_all(now_ms)
