"""What travels between nodes: the bodies of requests and responses, one frozen dataclass each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from cluster.errors import ErrorCode

CONTROLLER_ID = 1000  # node id of the controller of the first slice; brokers are 1, 2, 3 …
NO_LEADER = -1
NO_EPOCH = -1


class TopicPartition(NamedTuple):
    """A tuple, for it is the key of most tables: hashed and compared many times a batch."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


# replica and consumer fetch (KIP-320, KIP-595 in-fetch divergence)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartition:
    topic_partition: TopicPartition
    fetch_offset: int
    current_leader_epoch: int = NO_EPOCH  # -1: the sender does not know; then no fencing
    last_fetched_epoch: int = NO_EPOCH  # epoch of the sender's last record; -1: none
    log_start_offset: int = 0  # the follower's own; consumers leave it 0
    max_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """From a follower (`replica_id` >= 0, `broker_epoch` set) or from a consumer (`replica_id` -1)."""

    replica_id: int
    broker_epoch: int = -1
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 << 20
    partitions: tuple[FetchPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """The largest epoch at most the asked one, and where it ends (exclusive) in the leader's log."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartitionResponse:
    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    log_start_offset: int = -1
    log_end_offset: int = -1
    diverging: EpochEnd | None = None
    leader_id: int = NO_LEADER  # hint after NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH
    leader_epoch: int = NO_EPOCH  # the epoch under which this was answered
    records: bytes = field(default=b"", repr=False)  # whole batches, but the last may be cut by max_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[FetchPartitionResponse, ...] = ()


# produce


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducePartition:
    topic_partition: TopicPartition
    records: bytes = field(repr=False)  # one magic-2 batch with base offset 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequest:
    acks: int  # -1 all, 1 leader, 0 none (no reply is sent)
    timeout_ms: int = 30_000
    partitions: tuple[ProducePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducePartitionResponse:
    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    leader_id: int = NO_LEADER
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponse:
    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[ProducePartitionResponse, ...] = ()


# offsets and metadata, asked of brokers

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsRequest:
    topic_partition: TopicPartition
    timestamp: int  # -1 latest (the high watermark), -2 earliest, else milliseconds
    current_leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsResponse:
    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest:
    topics: tuple[str, ...] | None = None  # None: all


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    broker_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    name: str
    error: ErrorCode = ErrorCode.NONE
    configs: tuple[tuple[str, str], ...] = ()
    partitions: tuple[PartitionMetadata, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse:
    error: ErrorCode = ErrorCode.NONE
    cluster_id: str = ""
    controller: BrokerEndpoint | None = None
    brokers: tuple[BrokerEndpoint, ...] = ()  # unfenced ones
    topics: tuple[TopicMetadata, ...] = ()
    metadata_offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeReplicasRequest:
    """What this node holds, for tables and checks."""

    topics: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDescription:
    topic_partition: TopicPartition
    role: str  # leader, follower, offline
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]  # empty on followers
    log_start_offset: int
    high_watermark: int
    log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeReplicasResponse:
    broker_id: int
    state: str  # starting, recovery, running, pending_shutdown
    replicas: tuple[ReplicaDescription, ...] = ()


# to the controller (any broker forwards what clients ask: create, delete, producer ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdRequest:
    """Clients ask a broker, which hands out ids of a block that the controller gave it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdResponse:
    error: ErrorCode = ErrorCode.NONE
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIdsRequest:
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIdsResponse:
    error: ErrorCode = ErrorCode.NONE
    first_producer_id: int = -1
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicRequest:
    name: str
    partitions: int = 1
    replication_factor: int = 1
    configs: tuple[tuple[str, str], ...] = ()  # Kafka's dotted names
    assignment: tuple[tuple[int, ...], ...] = ()  # replicas of each partition; empty: the controller assigns


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicResponse:
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    topic_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicRequest:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicResponse:
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTopicConfigsRequest:
    name: str
    configs: tuple[tuple[str, str], ...]  # set; an empty value restores the default


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTopicConfigsResponse:
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


# broker to controller


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRequest:
    broker_id: int
    incarnation: str  # 32 hex digits, drawn at each start
    host: str
    port: int
    previous_broker_epoch: int = -1  # from the clean-shutdown file; -1: the last stop was not clean
    cluster_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerResponse:
    error: ErrorCode = ErrorCode.NONE
    broker_epoch: int = -1
    cluster_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatRequest:
    broker_id: int
    broker_epoch: int
    metadata_offset: int  # next offset of the metadata log that this broker will read
    want_fence: bool = False
    want_shutdown: bool = False
    offline_partitions: tuple[TopicPartition, ...] = ()  # all of this life's, each time (KIP-858)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatResponse:
    error: ErrorCode = ErrorCode.NONE
    is_fenced: bool = True
    is_caught_up: bool = False
    should_shut_down: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrMember:
    broker_id: int
    broker_epoch: int  # of the fetch that made it eligible (KIP-903)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionRequest:
    broker_id: int
    broker_epoch: int
    topic_partition: TopicPartition
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[IsrMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionResponse:
    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchMetadataRequest:
    """A broker, an observer of the metadata log, asks for what is committed from `offset` on."""

    broker_id: int
    offset: int
    max_wait_ms: int = 500
    max_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchMetadataResponse:
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    records: bytes = field(default=b"", repr=False)  # whole committed batches of the metadata log


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
    | RegisterBrokerResponse
    | BrokerHeartbeatResponse
    | AlterPartitionResponse
    | FetchMetadataResponse
)
