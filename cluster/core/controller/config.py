"""The properties of a controller, with Kafka's names and defaults where Kafka has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster.core.config import check_limits
from cluster.core.messages import CONTROLLER_ID
from storage.config import INT_MAX, LONG_MAX, LogConfig
from storage.errors import ConfigError

# The range of each number, both ends inclusive.
CONTROLLER_LIMITS: Mapping[str, tuple[int, int]] = {
    "node_id": (0, INT_MAX),
    "port": (0, 65_535),
    # Not below a broker's.
    "broker_session_timeout_ms": (2, INT_MAX),
    "num_partitions": (1, INT_MAX),
    "default_replication_factor": (1, INT_MAX),
    "producer_id_block_size": (1, INT_MAX),
    "max_partitions_per_topic": (1, INT_MAX),
    "max_topics": (1, INT_MAX),
    "max_parked_fetches": (1, INT_MAX),
    "max_fetch_wait_ms": (1, INT_MAX),
    # Every record that the controller makes by itself fits into the least batch.
    "metadata_max_batch_bytes": (4 << 10, 16 << 20),
    "metadata_log_max_record_bytes_between_snapshots": (1, LONG_MAX),
}
_CLUSTER_ID = re.compile(r"[A-Za-z0-9._-]{0,255}", re.ASCII)


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
        check_limits(self, CONTROLLER_LIMITS)
        # It is a line of the file `meta.properties` on each broker.
        if not _CLUSTER_ID.fullmatch(self.cluster_id):
            raise ConfigError(
                f"cluster.id={self.cluster_id[:40]!r}: must be at most 255 letters, digits and characters of '._-'"
            )
