"""What `log stats` says that a node needs is what a node holds."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from storage.batch import Compression, Record, build_batch
from storage.batch.legacy.builder import build_message_set
from storage.disk.filesystem import FileSystem, OpenMode, join
from storage.disk.os_filesystem import OsFileSystem
from storage.inspection.stats import PartitionStats, TotalStats, partition_stats, total_stats
from storage.inspection.verify.partition import verify_partition
from storage.log import AppendOrigin, PartitionLog
from storage.segment.lookups import find_offset_by_timestamp
from tests.storage.log.appends import lead, sequenced
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    SIZE,
    THREE,
    append_each,
    batch,
    marker,
    new_file_system,
    open_log,
)

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
        find_offset_by_timestamp(segment, NOW_MS, 0)
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


def mixed_log() -> FileSystem:
    """A log with three batches of data, one of which is packed, and a marker, in two epochs."""
    file_system = new_file_system()
    log = open_log(file_system)
    packed = build_batch(
        [Record(each, NOW_MS, b"k", b"v") for each in range(5)], compression=Compression.GZIP
    )
    lead(log, packed, epoch=1)
    lead(log, sequenced(0, 2, is_transactional=True), epoch=1)
    lead(log, marker(9, is_commit=True), epoch=3, origin=AppendOrigin.COORDINATOR)
    lead(log, sequenced(0, producer_id=77), epoch=3)
    log.close()
    return file_system


def test_what_a_partition_holds_is_counted_batch_by_batch() -> None:
    stats = partition_stats(mixed_log(), DIRECTORY)
    assert (stats.segments, stats.batches, stats.records, stats.control_records) == (1, 4, 9, 1)
    assert (stats.first_offset, stats.log_end_offset, stats.producers) == (0, 9, 2)
    assert (stats.codecs, stats.magics) == ({"gzip": 1, "none": 3}, {"2": 4})
    assert (stats.epochs, stats.error) == ([[1, 0], [3, 7]], None)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_counted_each_for_itself(magic: int) -> None:
    file_system = new_file_system()
    file = file_system.open(f"{DIRECTORY}/{20:020d}.log", OpenMode.CREATE)
    file.append(
        build_message_set(
            [Record(each, NOW_MS, None, b"v") for each in (20, 21, 22)], magic=magic, base_offset=20
        )
    )
    file.close()
    stats = partition_stats(file_system, DIRECTORY)
    assert (stats.batches, stats.records, stats.first_offset, stats.log_end_offset) == (3, 3, 20, 23)
    assert (stats.magics, stats.epochs) == ({str(magic): 3}, [])


def test_the_log_ends_where_an_empty_last_segment_begins() -> None:
    file_system = new_file_system()
    for base_offset, content in ((0, batch(0)), (50, b"")):
        file = file_system.open(f"{DIRECTORY}/{base_offset:020d}.log", OpenMode.CREATE)
        file.append(content)
        file.close()
    assert partition_stats(file_system, DIRECTORY).log_end_offset == 50
    assert verify_partition(file_system, DIRECTORY, deep=True).log_end_offset == 50


@pytest.mark.parametrize("left", [0, 1, SIZE - 1])
def test_bytes_that_are_no_whole_batch_are_named_where_they_begin(left: int) -> None:
    file_system = new_file_system()
    path = join(DIRECTORY, f"{0:020d}.log")
    file = file_system.open(path, OpenMode.CREATE)
    file.append((batch(0) * 2)[: SIZE + left])
    file.close()
    stats = partition_stats(file_system, DIRECTORY)
    expected = f"{path} at byte {SIZE}: the last {left} bytes are no whole batch"
    assert (stats.error, stats.batches) == (expected if left else None, 1)


def test_the_first_damage_of_a_log_is_named_and_the_segments_after_it_are_counted() -> None:
    file_system = new_file_system()
    first, second = (join(DIRECTORY, f"{base_offset:020d}.log") for base_offset in (0, 50))
    for path, base_offset in ((first, 0), (second, 50)):
        file = file_system.open(path, OpenMode.CREATE)
        # A size field of 0.
        file.append(batch(base_offset) + bytes(30))
        file.close()
    stats = partition_stats(file_system, DIRECTORY)
    assert stats.error is not None and first in stats.error and second not in stats.error
    assert (stats.segments, stats.batches, stats.log_end_offset) == (2, 2, 51)


def test_the_total_is_the_sum_of_the_partitions() -> None:
    one = PartitionStats(
        directory="a-0", segments=1, batches=2, records=3, control_records=1, log_bytes=4, index_bytes=5,
        codecs={"none": 1, "lz4": 1}, magics={"2": 2}, open_files=6, maps=2,
    )  # fmt: skip
    other = PartitionStats(
        directory="a-1", segments=10, batches=20, records=30, control_records=11, log_bytes=40, index_bytes=50,
        codecs={"none": 20}, magics={"1": 3, "2": 17}, open_files=60, maps=20,
    )  # fmt: skip
    assert total_stats([one, other]) == TotalStats(
        partitions=2, segments=11, batches=22, records=33, control_records=12, log_bytes=44, index_bytes=55,
        codecs={"none": 21, "lz4": 1}, magics={"2": 19, "1": 3}, open_files=66, maps=22,
    )  # fmt: skip
    assert total_stats([]) == TotalStats()


def test_a_file_that_is_preallocated_and_written_is_no_damage(tmp_path: Path) -> None:
    """Its tail is zeros until the node has come there; where no node writes, a start would have to cut them off."""
    file_system, directory = OsFileSystem(), f"{tmp_path}/t-0"
    config = replace(THREE, preallocate=True)
    log = PartitionLog.open(file_system, directory, config, clean=True, now_ms=NOW_MS)
    append_each(log, 5)
    stats = partition_stats(file_system, directory, in_use=True)
    assert (stats.error, stats.records, stats.log_end_offset) == (None, 5, 5)
    assert partition_stats(file_system, directory).error is not None
    assert verify_partition(file_system, directory, in_use=True).problems == []
    (problem,) = verify_partition(file_system, directory).problems
    assert problem.rule == "FR8"
    active = file_system.open(log.local.segments.active.path, OpenMode.CREATE)
    active.write_at(active.size() - 1, b"x")
    assert partition_stats(file_system, directory, in_use=True).error is not None
    assert [each.rule for each in verify_partition(file_system, directory, in_use=True).problems] == ["FR8"]
    active.close()
    log.close_handles()


@pytest.mark.parametrize("in_use", [False, True], ids=["offline", "in use"])
@pytest.mark.parametrize("zeros", [10, 4096])
def test_stats_and_verify_judge_zeros_at_the_end_alike(zeros: int, in_use: bool) -> None:
    """Before, few zeros were damage in a file that is written, and many zeros none in a file that nobody writes."""
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 5)
    path = log.local.segments.active.path
    log.close()
    file = file_system.open(path, OpenMode.WRITE)
    file.append(bytes(zeros))
    file.close()
    stats = partition_stats(file_system, DIRECTORY, in_use=in_use)
    report = verify_partition(file_system, DIRECTORY, in_use=in_use)
    assert [each.rule for each in report.problems] == ([] if in_use else ["FR8"])
    assert (stats.error is None) == in_use
    assert (stats.records, stats.log_end_offset) == (5, 5)
