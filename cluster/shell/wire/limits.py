"""The bounds of every field of every message, and the check of a received message against them.

A field without an entry fails a test. The bounds say what a value may be at all; whether it fits the cluster's state
and its settings is for the core. What is measured in bytes has a second limit, the size of one gRPC message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cluster.core import messages
from cluster.core.connection.codec import OutOfBounds
from cluster.core.errors import ErrorCode
from cluster.core.messages import RequestBody, ResponseBody
from cluster.shell.wire.bounds import (
    INT_MAX,
    LONG_MAX,
    Anything,
    Bound,
    Fields,
    Many,
    Optional,
    Pair,
    Text,
    Whole,
    compile_check,
)

Message = RequestBody | ResponseBody

# Kafka: Topic.MAX_NAME_LENGTH.
TOPIC = Text(249, ErrorCode.INVALID_TOPIC_EXCEPTION)
# A topic id has 32 hex digits, or is left out; a cluster id may be chosen.
ID = Text(32)
# 32 hex digits. Two processes that name none would be taken for one.
INCARNATION = Text(32, least=32)
CLUSTER_ID = Text(255)
# The longest name of a host has 253 characters (RFC 1035).
HOST = Text(255)
PORT = Whole(0, 65_535)
PARTITION = Whole(0, INT_MAX)
BROKER = Whole(0, INT_MAX)
# -1: none, or not known.
BROKER_OR_NONE = Whole(-1, INT_MAX)
EPOCH = Whole(0, INT_MAX)
EPOCH_OR_NONE = Whole(-1, INT_MAX)
BROKER_EPOCH = Whole(-1, LONG_MAX)
OFFSET = Whole(0, LONG_MAX, ErrorCode.OFFSET_OUT_OF_RANGE)
OFFSET_OR_NONE = Whole(-1, LONG_MAX)
TIME_OR_NONE = Whole(-1, LONG_MAX)
MILLISECONDS = Whole(0, INT_MAX)
SIZE = Whole(0, INT_MAX)
COUNT = Whole(0, INT_MAX)
RECORDS = Text(64 << 20, ErrorCode.MESSAGE_TOO_LARGE)
WORD = Text(64)
SENTENCES = Text(1 << 20)
ERROR = Anything()
FLAG = Anything()

# A request names each partition of a broker at most once.
MAX_PARTITIONS = 100_000
MAX_TOPICS = 100_000
# Of one partition.
MAX_REPLICAS = 1_000
# As many partitions as the controller lets a topic have.
MAX_ASSIGNED = 10_000

CONFIGS = Many(
    Pair(Text(255, ErrorCode.INVALID_CONFIG), Text(32_767, ErrorCode.INVALID_CONFIG)),
    1_000,
    ErrorCode.INVALID_CONFIG,
)
REPLICAS = Many(BROKER, MAX_REPLICAS)
TOPICS = Optional(Many(TOPIC, MAX_TOPICS))

TOPIC_PARTITION = Fields({"topic": TOPIC, "partition": PARTITION})
EPOCH_END = Fields({"epoch": EPOCH, "end_offset": OFFSET})
ENDPOINT = Fields({"broker_id": BROKER, "host": HOST, "port": PORT})
ISR_MEMBER = Fields({"broker_id": BROKER, "broker_epoch": BROKER_EPOCH})
HEADER = Fields(
    {"cluster_id": CLUSTER_ID, "broker_id": BROKER, "broker_epoch": BROKER_EPOCH, "incarnation": INCARNATION}
)
OFFLINE_PARTITION = Fields({"topic_partition": TOPIC_PARTITION, "topic_id": ID})
FETCH_PARTITION = Fields(
    {
        "topic_partition": TOPIC_PARTITION,
        "topic_id": ID,
        "fetch_offset": OFFSET,
        "current_leader_epoch": EPOCH_OR_NONE,
        "last_fetched_epoch": EPOCH_OR_NONE,
        "log_start_offset": OFFSET_OR_NONE,
        "max_bytes": SIZE,
    }
)
FETCH_PARTITION_RESPONSE = Fields(
    {
        "topic_partition": TOPIC_PARTITION,
        "error": ERROR,
        "high_watermark": OFFSET_OR_NONE,
        "log_start_offset": OFFSET_OR_NONE,
        "log_end_offset": OFFSET_OR_NONE,
        "diverging": Optional(EPOCH_END),
        "leader_id": BROKER_OR_NONE,
        "leader_epoch": EPOCH_OR_NONE,
        "records": RECORDS,
    }
)
PRODUCE_PARTITION = Fields({"topic_partition": TOPIC_PARTITION, "topic_id": ID, "records": RECORDS})
PRODUCE_PARTITION_RESPONSE = Fields(
    {
        "topic_partition": TOPIC_PARTITION,
        "error": ERROR,
        "message": SENTENCES,
        "base_offset": OFFSET_OR_NONE,
        "last_offset": OFFSET_OR_NONE,
        "log_append_time_ms": TIME_OR_NONE,
        "log_start_offset": OFFSET_OR_NONE,
        "leader_id": BROKER_OR_NONE,
        "leader_epoch": EPOCH_OR_NONE,
    }
)
PARTITION_METADATA = Fields(
    {
        "partition": PARTITION,
        "leader": BROKER_OR_NONE,
        "leader_epoch": EPOCH_OR_NONE,
        "replicas": REPLICAS,
        "isr": REPLICAS,
    }
)
TOPIC_METADATA = Fields(
    {
        "name": TOPIC,
        "topic_id": ID,
        "error": ERROR,
        "configs": CONFIGS,
        "partitions": Many(PARTITION_METADATA, MAX_PARTITIONS),
    }
)
REPLICA_DESCRIPTION = Fields(
    {
        "topic_partition": TOPIC_PARTITION,
        "role": WORD,
        "leader": BROKER_OR_NONE,
        "leader_epoch": EPOCH_OR_NONE,
        "isr": REPLICAS,
        "log_start_offset": OFFSET_OR_NONE,
        "high_watermark": OFFSET_OR_NONE,
        "log_end_offset": OFFSET_OR_NONE,
        "min_insync_replicas": COUNT,
    }
)

# By the class of the part; a test compares its fields with those of the class.
PARTS: dict[type, Fields] = {
    messages.TopicPartition: TOPIC_PARTITION,
    messages.EpochEnd: EPOCH_END,
    messages.BrokerEndpoint: ENDPOINT,
    messages.IsrMember: ISR_MEMBER,
    messages.Header: HEADER,
    messages.OfflinePartition: OFFLINE_PARTITION,
    messages.FetchPartition: FETCH_PARTITION,
    messages.FetchPartitionResponse: FETCH_PARTITION_RESPONSE,
    messages.ProducePartition: PRODUCE_PARTITION,
    messages.ProducePartitionResponse: PRODUCE_PARTITION_RESPONSE,
    messages.PartitionMetadata: PARTITION_METADATA,
    messages.TopicMetadata: TOPIC_METADATA,
    messages.ReplicaDescription: REPLICA_DESCRIPTION,
}

REQUEST_BOUNDS: dict[type, Mapping[str, Bound]] = {
    messages.FetchRequest: {
        "replica_id": BROKER_OR_NONE,
        "broker_epoch": BROKER_EPOCH,
        "header": Optional(HEADER),
        "max_wait_ms": MILLISECONDS,
        "min_bytes": SIZE,
        "max_bytes": SIZE,
        "partitions": Many(FETCH_PARTITION, MAX_PARTITIONS),
    },
    messages.ProduceRequest: {
        "acks": Whole(-1, 1, ErrorCode.INVALID_REQUIRED_ACKS),
        "timeout_ms": MILLISECONDS,
        "partitions": Many(PRODUCE_PARTITION, MAX_PARTITIONS),
    },
    messages.ListOffsetsRequest: {
        "topic_partition": TOPIC_PARTITION,
        "topic_id": ID,
        "timestamp": Whole(messages.EARLIEST_TIMESTAMP, LONG_MAX, ErrorCode.INVALID_TIMESTAMP),
        "current_leader_epoch": EPOCH_OR_NONE,
    },
    messages.MetadataRequest: {"topics": TOPICS},
    messages.DescribeReplicasRequest: {"topics": TOPICS},
    messages.InitProducerIdRequest: {},
    messages.AllocateProducerIdsRequest: {
        "header": Optional(HEADER),
        "broker_id": BROKER,
        "broker_epoch": BROKER_EPOCH,
    },
    messages.CreateTopicRequest: {
        "name": TOPIC,
        "partitions": Whole(messages.DEFAULT_COUNT, INT_MAX, ErrorCode.INVALID_PARTITIONS),
        "replication_factor": Whole(messages.DEFAULT_COUNT, INT_MAX, ErrorCode.INVALID_REPLICATION_FACTOR),
        "configs": CONFIGS,
        "assignment": Many(
            Many(
                Whole(0, INT_MAX, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
                MAX_REPLICAS,
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ),
            MAX_ASSIGNED,
            ErrorCode.INVALID_PARTITIONS,
        ),
        "header": Optional(HEADER),
    },
    messages.DeleteTopicRequest: {"name": TOPIC, "header": Optional(HEADER)},
    messages.AlterTopicConfigsRequest: {"name": TOPIC, "configs": CONFIGS, "header": Optional(HEADER)},
    messages.CreatePartitionsRequest: {
        "name": TOPIC,
        "count": Whole(0, INT_MAX, ErrorCode.INVALID_PARTITIONS),
        "header": Optional(HEADER),
    },
    messages.RegisterBrokerRequest: {
        "header": Optional(HEADER),
        "broker_id": BROKER,
        "incarnation": INCARNATION,
        "host": HOST,
        "port": PORT,
        "previous_broker_epoch": BROKER_EPOCH,
        "cluster_id": CLUSTER_ID,
    },
    messages.BrokerHeartbeatRequest: {
        "header": Optional(HEADER),
        "broker_id": BROKER,
        "broker_epoch": BROKER_EPOCH,
        "metadata_offset": OFFSET,
        "want_fence": FLAG,
        "want_shutdown": FLAG,
        "offline_partitions": Many(OFFLINE_PARTITION, MAX_PARTITIONS),
    },
    messages.AlterPartitionRequest: {
        "header": Optional(HEADER),
        "broker_id": BROKER,
        "broker_epoch": BROKER_EPOCH,
        "topic_partition": TOPIC_PARTITION,
        "topic_id": ID,
        "leader_epoch": EPOCH_OR_NONE,
        "partition_epoch": EPOCH_OR_NONE,
        "new_isr": Many(ISR_MEMBER, MAX_REPLICAS),
        "attempt": Whole(0, LONG_MAX),
    },
    messages.FetchMetadataRequest: {
        "header": Optional(HEADER),
        "broker_id": BROKER,
        "offset": OFFSET,
        "max_wait_ms": MILLISECONDS,
        "max_bytes": SIZE,
    },
}

RESPONSE_BOUNDS: dict[type, Mapping[str, Bound]] = {
    messages.FetchResponse: {"error": ERROR, "partitions": Many(FETCH_PARTITION_RESPONSE, MAX_PARTITIONS)},
    messages.ProduceResponse: {
        "error": ERROR,
        "partitions": Many(PRODUCE_PARTITION_RESPONSE, MAX_PARTITIONS),
    },
    messages.ListOffsetsResponse: {
        "topic_partition": TOPIC_PARTITION,
        "error": ERROR,
        "offset": OFFSET_OR_NONE,
        "timestamp": TIME_OR_NONE,
        "leader_epoch": EPOCH_OR_NONE,
    },
    messages.MetadataResponse: {
        "error": ERROR,
        "cluster_id": CLUSTER_ID,
        "controller": Optional(ENDPOINT),
        "brokers": Many(ENDPOINT, messages.MOST_BROKERS),
        "topics": Many(TOPIC_METADATA, MAX_TOPICS),
        "metadata_offset": OFFSET_OR_NONE,
    },
    messages.DescribeReplicasResponse: {
        "broker_id": BROKER_OR_NONE,
        "state": WORD,
        "replicas": Many(REPLICA_DESCRIPTION, MAX_PARTITIONS),
    },
    messages.InitProducerIdResponse: {
        "error": ERROR,
        "producer_id": OFFSET_OR_NONE,
        "producer_epoch": Whole(-1, (1 << 15) - 1),
    },
    messages.AllocateProducerIdsResponse: {
        "error": ERROR,
        "first_producer_id": OFFSET_OR_NONE,
        "count": COUNT,
    },
    messages.CreateTopicResponse: {"error": ERROR, "message": SENTENCES, "topic_id": ID},
    messages.DeleteTopicResponse: {"error": ERROR, "message": SENTENCES},
    messages.AlterTopicConfigsResponse: {"error": ERROR, "message": SENTENCES},
    messages.CreatePartitionsResponse: {"error": ERROR, "message": SENTENCES},
    messages.RegisterBrokerResponse: {
        "error": ERROR,
        "broker_epoch": BROKER_EPOCH,
        "cluster_id": CLUSTER_ID,
    },
    messages.BrokerHeartbeatResponse: {
        "error": ERROR,
        "is_fenced": FLAG,
        "is_caught_up": FLAG,
        "should_shut_down": FLAG,
    },
    messages.AlterPartitionResponse: {
        "topic_partition": TOPIC_PARTITION,
        "error": ERROR,
        "leader": BROKER_OR_NONE,
        "leader_epoch": EPOCH_OR_NONE,
        "partition_epoch": EPOCH_OR_NONE,
        "isr": REPLICAS,
    },
    messages.FetchMetadataResponse: {
        "error": ERROR,
        "high_watermark": OFFSET_OR_NONE,
        "records": RECORDS,
    },
}

BOUNDS: dict[type, Mapping[str, Bound]] = {**REQUEST_BOUNDS, **RESPONSE_BOUNDS}
_IS_WITHIN: dict[type, Callable[[object], bool]] = {
    each: compile_check(bounds) for each, bounds in BOUNDS.items()
}


def out_of_bounds(body: Message) -> OutOfBounds | None:
    """Returns what is wrong with the first field of `body` that is out of bounds; None if all are within."""
    if _IS_WITHIN[type(body)](body):
        return None
    excess = Fields(BOUNDS[type(body)]).excess(body, "")
    assert excess is not None, type(body)
    return OutOfBounds(body, excess.code, str(excess))
