"""A `.log` file by rule number (FR): header scans, and the search for an offset or a timestamp."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import storage.segment.file_records
from storage.batch import HEADER_SIZE, RecordBatch, build_batch
from storage.batch.legacy.builder import build_message
from storage.batch.record import Record
from storage.codec.crc32c import crc32c
from storage.disk.filesystem import OpenMode
from storage.errors import CorruptBatch, ReadTakesLong
from storage.segment.file_records import FileRecords, LogOffsetPosition, TimestampAndOffset
from tests.storage.index.indexes import simulated
from tests.storage.logs import NOW_MS
from tests.storage.segment.log_files import PATH, THREE, batch_of, bytes_of, holding, with_three


class TestScan:
    def test_scan_yields_header_fields_and_the_bytes(self) -> None:
        records = with_three()
        seen = []
        for buffer, at, position, header in records.scan_headers():
            batch = RecordBatch(buffer, at, header[1] + 12, position)
            seen.append(batch.tobytes())
            assert header == struct.unpack_from(">qiibIhiqqqhii", seen[-1])
        assert seen == THREE

    def test_fr11_scan_stops_at_a_wrong_checksum(self) -> None:
        damaged = bytearray(b"".join(THREE))
        damaged[len(THREE[0]) + 65] ^= 1
        records = holding(bytes(damaged))
        walk = records.scan_headers()
        assert next(walk)[3][0] == 0
        with pytest.raises(CorruptBatch, match="checksum") as raised:
            next(walk)
        assert (raised.value.path, raised.value.position) == (PATH, len(THREE[0]))

    def test_fr11_a_magic_2_batch_below_61_bytes_is_damage(self) -> None:
        short = struct.pack(">qiib", 1, 20, 0, 2) + bytes(15)
        for tail in (b"", THREE[2]):
            walk = holding(THREE[0] + short + tail).scan_headers()
            next(walk)
            with pytest.raises(CorruptBatch, match="smaller than its header") as raised:
                next(walk)
            assert raised.value.position == len(THREE[0])

    def test_scan_takes_magic_0_and_1_messages(self) -> None:
        def message(offset: int, magic: int, value: bytes) -> bytes:
            timestamp = struct.pack(">q", 55) if magic else b""
            body = (
                bytes([magic, 0]) + timestamp + struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
            )
            return struct.pack(">qiI", offset, len(body) + 4, crc32(body)) + body

        messages = [message(0, 0, b""), message(1, 1, b""), message(2, 0, b"x" * 90), message(3, 1, b"")]
        records = holding(b"".join(messages))
        seen = [(header[0], header[3], header[8], header[2]) for *_, header in records.scan_headers()]
        assert seen == [(0, 0, -1, -1), (1, 1, 55, -1), (2, 0, -1, -1), (3, 1, 55, -1)]
        assert bytes_of(records.batches()) == messages
        damaged = bytearray(b"".join(messages))
        damaged[-1] ^= 1
        with pytest.raises(CorruptBatch):
            list(holding(bytes(damaged)).scan_headers())

    def test_an_overlong_size_field_costs_no_memory(self) -> None:
        """Even a size that the file could hold is not allocated before the checksum proves it."""
        _, fs = simulated()
        damaged = bytearray(THREE[1])
        struct.pack_into(">i", damaged, 8, 64 << 20)
        records = holding(THREE[0] + damaged, fs)
        records.close_handlers()
        file = fs.open(PATH, OpenMode.WRITE)
        file.set_length(80 << 20)
        records = FileRecords(fs, PATH, read_only=True)
        walk = records.scan_headers()
        next(walk)
        with pytest.raises(CorruptBatch, match="checksum"):
            next(walk)

    @settings(max_examples=80)
    @given(st.data())
    def test_scan_equals_the_plain_walk_on_any_damage(self, data: st.DataObject) -> None:
        sizes = data.draw(st.lists(st.integers(0, 700), max_size=8))
        content = bytearray(b"".join(batch_of(i, value=bytes(size)) for i, size in enumerate(sizes)))
        if content:
            for _ in range(data.draw(st.integers(0, 2))):
                content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
            del content[data.draw(st.integers(len(content) - 80, len(content))) :]
        expected, damage = plain_walk(bytes(content))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                storage.segment.file_records,
                "BLOCK_BYTES",
                data.draw(st.sampled_from([64, 300, 1000, 1 << 18])),
            )
            records = holding(bytes(content))
            seen: list[int] = []
            found: int | None = None
            try:
                seen.extend(position for _, _, position, _ in records.scan_headers())
            except CorruptBatch as error:
                found = error.position
                walk = records.scan_headers()
                seen = [next(walk)[2] for _ in expected]
        assert (seen, found) == (expected, damage)


def plain_walk(content: bytes) -> tuple[list[int], int | None]:
    """Walk by FR8 and FR11 as they are written.

    Returns the positions of the sound batches and of the damage, if any.
    """
    positions: list[int] = []
    position = 0
    while position < len(content) - 17:
        (size,) = struct.unpack_from(">i", content, position + 8)
        if size < 14:
            return positions, position
        if position > len(content) - 12 - size:
            return positions, None
        if not RecordBatch(content, position, 12 + size).is_valid():
            return positions, position
        positions.append(position)
        position += 12 + size
    return positions, None


class TestSearch:
    @pytest.mark.covers("FileRecordsTest.testSearch")
    def test_fr12_by_offset(self) -> None:
        records = with_three()
        first = len(THREE[0])
        fifty = batch_of(50)
        records.append(fifty)
        found = LogOffsetPosition(offset=0, position=0, size_bytes=first)
        assert records.search_for_offset_with_size(0) == found
        second = LogOffsetPosition(offset=1, position=first, size_bytes=len(THREE[1]))
        assert records.search_for_offset_with_size(1) == second
        assert records.search_for_offset_with_size(1, first) == second
        last = LogOffsetPosition(offset=50, position=3 * first, size_bytes=len(fifty))
        assert records.search_for_offset_with_size(3) == last
        assert records.search_for_offset_with_size(50, 2 * first) == last
        assert records.search_for_offset_with_size(51) is None
        assert holding(b"").search_for_offset_with_size(0) is None

    def test_fr12_the_last_offset_of_a_batch_counts(self) -> None:
        records = holding(batch_of(0, 1, 2) + batch_of(3, 4, 9))
        found = records.search_for_offset_with_size(5)
        assert found is not None and found.offset == 9
        found = records.search_for_offset_with_size(1)
        assert found is not None and (found.offset, found.position) == (2, 0)

    @pytest.mark.covers("FileRecordsTest.testSearchForTimestamp")
    def test_fr13_by_timestamp(self) -> None:
        records = holding(batch_of(5, timestamp=10, epoch=0) + batch_of(6, timestamp=11, epoch=1))
        first = TimestampAndOffset(timestamp=10, offset=5, leader_epoch=0)
        second = TimestampAndOffset(timestamp=11, offset=6, leader_epoch=1)
        assert records.search_for_timestamp(9, 0, 5) == first
        assert records.search_for_timestamp(10, 0, 5) == first
        assert records.search_for_timestamp(11, 0, 5) == second
        assert records.search_for_timestamp(9, 0, 6) == second
        assert records.search_for_timestamp(12, 0, 5) is None

    def test_fr13_a_step_passes_over_so_many_batches_and_a_job_over_all(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(storage.segment.file_records, "HEADERS_A_STEP", 3)
        records = holding(b"".join(batch_of(offset, timestamp=1 + offset // 4) for offset in range(5)))
        assert records.search_for_timestamp(1, most_bytes=1000) is not None
        with pytest.raises(ReadTakesLong, match="3 batches"):
            records.search_for_timestamp(2, most_bytes=1000)
        found = records.search_for_timestamp(2)
        assert found is not None and found.offset == 4
        # The fourth batch is one too many.
        three, four = (holding(b"".join(batch_of(offset) for offset in range(count))) for count in (3, 4))
        assert three.search_for_timestamp(99, most_bytes=1000) is None
        with pytest.raises(ReadTakesLong, match="3 batches"):
            four.search_for_timestamp(99, most_bytes=1000)

    def test_rd8_the_greatest_timestamp_is_looked_for_in_so_many_batches_of_a_step(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(storage.segment.file_records, "HEADERS_A_STEP", 3)
        records = holding(b"".join(batch_of(offset, timestamp=1 + offset // 4) for offset in range(6)))
        found = records.find_max_timestamp(1, in_step=True)
        assert found is not None and (found.base_offset, len(list(found.records()))) == (0, 1)
        with pytest.raises(ReadTakesLong, match="3 batches"):
            records.find_max_timestamp(2, in_step=True)
        found = records.find_max_timestamp(2)
        assert found is not None and found.base_offset == 4
        assert records.find_max_timestamp(3) is None

    def test_fr13_the_record_within_the_batch(self) -> None:
        batch = build_batch(
            [
                Record(offset=o, timestamp=t, key=None, value=None)
                for o, t in ((0, 5), (1, 9), (2, 7), (3, 8))
            ],
            base_offset=0,
        )
        records = holding(batch)
        assert records.search_for_timestamp(6) == TimestampAndOffset(timestamp=9, offset=1, leader_epoch=None)
        found = records.search_for_timestamp(8, 0, 2)
        assert found == TimestampAndOffset(timestamp=8, offset=3, leader_epoch=None)
        assert records.search_for_timestamp(9, 0, 2) is None

    def test_fr14_largest_timestamp_earliest_batch(self) -> None:
        batches = [
            batch_of(0, timestamp=3, epoch=1),
            batch_of(1, 2, timestamp=8, epoch=2),
            batch_of(3, timestamp=8, epoch=3),
        ]
        records = holding(b"".join(batches))
        expected = TimestampAndOffset(timestamp=8, offset=2, leader_epoch=2)
        assert records.largest_timestamp_after() == expected
        after = records.largest_timestamp_after(len(batches[0]) + len(batches[1]))
        assert after == TimestampAndOffset(timestamp=8, offset=3, leader_epoch=3)
        none = TimestampAndOffset(timestamp=-1, offset=-1, leader_epoch=None)
        assert records.largest_timestamp_after(records.size_bytes) == none


def test_fr12_where_offsets_go_back_the_last_batch_below_the_target_decides() -> None:
    """Kafka 4.1 compares base offsets: a batch that holds the target is passed over if a lower one follows."""
    data = batch_of(0, 1, 2) + batch_of(3, 4, 5) + batch_of(1, 2)
    assert holding(data).search_for_offset_with_size(4) is None
    found = holding(data + batch_of(9)).search_for_offset_with_size(4)
    assert found is not None and (found.base_offset, found.position) == (9, len(data))


def test_fr8b_a_batch_whose_end_is_missing_is_damage_to_the_walk_of_headers() -> None:
    """The file has become shorter than its records."""
    fs = simulated()[1]
    records = holding(b"".join(THREE), fs)
    fs.open(PATH, OpenMode.WRITE).truncate(records.size_bytes - 5)
    walk = records.scan_headers()
    assert [position for _, _, position, _ in (next(walk), next(walk))] == [0, len(THREE[0])]
    with pytest.raises(CorruptBatch, match="unexpected end"):
        next(walk)


@pytest.mark.parametrize("size_field", [13, -1])
def test_fr8c_the_walk_of_headers_names_a_size_field_below_14(size_field: int) -> None:
    damaged = bytearray(b"".join(THREE))
    struct.pack_into(">i", damaged, len(THREE[0]) + 8, size_field)
    walk = holding(bytes(damaged)).scan_headers()
    next(walk)
    with pytest.raises(CorruptBatch, match=f"a size field of {size_field},"):
        next(walk)


def plain_search(content: bytes, target_offset: int) -> int | None:
    """Search by FR12 as it is written, in sound batches. Returns the position of what is found."""
    batches = [RecordBatch(content, position, len(content)) for position in plain_walk(content)[0]]
    at_or_above = [number for number, batch in enumerate(batches) if batch.base_offset >= target_offset]
    first = at_or_above[0] if at_or_above else len(batches)
    if first < len(batches) and batches[first].base_offset == target_offset:
        return batches[first].position
    if first and batches[first - 1].last_offset >= target_offset:
        return batches[first - 1].position
    return batches[first].position if first < len(batches) else None


@pytest.mark.parametrize("block_bytes", [1, 300, 1 << 14])
@pytest.mark.parametrize("cut_bytes", [0, 1, 40])
def test_fr12_a_search_over_many_batches_finds_what_a_look_at_each_finds(
    block_bytes: int, cut_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage.segment.file_records, "FIRST_BLOCK_BYTES", block_bytes)
    rising = [batch_of(offset, offset + 2) for offset in range(0, 60, 4)]
    content = b"".join([*rising, batch_of(30, 31), batch_of(90, 99), batch_of(95, 97)])
    content = content[: len(content) - cut_bytes]
    records = holding(content)
    for target_offset in range(100):
        found = records.search_for_offset_with_size(target_offset)
        position = None if found is None else found.position
        assert position == plain_search(content, target_offset), target_offset


def test_rd8_the_first_batch_with_exactly_that_greatest_timestamp_is_found() -> None:
    times = [9, 5, 7, 5]
    records = holding(b"".join(batch_of(offset, timestamp=time) for offset, time in enumerate(times)))
    found = [records.find_max_timestamp(time) for time in (9, 5, 7, 8)]
    assert [each and each.base_offset for each in found] == [0, 1, 2, None]


@pytest.mark.parametrize("start", [0, 4])
def test_ls13_a_slice_of_a_look_at_headers_ends_after_so_many_bytes_wherever_it_begins(
    start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, size_bytes = holding(b"".join(batch_of(offset) for offset in range(10))), len(batch_of(0))
    monkeypatch.setattr(storage.segment.file_records, "BYTES_A_SLICE", 3 * size_bytes)
    begin = start * size_bytes
    for most_batches, seen in ((2, 2), (3, 3), (9, 3)):
        after = records.greatest_timestamp_in(begin, records.size_bytes, most_batches)[1]
        assert after == begin + seen * size_bytes


@pytest.mark.parametrize("magic", [0, 1])
def test_fr8_a_short_message_at_the_end_is_walked_over_at_its_position(magic: int) -> None:
    """It is shorter than a header of magic 2, and the file ends with it."""
    message = build_message(1, magic=magic, timestamp=10 if magic else -1, key=None, value=b"")
    first = batch_of(0)
    assert len(message) < 61
    records = holding(first + message)
    for start, positions in ((0, [0, len(first)]), (len(first), [len(first)])):
        assert [position for _, _, position, _ in records.scan_headers(start)] == positions
        ended = records.scan_headers(start, records.size_bytes)
        assert [position for _, _, position, _ in ended] == positions


def test_fr9_a_header_that_its_size_field_cuts_off_is_shown_whole_and_the_size_stays_as_stated() -> None:
    """A checksum that fits the 61 bytes makes no sound batch of it."""
    data = bytearray(build_batch([Record(7, NOW_MS, None, b"v")], base_offset=7)[:HEADER_SIZE])
    struct.pack_into(">i", data, 8, 20)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    records = holding(bytes(data) + bytes(40))
    found = next(records.batches())
    assert (found.max_timestamp, found.record_count, found.size_bytes) == (NOW_MS, 1, 32)
    assert not found.is_valid()
