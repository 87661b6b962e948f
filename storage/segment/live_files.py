"""The files of segments in a partition directory, found by one listing. Kafka: LogLoader.loadSegmentFiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from storage.disk.filesystem import FileSystem, found_at, join
from storage.segment.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
)

# One above the greatest offset that a name may hold.
LONG_END: Final = 1 << 63
_INDEX_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFiles:
    """The base offsets of the `.log` files, ascending; the paths of indexes without a `.log`; all names."""

    base_offsets: list[int]
    orphan_indexes: list[str]
    names: frozenset[str]


def offset_of_name(name: str) -> int | None:
    """The number before the first dot of `name`; None where there is no number, or one above the greatest offset."""
    stem, dot, _ = name.partition(".")
    digits = stem.removeprefix("-")
    if not (dot and digits.isascii() and digits.isdigit()):
        return None
    offset = int(stem)
    return offset if offset < LONG_END else None


def is_file(file_system: FileSystem, path: str) -> bool:
    """Whether `path` leads to something that is no directory. Raises OSError."""
    found = found_at(file_system, path)
    return found is not None and not found.is_directory


def list_live_files(file_system: FileSystem, directory: str) -> LiveFiles:
    """List the segments' files without opening them: a log of thousands of segments has to open fast."""
    names = file_system.list(directory)
    base_offsets, orphans, present = [], [], frozenset(names)
    for name in names:
        offset = offset_of_name(name)
        if offset is None or offset < 0:
            continue
        if name.endswith(LOG_SUFFIX) and name == offset_name(offset) + LOG_SUFFIX:
            base_offsets.append(offset)
        elif name.endswith(_INDEX_SUFFIXES) and offset_name(offset) + LOG_SUFFIX not in present:
            path = join(directory, name)
            if is_file(file_system, path):
                orphans.append(path)
    return LiveFiles(base_offsets=sorted(base_offsets), orphan_indexes=orphans, names=present)
