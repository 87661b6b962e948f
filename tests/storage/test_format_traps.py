"""Traps of the format that no rule names: ends of text files, digits of names, levels of codecs (T3 to T36)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from cluster.local.start_recovery import _Task, _unflushed_bytes
from storage.batch import (
    HEADER_SIZE,
    Compression,
    RecordBatch,
    TimestampType,
    set_last_offset,
    set_max_timestamp,
)
from storage.batch.format import ATTRIBUTES_AT, SIZE_FIELD_AT
from storage.batch.legacy.builder import build_message
from storage.codec.compression import compress
from storage.codec.crc32c import crc32c
from storage.config import LogConfig
from storage.disk.checkpoints import OffsetCheckpoint, PartitionMetadataFile
from storage.disk.filesystem import OpenMode, read_file
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import RecordBatchTooLarge, StorageError
from storage.leader_epochs import LeaderEpochCache
from storage.producers.snapshot import snapshot_name
from storage.segment.live_files import offset_of_name
from storage.segment.names import offset_name
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    append_batch,
    append_each,
    batch,
    filled_segment,
    new_disk,
    new_file_system,
    open_log,
    open_segment,
    produced,
)


def test_t3_a_close_does_not_ask_for_a_maximum_to_write() -> None:
    file_system = new_file_system()
    path = filled_segment(file_system, range(3)).time_index_path
    file_system.unlink(path)
    open_segment(file_system, file_already_exists=True).close()
    assert not file_system.exists(path)


def test_t8_a_changed_timestamp_of_an_old_message_renews_its_checksum() -> None:
    data = bytearray(build_message(3, magic=1, timestamp=5, key=b"k", value=b"v"))
    assert set_max_timestamp(data, 0, timestamp_type=TimestampType.LOG_APPEND, max_timestamp=99)
    assert RecordBatch(data, 0, len(data)).is_valid()
    before = bytes(data[12:])
    # The checksum leaves out the offset.
    set_last_offset(data, 0, 70)
    assert bytes(data[12:]) == before and RecordBatch(data, 0, len(data)).is_valid()


def test_t12_the_snapshot_of_a_roll_is_on_disk_or_the_recovery_point_stays() -> None:
    disk = new_disk()
    log = open_log(new_file_system(disk))
    append_each(log, 3)
    disk.call_log = []
    log.flushes.roll(now_ms=NOW_MS)
    assert f"sync {DIRECTORY}/{snapshot_name(3)}" in disk.call_log and log.local.recovery_point == 3
    append_each(log, 3)
    disk.fail(1, path_suffix=snapshot_name(6))
    with pytest.raises(StorageError):
        log.flushes.roll(now_ms=NOW_MS)
    assert log.local.recovery_point == 3


def test_t15_text_files_end_with_a_line_end_and_partition_metadata_does_not() -> None:
    file_system = new_file_system()
    OffsetCheckpoint(file_system, "logs/points").write({("topic", 0): 5, ("topic", 1): 7})
    assert read_file(file_system, "logs/points") == b"0\n2\ntopic 0 5\ntopic 1 7\n"
    LeaderEpochCache(file_system, "logs/epochs").assign(3, 9)
    assert read_file(file_system, "logs/epochs") == b"0\n1\n3 9\n"
    PartitionMetadataFile(file_system, DIRECTORY).write("a" * 21 + "Q")
    content = read_file(file_system, f"{DIRECTORY}/partition.metadata")
    assert content == b"version: 0\ntopic_id: " + b"a" * 21 + b"Q"


def test_t16_names_have_ascii_digits_and_no_others_are_read() -> None:
    assert offset_name(2**63 - 1) == "09223372036854775807" and offset_name(7) == f"{'0' * 19}7"
    for digits in ("\u0660" * 20, "\u00b2" * 20, "\uff11" * 20):
        assert digits.isdigit() and offset_of_name(f"{digits}.log") is None
    file_system = new_file_system()
    log = open_log(file_system)
    append_each(log, 2)
    log.close()
    file_system.open(f"{DIRECTORY}/{chr(0x661) * 20}.log", OpenMode.CREATE).close()
    assert open_log(file_system).local.segments.base_offsets == [0]


def test_t16_recovery_before_the_start_passes_over_other_digits(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.log").write_bytes(bytes(100))
    (tmp_path / ("\u00b2" * 20 + ".log")).write_bytes(bytes(7))
    task = _Task(
        directory=str(tmp_path), config=LogConfig(), log_start_offset=0, recovery_point=0, now_ms=NOW_MS
    )
    assert _unflushed_bytes(OsFileSystem(), task) == 100


def test_t17_gzip_is_written_at_the_default_level() -> None:
    data = b"".join(b"%d,%d;" % (number * number, number % 7) for number in range(3000))
    packed = compress(Compression.GZIP, data)
    assert packed == compress(Compression.GZIP, data, level=6)
    assert packed != compress(Compression.GZIP, data, level=1)


def test_t33_the_epochs_of_a_set_that_is_too_large_stay() -> None:
    size = len(batch(0))
    log = open_log(new_file_system(), LogConfig(segment_bytes=size, segment_index_bytes=1200))
    with pytest.raises(RecordBatchTooLarge):
        log.append_as_follower(batch(0, epoch=3) + batch(1, epoch=3), leader_epoch=3, now_ms=NOW_MS)
    assert (log.epochs.latest_epoch, log.log_end_offset) == (3, 0)


def test_t36_without_timestamps_the_files_time_does_not_matter() -> None:
    segment = open_segment(new_file_system())
    append_batch(segment, batch(0, timestamp=-1))
    segment.set_modified(NOW_MS - 5000)
    assert segment.time_waited_for_roll(NOW_MS + 7, -1) == 7


def test_t21_another_level_of_the_topics_codec_is_stored_unchanged() -> None:
    plain = produced(40, value_bytes=300)
    payload = plain[HEADER_SIZE:]
    packed = compress(Compression.GZIP, payload, level=1)
    assert packed != compress(Compression.GZIP, payload)
    data = bytearray(plain[:HEADER_SIZE] + packed)
    struct.pack_into(">i", data, SIZE_FIELD_AT, len(data) - 12)
    data[ATTRIBUTES_AT + 1] |= Compression.GZIP
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    assert RecordBatch(data, 0, len(data)).is_valid()
    for compression_type in ("gzip", "producer"):
        log = open_log(new_file_system(), LogConfig(compression_type=compression_type))
        log.append_as_leader(bytes(data), leader_epoch=0, now_ms=NOW_MS)
        assert log.read(0, max_size=1 << 20).records[HEADER_SIZE:] == packed
