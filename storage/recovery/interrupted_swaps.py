"""What lies in a partition directory at start-up: leftovers of a crash, and the live files.

| suffix | at start-up |
| --- | --- |
| `.deleted` | deleted, but for `.checkpoint.deleted` |
| `.cleaned` | deleted: a compaction that did not end |
| `.swap` | finished, unless a `.cleaned` of the same operation is still there |

Kafka: LogLoader.removeTempFilesAndCollectSwapFiles and the passes of load; rules LL6 to LL10.
"""

from __future__ import annotations

import logging
from itertools import groupby

from storage.disk.filesystem import FileSystem, join
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
from storage.segment.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX

logger = logging.getLogger(__name__)

_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_LEFTOVER_SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
_KEPT_SUFFIX = ".checkpoint" + DELETED_SUFFIX  # of the controller's snapshots


def finish_interrupted_swaps(request: LoadRequest) -> frozenset[int]:
    """LL6 to LL9: after it the directory holds live files only (and what is no segment's).

    Gives the base offsets of the swaps that came without an offset index.
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
            logger.info("replaced by a finished swap, deleted: path=%s", join(directory, name))
            file_system.unlink(join(directory, name))
    file_system.sync_directory(directory)  # while the swap files still tell what they replace
    _rename_swaps(file_system, directory)
    bases = {base for base in map(offset_of_name, swaps) if base is not None}
    return frozenset(base for base in bases if _is_without_index(base, swaps))


def _is_without_index(base_offset: int, swaps: list[str]) -> bool:
    name = offset_name(base_offset)
    return name + LOG_SUFFIX + SWAP_SUFFIX in swaps and name + INDEX_SUFFIX + SWAP_SUFFIX not in swaps


def _remove_leftovers(file_system: FileSystem, directory: str) -> list[str]:
    """LL6; gives the names of the swap files that stay."""
    names = [name for name in file_system.list(directory) if name.endswith(_LEFTOVER_SUFFIXES)]
    names = [name for name in names if is_file(file_system, join(directory, name))]
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    least_cleaned = min((offset_of_name(name) or 0 for name in cleaned), default=LONG_END)
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    undone = [name for name in swaps if (offset_of_name(name) or 0) >= least_cleaned]
    deleted = [name for name in names if name.endswith(DELETED_SUFFIX)]
    _remove(file_system, directory, [name for name in deleted if not name.endswith(_KEPT_SUFFIX)])
    _remove(file_system, directory, undone)
    if undone:  # they must not come back without the `.cleaned` ones that say they are half of something
        file_system.sync_directory(directory)
    _remove(file_system, directory, cleaned)
    return [name for name in swaps if name not in undone]


def _remove(file_system: FileSystem, directory: str, names: list[str]) -> None:
    for name in names:
        logger.info("leftover deleted: path=%s", join(directory, name))
        file_system.unlink(join(directory, name))


def _swap_range(request: LoadRequest, swaps: list[str]) -> tuple[int, int]:
    """Least base offset and greatest next offset of the swapped-in segments (LL7)."""
    low, high = LONG_END, -1
    for name in swaps:
        base_offset = offset_of_name(name)
        if base_offset is None or not name.removesuffix(SWAP_SUFFIX).endswith(LOG_SUFFIX):
            continue
        low = min(low, base_offset)
        high = max(high, base_offset, _next_offset_of_swap(request, base_offset))
    return low, high


def _next_offset_of_swap(request: LoadRequest, base_offset: int) -> int:
    """By the index if that is a swap file too, else from the `.log` alone.

    Kafka makes an index for want of one, which then goes live (T40): empty, and when a crash came between the renames
    in place of the sound one. Here there is none then, and the segment is recovered.
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
        return segment.read_next_offset()
    finally:
        segment.close_handlers()


def _rename_swaps(file_system: FileSystem, directory: str) -> None:
    """LL9, one base offset after the other: what is live already must not lie in the range of what is not."""
    names = [name for name in file_system.list(directory) if name.endswith(SWAP_SUFFIX)]
    for _, of_one_base in groupby(names, key=offset_of_name):
        for name in of_one_base:
            file_system.rename(join(directory, name), join(directory, name.removesuffix(SWAP_SUFFIX)))
        file_system.sync_directory(directory)
