"""All replicas of one broker: the requests of clients and other brokers, and the roles from the metadata.

Kafka: ReplicaManager.
"""

from __future__ import annotations

from typing import final

from cluster.core.messages import DescribeReplicasRequest, DescribeReplicasResponse
from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.fetch import FetchHandler
from cluster.core.replica.fetcher import Fetchers
from cluster.core.replica.flushes import Flushes, OnFailure
from cluster.core.replica.isr_changes import IsrChanges
from cluster.core.replica.leader_appends import LeaderAppends
from cluster.core.replica.list_offsets import ListOffsetsHandler
from cluster.core.replica.logs import LogKeeper
from cluster.core.replica.produce import ProduceHandler
from cluster.core.replica.roles import Roles
from cluster.core.replica.truncation import InFetchTruncation, Truncations
from storage.disk.filesystem import dirname

# The most rounds of callbacks in one step; each round calls what the one before it has appended.
MAX_SETTLING_ROUNDS = 1_000
SETTLING_TIMER = "replicas.settle"


@final
class ReplicaManager:
    """Makes the parts of the replica layer and ends each step.

    `on_failure` is called when the last log directory has failed: it is not known then what the logs hold.
    """

    def __init__(self, context: ReplicaContext, keeper: LogKeeper, on_failure: OnFailure) -> None:
        self.context = context
        self.flushes = Flushes(context, on_failure)
        self.truncations = Truncations(context, keeper, InFetchTruncation())
        self.fetchers = Fetchers(context, self.flushes, self.truncations)
        self.isr_changes = IsrChanges(context)
        self.roles = Roles(context, keeper, self.truncations, self.fetchers, self.isr_changes, self.flushes)
        self.fetches = FetchHandler(context, self.isr_changes)
        self.appends = LeaderAppends(context, self.flushes)
        self._append_work = self.appends.work.left = context.config.max_append_work
        self.produces = ProduceHandler(context, self.appends)
        self.list_offsets = ListOffsetsHandler(context)

    def describe(self, request: DescribeReplicasRequest, state: str) -> DescribeReplicasResponse:
        """Returns the requested replicas, sorted by topic and partition; `state` is the broker's."""
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
        """Ends a step: ends the appends and fetches that its changes have made ready, then sends fetches."""
        self.appends.work.left = self._append_work
        for _ in range(MAX_SETTLING_ROUNDS):
            if self.appends.done:
                self.appends.call_back(now_ms)
            touched = self.context.take_touched()
            if not touched and not self.appends.done:
                break
            for topic_partition, more_than_end in touched.items():
                if more_than_end:
                    self.appends.on_touched(now_ms, topic_partition)
                self.fetches.on_touched(now_ms, topic_partition)
        else:
            # Callbacks that append again and again must not hold up all else; the next step goes on with the rest.
            self.context.outbox.set_timer(SETTLING_TIMER, now_ms + 1, self._go_on)
        self.fetchers.pump(now_ms)

    def _go_on(self, now_ms: int) -> None:
        """Does nothing more: the step of the timer settles at its end."""

    def on_directory_offline(self, directory: str) -> None:
        """Ends the roles of the directory's replicas (AP16); those in other directories keep theirs."""
        replicas = self.context.replicas
        for topic_partition in sorted(replicas):
            replica = replicas[topic_partition]
            if dirname(replica.log.directory) == directory:
                self.roles.go_offline(replica)

    def stop(self, now_ms: int) -> None:
        """Stops fetching, and answers all requests that wait."""
        self.fetchers.stop()
        self.appends.stop(now_ms)
        self.fetches.answer_all(now_ms)
        waiting = self.produces.waiting_count + len(self.fetches.purgatory)
        assert waiting == 0, waiting
