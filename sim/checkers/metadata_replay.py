"""The metadata as the checkers replay it from the controller's log, by code of their own.

No flag and no image of a node plays a part. The history of each partition is kept, so that an answer of a node can be
compared with the log as of the offset that the answer names.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import NamedTuple, final

from cluster.core.metadata.records import (
    BrokerChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicConfigRecord,
    TopicRecord,
)
from sim.checkers.sightings import PartitionState, Recorded, Settled

_UNCLEAN = "unclean.leader.election.enable"
_NO_LEADER = -1
_LEADER_STAYS = -2


class Life(NamedTuple):
    """One registration of a broker: its broker epoch is the offset of the record."""

    epoch: int
    incarnation: str
    is_fenced: bool
    is_shutting_down: bool


class Step(NamedTuple):
    """A state of a partition, the offset of the record that made it, and the brokers' epochs at that record."""

    offset: int
    state: PartitionState
    broker_epochs: tuple[tuple[int, int], ...]


@final
class PartitionHistory:
    """All states of one partition of one topic, in order; `end_offset` is that of the topic's removal, if any."""

    def __init__(self, topic_id: str) -> None:
        self.topic_id = topic_id
        self.steps: list[Step] = []
        self.end_offset: int | None = None

    @property
    def state(self) -> PartitionState:
        return self.steps[-1].state

    def below(self, offset: int) -> PartitionState | None:
        """Returns the state after all records below `offset`; None if the partition did not exist then."""
        index = bisect_left(self.steps, offset, key=_offset) - 1
        is_over = self.end_offset is not None and self.end_offset < offset
        return None if index < 0 or is_over else self.steps[index].state

    def at_epoch(self, partition_epoch: int) -> Step | None:
        """Returns the state that has the partition epoch, which each record raises by 1."""
        index = partition_epoch - self.steps[0].state.partition_epoch
        return self.steps[index] if 0 <= index < len(self.steps) else None


def _offset(step: Step) -> int:
    return step.offset


