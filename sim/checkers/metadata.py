"""Replays the controller's log by itself, and compares what controller and brokers make of it.

Nothing of the product's replay is used: records are the JSON in the batches, and an image here is plain dicts. So a
mistake in the product's replay is seen too, also one that controller and brokers share.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, final

from cluster.core.metadata.image import MetadataImage
from storage.batch import RecordBatch
from storage.config import LogConfig

NAME = "metadata"
_LEADER_UNCHANGED = -2
Json = dict[str, object]


class Partition(NamedTuple):
    """A partition as the log says."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int


@dataclass(slots=True)
class Topic:
    """A topic as the log says."""

    topic_id: str
    configs: tuple[tuple[str, str], ...]
    partitions: dict[int, Partition] = field(default_factory=dict)


class Broker(NamedTuple):
    """A broker as the log says."""

    broker_epoch: int
    incarnation: str
    fenced: bool
    in_controlled_shutdown: bool
    host: str
    port: int


class LoggedChange(NamedTuple):
    """All records of one change as they are on the disk; `end_offset` is exclusive."""

    end_offset: int
    records: tuple[tuple[int, Json], ...]


@final
class ChangeGatherer:
    """Puts the batches of the log together to changes."""

    def __init__(self) -> None:
        self.changes: list[LoggedChange] = []
        self._open: list[tuple[int, Json]] = []

    def add(self, batch: RecordBatch) -> None:
        """Take the next batch; `changes` has its change once that is whole."""
        goes_on = False
        for record in batch.records():
            goes_on = goes_on or any(name == "more" for name, _ in record.headers)
            decoded = json.loads(record.value or b"")
            if decoded["type"] == "AbortTransactionRecord":
                self._open = []
            self._open.append((record.offset, decoded))
        if not goes_on:
            self.changes.append(LoggedChange(batch.next_offset, tuple(self._open)))
            self._open = []


def _ints(value: object) -> tuple[int, ...]:
    assert isinstance(value, list), value
    return tuple([_int(each) for each in value])


def _int(value: object) -> int:
    assert isinstance(value, int), value
    return value


def _configs(value: object) -> tuple[tuple[str, str], ...]:
    assert isinstance(value, list), value
    return tuple([(str(name), str(text)) for name, text in value])


@final
class Replay:
    """What the log says below `next_offset`; it only goes forward."""

    def __init__(self) -> None:
        self.next_offset = 0
        # How many changes were replayed.
        self.count = 0
        self.cluster_id = ""
        self.next_producer_id = 0
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, Topic] = {}

    def advance(self, changes: list[LoggedChange], offset: int) -> str:
        """Replay the changes that end at `offset` or before. Returns why it cannot end there; empty if it does."""
        while self.count < len(changes) and changes[self.count].end_offset <= offset:
            for at, record in changes[self.count].records:
                self.apply(at, record)
            self.next_offset = changes[self.count].end_offset
            self.count += 1
        if self.next_offset == offset:
            return ""
        if self.next_offset > offset:
            return f"offset {offset} comes after {self.next_offset}"
        end = changes[-1].end_offset if changes else 0
        if self.count == len(changes):
            return f"offset {offset} is beyond the log, whose changes end at {end}"
        following = changes[self.count].end_offset
        return f"offset {offset} is within the change from {self.next_offset} to {following} (excl.)"

    def apply(self, offset: int, record: Json) -> None:
        """Replay one record; what is within a change is no state that anybody may see."""
        match record["type"]:
            case "ClusterRecord":
                self.cluster_id = str(record["cluster_id"])
            case "ProducerIdsRecord":
                self.next_producer_id = _int(record["next_producer_id"])
            case "RegisterBrokerRecord" | "BrokerChangeRecord" | "BrokerSnapshotRecord":
                self._apply_to_broker(offset, record)
            case "TopicRecord":
                topic = Topic(str(record["topic_id"]), _configs(record["configs"]))
                self.topics[str(record["name"])] = topic
            case "TopicConfigRecord":
                self.topics[str(record["topic"])].configs = _configs(record["configs"])
            case "RemoveTopicRecord":
                del self.topics[str(record["name"])]
            case "PartitionRecord":
                self.topics[str(record["topic"])].partitions[_int(record["partition"])] = Partition(
                    _ints(record["replicas"]), _ints(record["isr"]), _int(record["leader"]),
                    _int(record["leader_epoch"]), _int(record["partition_epoch"]),
                )  # fmt: skip
            case "PartitionChangeRecord":
                self._change_partition(record)

    def _apply_to_broker(self, offset: int, record: Json) -> None:
        number = _int(record["broker_id"])
        fenced, stopping = record["fenced"], record["in_controlled_shutdown"]
        if record["type"] != "BrokerChangeRecord":
            # A snapshot's record names the epoch, which is the offset of the registration.
            broker_epoch = _int(record.get("broker_epoch", offset))
            self.brokers[number] = Broker(
                broker_epoch, str(record["incarnation"]), bool(fenced), bool(stopping), str(record["host"]),
                _int(record["port"]),
            )  # fmt: skip
            return
        known = self.brokers[number]
        self.brokers[number] = known._replace(
            fenced=known.fenced if fenced is None else bool(fenced),
            in_controlled_shutdown=known.in_controlled_shutdown if stopping is None else bool(stopping),
        )

    def _change_partition(self, record: Json) -> None:
        partitions, number = self.topics[str(record["topic"])].partitions, _int(record["partition"])
        before, leader = partitions[number], _int(record["leader"])
        names_leader = leader != _LEADER_UNCHANGED
        partitions[number] = Partition(
            before.replicas,
            before.isr if record["isr"] is None else _ints(record["isr"]),
            leader if names_leader else before.leader,
            before.leader_epoch + names_leader,
            before.partition_epoch + 1,
        )

    def difference(self, image: MetadataImage) -> str:
        """Returns the first thing in which the image is not what the log says; empty if there is none."""
        facts = (
            ("next offset", image.next_offset, self.next_offset),
            ("cluster id", image.cluster_id, self.cluster_id),
            ("next producer id", image.next_producer_id, self.next_producer_id),
            ("topics", list(image.topics.twin()), sorted(self.topics)),
        )
        for what, found, expected in facts:
            if found != expected:
                return f"{what} {found}, the log says {expected}"
        brokers = {
            number: Broker(
                each.broker_epoch,
                each.incarnation,
                each.fenced,
                each.in_controlled_shutdown,
                each.host,
                each.port,
            )
            for number, each in image.brokers.items()
        }
        if brokers != self.brokers:
            return f"brokers {brokers}, the log says {self.brokers}"
        return next(filter(None, (self._topic_difference(image, name) for name in self.topics)), "")

    def _topic_difference(self, image: MetadataImage, name: str) -> str:
        topic, expected = image.topics[name], self.topics[name]
        if (topic.topic_id, topic.configs) != (expected.topic_id, expected.configs):
            return f"topic {name}: {topic.topic_id}, {topic.configs}; the log says {expected}"
        found = {
            number: Partition(each.replicas, each.isr, each.leader, each.leader_epoch, each.partition_epoch)
            for number, each in topic.partitions.twin().items()
        }
        for number in sorted(found.keys() | expected.partitions.keys()):
            if found.get(number) != expected.partitions.get(number):
                logged = expected.partitions.get(number)
                return f"{name}-{number}: {found.get(number)}, the log says {logged}"
        return ""

    def partition(self, name: str) -> Partition | None:
        """Returns the partition called `topic-number`."""
        topic, _, number = name.rpartition("-")
        known = self.topics.get(topic)
        return None if known is None else known.partitions.get(int(number))


