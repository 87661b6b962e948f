"""What `log stats` says that a node needs is what a node holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.disk.os_filesystem import OsFileSystem
from storage.inspection.stats import partition_stats
from storage.log import PartitionLog
from tests.storage.logs import NOW_MS, SIZE, THREE, append_each

DESCRIPTORS = "/proc/self/fd"


@pytest.mark.skipif(not os.path.isdir(DESCRIPTORS), reason="only Linux lists the open files of a process")
def test_the_open_files_of_a_node_that_uses_every_segment(tmp_path: Path) -> None:
    """A map holds its file open; the last segment's indexes are also written."""
    file_system, directory = OsFileSystem(), f"{tmp_path}/t-0"
    before = len(os.listdir(DESCRIPTORS))
    log = PartitionLog.open(file_system, directory, THREE, clean=True, now_ms=NOW_MS)
    append_each(log, 20)
    log.close()
    log = PartitionLog.open(file_system, directory, THREE, clean=True, now_ms=NOW_MS)
    assert len(os.listdir(DESCRIPTORS)) == before
    for offset in range(log.log_end_offset):
        log.read(offset, max_size=SIZE)
    for segment in log.local.segments:
        segment.find_offset_by_timestamp(NOW_MS, 0)
    read = len(os.listdir(DESCRIPTORS)) - before
    # A `.log` and two maps; one less where nobody asks for timestamps.
    assert read == 3 * len(log.local.segments)
    active = log.local.segments.active
    active.offset_index.flush()
    active.time_index.flush()
    held = len(os.listdir(DESCRIPTORS)) - before
    stats = partition_stats(file_system, directory)
    log.close_handles()
    assert (stats.segments, stats.open_files) == (7, held)
    assert len(os.listdir(DESCRIPTORS)) == before