@final
class MetadataReplay:
    """Brokers and partitions after the records of the metadata log that were applied.

    `apply` returns what is wrong with a record as such; the checkers judge the sightings that it adds.
    """

    def __init__(self) -> None:
        self.next_offset = 0
        self.lives: dict[int, Life] = {}
        # The broker and the incarnation of every registration that there ever was, by broker epoch.
        self.registrations: dict[int, tuple[int, str]] = {}
        # All topics that there ever were, by id.
        self.topic_names: dict[str, str] = {}
        # The partitions of each name in order of their topics; the last may still exist.
        self.partitions: dict[str, list[PartitionHistory]] = {}
        self._topics: dict[str, tuple[str, dict[str, str]]] = {}
        # The broker of each incarnation that was ever registered.
        self._incarnations: dict[str, int] = {}
        self._next_producer_id = 0

    def apply(self, offset: int, record: MetadataRecord) -> Iterator[Recorded | str]:
        """Yields a sighting if the record is about a partition, and in words what no controller may write."""
        assert offset >= self.next_offset, (offset, self.next_offset)
        self.next_offset = offset + 1
        match record:
            case RegisterBrokerRecord():
                yield from self._register(offset, record)
            case BrokerChangeRecord():
                yield from self._change_broker(record)
            case TopicRecord():
                self._topics[record.name] = (record.topic_id, dict(record.configs))
                self.topic_names[record.topic_id] = record.name
            case TopicConfigRecord():
                self._topics[record.topic] = (self._topics[record.topic][0], dict(record.configs))
            case RemoveTopicRecord():
                self._remove(offset, record)
            case PartitionRecord() | PartitionChangeRecord():
                yield self._record_partition(offset, record)
            case ProducerIdsRecord():
                if record.next_producer_id <= self._next_producer_id:
                    yield f"broker {record.broker_id} got producer ids that were given out before"
                self._next_producer_id = record.next_producer_id
            case _:
                pass

    def _register(self, offset: int, record: RegisterBrokerRecord) -> Iterator[str]:
        """A registration names another incarnation than the one it replaces.

        It may be one from before that: a request that the network has held up replaces the newer process, which then
        registers again. The controller knows only the present one, as Kafka's does.
        """
        broker, incarnation = record.broker_id, record.incarnation
        present, owner = self.lives.get(broker), self._incarnations.setdefault(incarnation, broker)
        if owner != broker:
            yield f"broker {broker} was registered in incarnation {incarnation} of broker {owner}"
        elif present is not None and present.incarnation == incarnation:
            yield f"broker {broker} was registered twice in incarnation {incarnation}"
        self.registrations[offset] = (broker, incarnation)
        self.lives[broker] = Life(offset, incarnation, record.fenced, record.in_controlled_shutdown)

    def _change_broker(self, record: BrokerChangeRecord) -> Iterator[str]:
        life = self.lives.get(record.broker_id)
        if life is None or life.epoch != record.broker_epoch:
            known = "none" if life is None else str(life.epoch)
            yield (
                f"broker {record.broker_id} was changed in broker epoch {record.broker_epoch}; it lives in {known}"
            )
            return
        fenced, stops = record.fenced, record.in_controlled_shutdown
        self.lives[record.broker_id] = life._replace(
            is_fenced=life.is_fenced if fenced is None else fenced,
            is_shutting_down=life.is_shutting_down if stops is None else stops,
        )

    def _remove(self, offset: int, record: RemoveTopicRecord) -> None:
        topic_id, _ = self._topics.pop(record.name)
        for histories in self.partitions.values():
            if histories[-1].topic_id == topic_id:
                histories[-1].end_offset = offset

    def _record_partition(self, offset: int, record: PartitionRecord | PartitionChangeRecord) -> Recorded:
        name = f"{record.topic}-{record.partition}"
        topic_id, configs = self._topics[record.topic]
        before: PartitionState | None = None
        if isinstance(record, PartitionRecord):
            after = PartitionState(
                record.replicas, record.isr, record.leader, record.leader_epoch, record.partition_epoch
            )
            history = PartitionHistory(topic_id)
            self.partitions.setdefault(name, []).append(history)
        else:
            history = self.partitions[name][-1]
            before = history.state
            has_leader = record.leader != _LEADER_STAYS
            after = PartitionState(
                before.replicas,
                before.isr if record.isr is None else record.isr,
                record.leader if has_leader else before.leader,
                before.leader_epoch + has_leader,
                before.partition_epoch + 1,
            )
        epochs = tuple([(broker, life.epoch) for broker, life in sorted(self.lives.items())])
        history.steps.append(Step(offset, after, epochs))
        return Recorded(name, before, after, self.active(), _allows_unclean(configs))

    def active(self) -> tuple[int, ...]:
        """Returns the brokers that are registered, unfenced and not shutting down."""
        return tuple(
            [
                broker
                for broker, life in sorted(self.lives.items())
                if not life.is_fenced and not life.is_shutting_down
            ]
        )

    def unclean_replicas(self) -> dict[str, tuple[int, ...]]:
        """Returns the replicas of each partition that exists in a topic that allows unclean elections."""
        topics = [topic_id for topic_id, configs in self._topics.values() if _allows_unclean(configs)]
        if not topics:
            return {}
        present = [(name, histories[-1]) for name, histories in sorted(self.partitions.items())]
        return {
            name: last.state.replicas
            for name, last in present
            if last.end_offset is None and last.topic_id in topics
        }

    def settled(self) -> list[Settled]:
        """Returns a sighting of every partition that exists, at the end of a decision."""
        active, unclean = self.active(), self.unclean_replicas()
        return [
            Settled(name, histories[-1].state, active, name in unclean)
            for name, histories in sorted(self.partitions.items())
            if histories[-1].end_offset is None
        ]

    def is_present(self, partition: str, topic_id: str) -> bool:
        """Returns whether the partition exists in the topic of that id, which was not deleted."""
        history = self.history(partition, topic_id)
        return history is not None and history.end_offset is None

    def history(self, partition: str, topic_id: str) -> PartitionHistory | None:
        """Returns the history of the partition in the topic of that id, whether it still exists or not."""
        for history in self.partitions.get(partition, ()):
            if history.topic_id == topic_id:
                return history
        return None


def _allows_unclean(configs: Mapping[str, str]) -> bool:
    return configs.get(_UNCLEAN, "false").strip().lower() == "true"
