"""The split of a segment that overflows. Kafka: LogLoaderTest, LogSegmentTest; rules LL27, LS20, LS21, LS23, LS24."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.disk.life import Life
from storage.codec.buffer import Buffer
from storage.config import INT_MAX
from storage.disk.filesystem import OpenMode, join, read_file
from storage.errors import StorageError
from storage.segment import LogSegment
from storage.segment.file_records import FileRecords
from storage.segment.lookups import has_overflow
from storage.segment.replace import create_cleaned_segment
from storage.segment.split import CHUNK_BYTES, append_from_file
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    SIZE,
    batch,
    durable_file_system,
    new_disk,
    new_file_system,
    offsets_in,
    open_segment,
)
from tests.storage.segment.swapped_segments import BEYOND, CONFIG, overflowed, split


@pytest.mark.covers("UnifiedLogTest.testSplitOnOffsetOverflow")
@pytest.mark.covers("LogLoaderTest.testRecoveryOfSegmentWithOffsetOverflow")
def test_ll27_a_split_keeps_the_bytes_in_segments_that_hold_their_offsets() -> None:
    file_system = new_file_system()
    offsets = [0, 5, BEYOND - 1, BEYOND, BEYOND + 7, 3 * BEYOND]
    segment = overflowed(file_system, offsets)
    content = segment.records.read_slice(0, segment.size_bytes)
    segments = split(file_system, segment)
    assert segments.base_offsets == [0, BEYOND, 3 * BEYOND]
    assert [has_overflow(segment) for segment in segments] == [False] * 3
    parts = [each.records.read_slice(0, each.size_bytes) for each in segments]
    assert b"".join(parts) == content
    assert list(map(offsets_in, parts)) == [[0, 5, BEYOND - 1], [BEYOND, BEYOND + 7], [3 * BEYOND]]
    assert {name.partition(".")[2] for name in file_system.list(DIRECTORY)} == {"log", "index", "timeindex"}


@pytest.mark.covers("LogLoaderTest.testRecoveryOfSegmentWithOffsetOverflow")
def test_ll27_a_segment_that_does_not_overflow_is_not_split() -> None:
    file_system = new_file_system()
    segment = overflowed(file_system, [0, 1, 2])
    with pytest.raises(StorageError, match="its last offset fits"):
        split(file_system, segment)
    assert not [name for name in file_system.list(DIRECTORY) if name.endswith(".cleaned")]


@pytest.mark.covers("UnifiedLogTest.testDegenerateSegmentSplit")
def test_minor_3afe2ed_a_split_where_all_batches_overflow_makes_one_segment() -> None:
    file_system = new_file_system()
    segments = split(file_system, overflowed(file_system, [BEYOND, BEYOND + 1]))
    assert segments.base_offsets == [BEYOND] and segments.active.size_bytes == 2 * SIZE


def test_ll27_a_segment_that_cannot_be_split_is_left_unchanged() -> None:
    file_system = new_file_system()
    # It would need two segments of one base.
    segment = overflowed(file_system, [0, BEYOND, 0, BEYOND])
    content = read_file(file_system, segment.path)
    with pytest.raises(StorageError, match=f"byte {2 * SIZE}: "):
        split(file_system, segment)
    assert read_file(file_system, segment.path) == content
    assert not [name for name in file_system.list(DIRECTORY) if not name.startswith(f"{0:020d}.")]


def test_ls23_the_new_segments_have_the_modification_time_of_the_old_one() -> None:
    file_system = new_file_system()
    segment = overflowed(file_system, [0, BEYOND])
    segment.set_modified(123_456)
    for new in split(file_system, segment):
        paths = (new.path, new.offset_index_path, new.time_index_path)
        assert [file_system.stat(path).modified_ms for path in paths] == [123_456] * 3


def copied_by_writes(sizes: list[int]) -> tuple[LogSegment, int]:
    """Copy batches with values of these sizes. Returns the copy and the number of writes, none of them to an index."""
    disk = new_disk()
    file_system = new_file_system(disk)
    source = open_segment(file_system, 0, CONFIG)
    values = enumerate(sizes)
    content = [batch(offset, value_bytes=size, timestamp=NOW_MS - offset) for offset, size in values]
    source.records.append(b"".join(content))
    config = replace(CONFIG, index_interval_bytes=INT_MAX)
    new = create_cleaned_segment(file_system, DIRECTORY, 0, config, NOW_MS)
    # Reading them makes both files now.
    assert new.offset_index.entries == new.time_index.entries == 0
    before = disk.operations
    assert append_from_file(new, source.records, 0) == source.size_bytes
    return new, disk.operations - before


@pytest.fixture
def written_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the size of each append to a `.log`."""
    sizes: list[int] = []
    append = FileRecords.append

    def noted(records: FileRecords, data: Buffer) -> int:
        sizes.append(len(data))
        return append(records, data)

    monkeypatch.setattr(FileRecords, "append", noted)
    return sizes


