"""What a log directory holds, seen from outside and read-only: topics, partitions, segments. No Spark in here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from storage.disk.checkpoints import OffsetCheckpoint
from storage.disk.filesystem import FileSystem, join
from storage.topics import BadDirectoryName, parse_directory_name

EARLIEST, LATEST = -2, -1  # Kafka's numbers, as its Spark source takes them in JSON


class SourceError(Exception):
    """An option or a directory that the source cannot use; one line says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRange:
    """One task: the records of one segment file with `start_offset` <= offset < `end_offset`."""

    path: str
    topic: str
    partition: int
    base_offset: int
    start_offset: int
    end_offset: int
    is_last: bool  # a torn tail is what a running writer shows, and no damage, only in the last segment


def partitions_of(file_system: FileSystem, directory: str) -> list[tuple[str, int, str]]:
    """(topic, partition, path) of each live partition directory, sorted; `-delete`, `-future`, `-stray` left out."""
    found = []
    for name in file_system.list(directory):
        path = join(directory, name)
        if not file_system.stat(path).is_directory:
            continue
        try:
            parsed = parse_directory_name(name)
        except BadDirectoryName:
            continue  # a folder of somebody else's beside the logs is not ours to judge
        if not parsed.suffix:
            found.append((parsed.topic, parsed.partition, path))
    return sorted(found)


def topic_filter(options: Mapping[str, str]) -> Callable[[str, int], bool]:
    """Kafka's three ways to name topics (`assign`, `subscribe`, `subscribePattern`; at most one); none: every topic."""
    given = [name for name in ("assign", "subscribe", "subscribepattern") if name in options]
    if len(given) > 1:
        raise SourceError(
            f"only one of assign, subscribe and subscribePattern may be given, not {', '.join(given)}"
        )
    if "assign" in options:
        assigned = {topic: list(parts) for topic, parts in _json_object(options, "assign").items()}
        return lambda topic, partition: partition in assigned.get(topic, [])
    if "subscribe" in options:
        topics = {name.strip() for name in options["subscribe"].split(",")}
        return lambda topic, partition: topic in topics
    if "subscribepattern" in options:
        try:
            pattern = re.compile(options["subscribepattern"])
        except re.error as error:
            raise SourceError(f"subscribePattern is no regular expression: {error}") from error
        return lambda topic, partition: pattern.fullmatch(topic) is not None
    return lambda topic, partition: True


def offset_bound(options: Mapping[str, str], name: str, default: int) -> Callable[[str, int], int]:
    """`startingOffsets` or `endingOffsets`: `earliest`, `latest` or JSON {"topic": {"0": offset}}."""
    text = options.get(name.lower())
    if text is None:
        return lambda topic, partition: default
    if text in ("earliest", "latest"):
        named = EARLIEST if text == "earliest" else LATEST
        return lambda topic, partition: named
    table = _json_object(options, name.lower())
    return lambda topic, partition: int(table.get(topic, {}).get(str(partition), default))


def _json_object(options: Mapping[str, str], name: str) -> dict[str, Any]:
    try:
        parsed = json.loads(options[name])
    except ValueError as error:
        raise SourceError(f"option {name} is no JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise SourceError(f"option {name} must be a JSON object")
    return parsed


def segment_ranges(file_system: FileSystem, directory: str, options: Mapping[str, str]) -> list[SegmentRange]:
    """The tasks of a read, one a segment, only those whose offsets can matter."""
    wanted = topic_filter(options)
    starting = offset_bound(options, "startingOffsets", EARLIEST)
    ending = offset_bound(options, "endingOffsets", LATEST)
    ranges: list[SegmentRange] = []
    for topic, partition, path in partitions_of(file_system, directory):
        if not wanted(topic, partition):
            continue
        start, end = starting(topic, partition), ending(topic, partition)
        if start == LATEST or end == EARLIEST:
            continue
        first, last = max(start, log_start_offset(file_system, directory, topic, partition)), end
        ranges += _of_partition(
            file_system, path, topic, partition, first, last if last != LATEST else 1 << 63
        )
    return ranges


def log_start_offset(file_system: FileSystem, directory: str, topic: str, partition: int) -> int:
    """What the log directory's checkpoint says was deleted below; 0 without an entry."""
    path = join(directory, "log-start-offset-checkpoint")
    if not file_system.exists(path):  # opening a missing checkpoint creates it, and a reader creates nothing
        return 0
    return OffsetCheckpoint(file_system, path).read().get((topic, partition), 0)


def _of_partition(
    file_system: FileSystem, path: str, topic: str, partition: int, start: int, end: int
) -> list[SegmentRange]:
    names = [name for name in file_system.list(path) if re.fullmatch(r"\d{20,}\.log", name)]
    bases = [int(name.split(".", 1)[0]) for name in names]
    ranges = []
    for index, name in enumerate(names):
        next_base = bases[index + 1] if index + 1 < len(bases) else 1 << 63
        if bases[index] < end and next_base > start:
            ranges.append(
                SegmentRange(
                    path=join(path, name),
                    topic=topic,
                    partition=partition,
                    base_offset=bases[index],
                    start_offset=start,
                    end_offset=end,
                    is_last=index + 1 == len(names),
                )
            )
    return ranges
