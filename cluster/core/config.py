"""The properties of a broker: Kafka's names with underscores, and Kafka's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster.core.bounds import StepBounds
from cluster.core.messages import CONTROLLER_ID
from storage.cleaner.offset_map import SLOT_BYTES
from storage.config import INT_MAX, LONG_MAX, LogConfig
from storage.errors import ConfigError
from storage.validation.work import STEP_WORK

# The range of each number, both ends inclusive. Those of more than 32 bits are LONG in Kafka.
BROKER_LIMITS: Mapping[str, tuple[int, int]] = {
    "node_id": (0, INT_MAX),
    "port": (0, 65_535),
    "controller_id": (0, INT_MAX),
    "replica_lag_time_max_ms": (1, LONG_MAX),
    "replica_fetch_wait_max_ms": (0, INT_MAX),
    "replica_fetch_min_bytes": (1, INT_MAX),
    "replica_fetch_max_bytes": (1, INT_MAX),
    "replica_fetch_response_max_bytes": (1, INT_MAX),
    "replica_fetch_backoff_ms": (1, INT_MAX),
    "replica_socket_timeout_ms": (1, INT_MAX),
    "replica_high_watermark_checkpoint_interval_ms": (1, LONG_MAX),
    "log_flush_offset_checkpoint_interval_ms": (1, INT_MAX),
    "log_flush_start_offset_checkpoint_interval_ms": (1, INT_MAX),
    "log_flush_scheduler_interval_ms": (1, LONG_MAX),
    "log_initial_task_delay_ms": (0, LONG_MAX),
    "log_retention_check_interval_ms": (1, LONG_MAX),
    "log_cleaner_backoff_ms": (1, LONG_MAX),
    # With less no key fits.
    "log_cleaner_dedupe_buffer_size": (3 * SLOT_BYTES, LONG_MAX),
    "log_cleaner_io_buffer_size": (1, INT_MAX),
    "producer_id_expiration_check_interval_ms": (1, INT_MAX),
    # The interval is below the time-out, or every broker would be fenced.
    "broker_heartbeat_interval_ms": (1, INT_MAX - 1),
    "broker_session_timeout_ms": (2, INT_MAX),
    "controller_socket_timeout_ms": (1, INT_MAX),
    "controlled_shutdown_timeout_ms": (1, INT_MAX),
    "retry_backoff_ms": (1, LONG_MAX),
    "retry_backoff_max_ms": (1, LONG_MAX),
    "controller_quorum_fetch_max_bytes": (1, INT_MAX),
    "fetch_max_bytes": (1, INT_MAX),
    "max_parked_requests": (1, INT_MAX),
    "max_append_work": (0, INT_MAX),
    "max_fetch_wait_ms": (1, INT_MAX),
    "log_open_handles_max": (0, INT_MAX),
}


def check_limits(config: object, limits: Mapping[str, tuple[int, int]]) -> None:
    """Checks each number of a configuration against its range. Raises ConfigError with its name, value and range."""
    for name, (least, greatest) in limits.items():
        value: int = getattr(config, name)
        if not least <= value <= greatest:
            raise ConfigError(f"{dotted(name)}={value}: must be in [{least}, {greatest}]")


def dotted(name: str) -> str:
    """Returns the name of a field as Kafka writes the property."""
    return name.replace("_", ".")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The properties of one broker. The constructor raises ConfigError.

    Kafka: KafkaConfig, ReplicationConfigs, ServerLogConfigs.
    """

    node_id: int
    # The address that the broker registers, so that others can reach it.
    host: str = "127.0.0.1"
    port: int = 0
    controller_id: int = CONTROLLER_ID
    # Defaults for the properties that a topic does not set itself.
    log: LogConfig = field(default_factory=LogConfig)

    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    # The most that a fetch asks from one partition.
    replica_fetch_max_bytes: int = 1 << 20
    replica_fetch_response_max_bytes: int = 10 << 20
    replica_fetch_backoff_ms: int = 1_000
    replica_socket_timeout_ms: int = 30_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    # How often it is checked whether a topic's flush.ms has passed; by default never.
    log_flush_scheduler_interval_ms: int = LONG_MAX
    log_initial_task_delay_ms: int = 30_000
    log_retention_check_interval_ms: int = 300_000
    log_cleaner_enable: bool = True
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 128 << 20
    log_cleaner_io_buffer_size: int = 512 << 10
    producer_id_expiration_check_interval_ms: int = 600_000
    broker_heartbeat_interval_ms: int = 2_000
    broker_session_timeout_ms: int = 9_000
    controller_socket_timeout_ms: int = 30_000
    # How long an orderly stop waits for the controller's consent.
    controlled_shutdown_timeout_ms: int = 10_000
    # The wait before a request to the controller is retried; registrations and heartbeats double it up to the maximum.
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    # The most metadata that one fetch asks of the controller; one batch is returned even if it is larger.
    controller_quorum_fetch_max_bytes: int = 1 << 20
    # The most that one fetch answer holds, whatever the request allows.
    fetch_max_bytes: int = 55 << 20
    # How many requests may wait: produce requests, fetches of consumers and fetches of followers each.
    max_parked_requests: int = 100_000
    # The work on produced sets that one step does, about that of so many records; sets beyond it are checked in slices.
    # Not a property of Kafka.
    max_append_work: int = STEP_WORK
    # The longest that a fetch waits, whatever it asks for.
    max_fetch_wait_ms: int = 30_000
    # How many handles of segments stay open while they are not used; 0: half of the descriptors that the process may
    # have. Not a property of Kafka.
    log_open_handles_max: int = 0
    # Not from properties.
    steps: StepBounds = field(default_factory=StepBounds)

    def __post_init__(self) -> None:
        check_limits(self, BROKER_LIMITS)
        idle = "or an idle follower would leave the ISR"
        self._check_at_most("replica_fetch_wait_max_ms", "replica_lag_time_max_ms", idle)
        unanswered = "or idle fetches would time out unanswered"
        self._check_at_most("replica_fetch_wait_max_ms", "replica_socket_timeout_ms", unanswered)
        self._check_at_most("retry_backoff_ms", "retry_backoff_max_ms", "or no retry would wait so long")
        if self.broker_heartbeat_interval_ms >= self.broker_session_timeout_ms:
            raise ConfigError(
                f"broker.heartbeat.interval.ms={self.broker_heartbeat_interval_ms}: must be below "
                f"broker.session.timeout.ms={self.broker_session_timeout_ms}, or every broker would be fenced"
            )

    def _check_at_most(self, name: str, limit_name: str, reason: str) -> None:
        value, limit = getattr(self, name), getattr(self, limit_name)
        if value > limit:
            raise ConfigError(
                f"{dotted(name)}={value}: must be at most {dotted(limit_name)}={limit}, {reason}"
            )

    @property
    def heartbeat_timeout_ms(self) -> int:
        """Half of the session timeout, so that a lost heartbeat leaves time for another one."""
        return max(1, self.broker_session_timeout_ms // 2)
