"""The options of `replog topics describe` that choose partitions, with the names and meanings of kafka-topics.sh."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar, final

import click

from cluster.core.client.descriptions import Replicas
from cluster.core.messages import MetadataResponse, PartitionMetadata, TopicMetadata, TopicPartition

Command = TypeVar("Command", bound=Callable[..., object])
_HELPS = {
    "under_replicated": "Show only partitions with fewer in-sync replicas than replicas.",
    "unavailable": "Show only partitions without a leader that can be reached.",
    "under_min_isr": "Show only partitions without a leader, or with fewer in-sync replicas than min.insync.replicas.",
    "at_min_isr": "Show only partitions with just as many in-sync replicas as min.insync.replicas.",
}


def filter_options(command: Command) -> Command:
    """Adds the four options to a command, which gets them as `PartitionFilter` takes them."""
    for name, text in reversed(_HELPS.items()):
        option = f"--{name.replace('_', '-')}-partitions"
        command = click.option(option, name, is_flag=True, help=text)(command)
    return command


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFilter:
    """The partitions that were asked for: those to which one of the conditions applies, or all if none is set."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False

    @property
    def is_set(self) -> bool:
        return self.under_replicated or self.unavailable or self.under_min_isr or self.at_min_isr

    def chosen(self, topic: TopicMetadata, metadata: MetadataResponse, replicas: Replicas) -> set[int]:
        """Returns the numbers of the topic's partitions that were asked for."""
        live = {broker.broker_id for broker in metadata.brokers}
        return {
            partition.partition
            for partition in topic.partitions
            if not self.is_set or self._applies(partition, live, _min_isr(topic, partition, replicas))
        }

    def _applies(self, partition: PartitionMetadata, live: Collection[int], min_isr: int) -> bool:
        has_leader, in_sync = partition.leader in live, len(partition.isr)
        return (
            (self.under_replicated and in_sync < len(partition.replicas))
            or (self.unavailable and not has_leader)
            or (self.under_min_isr and (not has_leader or in_sync < min_isr))
            or (self.at_min_isr and in_sync == min_isr)
        )


def _min_isr(topic: TopicMetadata, partition: PartitionMetadata, replicas: Replicas) -> int:
    """Returns how many in-sync replicas acks=all wants here: never more than there are replicas.

    It is as a broker of the partition reported it; if none did, as the topic's own property says.
    """
    place = TopicPartition(topic.name, partition.partition)
    reported = (replicas.get((place, broker)) for broker in partition.replicas)
    known = next((replica.min_insync_replicas for replica in reported if replica is not None), None)
    configured = int(dict(topic.configs).get("min.insync.replicas", 1)) if known is None else known
    return min(configured, len(partition.replicas))
