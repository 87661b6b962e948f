"""Finds the topics, partitions and segments of a log directory, read-only. This module does not use Spark."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from storage.disk.checkpoints import OffsetCheckpoint
from storage.disk.filesystem import FileSystem, join
from storage.topics import BadDirectoryName, parse_directory_name

# Kafka's numbers for these offsets; its Spark source accepts them in JSON.
EARLIEST, LATEST = -2, -1
# The ending of a segment that takes the place of others, and how often and in which interval to look for its end.
_SWAP = ".log.swap"
_LOOKS = 50
_LOOK_S = 0.05


class SourceError(Exception):
    """An option or a directory that the source cannot use; its message is one line with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRange:
    """One task: the records of one segment file with `start_offset` <= offset < `end_offset`."""

    path: str
    topic: str
    partition: int
    base_offset: int
    start_offset: int
    end_offset: int
    # Only in the last segment a torn tail is no damage: a running writer leaves one at times.
    is_last: bool


def partitions_of(file_system: FileSystem, directory: str) -> list[tuple[str, int, str]]:
    """Returns (topic, partition, path) of each live partition directory, sorted, without `-delete`, `-future` and
    `-stray` ones.
    """
    found = []
    for name in file_system.list(directory):
        path = join(directory, name)
        if not file_system.stat(path).is_directory:
            continue
        try:
            parsed = parse_directory_name(name)
        except BadDirectoryName:
            # Folders of other programs may be beside the logs.
            continue
        if not parsed.suffix:
            found.append((parsed.topic, parsed.partition, path))
    return sorted(found)


def topic_filter(options: Mapping[str, str]) -> Callable[[str, int], bool]:
    """Returns a predicate that selects the topics and partitions to read; it selects all without one of the options.

    Kafka's options are `assign`, `subscribe` and `subscribePattern`. Raises SourceError for two of them, and for one
    that does not parse.
    """
    given = [name for name in ("assign", "subscribe", "subscribepattern") if name in options]
    if len(given) > 1:
        raise SourceError(
            f"only one of assign, subscribe and subscribePattern may be given, not {', '.join(given)}"
        )
    if "assign" in options:
        assigned = _json_object(options, "assign")
        if not all(isinstance(parts, list) and all(map(_is_whole, parts)) for parts in assigned.values()):
            raise SourceError('option assign is like {"topic": [0, 1]}, a list of partitions for each topic')
        return lambda topic, partition: partition in assigned.get(topic, [])
    if "subscribe" in options:
        topics = {name.strip() for name in options["subscribe"].split(",")}
        return lambda topic, partition: topic in topics
    if "subscribepattern" in options:
        try:
            pattern = re.compile(options["subscribepattern"])
        except re.error as error:
            raise SourceError(f"subscribePattern is not a regular expression: {error}") from error
        return lambda topic, partition: pattern.fullmatch(topic) is not None
    return lambda topic, partition: True


def offset_bound(options: Mapping[str, str], name: str, default: int) -> Callable[[str, int], int]:
    """Returns the bound of each topic and partition by the option `name` (`startingOffsets` or `endingOffsets`).

    The option is `earliest`, `latest` or JSON {"topic": {"0": offset}}; `default` where it says nothing. Raises
    SourceError for text that is not JSON.
    """
    text = options.get(name.lower())
    if text is None:
        return lambda topic, partition: default
    if text in ("earliest", "latest"):
        named = EARLIEST if text == "earliest" else LATEST
        return lambda topic, partition: named
    table = _json_object(options, name.lower())
    if not all(isinstance(parts, dict) and all(map(_is_whole, parts.values())) for parts in table.values()):
        raise SourceError(f'option {name} is like {{"topic": {{"0": 23}}}}, an offset for each partition')
    return lambda topic, partition: int(table.get(topic, {}).get(str(partition), default))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _json_object(options: Mapping[str, str], name: str) -> dict[str, Any]:
    try:
        parsed = json.loads(options[name])
    except ValueError as error:
        words = "earliest, latest or " if "offsets" in name else ""
        raise SourceError(f"option {name}: expected {words}JSON, got {options[name]!r} ({error})") from error
    if not isinstance(parsed, dict):
        raise SourceError(f"option {name} must be a JSON object")
    return parsed


def segment_ranges(file_system: FileSystem, directory: str, options: Mapping[str, str]) -> list[SegmentRange]:
    """Returns the tasks of a read: one for each segment that may contain a wanted offset. Raises SourceError."""
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
        names = _segments_of(file_system, path)
        ranges += _of_partition(names, path, topic, partition, first, last if last != LATEST else 1 << 63)
    return ranges


def log_start_offset(file_system: FileSystem, directory: str, topic: str, partition: int) -> int:
    """Returns the log start offset by the log directory's checkpoint; 0 without an entry."""
    path = join(directory, "log-start-offset-checkpoint")
    # `OffsetCheckpoint` would create a missing file, and a reader creates nothing.
    if not file_system.exists(path):
        return 0
    return OffsetCheckpoint(file_system, path).read().get((topic, partition), 0)


def _segments_of(file_system: FileSystem, path: str) -> list[str]:
    """Returns the names of a partition's segments. Waits while a compaction replaces some: they have no names then.

    Raises SourceError if it does not end: a crash has left it so, and the next start of the node ends it.
    """
    for _ in range(_LOOKS):
        names = file_system.list(path)
        if not any(name.endswith(_SWAP) for name in names):
            return [name for name in names if re.fullmatch(r"\d{20,}\.log", name)]
        time.sleep(_LOOK_S)
    raise SourceError(
        f"{path}: a compaction was interrupted; start its node, or recover it with `replog log recover`"
    )


def _of_partition(
    names: list[str], path: str, topic: str, partition: int, start: int, end: int
) -> list[SegmentRange]:
    """Returns a task for each segment, up to the next segment's base: a compaction may join them before it runs."""
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
                    end_offset=min(end, next_base),
                    is_last=index + 1 == len(names),
                )
            )
    return ranges
