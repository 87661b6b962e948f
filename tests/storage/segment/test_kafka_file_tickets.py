"""Bugs of Kafka's history in files, directories and indexes (sections 5.2 and 5.7 of its tickets)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sim.disk.life import Life
from storage.disk.filesystem import OpenMode, join, read_file
from storage.disk.os_filesystem import OsFileSystem
from storage.index.offset_index import OffsetIndex
from storage.producers.rows import encode_snapshot
from storage.segment.file_records import FileRecords
from tests.storage.logs import (
    DIRECTORY,
    SIZE,
    THREE,
    append_each,
    batch,
    durable_file_system,
    new_disk,
    new_file_system,
    open_log,
    open_segment,
    read_offsets,
)


def holding(content: bytes) -> FileRecords:
    file_system = new_file_system()
    path = join(DIRECTORY, "some.log")
    file_system.open(path, OpenMode.CREATE).append(content)
    return FileRecords(file_system, path)


# Segments and indexes


def test_kafka_748_a_resized_index_continues_where_it_was() -> None:
    index = OffsetIndex(new_file_system(), join(DIRECTORY, "0.index"), 0, max_index_size=80)
    index.append(5, 10)
    index.append(6, 20)
    for size in (160, 16, 80):
        index.resize(size)
    index.append(7, 30)
    assert [tuple(index.entry(slot)) for slot in range(3)] == [(5, 10), (6, 20), (7, 30)]


def test_kafka_588_an_entry_equal_to_the_target_is_cut_in_a_segment_with_a_base_too() -> None:
    index = OffsetIndex(new_file_system(), join(DIRECTORY, "45.index"), 45, max_index_size=80)
    for offset in (46, 50, 55):
        index.append(offset, offset)
    index.truncate_to(50)
    assert index.entries == 1 and index.last_offset == 46


def test_kafka_7076_an_index_whose_last_offset_is_its_base_is_no_damage() -> None:
    index = OffsetIndex(new_file_system(), join(DIRECTORY, "45.index"), 45, max_index_size=80)
    index.append(45, 0)
    index.sanity_check()
    assert index.last_offset == 45 and index.entries == 1


def test_kafka_7283_a_damaged_index_below_the_recovery_point_is_not_checked() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 12)
    log.flushes.flush()
    log.close_handles()
    path = join(DIRECTORY, f"{0:020d}.index")
    file = file_system.open(path, OpenMode.WRITE)
    file.write_at(0, b"\xff" * 8)
    file.close()
    before = read_file(file_system, path)
    open_log(file_system, THREE, recovery_point=12)
    assert read_file(file_system, path) == before


@pytest.mark.parametrize("content", [b"", b"\x00", b"\x00\x01" + b"\xff" * 20, encode_snapshot([]) + b"x"])
def test_kafka_5747_a_garbled_snapshot_is_dropped_and_an_older_one_used(content: bytes) -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 8)
    log.close()
    newest = join(DIRECTORY, f"{8:020d}.snapshot")
    file = file_system.open(newest, OpenMode.WRITE)
    file.set_length(0)
    file.write_at(0, content)
    file.close()
    log = open_log(file_system, THREE, clean=True)
    assert log.log_end_offset == 8 and read_file(file_system, newest) == encode_snapshot([])


def test_kafka_9892_a_snapshot_of_a_close_survives_a_power_loss() -> None:
    disk = new_disk()
    file_system = durable_file_system(disk)
    log = open_log(file_system, THREE)
    append_each(log, 8)
    log.close()
    disk.lose_power("none")
    survived = disk.file_system(Life())
    # The name may be lost, the bytes may not.
    if survived.exists(join(DIRECTORY, f"{8:020d}.snapshot")):
        assert read_file(survived, join(DIRECTORY, f"{8:020d}.snapshot")) == encode_snapshot([])
    assert open_log(survived, THREE, clean=True).log_end_offset == 8


# Reading and writing


def test_kafka_3442_a_slice_that_cuts_a_batch_ends_before_it() -> None:
    records = holding(batch(0) + batch(1))
    assert [each.base_offset for each in records.batches(0, 2 * SIZE - 1)] == [0]


def test_kafka_6292_a_size_field_near_the_top_of_32_bits_is_an_incomplete_batch() -> None:
    huge = (1).to_bytes(8, "big") + (2**31 - 1).to_bytes(4, "big") + batch(1)[12:]
    assert [each.base_offset for each in holding(batch(0) + huge).batches()] == [0]


def test_kafka_4576_a_short_read_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "some.log")
    file = OsFileSystem().open(path, OpenMode.CREATE)
    content = batch(0) + batch(1)
    file.append(content)
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda descriptor, size, at: pread(descriptor, min(size, 7), at))
    monkeypatch.setattr(
        os, "preadv", lambda descriptor, buffers, at: preadv(descriptor, [memoryview(buffers[0])[:7]], at)
    )
    assert file.read_at(0, len(content)) == content
    buffer = bytearray(len(content))
    assert file.read_into(0, memoryview(buffer)) == len(content) and bytes(buffer) == content
    file.close()


def test_kafka_17181_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsFileSystem().open(str(tmp_path / "some.log"), OpenMode.CREATE)
    pwrite = os.pwrite
    monkeypatch.setattr(
        os, "pwrite", lambda descriptor, data, at: pwrite(descriptor, memoryview(data)[:5], at)
    )
    content = batch(0)
    file.append(content)
    assert file.read_at(0, 1000) == content
    file.close()


# Names and directories


def test_kafka_3802_a_truncation_to_the_same_size_leaves_the_modification_time_alone() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system, 0, THREE)
    segment.append(0, batch(0))
    segment.set_modified(1_000)
    segment.records.truncate_to(segment.size_bytes)
    segment.records.trim()
    assert segment.records.modified_ms() == 1_000


def test_kafka_3968_a_segment_that_was_flushed_does_not_vanish_in_a_power_loss() -> None:
    disk = new_disk()
    file_system = durable_file_system(disk)
    log = open_log(file_system, THREE)
    append_each(log, 8)
    log.flushes.flush()
    disk.lose_power("none")
    assert read_offsets(open_log(disk.file_system(Life()), THREE)) == list(range(8))


def test_kafka_5752_all_paths_of_a_log_follow_a_rename() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 8)
    renamed = "topic-0." + "a" * 32 + "-delete"
    assert log.rename_directory(renamed)
    for segment in log.local.segments:
        for path in (segment.path, segment.offset_index_path, segment.time_index_path):
            assert path.startswith(f"logs/{renamed}/")
        assert segment.transaction_index.path.startswith(f"logs/{renamed}/")


def test_kafka_16424_a_delayed_deletion_follows_the_log_to_its_new_name() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 8)
    segment = log.local.segments.first
    assert segment is not None
    segment.change_file_suffixes("", ".deleted")
    log.rename_directory("topic-0." + "a" * 32 + "-stray")
    segment.delete()
    assert not [name for name in file_system.list(log.directory) if name.endswith(".deleted")]


def test_kafka_13403_files_that_vanish_while_a_log_is_deleted_do_not_stop_it() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 8)
    first = log.local.segments.first
    assert first is not None
    for path in (first.path, first.time_index_path):
        # Retention was faster.
        file_system.unlink(path)
    log.delete()
    assert not file_system.exists(DIRECTORY)
