"""Storage mistakes that a sweep must find. Each is patched into the sound code; `found_by` names the workload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.bugs import Bug, Make, Replacement
from storage.directory.manager import LogManager
from storage.disk.checkpoints import CleanShutdownFile
from storage.disk.filesystem import FileSystem, OpenMode, dirname
from storage.log.local_log import LocalLog
from storage.segment import LogSegment
from storage.segment.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX

Original = Callable[..., object]


def _always(wrong: Original) -> Make:
    return lambda _: wrong


def _nothing(*_: object, **__: object) -> None:
    return None


def _replace_without_sync(file_system: FileSystem, path: str, content: bytes) -> None:
    file = file_system.open(path + ".tmp", OpenMode.CREATE)
    file.set_length(0)
    file.write_at(0, content)
    file.close()
    file_system.rename(path + ".tmp", path)
    file_system.sync_directory(dirname(path))


def _move_recovery_point_only(log: LocalLog) -> None:
    log.raise_recovery_point(log.log_end.offset)


def _cut_without_sync(segment: LogSegment, position: int) -> int:
    return segment.records.truncate_to(position)


class _AnyChecksum(int):
    """A number that equals every checksum."""

    def __ne__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def _any_checksum(*_: object) -> int:
    return _AnyChecksum()


def _forget_timestamp_only(segment: LogSegment) -> None:
    segment._max_timestamp = None


def _write_indexes_if_empty(sound: Original) -> Original:
    def write_indexes(walk: Any) -> None:
        if walk._segment.offset_index.entries == 0 and walk._segment.time_index.entries == 0:
            sound(walk)

    return write_indexes


def _cut_then_delete(sound: Original) -> Original:
    def recover(
        segment: LogSegment, producers: Any, epochs: Any, report: Any, before_cut: Callable[[], None]
    ) -> object:
        removed_bytes = sound(segment, producers, epochs, report)
        if removed_bytes:
            before_cut()
        return removed_bytes

    return recover


def _delete_segments_from_front(log: LocalLog, doomed: list[LogSegment]) -> None:
    for segment in doomed:
        log.segments.remove(segment.base_offset)
        segment.delete()
        log.file_system.sync_directory(log.directory)


def _mark_then_shut_down(sound: Original) -> Original:
    def shutdown(manager: LogManager, *args: Any, **kwargs: Any) -> object:
        CleanShutdownFile(manager._file_system, manager.directory).write(-1)
        return sound(manager, *args, **kwargs)

    return shutdown


def _mark_without_sync(file_system: FileSystem, directory: str, coming: list[LogSegment]) -> None:
    for segment in reversed(coming):
        segment.change_file_suffixes(CLEANED_SUFFIX, SWAP_SUFFIX)


def _retire_without_sync(
    file_system: FileSystem, directory: str, segments: Any, going: list[LogSegment], coming: list[LogSegment]
) -> None:
    bases = {segment.base_offset for segment in coming}
    for segment in going:
        if segment.base_offset not in bases:
            segments.remove(segment.base_offset)
        segment.change_file_suffixes("", DELETED_SUFFIX)


def _rename_nothing(manager: LogManager, log: Any, suffix: str) -> str:
    return str(log.directory)


MISTAKES: tuple[Bug, ...] = (
    Bug(
        name="checkpoint-without-sync",
        story="a checkpoint is renamed into its place before its bytes are on the disk",
        replacements=(
            Replacement(target="storage.disk.checkpoints:replace_file", make=_always(_replace_without_sync)),
        ),
        found_by="create",
    ),
    Bug(
        name="recovery-point-before-sync",
        story="a roll moves the recovery point and leaves the syncs for later",
        replacements=(
            Replacement(
                target="storage.log.local_log:LocalLog._flush_all", make=_always(_move_recovery_point_only)
            ),
        ),
        found_by="roll",
    ),
    Bug(
        name="flush-without-sync",
        story="a flush moves the recovery point and syncs nothing",
        replacements=(
            Replacement(target="storage.log.flushes:PreparedFlush.__call__", make=_always(_nothing)),
        ),
        found_by="append",
    ),
    Bug(
        name="roll-without-sync",
        story="a roll begins a segment before the one before it, and its name, are on the disk",
        replacements=(
            Replacement(target="storage.log.local_log:LocalLog._flush_all", make=_always(_nothing)),
        ),
        found_by="roll",
    ),
    Bug(
        name="truncation-without-sync",
        story="another history is appended before the cut of the old one is on the disk",
        replacements=(
            Replacement(
                target="storage.segment.segment:LogSegment.cut_records", make=_always(_cut_without_sync)
            ),
        ),
        found_by="truncate",
    ),
    Bug(
        name="truncation-from-front",
        story="a truncation deletes the segments it removes from the first on",
        replacements=(
            Replacement(
                target="storage.log.local_log:LocalLog._delete_from_end",
                make=_always(_delete_segments_from_front),
            ),
        ),
        found_by="truncate-segments",
    ),
    Bug(
        name="snapshot-without-checksum",
        story="a producer snapshot is taken as it is",
        replacements=(Replacement(target="storage.producers.snapshot:crc32c", make=_always(_any_checksum)),),
        found_by="start",
    ),
    Bug(
        name="recovery-without-checksum",
        story="recovery takes every whole frame for a sound batch",
        replacements=(
            Replacement(target="storage.segment.file_records:crc32c", make=_always(_any_checksum)),
        ),
        found_by="append",
    ),
    Bug(
        name="recovery-keeps-indexes",
        story="recovery keeps the index entries that it finds",
        replacements=(
            Replacement(
                target="storage.segment.segment:LogSegment.reset_indexes",
                make=_always(_forget_timestamp_only),
            ),
            Replacement(target="storage.recovery.walk:_Walk.write_indexes", make=_write_indexes_if_empty),
        ),
        found_by="truncate",
    ),
    Bug(
        name="recovery-cuts-first",
        story="recovery cuts the damaged segment before it deletes those behind it",
        replacements=(Replacement(target="storage.recovery.loader:recover_segment", make=_cut_then_delete),),
        found_by="start-cut",
    ),
    Bug(
        name="clean-mark-before-flush",
        story="the mark of a clean stop is written before the logs are closed",
        replacements=(
            Replacement(target="storage.directory.manager:LogManager.shutdown", make=_mark_then_shut_down),
        ),
        found_by="stop-start",
    ),
    Bug(
        name="clean-mark-stays",
        story="the mark of a clean stop is there while the next process works",
        replacements=(
            Replacement(
                target="storage.disk.checkpoints:CleanShutdownFile.delete",
                make=_always(CleanShutdownFile.exists),
            ),
        ),
        found_by="stop-start",
    ),
    Bug(
        name="deletion-before-swap-is-durable",
        story="the old segments go before the names of the new ones are on the disk",
        replacements=(
            Replacement(target="storage.segment.replace:_mark_complete", make=_always(_mark_without_sync)),
        ),
        found_by="swap",
    ),
    Bug(
        name="live-before-old-are-deleted",
        story="the new segments get their live names before the `.deleted` names of the old ones are on the disk",
        replacements=(
            Replacement(target="storage.segment.replace:_retire", make=_always(_retire_without_sync)),
        ),
        found_by="swap-joined",
    ),
    Bug(
        name="swap-before-flush",
        story="cleaned segments become .swap before their bytes are on the disk",
        replacements=(
            Replacement(target="storage.segment.segment:LogSegment.flush", make=_always(_nothing)),
        ),
        found_by="swap",
    ),
    Bug(
        name="names-of-a-dead-process",
        story="recovery builds on names that a dead process gave or took and no sync made durable",
        replacements=(
            Replacement(target="storage.recovery.loader:_Loader._settle_names", make=_always(_nothing)),
        ),
        found_by="start-cut",
    ),
    Bug(
        name="deletion-in-place",
        story="a partition is deleted file by file under its own name",
        replacements=(
            Replacement(
                target="storage.directory.manager:LogManager._move_away", make=_always(_rename_nothing)
            ),
        ),
        found_by="delete",
    ),
)
