"""A process without a descriptor left: a round of compaction and a split fail alone, and the log stays online."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.cleaner.compaction import Compaction
from storage.cleaner.plan import CleanerConfig
from storage.disk.handle_pool import HandlePool
from storage.disk.lack import is_lack
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import OutOfHandles
from storage.log import PartitionLog
from storage.log.compaction import CleanableOffsets
from tests.storage.directory.dirty_logs import DIRTY, append_keyed
from tests.storage.log.test_out_of_handles import descriptors_left
from tests.storage.logs import NOW_MS, batch, read_offsets

KEPT = [12, 13, 14]


def opened(directory: Path) -> PartitionLog:
    """Open a log of three dirty segments with three keys and an active one, none of whose files is open."""
    file_system = OsFileSystem(handles=HandlePool(100))
    log = PartitionLog.open(file_system, str(directory), DIRTY, clean=True, now_ms=NOW_MS)
    append_keyed(log, 15)
    log.flushes.roll(now_ms=NOW_MS)
    log.marks.update_high_watermark(15)
    file_system.handles.make_room(100)
    return log


def round_of(log: PartitionLog) -> Compaction:
    offsets = CleanableOffsets(
        first_dirty_offset=0,
        first_uncleanable_offset=log.local.segments.active.base_offset,
        is_checkpoint_invalid=False,
    )
    return log.compactions.prepare(offsets, CleanerConfig(dedupe_buffer_bytes=24_000), NOW_MS)


def fails_alone(directory: Path, left: int) -> bool:
    """Whether a round finds too few descriptors; check that the log is whole then, and that a later round cleans it."""
    log, failure = opened(directory), None
    compaction = round_of(log)
    with descriptors_left(left):
        try:
            for work in compaction:
                work()
        except (OSError, OutOfHandles) as error:
            failure = error
    assert failure is None or is_lack(failure), failure
    assert log.online.reason is None
    if failure is not None:
        compaction.abort()
        assert not [name for name in os.listdir(directory) if name.endswith((".cleaned", ".swap"))]
        for work in round_of(log):
            work()
    assert read_offsets(log) == KEPT
    log.close()
    return failure is not None


def test_cl11_a_round_that_finds_no_descriptor_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    assert fails_alone(tmp_path / "t-0", left=0)


@pytest.mark.slow
def test_cl11_whichever_file_of_a_round_finds_no_descriptor_the_log_stays_online(tmp_path: Path) -> None:
    left = 1
    while fails_alone(tmp_path / f"t-{left}", left):
        left += 1
    assert left < 20


def test_cl11_a_swap_without_descriptors_leaves_the_cleaned_segment_to_the_abort(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0")
    compaction, failure = round_of(log), None
    pieces = iter(compaction)
    # As all others take theirs between the last slice and the swap.
    for work in pieces:
        work()
        if any(name.endswith(".log.cleaned") for name in os.listdir(log.directory)):
            break
    log.local.file_system.handles.make_room(100)
    with descriptors_left(0):
        try:
            next(pieces)
        except OutOfHandles as error:
            failure = error
    assert failure is not None and log.online.reason is None
    compaction.abort()
    assert not [name for name in os.listdir(log.directory) if name.endswith(".cleaned")]
    for work in round_of(log):
        work()
    assert read_offsets(log) == KEPT
    log.close()


def test_cl23_a_split_that_finds_no_descriptor_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0")
    # A broker before 1.1 wrote such batches.
    log.local.segments.active.records.append(batch(15))
    log.local.segments.active.records.append(batch(2**31 + 20))
    log.local.update_log_end(2**31 + 21)
    log.flushes.roll(now_ms=NOW_MS)
    before = list(log.local.segments.base_offsets)
    log.local.file_system.handles.make_room(100)
    with descriptors_left(0), pytest.raises(OutOfHandles, match="is not changed"):
        log.compactions.split_overflowed(15, NOW_MS)
    assert log.online.reason is None
    assert list(log.local.segments.base_offsets) == before
    log.compactions.split_overflowed(15, NOW_MS)
    assert list(log.local.segments.base_offsets) == [*before[:-1], 2**31 + 20, before[-1]]
    log.close()
