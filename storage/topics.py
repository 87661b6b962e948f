"""Topic names, and the directories of partitions.

| name                             | what                                                           |
| -------------------------------- | -------------------------------------------------------------- |
| `TOPIC-PARTITION`                | a live log                                                     |
| `TOPIC-PARTITION.HEX-delete`     | about to go; the topic is cut so that the whole stays <= 255   |
| `TOPIC-PARTITION.HEX-future`     | a copy moving in from another log directory; never cut         |
| `TOPIC-PARTITION.HEX-stray`      | a replica that the metadata does not know; cut likewise        |

HEX is 32 hex digits. A topic may hold dashes and dots: the partition stands after the last dash.
Kafka: Topic, LocalLog.parseTopicPartitionName.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from storage.errors import ForeignDirectory, InvalidTopic

MAX_TOPIC_LENGTH = 249
MAX_NAME_LENGTH = 255
DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"
METADATA_TOPIC = "__cluster_metadata"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_SUFFIXES = (DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX)
_PARTITION = re.compile(r"[0-9]{1,10}", re.ASCII)


class BadDirectoryName(ForeignDirectory):
    """A sub-directory of a log directory that names no partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDirectory:
    topic: str
    partition: int
    suffix: str = ""  # one of the three, or none for a live log


def check_topic_name(name: str) -> None:
    """Raises InvalidTopic. No name that passes leaves the data directory or hides in it."""
    if not name:
        raise InvalidTopic("topic name is empty")
    if name in (".", ".."):
        raise InvalidTopic(f"topic name cannot be {name!r}")
    if len(name) > MAX_TOPIC_LENGTH:
        raise InvalidTopic(f"topic name has {len(name)} characters, the most are {MAX_TOPIC_LENGTH}")
    if not _LEGAL.fullmatch(name):
        raise InvalidTopic(
            f"topic name {name!r} has a character other than ASCII letters, digits, '.', '_', '-'"
        )


def names_collide(topic: str, other: str) -> bool:
    """Whether they differ in `.` and `_` only: their metrics would fall together. Kafka: Topic.hasCollision."""
    return topic.replace(".", "_") == other.replace(".", "_")


def directory_name(topic: str, partition: int) -> str:
    assert partition >= 0, partition
    return f"{topic}-{partition}"


def suffixed_directory_name(topic: str, partition: int, unique_hex: str, suffix: str) -> str:
    """The name under which a log leaves (or a future one comes); at most 255 characters but for a future one."""
    assert suffix in _SUFFIXES and len(unique_hex) == 32, (unique_hex, suffix)
    tail = f"-{partition}.{unique_hex}{suffix}"
    kept = topic if suffix == FUTURE_SUFFIX else topic[: MAX_NAME_LENGTH - len(tail)]
    return kept + tail


def parse_directory_name(name: str) -> PartitionDirectory:
    """Raises BadDirectoryName."""
    suffix = next((each for each in _SUFFIXES if name.endswith(each)), "")
    live = name
    if suffix:
        if not re.fullmatch(rf"(\S+)-(\S+)\.(\S+){suffix}", name):
            raise BadDirectoryName(f"{name}: expected TOPIC-PARTITION.ID{suffix} from what ends in {suffix}")
        live = name[: name.rindex(".")]
    topic, dash, partition = live.rpartition("-")
    if not (dash and topic and _PARTITION.fullmatch(partition)) or int(partition) >= 1 << 31:
        raise BadDirectoryName(f"{name}: no directory of a partition, expected TOPIC-PARTITION")
    return PartitionDirectory(topic=topic, partition=int(partition), suffix=suffix)
