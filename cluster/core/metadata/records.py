"""The records of the metadata log, and their bytes: canonical JSON as the value of a magic-2 record.

Each record is one object: `type` is the class name, the other members are its fields. Members are sorted and without
blanks, so that equal records are equal bytes. A missing member takes the field's default (in a record of an older
version); an unknown member or type is refused. The fields follow the `*Record.json` files of Kafka's metadata module.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields

from cluster.core.messages import NO_LEADER
from storage.errors import InvalidRecord

# The leader of a change record without a leader field: leader and leader epoch stay as they are (STA-2).
LEADER_UNCHANGED = -2
# The most of a damaged record that its error shows.
_MOST_SHOWN_BYTES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """The first record of a metadata log: which cluster it is."""

    cluster_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecord:
    """A new incarnation of a broker; the offset of this record is its broker epoch (STA-3)."""

    broker_id: int
    incarnation: str
    host: str
    port: int
    fenced: bool = True
    in_controlled_shutdown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerChangeRecord:
    """A change of a broker's flags; None leaves a flag as it is. Kafka: BrokerRegistrationChangeRecord."""

    broker_id: int
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic was created; the records of its partitions follow."""

    name: str
    topic_id: str
    # By dotted name, sorted; a property that is absent has its default.
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """The first state of a partition, in full."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord:
    """A change of a partition: adds 1 to its partition epoch and, with a leader, 1 to its leader epoch (STA-2)."""

    topic: str
    partition: int
    isr: tuple[int, ...] | None = None
    leader: int = LEADER_UNCHANGED

    @property
    def has_leader(self) -> bool:
        """Whether the record carries a leader field; NO_LEADER is one."""
        return self.leader != LEADER_UNCHANGED


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord:
    """A topic was deleted, with all its partitions."""

    name: str
    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigRecord:
    """All of a topic's configs after an alteration, not the difference: replay needs no earlier state."""

    topic: str
    configs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord:
    """A block of producer ids was allocated to a broker; the next block starts at `next_producer_id`."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSnapshotRecord:
    """A broker as a snapshot has it, with the epoch that the log has as the offset of its registration."""

    broker_id: int
    broker_epoch: int
    incarnation: str
    host: str
    port: int
    fenced: bool
    in_controlled_shutdown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTransactionRecord:
    """The batches of a change before this record are not followed by the rest of it: none of it applies (KIP-868)."""

    reason: str


MetadataRecord = (
    ClusterRecord
    | RegisterBrokerRecord
    | BrokerChangeRecord
    | TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | TopicConfigRecord
    | ProducerIdsRecord
    | AbortTransactionRecord
    | BrokerSnapshotRecord
)

_CLASSES: dict[str, Callable[..., MetadataRecord]] = {
    record_class.__name__: record_class
    for record_class in (
        ClusterRecord,
        RegisterBrokerRecord,
        BrokerChangeRecord,
        TopicRecord,
        PartitionRecord,
        PartitionChangeRecord,
        RemoveTopicRecord,
        TopicConfigRecord,
        ProducerIdsRecord,
        AbortTransactionRecord,
        BrokerSnapshotRecord,
    )
}

assert NO_LEADER != LEADER_UNCHANGED


def encode_record(record: MetadataRecord) -> bytes:
    """Returns the value of the log record that carries `record`; the key is null."""
    members = {field.name: getattr(record, field.name) for field in fields(record)}
    members["type"] = type(record).__name__
    return json.dumps(members, sort_keys=True, separators=(",", ":")).encode()


def decode_record(value: bytes | None) -> MetadataRecord:
    """Returns the record that `encode_record` made these bytes of. Raises InvalidRecord."""
    try:
        members = json.loads(value or b"")
        record_class = _CLASSES[members.pop("type")]
        record = record_class(**{name: _tuples(member) for name, member in members.items()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidRecord(f"no metadata record: {(value or b'')[:_MOST_SHOWN_BYTES]!r}") from error
    for field in fields(record):
        member = getattr(record, field.name)
        if not _IS_OF_TYPE[str(field.type)](member):
            shown = repr(member)[:_MOST_SHOWN_BYTES]
            raise InvalidRecord(f"{type(record).__name__}: {field.name} is no {field.type}: {shown}")
    return record


def _is_int(member: object) -> bool:
    return type(member) is int


def _is_text(member: object) -> bool:
    return type(member) is str


def _is_flag(member: object) -> bool:
    return type(member) is bool


def _are_ints(member: object) -> bool:
    return type(member) is tuple and all(map(_is_int, member))


def _are_configs(member: object) -> bool:
    return type(member) is tuple and all(
        type(each) is tuple and len(each) == 2 and all(map(_is_text, each)) for each in member
    )


# By the types that fields of records have, as the classes spell them.
_IS_OF_TYPE: dict[str, Callable[[object], bool]] = {
    "int": _is_int,
    "str": _is_text,
    "bool": _is_flag,
    "bool | None": lambda member: member is None or _is_flag(member),
    "tuple[int, ...]": _are_ints,
    "tuple[int, ...] | None": lambda member: member is None or _are_ints(member),
    "tuple[tuple[str, str], ...]": _are_configs,
}


def _tuples(member: object) -> object:
    """Returns `member` with tuples for lists: JSON has lists only, frozen records hold tuples."""
    if isinstance(member, list):
        return tuple(_tuples(element) for element in member)
    return member
