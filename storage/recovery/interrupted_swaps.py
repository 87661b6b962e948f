"""The files that a crash may have left in a partition directory, and what a start does with them.

| suffix | at start-up |
| --- | --- |
| `.deleted` | deleted, but for `.checkpoint.deleted` |
| `.snapshot.tmp` | deleted: a job that did not end |
| `.cleaned` | deleted: a compaction that did not end |
| `.swap` | finished, unless a `.cleaned` of the same operation is still there |

Kafka: LogLoader.removeTempFilesAndCollectSwapFiles and the passes of load; rules LL6 to LL10.
"""

from __future__ import annotations

import logging
from itertools import groupby

from storage.disk.filesystem import FileSystem, join
from storage.producers.prepared_snapshot import UNFINISHED_SUFFIX
from storage.recovery.request import LoadRequest
from storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    LogSegment,
    log_path,
    offset_name,
)
from storage.segment.file_records import FileRecords
from storage.segment.live_files import LONG_END, is_file, offset_of_name
from storage.segment.lookups import read_next_offset
from storage.segment.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX

logger = logging.getLogger(__name__)

_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_LEFTOVER_SUFFIXES = (DELETED_SUFFIX, UNFINISHED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
# The controller's snapshots have this suffix.
_KEPT_SUFFIX = ".checkpoint" + DELETED_SUFFIX


def finish_interrupted_swaps(request: LoadRequest) -> frozenset[int]:
    """Finish or undo each swap of segments, so that all files of segments in the directory are live (LL6 to LL9).

    Returns the base offsets of the swapped-in segments that have no offset index. Raises OSError: a later start
    continues where this one stopped.
    """
    file_system, directory = request.file_system, request.directory
    swaps = _remove_leftovers(file_system, directory)
    if not swaps:
        return frozenset()
    low, high = _swap_range(request, swaps)
    for name in file_system.list(directory):
        offset = offset_of_name(name)
        is_replaced = not name.endswith(SWAP_SUFFIX) and offset is not None and low <= offset < high
        if is_replaced and is_file(file_system, join(directory, name)):
            logger.info("file deleted, a finished swap replaces it: path=%s", join(directory, name))
            file_system.unlink(join(directory, name))
    # The swap files still show which files they replace: the deletions must be durable before the renames.
    file_system.sync_directory(directory)
    _rename_swaps(file_system, directory)
    bases = {base for base in map(offset_of_name, swaps) if base is not None}
    return frozenset(base for base in bases if _is_without_index(base, swaps))


def _is_without_index(base_offset: int, swaps: list[str]) -> bool:
    name = offset_name(base_offset)
    return name + LOG_SUFFIX + SWAP_SUFFIX in swaps and name + INDEX_SUFFIX + SWAP_SUFFIX not in swaps


def _remove_leftovers(file_system: FileSystem, directory: str) -> list[str]:
    """Delete what no swap needs, and undo swaps that were not complete (LL6). Returns the names of the other swaps."""
    names = [name for name in file_system.list(directory) if name.endswith(_LEFTOVER_SUFFIXES)]
    names = [name for name in names if is_file(file_system, join(directory, name))]
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    least_cleaned = min((offset_of_name(name) or 0 for name in cleaned), default=LONG_END)
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    undone = [name for name in swaps if (offset_of_name(name) or 0) >= least_cleaned]
    deleted = [name for name in names if name.endswith((DELETED_SUFFIX, UNFINISHED_SUFFIX))]
    _remove(file_system, directory, [name for name in deleted if not name.endswith(_KEPT_SUFFIX)])
    _remove(file_system, directory, undone)
    # The undone swap files must not come back without the `.cleaned` files that show they are half of a replacement.
    if undone:
        file_system.sync_directory(directory)
    _remove(file_system, directory, cleaned)
    return [name for name in swaps if name not in undone]


def _remove(file_system: FileSystem, directory: str, names: list[str]) -> None:
    for name in names:
        logger.info("file of an interrupted change deleted: path=%s", join(directory, name))
        file_system.unlink(join(directory, name))


def _swap_range(request: LoadRequest, swaps: list[str]) -> tuple[int, int]:
    """The least base offset and the greatest next offset (exclusive) of the swapped-in segments (LL7)."""
    low, high = LONG_END, -1
    for name in swaps:
        base_offset = offset_of_name(name)
        if base_offset is None or not name.removesuffix(SWAP_SUFFIX).endswith(LOG_SUFFIX):
            continue
        low = min(low, base_offset)
        high = max(high, base_offset, _next_offset_of_swap(request, base_offset))
    return low, high


def _next_offset_of_swap(request: LoadRequest, base_offset: int) -> int:
    """The offset after the last one of a swap file, found by its index if that is a swap file too, else by a scan.

    Without an index Kafka makes an empty one, which then becomes live (T40), and after a crash between the renames it
    replaces the sound one. Here no index is made, and the segment is recovered.
    """
    file_system, directory = request.file_system, request.directory
    if not file_system.exists(join(directory, offset_name(base_offset) + INDEX_SUFFIX + SWAP_SUFFIX)):
        records = FileRecords(file_system, log_path(directory, base_offset, SWAP_SUFFIX), read_only=True)
        try:
            return max((batch.next_offset for batch in records.batches()), default=base_offset)
        finally:
            records.close_handlers()
    segment = LogSegment.open(
        file_system,
        directory,
        base_offset,
        request.config,
        request.now_ms,
        file_already_exists=True,
        suffix=SWAP_SUFFIX,
    )
    try:
        return read_next_offset(segment)
    finally:
        segment.close_handlers()


def _rename_swaps(file_system: FileSystem, directory: str) -> None:
    """Rename the swap files to their live names, one base offset after the other (LL9).

    A file that is live already must not be in the range of those that are not: a start would delete it.
    """
    names = [name for name in file_system.list(directory) if name.endswith(SWAP_SUFFIX)]
    for _, of_one_base in groupby(names, key=offset_of_name):
        for name in of_one_base:
            file_system.rename(join(directory, name), join(directory, name.removesuffix(SWAP_SUFFIX)))
        file_system.sync_directory(directory)
