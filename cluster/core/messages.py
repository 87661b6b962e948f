"""The bodies of requests and responses that travel between nodes, one frozen dataclass each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from cluster.core.errors import ErrorCode
from storage.values import quickly_made

# The node id of the controller; brokers are 1, 2, 3 …
CONTROLLER_ID = 1000
NO_LEADER = -1
# The most brokers of a cluster, fenced ones too: so many may stand in a MetadataResponse.
MOST_BROKERS = 10_000
NO_EPOCH = -1
# A request that names its topic by name alone, as a client may that has no metadata yet.
NO_TOPIC_ID = ""
# The broker epoch of a sender that is not registered yet.
NO_BROKER_EPOCH = -1
# The number in a request that leaves it to the controller's configuration.
DEFAULT_COUNT = -1


class TopicPartition(NamedTuple):
    """A partition of a topic. It is a tuple, because it is hashed and compared many times for each batch."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The sender of a request between nodes, which the receiver compares with what it knows (G-4)."""

    # Empty on a broker that was never registered.
    cluster_id: str = ""
    broker_id: int
    broker_epoch: int = NO_BROKER_EPOCH
    # 32 hex digits, drawn at each start.
    incarnation: str


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartition:
    """The place from which one partition is read, and what the reader knows of it (KIP-320, KIP-595)."""

    topic_partition: TopicPartition
    # 32 hex digits, as in the metadata log. A consumer may leave it empty, a follower may not.
    topic_id: str = NO_TOPIC_ID
    fetch_offset: int
    # -1: the sender does not know the epoch, and is not fenced.
    current_leader_epoch: int = NO_EPOCH
    # The epoch of the sender's last record; -1: it has none.
    last_fetched_epoch: int = NO_EPOCH
    # The follower's own log start offset; consumers leave it 0.
    log_start_offset: int = 0
    max_bytes: int = 1 << 20


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """A fetch by a follower (`replica_id` >= 0, `broker_epoch` set) or by a consumer (`replica_id` -1)."""

    replica_id: int
    broker_epoch: int = -1
    # None: a consumer.
    header: Header | None = None
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 << 20
    partitions: tuple[FetchPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """The largest leader epoch in the leader's log that is at most the requested one, and its end (exclusive)."""

    epoch: int
    end_offset: int


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartitionResponse:
    """The records read from one partition, or the error. The log's offsets are those from before the read."""

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    log_start_offset: int = -1
    log_end_offset: int = -1
    diverging: EpochEnd | None = None
    # The present leader: a hint after NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH.
    leader_id: int = NO_LEADER
    # The leader epoch in which the request was answered.
    leader_epoch: int = NO_EPOCH
    # Whole batches; only the last may be cut short by max_bytes.
    records: bytes = field(default=b"", repr=False)


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    """The answers to a fetch, one for each partition in the order of the request; `error` refuses them all."""

    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[FetchPartitionResponse, ...] = ()


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class ProducePartition:
    """The batch to append to one partition."""

    topic_partition: TopicPartition
    topic_id: str = NO_TOPIC_ID
    # One magic-2 batch with base offset 0.
    records: bytes = field(repr=False)


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequest:
    """A client's batches, one for each partition; they are answered together."""

    # -1: all, 1: the leader, 0: none (no reply is sent).
    acks: int
    timeout_ms: int = 30_000
    partitions: tuple[ProducePartition, ...]


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class ProducePartitionResponse:
    """The offsets of the batch in the log, or the error."""

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    leader_id: int = NO_LEADER
    leader_epoch: int = NO_EPOCH


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponse:
    """The answers to a produce request, one for each partition in its order; `error` refuses them all."""

    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[ProducePartitionResponse, ...] = ()


EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsRequest:
    """Asks which offset a partition has at a point in time."""

    topic_partition: TopicPartition
    topic_id: str = NO_TOPIC_ID
    # -1: the latest (the high watermark), -2: the earliest, else milliseconds.
    timestamp: int
    current_leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsResponse:
    """The offset, or -1 if no record is as late as the requested time."""

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest:
    """Asks who leads the partitions of these topics, and where brokers are reached."""

    # None: all.
    topics: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    """The address at which clients reach a node."""

    broker_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """One partition as the metadata log describes it."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """A topic with its partitions, or the error if there is no such topic."""

    name: str
    topic_id: str = NO_TOPIC_ID
    error: ErrorCode = ErrorCode.NONE
    configs: tuple[tuple[str, str], ...] = ()
    partitions: tuple[PartitionMetadata, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse:
    """The metadata from all records below `metadata_offset`; another broker may know less or more."""

    error: ErrorCode = ErrorCode.NONE
    cluster_id: str = ""
    controller: BrokerEndpoint | None = None
    # Only the brokers that are not fenced.
    brokers: tuple[BrokerEndpoint, ...] = ()
    topics: tuple[TopicMetadata, ...] = ()
    metadata_offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeReplicasRequest:
    """Asks a node to describe its replicas, for tables and checks."""

    # None: all.
    topics: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDescription:
    """One replica as its own broker sees it."""

    topic_partition: TopicPartition
    # `leader`, `follower` or `offline`.
    role: str
    leader: int
    leader_epoch: int
    # Empty on followers.
    isr: tuple[int, ...]
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    # The topic's min.insync.replicas, or else the broker's.
    min_insync_replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeReplicasResponse:
    """The requested replicas of the broker, sorted by topic and partition."""

    broker_id: int
    # `starting`, `recovery`, `running` or `pending_shutdown`.
    state: str
    replicas: tuple[ReplicaDescription, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdRequest:
    """A client asks a broker for a producer id; the broker takes it from a block that the controller allocated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdResponse:
    """A producer id that no other producer has, at epoch 0."""

    error: ErrorCode = ErrorCode.NONE
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIdsRequest:
    """A broker asks the controller for a block of producer ids."""

    header: Header | None = None
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIdsResponse:
    """A block of `count` producer ids from `first_producer_id` on; no other broker gets any of them."""

    error: ErrorCode = ErrorCode.NONE
    first_producer_id: int = -1
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicRequest:
    """A topic to create. Any broker forwards the request to the controller."""

    name: str
    # DEFAULT_COUNT: as the controller's configuration says. A trace leaves out what has its default.
    partitions: int = 1
    replication_factor: int = 1
    # Under Kafka's dotted names.
    configs: tuple[tuple[str, str], ...] = ()
    # The replicas of each partition; empty: the controller assigns them.
    assignment: tuple[tuple[int, ...], ...] = ()
    # The broker that forwards the request; None: a client.
    header: Header | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicResponse:
    """The id of the new topic, or the error."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    topic_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicRequest:
    """A topic to delete. Any broker forwards the request to the controller."""

    name: str
    header: Header | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicResponse:
    """Whether the topic is deleted in the metadata; its files are deleted later."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTopicConfigsRequest:
    """Properties of a topic to change. Any broker forwards the request to the controller."""

    name: str
    # What to set; an empty value restores the default.
    configs: tuple[tuple[str, str], ...]
    header: Header | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTopicConfigsResponse:
    """Whether the new properties are committed."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsRequest:
    """Partitions to add to a topic. Any broker forwards the request to the controller."""

    name: str
    # The number of partitions afterwards, which must be larger than the present one.
    count: int
    header: Header | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsResponse:
    """Whether the new partitions are committed; their leaders take over later."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRequest:
    """Registers a new life of a broker, to which the controller assigns a new broker epoch."""

    header: Header | None = None
    broker_id: int
    # 32 hex digits, drawn at each start.
    incarnation: str
    host: str
    port: int
    # From the clean-shutdown file; -1: the last stop was not clean.
    previous_broker_epoch: int = -1
    cluster_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerResponse:
    """The broker epoch of this life, which is the offset of its registration record (STA-3)."""

    error: ErrorCode = ErrorCode.NONE
    broker_epoch: int = -1
    cluster_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflinePartition:
    """A partition of a very topic that a broker cannot read."""

    topic_partition: TopicPartition
    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatRequest:
    """A sign of life from a broker, with what it wants from the controller."""

    header: Header | None = None
    broker_id: int
    broker_epoch: int
    # The next offset of the metadata log that this broker will read.
    metadata_offset: int
    want_fence: bool = False
    want_shutdown: bool = False
    # Every heartbeat names all that were found offline in this life (KIP-858).
    offline_partitions: tuple[OfflinePartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatResponse:
    """The broker's state as the controller sees it."""

    error: ErrorCode = ErrorCode.NONE
    is_fenced: bool = True
    is_caught_up: bool = False
    should_shut_down: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrMember:
    """One member of a proposed ISR."""

    broker_id: int
    # The epoch in the fetch that made the member eligible (KIP-903).
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionRequest:
    """The leader proposes a new ISR to replace the one of `partition_epoch` (KIP-497).

    `attempt` is how many proposals it had sent in this leader epoch before, from 0 on: a copy that comes late is told
    from what was sent after it.
    """

    header: Header | None = None
    broker_id: int
    broker_epoch: int
    topic_partition: TopicPartition
    topic_id: str
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[IsrMember, ...]
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionResponse:
    """The partition as it is committed now, or the error if the proposal is refused."""

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class FetchMetadataRequest:
    """A broker asks for the committed records of the metadata log from `offset` on."""

    header: Header | None = None
    broker_id: int
    offset: int
    max_wait_ms: int = 500
    max_bytes: int = 1 << 20


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class FetchMetadataResponse:
    """Committed records of the metadata log from the requested offset on."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    # Whole committed batches of the metadata log.
    records: bytes = field(default=b"", repr=False)


RequestBody = (
    FetchRequest
    | ProduceRequest
    | ListOffsetsRequest
    | MetadataRequest
    | DescribeReplicasRequest
    | InitProducerIdRequest
    | AllocateProducerIdsRequest
    | CreateTopicRequest
    | DeleteTopicRequest
    | AlterTopicConfigsRequest
    | CreatePartitionsRequest
    | RegisterBrokerRequest
    | BrokerHeartbeatRequest
    | AlterPartitionRequest
    | FetchMetadataRequest
)
ResponseBody = (
    FetchResponse
    | ProduceResponse
    | ListOffsetsResponse
    | MetadataResponse
    | DescribeReplicasResponse
    | InitProducerIdResponse
    | AllocateProducerIdsResponse
    | CreateTopicResponse
    | DeleteTopicResponse
    | AlterTopicConfigsResponse
    | CreatePartitionsResponse
    | RegisterBrokerResponse
    | BrokerHeartbeatResponse
    | AlterPartitionResponse
    | FetchMetadataResponse
)
