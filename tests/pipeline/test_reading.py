"""Segments as Spark's tasks read them, without Spark: what a running node leaves in them, and takes away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.directory import SegmentRange, segment_ranges
from pipeline.errors import SourceError
from pipeline.reading import segment_batches
from storage.batch import Record, build_batch
from storage.directory.manager import LOCK_FILE
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
    with pytest.raises(
        SourceError, match=r"was deleted, or compacted, after load[(][)]: call load[(][)] again"
    ):
        offsets(first)
    assert offsets(first, fail_on_data_loss=False) == []


def one_batch(tmp_path: Path, *records: Record) -> SegmentRange:
    (tmp_path / "t-0").mkdir()
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.write_bytes(b"".join(build_batch([each], base_offset=each.offset) for each in records))
    (wanted,) = segment_ranges(OsFileSystem(), str(tmp_path), {})
    return wanted


def test_a_timestamp_that_arrow_has_no_place_for_is_the_greatest(tmp_path: Path) -> None:
    stamps = [1_000, 9_300_000_000_000_000, 2**63 - 1, -1]
    wanted = one_batch(tmp_path, *(Record(at, stamp, b"k", b"v") for at, stamp in enumerate(stamps)))
    (found,) = segment_batches(wanted, include_headers=False, fail_on_data_loss=True)
    microseconds = found.column("timestamp").cast("int64").to_pylist()
    assert microseconds == [1_000_000, 2**63 - 1, 2**63 - 1, -1_000]


def test_a_record_without_headers_has_null_as_in_kafkas_source(tmp_path: Path) -> None:
    with_one = Record(1, 1_000, b"k", b"v", (("h", b"x"),))
    wanted = one_batch(tmp_path, Record(0, 1_000, b"k", b"v"), with_one)
    (found,) = segment_batches(wanted, include_headers=True, fail_on_data_loss=True)
    assert found.column("headers").to_pylist() == [None, [{"key": "h", "value": b"x"}]]


@pytest.mark.parametrize("damage", ["size field", "cut"])
def test_a_tail_that_is_no_whole_batch_is_damage_unless_a_node_writes_there(
    tmp_path: Path, damage: str
) -> None:
    wanted = one_batch(tmp_path, *(Record(offset, 1_000, b"k", b"v") for offset in range(4)))
    log = Path(wanted.path)
    data = bytearray(log.read_bytes())
    batch_bytes = len(data) // 4
    if damage == "cut":
        log.write_bytes(data[: batch_bytes + 40])
    else:
        data[batch_bytes + 8] |= 0x40
        log.write_bytes(data)
    line = rf"{wanted.path} at byte {batch_bytes}: .*no whole batch"
    with pytest.raises(SourceError, match=line):
        offsets(wanted)
    assert offsets(wanted, fail_on_data_loss=False) == [0]
    (tmp_path / LOCK_FILE).touch()
    with pytest.raises(SourceError, match=line):
        offsets(wanted)
    lock = OsFileSystem().lock(str(tmp_path / LOCK_FILE))
    try:
        assert offsets(wanted) == [0]
        with pytest.raises(BlockingIOError):
            OsFileSystem().lock(str(tmp_path / LOCK_FILE))
    finally:
        lock.release()
    # The reader has not taken the lock.
    OsFileSystem().lock(str(tmp_path / LOCK_FILE)).release()
