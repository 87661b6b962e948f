"""Storage mistakes that a sweep must find: each is put over the sound code from outside, and taken away again.

A mistake names what it replaces; a name that has gone is an error, not a mistake that nobody found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import storage.checkpoints
import storage.file_records
import storage.producer_snapshot
import storage.replace_segments
import storage.segment_recovery
from storage.checkpoints import CleanShutdownFile
from storage.filesystem import FileSystem, OpenMode, dirname
from storage.loader import _Loader
from storage.local_log import LocalLog
from storage.log_flush import PreparedFlush
from storage.log_manager import LogManager
from storage.replace_segments import CLEANED_SUFFIX, SWAP_SUFFIX
from storage.segment import LogSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    owner: object
    name: str
    wrong: Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedMistake:
    """`workload` is the one whose sweep is to find it."""

    name: str
    what: str
    workload: str
    replacements: tuple[Replacement, ...]


@contextlib.contextmanager
def planted(mistake: PlantedMistake) -> Iterator[None]:
    """AttributeError, before anything is replaced, when a name is not there."""
    sound = [(each, _own_attribute(each.owner, each.name)) for each in mistake.replacements]
    try:
        for each, _ in sound:
            setattr(each.owner, each.name, each.wrong)
        yield
    finally:
        for each, original in sound:
            setattr(each.owner, each.name, original)


def _own_attribute(owner: object, name: str) -> object:
    if name not in vars(owner):
        raise AttributeError(f"{owner} has no {name} of its own: the mistake is to be planted elsewhere")
    return vars(owner)[name]


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
    log.recovery_point = log.log_end.offset


def _cut_without_sync(segment: LogSegment, position: int) -> int:
    return segment.records.truncate_to(position)


class _AnyChecksum(int):
    """Equal to every checksum there is."""

    def __ne__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def _any_checksum(*_: object) -> int:
    return _AnyChecksum()


def _forget_timestamp_only(segment: LogSegment) -> None:
    segment._max_timestamp = None


_sound_write_indexes = storage.segment_recovery._Walk.write_indexes


def _write_indexes_if_empty(walk: Any) -> None:
    if walk._segment.offset_index.entries == 0 and walk._segment.time_index.entries == 0:
        _sound_write_indexes(walk)


_sound_recover = LogSegment.recover


def _cut_then_delete(
    segment: LogSegment, producers: Any, epochs: Any, report: Any, before_cut: Callable[[], None]
) -> int:
    removed_bytes = _sound_recover(segment, producers, epochs, report)
    if removed_bytes:
        before_cut()
    return removed_bytes


def _delete_segments_from_front(log: LocalLog, doomed: list[LogSegment]) -> None:
    for segment in doomed:
        log.segments.remove(segment.base_offset)
        segment.delete()
        log.file_system.sync_directory(log.directory)


_sound_shutdown = LogManager.shutdown


def _mark_then_shut_down(manager: LogManager, *args: Any, **kwargs: Any) -> bool:
    CleanShutdownFile(manager._file_system, manager.directory).write(-1)
    return _sound_shutdown(manager, *args, **kwargs)


def _mark_without_sync(file_system: FileSystem, directory: str, coming: list[LogSegment]) -> None:
    for segment in reversed(coming):
        segment.change_file_suffixes(CLEANED_SUFFIX, SWAP_SUFFIX)


def _rename_nothing(manager: LogManager, log: Any, suffix: str) -> str:
    return str(log.directory)


MISTAKES: tuple[PlantedMistake, ...] = (
    PlantedMistake(
        name="checkpoint-without-sync",
        what="a checkpoint is renamed into its place before its bytes are on the disk",
        workload="create",
        replacements=(
            Replacement(owner=storage.checkpoints, name="replace_file", wrong=_replace_without_sync),
        ),
    ),
    PlantedMistake(
        name="recovery-point-before-sync",
        what="a roll moves the recovery point and leaves the syncs for later",
        workload="roll",
        replacements=(Replacement(owner=LocalLog, name="_flush_all", wrong=_move_recovery_point_only),),
    ),
    PlantedMistake(
        name="flush-without-sync",
        what="a flush moves the recovery point and syncs nothing",
        workload="append",
        replacements=(Replacement(owner=PreparedFlush, name="__call__", wrong=_nothing),),
    ),
    PlantedMistake(
        name="roll-without-sync",
        what="a roll begins a segment before the one before it, and its name, are on the disk",
        workload="roll",
        replacements=(Replacement(owner=LocalLog, name="_flush_all", wrong=_nothing),),
    ),
    PlantedMistake(
        name="truncation-without-sync",
        what="another history is appended before the cut of the old one is on the disk",
        workload="truncate",
        replacements=(Replacement(owner=LogSegment, name="cut_records", wrong=_cut_without_sync),),
    ),
    PlantedMistake(
        name="truncation-from-front",
        what="a truncation deletes the segments it removes from the first on",
        workload="truncate-segments",
        replacements=(
            Replacement(owner=LocalLog, name="_delete_from_end", wrong=_delete_segments_from_front),
        ),
    ),
    PlantedMistake(
        name="snapshot-without-checksum",
        what="a producer snapshot is taken as it is",
        workload="start",
        replacements=(Replacement(owner=storage.producer_snapshot, name="crc32c", wrong=_any_checksum),),
    ),
    PlantedMistake(
        name="recovery-without-checksum",
        what="recovery takes every whole frame for a sound batch",
        workload="append",
        replacements=(Replacement(owner=storage.file_records, name="crc32c", wrong=_any_checksum),),
    ),
    PlantedMistake(
        name="recovery-keeps-indexes",
        what="recovery keeps the index entries that it finds",
        workload="truncate",
        replacements=(
            Replacement(owner=LogSegment, name="reset_indexes", wrong=_forget_timestamp_only),
            Replacement(
                owner=storage.segment_recovery._Walk, name="write_indexes", wrong=_write_indexes_if_empty
            ),
        ),
    ),
    PlantedMistake(
        name="recovery-cuts-first",
        what="recovery cuts the damaged segment before it deletes those behind it",
        workload="start-cut",
        replacements=(Replacement(owner=LogSegment, name="recover", wrong=_cut_then_delete),),
    ),
    PlantedMistake(
        name="clean-mark-before-flush",
        what="the mark of a clean stop is written before the logs are closed",
        workload="stop-start",
        replacements=(Replacement(owner=LogManager, name="shutdown", wrong=_mark_then_shut_down),),
    ),
    PlantedMistake(
        name="clean-mark-stays",
        what="the mark of a clean stop is there while the next process works",
        workload="stop-start",
        replacements=(Replacement(owner=CleanShutdownFile, name="delete", wrong=CleanShutdownFile.exists),),
    ),
    PlantedMistake(
        name="deletion-before-swap-is-durable",
        what="the old segments go before the names of the new ones are on the disk",
        workload="swap",
        replacements=(
            Replacement(owner=storage.replace_segments, name="_mark_complete", wrong=_mark_without_sync),
        ),
    ),
    PlantedMistake(
        name="swap-before-flush",
        what="cleaned segments become .swap before their bytes are on the disk",
        workload="swap",
        replacements=(Replacement(owner=LogSegment, name="flush", wrong=_nothing),),
    ),
    PlantedMistake(
        name="names-of-a-dead-process",
        what="recovery builds on names that a dead process gave or took and no sync made durable",
        workload="start-cut",
        replacements=(Replacement(owner=_Loader, name="_settle_names", wrong=_nothing),),
    ),
    PlantedMistake(
        name="deletion-in-place",
        what="a partition is deleted file by file under its own name",
        workload="delete",
        replacements=(Replacement(owner=LogManager, name="_move_away", wrong=_rename_nothing),),
    ),
)
