"""Replace old segments by new ones so that a crash at any moment leaves either the old ones or the new ones whole.

| step | names | a crash after it |
| --- | --- | --- |
| the caller wrote and synced the new ones | `X.log.cleaned` | start-up deletes them and keeps the old ones |
| the new ones renamed from the highest base down | `X.log.swap` | start-up undoes all while a `.cleaned` is left |
| the old ones renamed | `Y.log.deleted` | start-up deletes the old ones of the swapped range and ends the swap |
| the new ones renamed from the lowest base up | `X.log` | the new ones are live |

The files beside each `.log` are renamed with it. Kafka: LocalLog.replaceSegments; rules LL27 to LL29. Kafka syncs the
directory once, at the end. Any subset of the renames that are not synced may survive a power loss, so here each step is
on the disk before the next one relies on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage.config import LogConfig
from storage.disk.filesystem import FileSystem, join
from storage.segment.names import CLEANED_SUFFIX, DELETED_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX, offset_name
from storage.segment.segment import LogSegment
from storage.segment.segments import LogSegments

# Called with a segment that has left the log, under its `.deleted` names.
DeleteFiles = Callable[[LogSegment], None]


def delete_now(segment: LogSegment) -> None:
    segment.delete()


def create_cleaned_segment(
    file_system: FileSystem, directory: str, base_offset: int, config: LogConfig, now_ms: int
) -> LogSegment:
    """Create an empty segment with `.cleaned` names; files that an earlier attempt left are deleted first."""
    for suffix in SEGMENT_SUFFIXES:
        path = join(directory, offset_name(base_offset) + suffix + CLEANED_SUFFIX)
        if file_system.exists(path):
            file_system.unlink(path)
    segment = LogSegment.open(file_system, directory, base_offset, config, now_ms, suffix=CLEANED_SUFFIX)
    assert segment.size_bytes == 0, segment
    return segment


def replace_segments(
    file_system: FileSystem,
    directory: str,
    segments: LogSegments,
    new_segments: Sequence[LogSegment],
    old_segments: Sequence[LogSegment],
    *,
    is_recovered_swap: bool = False,
    delete: DeleteFiles = delete_now,
) -> list[LogSegment]:
    """Make `new_segments` live in `segments`, the map of the log, and take `old_segments` out of it.

    The new ones have the names of `create_cleaned_segment` (`.swap` with `is_recovered_swap`), are open and complete:
    `on_become_inactive`, `flush` and `set_modified` were called. The old ones stay open and readable until `delete` is
    called with each, under its `.deleted` names; it closes and removes the files, at once or after
    `file.delete.delay.ms`. Old ones that retention has removed from the map meanwhile are skipped.

    Returns the old segments whose base offset no new one has: the caller deletes their producer snapshots. Raises
    OSError: the log must go offline then, and its next start undoes or finishes the swap.
    """
    assert new_segments, directory
    coming = sorted(new_segments, key=_base_offset)
    going = sorted((old for old in old_segments if segments.get(old.base_offset) is old), key=_base_offset)
    if not is_recovered_swap:
        _mark_complete(file_system, directory, coming)
    for segment in reversed(coming):
        segments.add(segment)
    _retire(file_system, directory, segments, going, coming)
    for segment in coming:
        segment.change_file_suffixes(SWAP_SUFFIX, "")
        # A start that finds swaps below and above a live segment would delete the live one.
        file_system.sync_directory(directory)
    for segment in going:
        delete(segment)
    assert all(segments.get(segment.base_offset) is segment for segment in coming), directory
    return [old for old in going if segments.get(old.base_offset) is None]


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset


def _mark_complete(file_system: FileSystem, directory: str, coming: Sequence[LogSegment]) -> None:
    """Rename `.cleaned` to `.swap`, the lowest base offset last.

    While a file of the lowest base offset is `.cleaned`, a start undoes all of them.
    """
    assert coming[0].base_offset <= coming[-1].base_offset, coming
    # The `.cleaned` names must be durable: one that is left makes a start undo those that are `.swap` already.
    file_system.sync_directory(directory)
    if len(coming) > 1:
        for segment in reversed(coming[1:]):
            segment.change_file_suffixes(CLEANED_SUFFIX, SWAP_SUFFIX)
        file_system.sync_directory(directory)
    coming[0].change_file_suffixes(CLEANED_SUFFIX, SWAP_SUFFIX)
    # The `.swap` names must be durable before an old file is renamed.
    file_system.sync_directory(directory)


def _retire(
    file_system: FileSystem,
    directory: str,
    segments: LogSegments,
    going: Sequence[LogSegment],
    coming: Sequence[LogSegment],
) -> None:
    """Take the old segments out of the map and rename them to `.deleted`, durably."""
    coming_bases = {segment.base_offset for segment in coming}
    for segment in going:
        if segment.base_offset not in coming_bases:
            segments.remove(segment.base_offset)
        assert segments.get(segment.base_offset) is not segment, segment
        segment.change_file_suffixes("", DELETED_SUFFIX)
    # Without this sync a power loss could bring an old one back beside the one that replaces it.
    file_system.sync_directory(directory)
