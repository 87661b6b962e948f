"""The properties of a controller, with Kafka's names and defaults where Kafka has them."""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster.core.messages import CONTROLLER_ID
from storage.config import INT_MAX, LogConfig
from storage.errors import ConfigError

_NUMBERS = (
    "broker_session_timeout_ms",
    "num_partitions",
    "default_replication_factor",
    "producer_id_block_size",
    "max_partitions_per_topic",
    "max_topics",
    "max_parked_fetches",
    "max_fetch_wait_ms",
    "metadata_max_batch_bytes",
)
# Every record that the controller makes by itself fits into it.
_LEAST_BATCH_BYTES = 4 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """The properties of one controller. The constructor raises ConfigError."""

    node_id: int = CONTROLLER_ID
    # The address of the controller in metadata answers; empty: they do not name it.
    host: str = ""
    port: int = 0
    # The id of a new cluster; empty: drawn.
    cluster_id: str = ""
    broker_session_timeout_ms: int = 9_000
    # For a topic created with -1 partitions.
    num_partitions: int = 1
    # For a topic created with a replication factor of -1.
    default_replication_factor: int = 1
    producer_id_block_size: int = 1_000
    # There is a limit, because one creation is one change of the metadata.
    max_partitions_per_topic: int = 10_000
    max_topics: int = 100_000
    max_parked_fetches: int = 1_000
    # The brokers' defaults for the properties that a topic does not set itself: a topic must not contradict them.
    log: LogConfig = field(default_factory=LogConfig)
    # The longest that a fetch of metadata waits, whatever it asks for.
    max_fetch_wait_ms: int = 30_000
    # The largest batch of the metadata log; a larger change takes several.
    metadata_max_batch_bytes: int = 16 << 20
    # After so many bytes of the metadata log a snapshot is written.
    metadata_log_max_record_bytes_between_snapshots: int = 20 << 20

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            if not -INT_MAX - 1 <= getattr(self, name) <= INT_MAX:
                raise ConfigError(f"{name}={getattr(self, name)}: must be at most {INT_MAX}")
        if self.broker_session_timeout_ms <= 0:
            raise ConfigError(f"broker_session_timeout_ms={self.broker_session_timeout_ms}: must be positive")
        if self.num_partitions < 1 or self.default_replication_factor < 1:
            raise ConfigError("num.partitions and default.replication.factor must be at least 1")
        if self.max_fetch_wait_ms <= 0:
            raise ConfigError(f"max_fetch_wait_ms={self.max_fetch_wait_ms}: must be positive")
        if not _LEAST_BATCH_BYTES <= self.metadata_max_batch_bytes <= 16 << 20:
            raise ConfigError(
                f"metadata_max_batch_bytes={self.metadata_max_batch_bytes}: must be {_LEAST_BATCH_BYTES} to {16 << 20}"
            )
        if self.metadata_log_max_record_bytes_between_snapshots < 1:
            raise ConfigError(
                "metadata_log_max_record_bytes_between_snapshots="
                f"{self.metadata_log_max_record_bytes_between_snapshots}: must be positive"
            )
        if self.producer_id_block_size < 1:
            raise ConfigError(f"producer_id_block_size={self.producer_id_block_size}: must be at least 1")