def test_ls21_batches_are_copied_in_chunks(written_bytes: list[int]) -> None:
    file_system = new_file_system()
    source = open_segment(file_system, 0, CONFIG)
    large = [
        batch(offset, value_bytes=CHUNK_BYTES * 2 // 5, timestamp=NOW_MS - offset) for offset in range(5)
    ]
    source.records.append(b"".join(large))
    new = create_cleaned_segment(file_system, DIRECTORY, 0, CONFIG, NOW_MS)
    written_bytes.clear()
    assert append_from_file(new, source.records, 0) == source.size_bytes
    assert written_bytes == [2 * len(large[0]), 2 * len(large[0]), len(large[0])]
    assert tuple(new.max_timestamp) == (NOW_MS, 0)


def test_ls21_a_batch_larger_than_a_chunk_is_copied_whole_and_later_chunks_may_be_as_large(
    written_bytes: list[int],
) -> None:
    file_system = new_file_system()
    source = open_segment(file_system, 0, CONFIG)
    values = [CHUNK_BYTES * 3, CHUNK_BYTES, CHUNK_BYTES, CHUNK_BYTES // 2, CHUNK_BYTES]
    sizes = [len(batch(0, value_bytes=value)) for value in values]
    source.records.append(b"".join(batch(offset, value_bytes=size) for offset, size in enumerate(values)))
    new = create_cleaned_segment(file_system, DIRECTORY, 0, CONFIG, NOW_MS)
    written_bytes.clear()
    assert append_from_file(new, source.records, 0) == source.size_bytes
    assert written_bytes == [sizes[0], sum(sizes[1:4]), sizes[4]]


@pytest.mark.covers("LogSegmentTest.testAppendFromFile")
def test_ls21_copying_ends_before_an_offset_that_does_not_fit() -> None:
    file_system = new_file_system()
    source = overflowed(file_system, [7, 8, BEYOND + 8])
    new = create_cleaned_segment(file_system, DIRECTORY, 7, CONFIG, NOW_MS)
    assert append_from_file(new, source.records, 0) == 2 * SIZE
    assert append_from_file(new, source.records, 2 * SIZE) == 0


def test_ls24_a_suffix_change_renames_the_four_files() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system, 3, CONFIG)
    assert segment.offset_index.entries == segment.time_index.entries == 0
    file_system.open(join(DIRECTORY, f"{3:020d}.txnindex"), OpenMode.CREATE).close()
    with pytest.raises(ValueError, match="does not end"):
        segment.change_file_suffixes(".swap", "")
    segment.change_file_suffixes("", ".deleted")
    kinds = ("index", "log", "timeindex", "txnindex")
    assert file_system.list(DIRECTORY) == [f"{3:020d}.{kind}.deleted" for kind in kinds]
    assert segment.path.endswith(".log.deleted") and segment.offset_index_path.endswith(".index.deleted")
    segment.delete()
    assert file_system.list(DIRECTORY) == []


def test_ls24_an_index_that_was_never_made_needs_no_renaming() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system, 3, CONFIG)
    segment.change_file_suffixes("", ".deleted")
    assert file_system.list(DIRECTORY) == [f"{3:020d}.log.deleted"]
    assert segment.offset_index_path == join(DIRECTORY, f"{3:020d}.index.deleted")


def test_ll27_leftovers_of_an_earlier_attempt_are_not_taken_over() -> None:
    file_system = new_file_system()
    first = create_cleaned_segment(file_system, DIRECTORY, 0, CONFIG, NOW_MS)
    first.append(0, batch(0))
    first.close_handlers()
    assert create_cleaned_segment(file_system, DIRECTORY, 0, CONFIG, NOW_MS).size_bytes == 0


def test_ll27_a_split_is_whole_on_the_disk_before_the_old_segment_is_deleted() -> None:
    disk = new_disk()
    file_system = durable_file_system(disk)
    segments = split(file_system, overflowed(file_system, [0, 5, BEYOND, BEYOND + 7]))
    paths = [path for each in segments for path in (each.path, each.offset_index_path, each.time_index_path)]
    before = [read_file(file_system, path) for path in paths]
    assert all(before), dict(zip(paths, before, strict=True))
    disk.lose_power("none")
    after = disk.file_system(Life())
    assert [read_file(after, path) for path in paths] == before
