"""The configuration of one partition's log: Kafka's topic properties, with underscores for dots, and its defaults.

Times are milliseconds, sizes bytes. Kafka: LogConfig, TopicConfig.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar

from storage.codec.compression import Compression
from storage.errors import ConfigError

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
# One entry of a time index; an offset index has smaller ones.
_LEAST_INDEX_BYTES = 12
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)

# The range of each number, both ends inclusive, as in Kafka's ConfigDef.
_LIMITS: dict[str, tuple[float, float]] = {
    "segment_bytes": (14, INT_MAX),
    "segment_ms": (1, LONG_MAX),
    "segment_jitter_ms": (0, LONG_MAX),
    "segment_index_bytes": (4, INT_MAX),
    "index_interval_bytes": (0, INT_MAX),
    "flush_messages": (1, LONG_MAX),
    "flush_ms": (0, LONG_MAX),
    "max_message_bytes": (0, INT_MAX),
    "retention_bytes": (-LONG_MAX - 1, LONG_MAX),
    "retention_ms": (-1, LONG_MAX),
    "delete_retention_ms": (0, LONG_MAX),
    "min_compaction_lag_ms": (0, LONG_MAX),
    "max_compaction_lag_ms": (1, LONG_MAX),
    "min_cleanable_dirty_ratio": (0, 1),
    "file_delete_delay_ms": (0, LONG_MAX),
    "message_timestamp_before_max_ms": (0, LONG_MAX),
    "message_timestamp_after_max_ms": (0, LONG_MAX),
    "min_insync_replicas": (1, INT_MAX),
    "producer_id_expiration_ms": (1, INT_MAX),
}
_CHOICES = {
    "compression_type": ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "message_timestamp_type": ("CreateTime", "LogAppendTime"),
}
_POLICIES = ("compact", "delete")
_LEVELS = {
    "compression_gzip_level": Compression.GZIP,
    "compression_lz4_level": Compression.LZ4,
    "compression_zstd_level": Compression.ZSTD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The properties of one topic, checked. The constructor raises ConfigError, which names the property."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    cleanup_policy: str = "delete"
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60_000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    # Since Kafka 4.0 (KIP-1030).
    message_timestamp_after_max_ms: int = _HOUR_MS
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    preallocate: bool = False
    producer_id_expiration_ms: int = _DAY_MS

    property_names: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        for name, (least, greatest) in _LIMITS.items():
            value: float = getattr(self, name)
            if not least <= value <= greatest:
                raise ConfigError(f"{_dotted(name)}={value}: must be in [{least}, {greatest}]")
        for name, choices in _CHOICES.items():
            choice: str = getattr(self, name)
            if choice not in choices:
                raise ConfigError(f"{_dotted(name)}={choice}: must be one of {', '.join(choices)}")
        for name, codec in _LEVELS.items():
            level: int = getattr(self, name)
            if not codec.has_level(level):
                raise ConfigError(f"{_dotted(name)}={level}: {codec.label} does not have this level")
        for policy in self.cleanup_policies:
            if policy not in _POLICIES:
                raise ConfigError(f"cleanup.policy={self.cleanup_policy}: unknown policy {policy!r}")

    @property
    def cleanup_policies(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.cleanup_policy.split(","))

    @property
    def compression_level(self) -> int | None:
        """The level at which a leader compresses; None for the codec's default, which is also used when the topic
        keeps the producer's codec.
        """
        name = f"compression_{self.compression_type}_level"
        codec = _LEVELS.get(name)
        if codec is None:
            return None
        level: int = getattr(self, name)
        return None if level == codec.default_level else level

    @property
    def is_compacted(self) -> bool:
        # No other policy has the word in its name, and an append asks for this: it is to cost next to nothing.
        return "compact" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """The age at which a segment rolls, in milliseconds; in a compacted topic at most its max compaction lag."""
        if self.is_compacted:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms

    @property
    def index_bytes(self) -> int:
        """The size of an index of an active segment: segment.index.bytes, but room for one entry at least.

        Kafka accepts smaller values and then cannot create the log.
        """
        return max(self.segment_index_bytes, _LEAST_INDEX_BYTES)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LogConfig:
        """Parse and check properties with Kafka's dotted names.

        Raises ConfigError, which names the property, for one that is unknown or unusable, and for two that contradict
        each other. Kafka: LogConfig.validate.
        """
        config = cls().overridden_by(properties)
        config.check_pairs()
        return config

    def check_pairs(self) -> None:
        """Raise ConfigError for properties that contradict each other. Kafka: LogConfig.validateValues."""
        if self.max_compaction_lag_ms < self.min_compaction_lag_ms:
            raise ConfigError(
                f"max.compaction.lag.ms={self.max_compaction_lag_ms}: must be at least "
                f"min.compaction.lag.ms={self.min_compaction_lag_ms}"
            )

    def overridden_by(self, properties: Mapping[str, str]) -> LogConfig:
        """Returns this configuration with `properties` in place of its own.

        Raises ConfigError for a property that is unknown or unusable. Two that contradict each other are accepted: a
        topic's may contradict those of a broker that starts with others later. Kafka: LogConfig.fromProps.
        """
        values: dict[str, int | float | bool | str] = {}
        for name, text in properties.items():
            attribute = name.replace(".", "_").replace("-", "_")
            if attribute not in _DEFAULTS or _dotted(attribute) != name:
                raise ConfigError(f"unknown topic property {name!r}")
            values[attribute] = _parse(name, text, _DEFAULTS[attribute])
        # Each value has the type of its default.
        return replace(self, **values)  # type: ignore[arg-type]

    def to_properties(self) -> dict[str, str]:
        """Returns every property by its dotted name, as `from_properties` reads it."""
        return {_dotted(name): _text(getattr(self, name)) for name in _DEFAULTS}


def _dotted(attribute: str) -> str:
    return attribute.replace("_", ".")


def _text(value: float | bool | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse(name: str, text: str, default: float | bool | str) -> float | bool | str:
    """Parse `text` to the type of `default`; surrounding blanks are ignored, as in Kafka's ConfigDef."""
    stripped = text.strip()
    if isinstance(default, bool):
        if stripped.lower() not in ("true", "false"):
            raise ConfigError(f"{name}={text}: must be true or false")
        return stripped.lower() == "true"
    if isinstance(default, str):
        return stripped
    try:
        return parse_integer(stripped) if isinstance(default, int) else _parse_float(stripped)
    except ValueError as error:
        raise ConfigError(f"{name}={text}: must be a number") from error


def parse_integer(text: str) -> int:
    """Parse a decimal number of at most 64 bits as Java does. Raises ValueError."""
    # int() takes underscores too.
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"no number: {text[:40]!r}")
    number = int(text)
    if not -LONG_MAX - 1 <= number <= LONG_MAX:
        raise ValueError(f"more than 64 bits: {text[:40]}")
    return number


def _parse_float(text: str) -> float:
    # float() takes underscores too.
    if "_" in text:
        raise ValueError(f"no number: {text[:40]!r}")
    return float(text)


_DEFAULTS: dict[str, int | float | bool | str] = {
    field.name: field.default
    for field in fields(LogConfig)
    if isinstance(field.default, int | float | bool | str)
}
LogConfig.property_names = tuple(map(_dotted, _DEFAULTS))
