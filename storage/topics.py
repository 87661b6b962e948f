"""Topic names, and the names of partition directories.

| name                             | what                                                           |
| -------------------------------- | -------------------------------------------------------------- |
| `TOPIC-PARTITION`                | a live log                                                     |
| `TOPIC-PARTITION.HEX-delete`     | to be deleted; the topic is cut to keep the name at <= 255     |
| `TOPIC-PARTITION.HEX-future`     | a copy moving in from another log directory; never cut         |
| `TOPIC-PARTITION.HEX-stray`      | a replica that the metadata does not know; topic cut likewise  |

HEX is 32 hex digits. A topic may contain dashes and dots: the partition follows the last dash.
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
    """The parts of a partition directory's name."""

    topic: str
    partition: int
    # One of the three suffixes; empty for a live log.
    suffix: str = ""


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic unless `name` is legal for a topic. A legal name is neither a path that leaves the data
    directory nor `.` or `..`.
    """
    if not name:
        raise InvalidTopic("topic name is empty")
    if name in (".", ".."):
        raise InvalidTopic(f"topic name cannot be {name!r}")
    if len(name) > MAX_TOPIC_LENGTH:
        raise InvalidTopic(f"topic name has {len(name)} characters, at most {MAX_TOPIC_LENGTH} are allowed")
    if not _LEGAL.fullmatch(name):
        raise InvalidTopic(
            f"topic name {name!r} has a character other than ASCII letters, digits, '.', '_', '-'"
        )


def names_collide(topic: str, other: str) -> bool:
    """Whether the names differ in `.` and `_` only: their metrics would collide. Kafka: Topic.hasCollision."""
    return topic.replace(".", "_") == other.replace(".", "_")


def directory_name(topic: str, partition: int) -> str:
    assert partition >= 0, partition
    return f"{topic}-{partition}"


def suffixed_directory_name(topic: str, partition: int, unique_hex: str, suffix: str) -> str:
    """Returns the directory name of a log that is deleted, set aside or moved in: at most 255 characters, except for a
    future log. `unique_hex` is 32 hex digits.
    """
    assert suffix in _SUFFIXES and len(unique_hex) == 32, (unique_hex, suffix)
    tail = f"-{partition}.{unique_hex}{suffix}"
    kept = topic if suffix == FUTURE_SUFFIX else topic[: MAX_NAME_LENGTH - len(tail)]
    return kept + tail


def parse_directory_name(name: str) -> PartitionDirectory:
    """Parse the name of a partition directory. Raises BadDirectoryName."""
    suffix = next((each for each in _SUFFIXES if name.endswith(each)), "")
    live = name
    if suffix:
        if not re.fullmatch(rf"(\S+)-(\S+)\.(\S+){suffix}", name):
            raise BadDirectoryName(
                f"{name}: expected TOPIC-PARTITION.ID{suffix} as the name of a directory that ends in {suffix}"
            )
        live = name[: name.rindex(".")]
    topic, dash, partition = live.rpartition("-")
    if not (dash and topic and _PARTITION.fullmatch(partition)) or int(partition) >= 1 << 31:
        raise BadDirectoryName(f"{name}: expected TOPIC-PARTITION as the name of a partition directory")
    return PartitionDirectory(topic=topic, partition=int(partition), suffix=suffix)
