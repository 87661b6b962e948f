"""Verifies that each entry in a segment's indexes agrees with its `.log`. Which batches have an entry is not checked:
many choices are correct (T1).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from storage.disk.filesystem import FileSystem, join
from storage.index import offset_index, time_index
from storage.inspection.verify.sliced import Finding, SlicedIndex, first_findings
from storage.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, offset_name


class BatchPlace(NamedTuple):
    """The facts about one batch that index entries are compared with."""

    position: int
    base_offset: int
    last_offset: int
    max_timestamp: int


@dataclass(slots=True, kw_only=True)
class SegmentFacts:
    """The facts about one segment's `.log`, in columns with an element for each batch."""

    base_offset: int
    is_last: bool
    # Whether a node uses the segment.
    in_use: bool = False
    size_bytes: int = 0
    positions: list[int] = field(default_factory=list)
    base_offsets: list[int] = field(default_factory=list)
    last_offsets: list[int] = field(default_factory=list)
    timestamps_so_far: list[int] = field(default_factory=list)

    def add(self, batch: BatchPlace) -> None:
        """Add the next batch of the `.log`."""
        so_far = self.timestamps_so_far[-1] if self.timestamps_so_far else -1
        self.positions.append(batch.position)
        self.base_offsets.append(batch.base_offset)
        self.last_offsets.append(batch.last_offset)
        self.timestamps_so_far.append(max(so_far, batch.max_timestamp))


def check_indexes(file_system: FileSystem, directory: str, facts: SegmentFacts) -> Iterator[Finding]:
    """Compare the offset and the time index of one segment with its `.log`."""
    stem = offset_name(facts.base_offset)
    path = join(directory, stem + INDEX_SUFFIX)
    if file_system.exists(path):
        yield from first_findings(_check_offset_index(file_system, path, facts), path)
    # The index of the active segment is created at its first use.
    elif not facts.is_last:
        yield path, None, "LL10", "missing: the segment would be recovered at the next start"
    path = join(directory, stem + TIME_INDEX_SUFFIX)
    if file_system.exists(path):
        yield from first_findings(_check_time_index(file_system, path, facts), path)


def _check_tail(index: SlicedIndex, used: int, facts: SegmentFacts) -> Iterator[Finding]:
    if used < index.size_bytes and not facts.is_last:
        yield (
            index.path,
            used,
            "LS14",
            "an unused tail, though the segment is not the last: it counts as entries",
        )


def _may_be_left_behind(index: SlicedIndex, used: int, facts: SegmentFacts) -> bool:
    """Whether entries may stand in the file that the index does not have any more.

    A truncation of the active segment leaves them there until they are written over (IX16), perhaps in the whole file.
    How many entries count only the node knows that uses the file; a close cuts the file to them, and a start after a
    crash makes it again.
    """
    return facts.is_last and (facts.in_use or used < index.size_bytes)


def _check_offset_index(file_system: FileSystem, path: str, facts: SegmentFacts) -> Iterator[Finding]:
    index = SlicedIndex(file_system, path, offset_index.ENTRY.size)
    try:
        yield from index.check_size("IX17")
        if index.is_too_large:
            return
        used = index.used_bytes()
        yield from _check_tail(index, used, facts)
        if not _may_be_left_behind(index, used, facts):
            yield from _check_offset_entries(index, used, facts)
    finally:
        index.close()


def _check_offset_entries(index: SlicedIndex, used: int, facts: SegmentFacts) -> Iterator[Finding]:
    before, path = -1, index.path
    for start, content in index.slices(used):
        for slot, (relative, position) in enumerate(offset_index.ENTRY.iter_unpack(content)):
            at = start + slot * offset_index.ENTRY.size
            offset = facts.base_offset + relative
            if relative < 0 or relative <= before:
                yield path, at, "IX13", f"offset {offset} is not above the one before"
            before = max(before, relative)
            row = bisect_left(facts.positions, position)
            if row == len(facts.positions) or facts.positions[row] != position:
                yield path, at, "IX14", f"no batch begins at byte {position} of the log"
            elif facts.base_offsets[row] > offset or (row > 0 and facts.last_offsets[row - 1] >= offset):
                yield path, at, "IX14", f"offset {offset} is before the batch at byte {position} of the log"


def _check_time_index(file_system: FileSystem, path: str, facts: SegmentFacts) -> Iterator[Finding]:
    index = SlicedIndex(file_system, path, time_index.ENTRY.size)
    try:
        yield from index.check_size("IX24")
        if index.is_too_large:
            return
        used = index.used_bytes()
        yield from _check_tail(index, used, facts)
        if not _may_be_left_behind(index, used, facts):
            yield from _check_time_entries(index, used, facts)
    finally:
        index.close()


def _check_time_entries(index: SlicedIndex, used: int, facts: SegmentFacts) -> Iterator[Finding]:
    time_before, offset_before, path = -1, -1, index.path
    for start, content in index.slices(used):
        for slot, (timestamp, relative) in enumerate(time_index.ENTRY.iter_unpack(content)):
            at = start + slot * time_index.ENTRY.size
            offset = facts.base_offset + relative
            if timestamp <= time_before or relative < max(offset_before, 0):
                yield path, at, "IX20", f"entry ({timestamp}, {offset}) is not above the one before"
            time_before, offset_before = max(time_before, timestamp), max(offset_before, relative)
            covered = bisect_right(facts.last_offsets, offset)
            if covered and facts.timestamps_so_far[covered - 1] > timestamp:
                later = facts.timestamps_so_far[covered - 1]
                yield (
                    path,
                    at,
                    "IX21",
                    f"timestamp {later} is at or before offset {offset}, above {timestamp}",
                )
            elif not facts.last_offsets or offset > facts.last_offsets[-1]:
                yield path, at, "IX21", f"offset {offset} is not in the segment"
            elif not covered or facts.timestamps_so_far[covered - 1] < timestamp:
                yield path, at, "IX21", f"no batch up to offset {offset} has timestamp {timestamp}"
