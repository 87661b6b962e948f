"""The configurations of the clients: Kafka's names with underscores, and Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from types import NoneType

from storage.codec.compression import Compression
from storage.config import INT_MAX, LONG_MAX
from storage.errors import ConfigError

ACKS_ALL = -1
ACKS_LEADER = 1
ACKS_NONE = 0
# A broker remembers the last five batches of each producer (TXN-1).
MAX_IN_FLIGHT_IDEMPOTENT = 5
# A batch of a few kilobytes may hold millions of records.
MOST_RECORDS = 250_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """A producer's properties, under Kafka's names and with Kafka's defaults."""

    acks: int = ACKS_ALL
    # None means on with acks=all, otherwise off.
    enable_idempotence: bool | None = None
    linger_ms: int = 5
    batch_size: int = 16_384
    compression_type: Compression = Compression.NONE
    buffer_memory: int = 32 << 20
    max_in_flight_requests_per_connection: int = 5
    max_request_size: int = 1 << 20
    # The longest wait of a record for the metadata of its topic, and of its sender for room in the buffer.
    max_block_ms: int = 60_000
    retry_backoff_ms: int = 100
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    metadata_max_age_ms: int = 300_000

    def __post_init__(self) -> None:
        check_types(self)
        if self.acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
            raise ConfigError(f"acks={self.acks}: must be -1 (all), 1 or 0")
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise ConfigError("delivery_timeout_ms must be at least linger_ms + request_timeout_ms")
        if self.max_in_flight_requests_per_connection < 1:
            raise ConfigError("max_in_flight_requests_per_connection must be at least 1")
        if self.enable_idempotence and self.acks != ACKS_ALL:
            raise ConfigError(
                "enable_idempotence needs acks=all: otherwise an acknowledged sequence may be lost"
            )
        if self.is_idempotent and self.max_in_flight_requests_per_connection > MAX_IN_FLIGHT_IDEMPOTENT:
            raise ConfigError(
                "max_in_flight_requests_per_connection must be at most 5 for an idempotent producer: "
                "brokers remember the last five batches"
            )

    @property
    def replication_timeout_ms(self) -> int:
        """The longest wait of a leader for replication, before it answers for each partition what it knows.

        It is shorter than `request_timeout_ms`: when a request ends without an answer, nothing is known of any of its
        partitions, and all other requests of the connection end with it. Where repetitions cannot double records it is
        half of it, because the answers of all other partitions of the request wait as long. Kafka: request.timeout.ms.
        """
        if self.is_idempotent:
            return self.request_timeout_ms // 2
        return self.request_timeout_ms * 9 // 10

    @property
    def is_idempotent(self) -> bool:
        return self.acks == ACKS_ALL and self.enable_idempotence is not False


class OffsetReset(Enum):
    """The start of reading where no offset is known or the known one is out of range (Kafka: auto.offset.reset)."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


# The numbers that are longs in Kafka; no request has one.
_LONGS = frozenset({"linger_ms", "buffer_memory", "max_block_ms", "retry_backoff_ms", "metadata_max_age_ms"})
# The properties whose value is one of a closed set.
_CHOICES: dict[str, type[Enum]] = {"auto_offset_reset": OffsetReset, "compression_type": Compression}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """A consumer's properties, under Kafka's names and with Kafka's defaults."""

    auto_offset_reset: OffsetReset = OffsetReset.LATEST
    check_crcs: bool = True
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 << 20
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 1 << 20
    # The records that are read of one answer, at least one of each partition; a header counts as a record. The next
    # fetch goes on after them. Not a property of Kafka.
    most_read_records: int = MOST_RECORDS
    retry_backoff_ms: int = 100
    request_timeout_ms: int = 30_000
    metadata_max_age_ms: int = 300_000

    def __post_init__(self) -> None:
        check_types(self)
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            raise ConfigError(
                "fetch_max_wait_ms must be below request_timeout_ms, or every idle fetch would time out"
            )
        if self.most_read_records < 1:
            raise ConfigError("most_read_records must be positive")
        if self.max_partition_fetch_bytes < 1 or self.fetch_max_bytes < 1:
            raise ConfigError("fetch_max_bytes and max_partition_fetch_bytes must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    """An admin client's properties, under Kafka's names and with Kafka's defaults."""

    retry_backoff_ms: int = 100
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        check_types(self)


def check_types(config: ProducerConfig | ConsumerConfig | AdminConfig) -> None:
    """Raises TypeError for a property of the wrong type, ConfigError for a number that is out of its bounds.

    Only `acks` may be negative. What Kafka keeps in an int goes into requests, or into sums that do.
    """
    for item in fields(config):
        value = getattr(config, item.name)
        choice = _CHOICES.get(item.name)
        if choice is not None and not isinstance(value, choice):
            example = f"{choice.__name__}.{next(iter(choice)).name}"
            raise TypeError(f"{item.name}: expected a {choice.__name__} such as {example}, got {value!r}")
        if item.type in ("bool", "bool | None") and not isinstance(value, bool | NoneType):
            raise TypeError(f"{item.name}: expected True or False, got {value!r}")
        if item.type != "int":
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            hint = ": -1 is all" if item.name == "acks" and value == "all" else ""
            raise TypeError(f"{item.name}: expected an int, got {value!r}{hint}")
        if value < 0 and item.name != "acks":
            raise ConfigError(f"{item.name}: expected zero or more, got {value}")
        most = LONG_MAX if item.name in _LONGS else INT_MAX
        if value > most:
            raise ConfigError(f"{item.name}: expected at most {most}, got {value}")
