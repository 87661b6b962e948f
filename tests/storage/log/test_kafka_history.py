"""Bugs of Kafka's history that would be possible here, each as one test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from storage.cleaner.plan import group_segments
from storage.disk.filesystem import OpenMode, join
from storage.topics import suffixed_directory_name
from tests.storage.cleaner.compacted_logs import COMPACTED, HUGE, CleanedLog, bases_of, run, segments_of
from tests.storage.inspection.dumps import dumped
from tests.storage.logs import NOW_MS, THREE, batch, new_file_system, open_segment
from tests.storage.recovery.stopped_logs import file_of, names, stopped


def test_kafka_4893_no_directory_name_is_longer_than_a_file_system_allows() -> None:
    for suffix in ("-delete", "-stray"):
        name = suffixed_directory_name("t" * 249, 12, "a" * 32, suffix)
        assert len(name) <= 255 and name.endswith("-12." + "a" * 32 + suffix)


@pytest.mark.parametrize(("last_base", "groups"), [((1 << 31) - 1, 1), (1 << 31, 2)])
def test_kafka_2024_and_5413_segments_whose_offsets_are_too_far_apart_are_not_joined(
    last_base: int, groups: int
) -> None:
    """However sparse the indexes are, the base of the following segment bounds the last offset."""
    file_system = new_file_system()
    segments = []
    for base in (0, last_base):
        segment = open_segment(file_system, base, replace(COMPACTED, index_interval_bytes=1 << 20))
        segment.append(base, batch(base))
        segments.append(segment)
    assert len(list(group_segments(segments, HUGE, HUGE, last_base + 1))) == groups


def test_kafka_5413_the_last_entry_of_a_sparse_index_is_not_taken_for_the_last_offset() -> None:
    first, second = segments_of([3, 3])
    second.offset_index.truncate()
    assert len(list(group_segments([first, second], HUGE, HUGE, (1 << 31) + 1))) == 2


def test_kafka_12889_empty_segments_far_apart_become_one() -> None:
    file_system = new_file_system()
    segments = [open_segment(file_system, number << 31, COMPACTED) for number in range(3)]
    assert bases_of(group_segments(segments, HUGE, HUGE, 3 << 31)) == [[0, 1 << 31, 2 << 31]]


def test_kafka_5582_a_preallocated_segment_is_cut_to_its_records_when_cleaned() -> None:
    log = CleanedLog(replace(COMPACTED, preallocate=True))
    log.put_each(1, 2, 1)
    log.roll()
    log.clean()
    first = log.log.local.segments.first
    assert first is not None and log.file_system.stat(first.path).size_bytes == first.size_bytes < 1024


def test_kafka_3894_more_keys_than_fit_the_map_take_several_rounds() -> None:
    log = CleanedLog()
    log.put_each(0, 1, 2, 3, 0, 1, 2, 3)
    log.roll()
    dirty = 0
    for _ in range(8):
        compaction = log.prepare(dirty, slots=3)
        run(compaction)
        assert compaction.end_offset is not None and compaction.end_offset > dirty
        dirty = compaction.end_offset
        if dirty == 8:
            break
    assert dirty == 8 and log.offsets() == [4, 5, 6, 7]


def test_kafka_14792_an_index_is_made_once_however_often_it_is_asked_for() -> None:
    file_system = new_file_system()
    stopped(file_system, clean=True)
    segment = open_segment(file_system, 0, THREE, file_already_exists=True)
    assert segment.offset_index is segment.offset_index and segment.time_index is segment.time_index
    assert segment.indexes.lazy_offset is segment.indexes.lazy_offset


def written(directory: Path) -> list[Path]:
    """Return the segments of a stopped log, as real files."""
    file_system = new_file_system()
    stopped(file_system, clean=True)
    paths = []
    for name in names(file_system):
        if name.endswith((".log", "index")):
            file = file_system.open(file_of(int(name[:20]), name[21:]), OpenMode.READ)
            path = directory / name
            path.write_bytes(file.read_at(0, 1 << 20))
            file.close()
            paths.append(path)
    return paths


def test_kafka_5104_a_dump_opens_indexes_to_read_and_makes_none(tmp_path: Path) -> None:
    paths = written(tmp_path)
    for path in paths:
        path.chmod(0o400)
    before = {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    dumped(*(path for path in paths if path.name.endswith("index")))
    assert {
        path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in tmp_path.iterdir()
    } == before


def test_kafka_7487_an_index_that_names_last_offsets_is_no_mismatch(tmp_path: Path) -> None:
    """The index holds the last offset of a batch of several records, not the first."""
    file_system = new_file_system()
    segment = open_segment(file_system, 0, replace(THREE, index_interval_bytes=0))
    for base in (0, 5, 10):
        segment.append(base + 4, batch(base, 5, timestamp=NOW_MS + base))
    segment.on_become_inactive()
    for suffix in ("log", "index", "timeindex"):
        file = file_system.open(file_of(0, suffix), OpenMode.READ)
        (tmp_path / Path(file_of(0, suffix)).name).write_bytes(file.read_at(0, 1 << 20))
        file.close()
    told = dumped(join(str(tmp_path), f"{0:020d}.index"), join(str(tmp_path), f"{0:020d}.timeindex"))
    assert "Mismatch" not in repr(told) and "mismatch" not in repr(told)
