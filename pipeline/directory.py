"""Finds the topics, partitions and segments of a log directory, read-only. This module does not use Spark."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.errors import SourceError
from pipeline.offsets import ENDING, LATEST, STARTING, is_whole, json_object, offset_option
from pipeline.options import flag
from storage.disk.checkpoints import LOG_START_OFFSET_CHECKPOINT, OffsetCheckpoint
from storage.disk.filesystem import FileSystem, basename, dirname, is_directory, join
from storage.errors import CorruptBatch, CorruptCheckpoint
from storage.inspection.verify.directory import looks_like_log_directory
from storage.inspection.verify.partition import is_partition_directory, partition_directories
from storage.segment.file_records import FileRecords
from storage.topics import BadDirectoryName, directory_name, parse_directory_name

# The ending of a segment that takes the place of others, and how often and in which interval to look for its end.
_SWAP = ".log.swap"
_LOOKS = 50
_LOOK_S = 0.05


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
        # A topic may be deleted after it was listed.
        if not is_directory(file_system, path):
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
        assigned = json_object(options, "assign")
        if not all(isinstance(parts, list) and all(map(is_whole, parts)) for parts in assigned.values()):
            raise SourceError('option assign is like {"topic": [0, 1]}, a list of partitions for each topic')
        return lambda topic, partition: partition in assigned.get(topic, [])
    if "subscribe" in options:
        topics = {name.strip() for name in options["subscribe"].split(",")}
        return lambda topic, partition: topic in topics
    if "subscribepattern" in options:
        try:
            pattern = re.compile(options["subscribepattern"])
        # Of a number of repeats, or of brackets in brackets, that is too large.
        except (re.error, OverflowError, RecursionError) as error:
            raise SourceError(f"subscribePattern is not a regular expression: {error}") from error
        return lambda topic, partition: pattern.fullmatch(topic) is not None
    return lambda topic, partition: True


def segment_ranges(file_system: FileSystem, directory: str, options: Mapping[str, str]) -> list[SegmentRange]:
    """Returns the tasks of a read: one for each segment that may contain a wanted offset. Raises SourceError."""
    wanted = topic_filter(options)
    starting, ending = offset_option(options, STARTING), offset_option(options, ENDING)
    fail_on_data_loss = flag(options, "failOnDataLoss", default=True)
    found = [each for each in partitions_of(file_system, directory) if wanted(*each[:2])]
    for each in found:
        _check_folder(*each)
    starts = log_start_offsets(file_system, directory, fail_on_data_loss=fail_on_data_loss) if found else {}
    ranges: list[SegmentRange] = []
    for topic, partition, path in found:
        try:
            names = _segments_of(file_system, path, fail_on_data_loss=fail_on_data_loss)
        # The topic was deleted after its folder was found.
        except FileNotFoundError:
            continue
        start = starting.of(topic, partition)
        first = starts.get((topic, partition), 0)
        if start >= 0 and fail_on_data_loss:
            _check_start(file_system, path, names, f"{topic}-{partition}", start, first)
        end = ending.of(topic, partition)
        ranges += _of_partition(
            names, path, topic, partition, max(start, first), end if end != LATEST else 1 << 63
        )
    if not ranges:
        _check_level(file_system, directory)
    for option in (starting, ending):
        option.check_named({each[:2] for each in found})
    return ranges


def _check_folder(topic: str, partition: int, path: str) -> None:
    """Raise SourceError if a node would call the folder otherwise: `t-00` beside `t-0` would count records twice."""
    name = directory_name(topic, partition)
    if basename(path) != name:
        raise SourceError(
            f"{path}: the folder of partition {partition} of {topic} is called {name}: move it away"
        )


def _check_level(file_system: FileSystem, directory: str) -> None:
    """Raise SourceError if nothing shows that `directory` is a log directory."""
    if is_partition_directory(file_system, directory):
        raise SourceError(f"{directory} is one partition: load the directory {dirname(directory) or '.'}")
    if not partition_directories(file_system, directory) and not looks_like_log_directory(
        file_system, directory
    ):
        raise SourceError(f"{directory} is no log directory: it has no folder TOPIC-PARTITION")


def _check_start(
    file_system: FileSystem, path: str, names: list[str], partition: str, start: int, first: int
) -> None:
    """Raise SourceError if the log of these segments does not have the offset to start at, nor ends there."""
    bases = [int(name.split(".", 1)[0]) for name in names]
    first = max([first, *bases[:1]])
    # Most starts need no look into the last segment.
    if bases and first <= start <= bases[-1]:
        return
    end = _end_of(file_system, join(path, names[-1])) if names else first
    if start >= first and (end is None or start <= max(end, first)):
        return
    offsets = (
        f"offsets {first} to {max(end, first)} (exclusive)" if end is not None else f"offsets from {first} on"
    )
    raise SourceError(
        f"{partition}: asked to start at offset {start}, but it has {offsets}; "
        "failOnDataLoss=false reads what is there"
    )


def _end_of(file_system: FileSystem, path: str) -> int | None:
    """Returns the offset after the last batch of a segment, its base without one; None if damage hides it."""
    try:
        records = FileRecords(file_system, path, read_only=True)
    except FileNotFoundError:
        return None
    end, position = int(basename(path).split(".", 1)[0]), 0
    try:
        for batch in records.batches():
            end, position = batch.next_offset, batch.position + batch.size_bytes
    except CorruptBatch:
        # A node that writes a preallocated file has not come to its end yet.
        return end if records.has_only_zeros_from(position) else None
    finally:
        records.close_handlers()
    return end


def log_start_offsets(
    file_system: FileSystem, directory: str, *, fail_on_data_loss: bool
) -> Mapping[tuple[str, int], int]:
    """Returns the log start offsets by the log directory's checkpoint: none without one, and none of a damaged one
    without `fail_on_data_loss`, else raises CorruptCheckpoint.
    """
    path = join(directory, LOG_START_OFFSET_CHECKPOINT)
    # `OffsetCheckpoint` would create a missing file, and a reader creates nothing.
    if not file_system.exists(path):
        return {}
    try:
        return OffsetCheckpoint(file_system, path).read()
    except CorruptCheckpoint:
        if fail_on_data_loss:
            raise
        return {}


def _segments_of(file_system: FileSystem, path: str, *, fail_on_data_loss: bool) -> list[str]:
    """Returns the names of a partition's segments. Waits while a compaction replaces some: they have no names then.

    If that does not end, a crash has left it so, and the next start of the node ends it: raises SourceError, or without
    `fail_on_data_loss` returns the names that are there.
    """
    for _ in range(_LOOKS):
        names = file_system.list(path)
        if not any(name.endswith(_SWAP) for name in names):
            return _logs_in(names)
        time.sleep(_LOOK_S)
    if not fail_on_data_loss:
        return _logs_in(names)
    raise SourceError(
        f"{path}: a compaction was interrupted; start its node, or recover it with `replog log recover`"
    )


def _logs_in(names: Sequence[str]) -> list[str]:
    return [name for name in names if re.fullmatch(r"\d{20,}\.log", name)]


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
