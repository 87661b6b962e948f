"""Bugs that the enumeration of crashes has found, each in the smallest case that shows it."""

from __future__ import annotations

import errno

import pytest

from sim.disk import SimDisk
from sim.disk.life import Dead, Life
from storage.disk.filesystem import OpenMode, join
from storage.errors import StorageError
from storage.log import PartitionLog
from storage.segment.names import CLEANED_SUFFIX, SWAP_SUFFIX
from storage.segment.replace import create_cleaned_segment, replace_segments
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    append_each,
    new_disk,
    new_file_system,
    open_log,
    produced,
    read_offsets,
)


def log_of(disk: SimDisk, batches: int) -> PartitionLog:
    log = open_log(new_file_system(disk))
    append_each(log, batches, value_bytes=100)
    return log


def flip_last_byte_of_first_segment(disk: SimDisk) -> None:
    file = disk.file_system(Life()).open(f"{DIRECTORY}/{0:020d}.log", OpenMode.WRITE)
    file.write_at(200, bytes([file.read_at(200, 1)[0] ^ 1]))
    file.close()


def test_a_segment_that_a_dead_start_deleted_does_not_come_back_after_the_cut() -> None:
    """The deletion was in the page cache only. The next start saw no segment there and synced only the cut."""
    disk = new_disk()
    log = log_of(disk, 30)
    bases = log.local.segments.base_offsets
    assert len(bases) > 2
    disk.crash_process()
    flip_last_byte_of_first_segment(disk)
    disk.sync_all()
    # The `.log` of the segment has just been deleted.
    disk.arm_crash(1, path_suffix=f"{bases[1]:020d}.index", verbs={"unlink"})
    with pytest.raises(Dead):
        open_log(disk.file_system(Life()))
    log = open_log(disk.file_system(Life()))
    offsets = read_offsets(log)
    disk.lose_power("none")
    log = open_log(disk.file_system(Life()))
    assert log.local.segments.base_offsets == [0]
    assert read_offsets(log) == offsets == list(range(len(offsets)))


def test_an_index_is_trusted_only_when_its_rebuild_was_finished() -> None:
    """Below the recovery point nothing rebuilds an index: half of one would stay for ever."""
    for call in range(1, 100):
        disk = new_disk()
        log = log_of(disk, 30)
        recovery_point = log.local.segments.base_offsets[-1]
        log.close()
        fs = disk.file_system(Life())
        for suffix in ("index", "timeindex"):
            fs.unlink(f"{DIRECTORY}/{0:020d}.{suffix}")
        disk.sync_all()
        disk.arm_crash(call)
        try:
            open_log(disk.file_system(Life()), recovery_point=recovery_point)
        except Dead:
            pass
        else:
            break
        disk.lose_power("all" if call % 2 else "prefix")
        log = open_log(disk.file_system(Life()), recovery_point=recovery_point)
        first = log.local.segments.first
        assert first is not None
        assert first.offset_index.entries > 1 and first.time_index.entries == 1, call
        assert first.offset_index.entry(1).position > 0, call
    else:
        pytest.fail("the start never came to its end")


def test_an_index_that_has_its_live_name_already_survives_the_rest_of_the_swap() -> None:
    """A start that renames a swapped-in segment may die when its index is live and its `.log` is not."""
    disk = new_disk()
    log = log_of(disk, 30)
    recovery_point = log.local.segments.base_offsets[-1]
    log.close()
    fs = disk.file_system(Life())
    entries = fs.stat(f"{DIRECTORY}/{0:020d}.index").size_bytes
    for suffix in ("log", "timeindex"):
        path = join(DIRECTORY, f"{0:020d}.{suffix}")
        fs.rename(path, path + SWAP_SUFFIX)
    log = open_log(disk.file_system(Life()), recovery_point=recovery_point)
    first = log.local.segments.first
    assert first is not None
    assert first.offset_index.size_bytes == first.offset_index.length_bytes == entries
    assert read_offsets(log) == list(range(30))


def test_t45_the_snapshot_of_an_orderly_stop_is_there_after_a_power_loss() -> None:
    """The snapshot's bytes were synced but not its name: the next clean start found none and knew no producer."""
    disk = new_disk()
    log = open_log(new_file_system(disk))
    disk.sync_all()
    log.append_as_leader(
        produced(1, producer_id=7, producer_epoch=0, sequence=0), leader_epoch=0, now_ms=NOW_MS
    )
    log.close()
    disk.lose_power("none")
    log = open_log(disk.file_system(Life()), clean=True)
    assert list(log.producers.producers) == [7]


def test_a_flush_that_cannot_open_an_index_takes_the_log_offline() -> None:
    disk = new_disk()
    log = log_of(disk, 1)
    log.close()
    log = open_log(disk.file_system(Life()), clean=True)
    log.flushes.roll(now_ms=NOW_MS)
    log.close()
    fs = disk.file_system(Life())
    for name in fs.list(DIRECTORY):
        if name.endswith("index"):
            fs.unlink(f"{DIRECTORY}/{name}")
    log = open_log(fs)
    append_each(log, 1)
    for segment in log.local.segments:
        segment.close_handlers()
    with pytest.raises(StorageError):
        log.flushes.flush()
    assert log.online.reason is not None


def test_a_full_disk_at_the_index_of_a_flush_is_one_error() -> None:
    disk = new_disk()
    log = open_log(new_file_system(disk))
    log.truncation.truncate_fully_and_start_at(7, now_ms=NOW_MS)
    disk.fail(1, errno.ENOSPC, verbs={"set_length"})
    with pytest.raises(StorageError, match="No space left"):
        log.flushes.flush()
    with pytest.raises(StorageError, match="offline"):
        append_each(log, 1)


def test_an_empty_time_index_is_made_without_the_zeros_of_a_new_one() -> None:
    """The length was set twice, and only the first may survive a crash: then the zeros count as entries."""
    disk = new_disk()
    log = log_of(disk, 30)
    log.close()
    name = f"{0:020d}.timeindex"
    disk.file_system(Life()).unlink(f"{DIRECTORY}/{name}")
    disk.sync_all()
    disk.arm_crash(1, path_suffix=name, verbs={"set_length"})
    log = open_log(disk.file_system(Life()), clean=True)
    assert log.local.segments.base_offsets[0] == 0
    assert disk.file_system(Life()).stat(f"{DIRECTORY}/{name}").size_bytes == 0


def test_a_new_segment_is_renamed_only_when_its_names_are_on_the_disk() -> None:
    """If the rename of only one of its files survives, the leftovers of the others undo it."""
    disk = new_disk()
    log = log_of(disk, 30)
    disk.sync_all()
    files = disk.file_system(Life())
    base_offset = log.local.segments.base_offsets[0]
    new = create_cleaned_segment(files, DIRECTORY, base_offset, log.config, NOW_MS)
    new.append(base_offset, produced(1))
    new.on_become_inactive()
    new.flush()
    disk.arm_crash(1, path_suffix=CLEANED_SUFFIX, verbs={"rename"})
    old = log.local.segments.get(base_offset)
    assert old is not None
    with pytest.raises(Dead):
        replace_segments(files, DIRECTORY, log.local.segments, [new], [old])
    disk.lose_power("none")
    left = [name for name in disk.file_system(Life()).list(DIRECTORY) if name.endswith(CLEANED_SUFFIX)]
    assert f"{base_offset:020d}.log{CLEANED_SUFFIX}" in left
