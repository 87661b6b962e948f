"""What earlier lives of a machine may have left in its log directories."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

from sim.buggify.disks import DiskPoints
from sim.disk import SimDisk, SimFileSystem
from sim.disk.life import Life
from storage.batch import iterate_batches
from storage.config import LogConfig
from storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE
from storage.disk.filesystem import OpenMode, join
from storage.errors import StorageError
from storage.producers.snapshot import SNAPSHOT_SUFFIX
from storage.segment.names import CLEANED_SUFFIX, SWAP_SUFFIX
from storage.segment.replace import create_cleaned_segment

# What is left beside a checkpoint that is written again: that of a broker that had many more partitions.
_CONTENT = b"0\n400\n" + b"".join(b"left-over %d 7\n" % number for number in range(400))
_LOG = re.compile(r"\d{20}\.log")
# A log that retention has deleted from, or that was begun behind others, does not know all its producers by itself.
_FIRST_LOG = f"{0:020}.log"
_SEGMENT_FILE = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex)")


def leave_over(disk: SimDisk, directories: Iterable[str], compacted: Collection[str]) -> None:
    """Put into the directories what a life leaves that ended in the midst of a change, if a point fires.

    `compacted` are topics. A disk with a fault that waits gets nothing: the fault is for the calls of the node.
    """
    points = disk.points
    if points is None or disk.has_faults:
        return
    file_system = disk.file_system(Life("an earlier life"))
    for directory in directories:
        for path in _checkpoints(disk, directory):
            if points.leaves_over():
                _leave_temporary_file(file_system, path)
        if CLEAN_SHUTDOWN_FILE not in disk.names_in(directory):
            for name in disk.names_in(directory):
                if name.rpartition("-")[0] in compacted:
                    _leave_swap(disk, file_system, points, join(directory, name))
                elif _FIRST_LOG in disk.names_in(join(directory, name)) and points.loses_snapshots():
                    _lose_snapshots(disk, file_system, points, join(directory, name))


def _lose_snapshots(disk: SimDisk, file_system: SimFileSystem, points: DiskPoints, path: str) -> None:
    """Take or tear all snapshots of producers of a whole log, so that none loads (PS16): it has all batches."""
    are_torn = points.tears_snapshots()
    for name in disk.names_in(path):
        if name.endswith(SNAPSHOT_SUFFIX):
            snapshot = join(path, name)
            if are_torn:
                _tear(file_system, snapshot)
            else:
                file_system.unlink(snapshot)
    file_system.sync_directory(path)


def _tear(file_system: SimFileSystem, path: str) -> None:
    file = file_system.open(path, OpenMode.WRITE)
    file.set_length(file.size() // 2)
    file.sync()
    file.close()


def _checkpoints(disk: SimDisk, directory: str) -> Iterator[str]:
    """Yields the paths of the checkpoints, also of those in partition directories; no snapshot of metadata is one."""
    for name in disk.names_in(directory):
        path = join(directory, name)
        if name.endswith("-checkpoint"):
            yield path
        else:
            yield from (join(path, each) for each in disk.names_in(path) if each.endswith("-checkpoint"))


def _leave_temporary_file(file_system: SimFileSystem, path: str) -> None:
    file = file_system.open(f"{path}.tmp", OpenMode.CREATE)
    file.set_length(0)
    file.append(_CONTENT)
    file.sync()
    file.close()


def _leave_merged(file_system: SimFileSystem, path: str, bases: Sequence[str]) -> None:
    """Put the first two of three segments beside themselves as one, which has taken the place of none of them yet."""
    parts = [_sound_set(file_system, path, base, after) for base, after in pairwise(bases)]
    if any(last_offset < 0 for _, last_offset in parts):
        return
    merged = create_cleaned_segment(file_system, path, int(bases[0]), LogConfig(), now_ms=0)
    for data, last_offset in parts:
        merged.append(last_offset, data)
    merged.on_become_inactive()
    merged.flush()
    merged.set_modified(file_system.stat(join(path, f"{bases[1]}.log")).modified_ms)
    file_system.sync_directory(path)
    merged.change_file_suffixes(CLEANED_SUFFIX, SWAP_SUFFIX)
    file_system.sync_directory(path)
    merged.close()


def _sound_set(file_system: SimFileSystem, path: str, base: str, after: str) -> tuple[bytes, int]:
    """Returns the bytes of a segment and its last offset; -1 if it is empty, or a compaction would find damage in it.

    `after` is the name of the segment behind it.
    """
    name = join(path, f"{base}.log")
    file = file_system.open(name, OpenMode.READ)
    data = file.read_at(0, file_system.stat(name).size_bytes)
    file.close()
    next_offset, size_bytes = int(base), 0
    try:
        for batch in iterate_batches(data):
            batch.check_valid()
            if batch.base_offset < next_offset:
                return data, -1
            next_offset, size_bytes = batch.last_offset + 1, size_bytes + batch.size_bytes
    except StorageError:
        return data, -1
    is_sound = 0 < size_bytes == len(data) and next_offset <= int(after)
    return data, next_offset - 1 if is_sound else -1


def _leave_swap(disk: SimDisk, file_system: SimFileSystem, points: DiskPoints, path: str) -> None:
    """Take the name of a sealed segment away, as if it had just taken the place of others, which are gone.

    Or leave two sealed segments beside the one that they are merged into. Where a compaction has left files of its own,
    a start would take those of here for a part of it, and undo them (LL6).
    """
    names = disk.names_in(path)
    bases = [name.partition(".")[0] for name in names if _LOG.fullmatch(name)]
    # A start that takes the segment behind for one that is replaced is seen only where that has records.
    followed = [
        base for base, after in pairwise(bases) if file_system.stat(join(path, f"{after}.log")).size_bytes
    ]
    sealed = followed or bases[:-1]
    is_under_way = any(name.endswith((SWAP_SUFFIX, CLEANED_SUFFIX)) for name in names)
    if not sealed or is_under_way or not points.leaves_swap():
        return
    base = sealed[points.which(len(sealed))]
    after = bases[bases.index(base) + 1]
    if after != bases[-1] and points.merges_swap():
        _leave_merged(file_system, path, bases[bases.index(base) :][:3])
        return
    files = [name for name in names if (found := _SEGMENT_FILE.fullmatch(name)) and found[1] == base]
    # The `.log` is the last, when the others are durable: it alone says what a swap replaces.
    for name in sorted(files, key=lambda name: name.endswith(".log")):
        file_system.rename(join(path, name), join(path, name + SWAP_SUFFIX))
        file_system.sync_directory(path)
