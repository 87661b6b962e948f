"""Segments as Spark's tasks read them, without Spark: what a running node leaves in them, and takes away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.directory import SegmentRange, SourceError, segment_ranges
from pipeline.reading import segment_batches
from storage.disk.os_filesystem import OsFileSystem
from storage.log import PartitionLog
from tests.storage.logs import NOW_MS, THREE, append_each

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")


def offsets(wanted: SegmentRange, *, fail_on_data_loss: bool = True) -> list[int]:
    found: list[int] = []
    for each in segment_batches(wanted, include_headers=False, fail_on_data_loss=fail_on_data_loss):
        found += each.column("offset").to_pylist()
    return found


def test_the_zeros_of_a_preallocated_file_that_is_written_are_its_end(tmp_path: Path) -> None:
    file_system = OsFileSystem()
    config = replace(THREE, preallocate=True)
    log = PartitionLog.open(file_system, f"{tmp_path}/t-0", config, clean=True, now_ms=NOW_MS)
    append_each(log, 5)
    ranges = segment_ranges(file_system, str(tmp_path), {})
    assert [offset for each in ranges for offset in offsets(each)] == [0, 1, 2, 3, 4]
    # A sealed segment has no such tail.
    with pytest.raises(SourceError):
        offsets(replace(ranges[-1], is_last=False))
    log.close_handles()


def test_a_segment_that_was_deleted_after_the_read_was_planned_is_lost_data(tmp_path: Path) -> None:
    log = PartitionLog.open(OsFileSystem(), f"{tmp_path}/t-0", THREE, clean=True, now_ms=NOW_MS)
    append_each(log, 5)
    log.close()
    first, *_ = segment_ranges(OsFileSystem(), str(tmp_path), {})
    Path(first.path).unlink()
    with pytest.raises(SourceError, match="was deleted, or compacted, after the read was planned"):
        offsets(first)
    assert offsets(first, fail_on_data_loss=False) == []
