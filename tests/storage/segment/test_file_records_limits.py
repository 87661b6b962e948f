"""The last byte on either side of what the rules of a `.log` file and of its batches allow (FR1 to FR13)."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import pytest

from sim.disk import SimDisk
from storage.batch import HEADER_SIZE, Record, RecordBatch, build_batch, iterate_batches
from storage.batch.legacy.builder import build_message
from storage.codec.crc32c import crc32c
from storage.disk.filesystem import FileSystem, OpenMode
from storage.errors import CorruptBatch, StorageError
from storage.segment.file_records import BLOCK_BYTES, LONG_BATCH_BYTES, FileRecords
from tests.storage.logs import NOW_MS, batch, new_disk, new_file_system

PATH = "0.log"


def new_records(content: bytes = b"") -> tuple[SimDisk, FileSystem, FileRecords]:
    disk = new_disk()
    file_system = new_file_system(disk)
    file_system.open(PATH, OpenMode.CREATE).append(content)
    return disk, file_system, FileRecords(file_system, PATH)


def smallest_message(offset: int) -> bytes:
    """Make a message of magic 0 without key and value: its size field is 14, the least there is."""
    content = struct.pack(">bbii", 0, 0, -1, -1)
    return struct.pack(">qiI", offset, 14, zlib.crc32(content)) + content


def test_fr1_a_file_of_exactly_the_most_bytes_opens() -> None:
    _, file_system, _ = new_records()
    file_system.open(PATH, OpenMode.WRITE).set_length(2**31 - 1)
    assert FileRecords(file_system, PATH).size_bytes == 2**31 - 1


def test_fr1_a_file_opened_for_reading_is_never_preallocated() -> None:
    _, file_system, _ = new_records(batch(0))
    records = FileRecords(file_system, PATH, read_only=True, preallocate_bytes=4096)
    assert [each.base_offset for each in records.batches()] == [0]


def test_fr2_a_view_ends_at_its_given_end_and_never_asks_for_the_files_length() -> None:
    first, second = batch(0), batch(1)
    _, file_system, records = new_records(first + second)
    assert [each.base_offset for each in records.batches(0, len(first))] == [0]
    assert [header[0] for *_, header in records.scan_headers(0, len(first))] == [0]
    file_system.open(PATH, OpenMode.WRITE).append(batch(2))
    # The caller's own end is above what this object takes for its records.
    assert [each.base_offset for each in records.batches(0, 3 * len(first))] == [0, 1, 2]
    with pytest.raises(CorruptBatch, match="unexpected end"):
        list(records.batches(0, 4 * len(first)))


def test_fr2_the_walk_over_headers_ends_at_its_given_end_although_its_buffer_has_room_for_more() -> None:
    given = batch(0, value_bytes=200_000) + batch(1, value_bytes=200_000)
    assert len(given) > BLOCK_BYTES
    records = new_records(given + batch(2) + batch(3))[2]
    for end in (len(given), len(given) + 70):
        assert [header[0] for *_, header in records.scan_headers(0, end)] == [0, 1], end


def test_fr6_a_close_trims_before_it_syncs() -> None:
    disk, file_system, _ = new_records()
    records = FileRecords(file_system, PATH, preallocate_bytes=4096)
    records.append(batch(0))
    disk.call_log = []
    records.close()
    assert [call.split(" ")[0] for call in disk.call_log] == ["truncate", "sync"]


def test_fr6_closing_a_file_opened_for_reading_changes_nothing() -> None:
    disk, file_system, _ = new_records(batch(0))
    records = FileRecords(file_system, PATH, read_only=True)
    disk.call_log = []
    records.close()
    assert disk.call_log == []


def test_fr8c_a_size_field_of_14_is_a_message() -> None:
    _, _, records = new_records(smallest_message(0) + smallest_message(1))
    assert [each.last_offset for each in records.batches()] == [0, 1]
    assert [header[0] for *_, header in records.scan_headers()] == [0, 1]


def test_fr8d_a_batch_that_ends_with_the_file_is_whole() -> None:
    first, second = batch(0), batch(1)
    _, _, records = new_records(first + second)
    assert [each.base_offset for each in records.batches()] == [0, 1]
    assert [header[0] for *_, header in records.scan_headers()] == [0, 1]
    assert [each.base_offset for each in records.batches(0, len(first))] == [0]


@pytest.mark.parametrize("magic", [-128, -1, 0, 1])
def test_fr8e_magic_below_two_has_the_old_header(magic: int) -> None:
    odd = bytearray(batch(7, 3))
    odd[16] = magic & 0xFF
    (found,) = new_records(bytes(odd))[2].batches()
    # Read as an old batch, it is one message, whose offset is its last.
    assert (found.magic, found.base_offset, found.last_offset, found.producer_id) == (magic, 7, 7, -1)


@pytest.mark.parametrize("magic", [2, 3, 127])
def test_fr8e_magic_above_two_has_the_header_of_two(magic: int) -> None:
    odd = bytearray(batch(7, 3, epoch=5))
    odd[16] = magic
    (found,) = new_records(bytes(odd))[2].batches()
    assert (found.magic, found.base_offset, found.last_offset) == (magic, 7, 9)
    assert (found.partition_leader_epoch, found.record_count) == (5, 3)


def test_fr9_the_last_offset_is_the_headers_where_compaction_left_gaps() -> None:
    compacted = build_batch([Record(10, 5, None, b"a"), Record(17, 5, None, b"b")], base_offset=8)
    (found,) = new_records(compacted)[2].batches()
    assert (found.base_offset, found.last_offset, found.record_count) == (8, 17, 2)
    assert found.first_offset() == 8


def test_fr10_a_size_field_of_14_is_a_message_in_memory_too() -> None:
    assert [each.last_offset for each in iterate_batches(smallest_message(0) + smallest_message(1))] == [0, 1]


def test_fr11_a_batch_below_61_bytes_is_unsound_whatever_its_checksum_says() -> None:
    for size_bytes in range(26, HEADER_SIZE):
        data = bytearray(size_bytes)
        struct.pack_into(">qiib", data, 0, 0, size_bytes - 12, 0, 2)
        struct.pack_into(">I", data, 17, crc32c(data[21:]))
        assert not RecordBatch(data, 0, size_bytes).is_valid()
        # After a sound one, too, and with more after it.
        walk = new_records(batch(0) + bytes(data) + batch(1))[2].scan_headers()
        assert next(walk)[3][0] == 0
        with pytest.raises(CorruptBatch, match=f"byte {len(batch(0))}"):
            next(walk)


def test_fr11_a_header_alone_is_sound() -> None:
    """Compaction leaves such a batch (T22)."""
    data = bytearray(HEADER_SIZE)
    struct.pack_into(">qiib", data, 0, 0, HEADER_SIZE - 12, 0, 2)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    found = RecordBatch(data, 0, HEADER_SIZE)
    found.check_valid()
    assert [header[0] for *_, header in new_records(bytes(data))[2].scan_headers()] == [0]


def test_fr10_the_walk_over_headers_says_where_in_its_buffer_each_batch_begins() -> None:
    parts = [smallest_message(0), batch(1), batch(2, 3), smallest_message(5), smallest_message(6)]
    walk = new_records(b"".join(parts))[2].scan_headers()
    found = [bytes(buffer[at : at + len(part)]) for (buffer, at, _, _), part in zip(walk, parts, strict=True)]
    assert found == parts


def test_fr11_a_message_of_14_bytes_is_sound_and_a_shorter_one_is_not() -> None:
    data = smallest_message(3)
    assert RecordBatch(data, 0, len(data)).is_valid()
    content = b"\x00\x00" + bytes(7)
    short = struct.pack(">qiI", 3, 13, zlib.crc32(content)) + content
    assert not RecordBatch(short, 0, len(short)).is_valid()


def test_fr11_the_checksum_covers_all_from_the_attributes_on_and_nothing_before() -> None:
    data = batch(0, 2)
    assert RecordBatch(data, 0, len(data)).is_valid()
    # Every byte but those of the size field and the magic.
    for at in (*range(8), *range(12, 16), *range(17, len(data))):
        changed = bytearray(data)
        changed[at] ^= 1
        assert RecordBatch(changed, 0, len(changed)).is_valid() == (at < 17), at


def test_fr12_a_search_sees_nothing_before_its_start() -> None:
    first = batch(0, 3)
    _, _, records = new_records(first + batch(3) + batch(4))
    found = records.search_for_offset_with_size(1, len(first))
    assert found is not None and (found.base_offset, found.position) == (3, len(first))


def test_fr15_a_slice_of_a_file_that_shrank_names_what_is_missing() -> None:
    data = batch(0)
    _, file_system, records = new_records(data)
    file_system.open(PATH, OpenMode.WRITE).truncate(0)
    with pytest.raises(StorageError, match=f"0 bytes at byte 0, expected {len(data)}"):
        records.read_slice(0, len(data))


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_fr8_a_long_batch_of_any_format_is_walked_over_and_the_next_one_follows(magic: int) -> None:
    """A message of an old format has another checksum, over another part."""
    value = bytes(LONG_BATCH_BYTES)
    if magic == 2:
        content = build_batch([Record(0, NOW_MS, None, value)])
    else:
        content = build_message(0, magic=magic, timestamp=NOW_MS, key=None, value=value)
    _, _, records = new_records(content + batch(1))
    found = [(header[0], position) for _, _, position, header in records.scan_headers()]
    assert found == [(0, 0), (1, len(content))]


def test_fr8_a_long_batch_that_is_damaged_is_refused_before_it_is_held_whole() -> None:
    content = bytearray(build_batch([Record(0, NOW_MS, None, bytes(LONG_BATCH_BYTES))]))
    content[-1] ^= 1
    _, _, records = new_records(bytes(content))
    tracemalloc.start()
    with pytest.raises(CorruptBatch, match="checksum"):
        next(records.scan_headers())
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most_bytes < LONG_BATCH_BYTES, most_bytes
