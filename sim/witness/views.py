"""What the witness reads of a node: its clock, and the replicas and waiting appends of its core."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeGuard

from cluster.core.messages import TopicPartition


class ReplicaLog(Protocol):
    """The part of a replica's log that the witness reads."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def epochs(self) -> EpochCache: ...


class EpochCache(Protocol):
    """The part of a log's epoch cache that the witness reads: pairs of an epoch and its start offset."""

    @property
    def entries(self) -> Iterable[tuple[int, int]]: ...


class ReplicaView(Protocol):
    """The part of a replica that the witness reads."""

    @property
    def topic_id(self) -> str: ...

    @property
    def leader(self) -> object | None: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def maximal_isr(self) -> tuple[int, ...]: ...

    @property
    def log(self) -> ReplicaLog: ...


class HasReplicas(Protocol):
    """A core that holds replicas: a broker, not the controller."""

    def replicas(self) -> Mapping[TopicPartition, ReplicaView]: ...


class AppendView(Protocol):
    """The part of an append that the witness reads: the topic id and leader epoch of its log, and its last offset."""

    @property
    def view(self) -> tuple[str, int]: ...

    @property
    def acks(self) -> int: ...

    @property
    def last_offset(self) -> int: ...


class HasAppends(HasReplicas, Protocol):
    """A core with appends that wait: a broker."""

    def waiting_appends(self) -> Iterable[tuple[TopicPartition, AppendView]]: ...


# By the method's name, because a check against a protocol takes longer than a small step.
def has_replicas(core: object) -> TypeGuard[HasReplicas]:
    return hasattr(core, "replicas")


def has_appends(core: object) -> TypeGuard[HasAppends]:
    return hasattr(core, "waiting_appends")


class NodeClock(Protocol):
    """The clock of a node."""

    def now_ms(self) -> int: ...


class Member(Protocol):
    """The part of a node that the witness reads."""

    @property
    def node_id(self) -> int: ...

    @property
    def core(self) -> object: ...

    @property
    def clock(self) -> NodeClock: ...


def replica_of(core: object, topic_partition: TopicPartition) -> ReplicaView | None:
    """Returns the replica that a core has of a partition; None without one, and for a core that holds none."""
    return core.replicas().get(topic_partition) if has_replicas(core) else None
