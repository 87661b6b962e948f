"""The properties of a broker: Kafka's names with underscores, and Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from cluster.core.messages import CONTROLLER_ID
from storage.cleaner.offset_map import SLOT_BYTES
from storage.config import INT_MAX, LONG_MAX, LogConfig
from storage.errors import ConfigError

_POSITIVE = (
    "replica_lag_time_max_ms",
    "replica_fetch_min_bytes",
    "replica_fetch_max_bytes",
    "replica_fetch_response_max_bytes",
    "replica_fetch_backoff_ms",
    "replica_socket_timeout_ms",
    "replica_high_watermark_checkpoint_interval_ms",
    "log_flush_offset_checkpoint_interval_ms",
    "log_flush_start_offset_checkpoint_interval_ms",
    "log_flush_scheduler_interval_ms",
    "log_retention_check_interval_ms",
    "log_cleaner_backoff_ms",
    "log_cleaner_io_buffer_size",
    "producer_id_expiration_check_interval_ms",
    "broker_heartbeat_interval_ms",
    "broker_session_timeout_ms",
    "controller_socket_timeout_ms",
    "controlled_shutdown_timeout_ms",
    "retry_backoff_ms",
    "retry_backoff_max_ms",
    "controller_quorum_fetch_max_bytes",
    "fetch_max_bytes",
    "max_parked_requests",
    "max_fetch_wait_ms",
)
# Those that Kafka defines as LONG; the other numbers have 32 bits.
_LONGS = frozenset(
    {
        "replica_lag_time_max_ms",
        "replica_high_watermark_checkpoint_interval_ms",
        "log_flush_scheduler_interval_ms",
        "log_initial_task_delay_ms",
        "log_retention_check_interval_ms",
        "log_cleaner_backoff_ms",
        "log_cleaner_dedupe_buffer_size",
        "retry_backoff_ms",
        "retry_backoff_max_ms",
    }
)


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
    # The longest that a fetch waits, whatever it asks for.
    max_fetch_wait_ms: int = 30_000
    # How many handles of segments stay open while they are not used; 0: half of the descriptors that the process may
    # have. Not a property of Kafka.
    log_open_handles_max: int = 0

    def __post_init__(self) -> None:
        for each in fields(self):
            value, most = getattr(self, each.name), LONG_MAX if each.name in _LONGS else INT_MAX
            if isinstance(value, int) and value > most:
                raise ConfigError(f"{each.name}={value}: must be at most {most}")
        if self.node_id < 0:
            raise ConfigError(f"node_id={self.node_id}: must not be negative")
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}={getattr(self, name)}: must be positive")
        if self.log_open_handles_max < 0:
            raise ConfigError(f"log_open_handles_max={self.log_open_handles_max}: must not be negative")
        if self.log_initial_task_delay_ms < 0:
            raise ConfigError(
                f"log_initial_task_delay_ms={self.log_initial_task_delay_ms}: must not be negative"
            )
        if self.log_cleaner_dedupe_buffer_size < 3 * SLOT_BYTES:
            raise ConfigError(
                f"log_cleaner_dedupe_buffer_size={self.log_cleaner_dedupe_buffer_size}: "
                f"must be at least {3 * SLOT_BYTES}, or no key fits"
            )
        if self.replica_fetch_wait_max_ms < 0:
            raise ConfigError(
                f"replica_fetch_wait_max_ms={self.replica_fetch_wait_max_ms}: must not be negative"
            )
        self._check_pairs()

    def _check_pairs(self) -> None:
        if self.replica_fetch_wait_max_ms > self.replica_lag_time_max_ms:
            raise ConfigError(
                "replica_fetch_wait_max_ms must be at most replica_lag_time_max_ms, "
                "or an idle follower would leave the ISR"
            )
        if self.replica_fetch_wait_max_ms > self.replica_socket_timeout_ms:
            raise ConfigError(
                "replica_fetch_wait_max_ms must be at most replica_socket_timeout_ms, "
                "or idle fetches would time out unanswered"
            )
        if self.broker_heartbeat_interval_ms >= self.broker_session_timeout_ms:
            raise ConfigError(
                "broker_heartbeat_interval_ms must be below broker_session_timeout_ms, "
                "or every broker would be fenced"
            )
        if self.retry_backoff_ms > self.retry_backoff_max_ms:
            raise ConfigError("retry_backoff_ms must be at most retry_backoff_max_ms")

    @property
    def heartbeat_timeout_ms(self) -> int:
        """Half of the session timeout, so that a lost heartbeat leaves time for another one."""
        return max(1, self.broker_session_timeout_ms // 2)
