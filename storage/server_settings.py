"""The settings of a broker that hold for all topics: Kafka's server names of the topic properties, and their units.

A topic that sets the property itself overrides the broker's setting. If a setting is given under several names, the
first in the table counts: `log.retention.ms` before `log.retention.minutes`. Kafka: ServerTopicConfigSynonyms,
KafkaConfig.extractLogConfigMap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from storage.config import INT_MAX, LogConfig, parse_integer
from storage.errors import ConfigError

_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000


class ServerName(NamedTuple):
    """The name of a server's property; a value of 1 is `unit` in the units of the topic property."""

    name: str
    unit: int = 1


def _names(*names: str) -> tuple[ServerName, ...]:
    return tuple(map(ServerName, names))


# The server names of each topic property. Unclean elections are missing: the controller decides on them, and reads
# only the topic's own setting.
SERVER_NAMES: Mapping[str, tuple[ServerName, ...]] = {
    "segment.bytes": _names("log.segment.bytes"),
    "segment.ms": (ServerName("log.roll.ms"), ServerName("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (ServerName("log.roll.jitter.ms"), ServerName("log.roll.jitter.hours", _HOUR_MS)),
    "segment.index.bytes": _names("log.index.size.max.bytes"),
    "index.interval.bytes": _names("log.index.interval.bytes"),
    "flush.messages": _names("log.flush.interval.messages"),
    "flush.ms": _names("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "max.message.bytes": _names("message.max.bytes"),
    "retention.bytes": _names("log.retention.bytes"),
    "retention.ms": (
        ServerName("log.retention.ms"),
        ServerName("log.retention.minutes", _MINUTE_MS),
        ServerName("log.retention.hours", _HOUR_MS),
    ),
    "cleanup.policy": _names("log.cleanup.policy"),
    "delete.retention.ms": _names("log.cleaner.delete.retention.ms"),
    "min.compaction.lag.ms": _names("log.cleaner.min.compaction.lag.ms"),
    "max.compaction.lag.ms": _names("log.cleaner.max.compaction.lag.ms"),
    "min.cleanable.dirty.ratio": _names("log.cleaner.min.cleanable.ratio"),
    "file.delete.delay.ms": _names("log.segment.delete.delay.ms"),
    "compression.type": _names("compression.type"),
    "compression.gzip.level": _names("compression.gzip.level"),
    "compression.lz4.level": _names("compression.lz4.level"),
    "compression.zstd.level": _names("compression.zstd.level"),
    "message.timestamp.type": _names("log.message.timestamp.type"),
    "message.timestamp.before.max.ms": _names("log.message.timestamp.before.max.ms"),
    "message.timestamp.after.max.ms": _names("log.message.timestamp.after.max.ms"),
    "min.insync.replicas": _names("min.insync.replicas"),
    "preallocate": _names("log.preallocate"),
    "producer.id.expiration.ms": _names("producer.id.expiration.ms"),
}

_RETENTION_NAMES = frozenset(each.name for each in SERVER_NAMES["retention.ms"])
ALL_SERVER_NAMES = tuple(each.name for names in SERVER_NAMES.values() for each in names)


def log_config_of_server(properties: Mapping[str, str], base: LogConfig) -> LogConfig:
    """Override `base` by the properties that have server names; other names are ignored.

    Raises ConfigError, which names the server's property, for a value that cannot be used.
    """
    chosen: dict[str, str] = {}
    for topic_name, names in SERVER_NAMES.items():
        given = next((each for each in names if each.name in properties), None)
        if given is None:
            continue
        chosen[topic_name] = _in_units_of_topic(given, properties[given.name])
        try:
            LogConfig.from_properties({topic_name: chosen[topic_name]})
        except ConfigError as error:
            raise ConfigError(
                f"{given.name}={properties[given.name]}: sets the topic property {error}"
            ) from error
    return LogConfig.from_properties({**base.to_properties(), **chosen})


def _in_units_of_topic(given: ServerName, text: str) -> str:
    """Convert to the units of the topic property.

    A negative retention becomes -1: no limit. Raises ConfigError for a retention of 0, which would delete every
    record at once (a topic may ask for that, a broker may not), and for hours and minutes of more than 32 bits.
    """
    is_retention = given.name in _RETENTION_NAMES
    if given.unit == 1 and not is_retention:
        return text
    try:
        number = parse_integer(text.strip())
    except ValueError as error:
        raise ConfigError(f"{given.name}={text}: must be a number") from error
    if given.unit > 1 and not -INT_MAX - 1 <= number <= INT_MAX:
        raise ConfigError(f"{given.name}={text}: must be in [{-INT_MAX - 1}, {INT_MAX}]")
    if is_retention and number == 0:
        raise ConfigError(f"{given.name}={text}: must be at least 1, or -1 for no limit")
    return str(number * given.unit) if number >= 0 else "-1"