class Role(NamedTuple):
    """The role in which a broker has a partition."""

    topic_id: str
    leads: bool
    leader_epoch: int
    partition_epoch: int


@lru_cache(maxsize=256)
def _config_of(defaults: LogConfig, configs: tuple[tuple[str, str], ...]) -> LogConfig:
    return defaults.overridden_by(dict(configs))


def config_difference(replay: Replay, defaults: LogConfig, used: Mapping[str, LogConfig]) -> str:
    """Returns the first replica that uses other properties than its topic has over the broker's; empty if none does."""
    for name, config in used.items():
        configs = replay.topics[name.rpartition("-")[0]].configs
        if config != _config_of(defaults, configs):
            return f"{name} does not use the properties of its topic, {dict(configs)}"
    return ""


def role_difference(
    replay: Replay,
    broker: int,
    roles: Mapping[str, Role],
    offline: Mapping[str, str],
    postponed: Container[str] = (),
) -> str:
    """Returns the first partition whose role is not the one that the log assigns to the broker; empty if all are.

    `offline` has the topic ids of the partitions of which the broker has said that their disk failed; `postponed` are
    those whose role waits.
    """
    for name, role in roles.items():
        if name in postponed:
            continue
        partition, topic = replay.partition(name), replay.topics.get(name.rpartition("-")[0])
        if topic is None or partition is None or broker not in partition.replicas:
            return f"{name} is here, the log does not place it here"
        if topic.topic_id != role.topic_id:
            return f"{name} is of topic {role.topic_id}, the log says {topic.topic_id}"
        # An answered proposal may be ahead of the replayed log; it never changes the leader epoch (CTL-4).
        is_behind = role.partition_epoch < partition.partition_epoch
        if (
            is_behind
            or role.leader_epoch != partition.leader_epoch
            or role.leads != (partition.leader == broker)
        ):
            return f"{name} has {role}, the log says {partition}"
    lost = [
        f"{name}-{number}"
        for name, topic in replay.topics.items()
        for number, partition in topic.partitions.items()
        if broker in partition.replicas
        and f"{name}-{number}" not in roles
        and f"{name}-{number}" not in postponed
        and offline.get(f"{name}-{number}") != topic.topic_id
    ]
    return f"{lost[0]} is not here, the log places it here" if lost else ""
