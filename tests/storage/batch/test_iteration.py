"""Iteration over batches of every magic and codec, in a file (FR8, FR9) and in memory (FR10), and where they differ."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.batch import Compression, Record, RecordBatch, build_batch, iterate_batches
from storage.batch.legacy.builder import build_message_set
from storage.disk.filesystem import OpenMode
from storage.draws import Draws
from storage.errors import CorruptBatch, UnsupportedCompression
from storage.segment.file_records import FileRecords, TimestampAndOffset

MADE = [
    (magic, codec)
    for magic in (0, 1, 2)
    for codec in Compression
    if magic == 2 or codec is not Compression.ZSTD
]
every_kind = pytest.mark.parametrize(("magic", "codec"), MADE)


def built(magic: int, codec: Compression, *records: Record, leader_epoch: int = -1) -> bytes:
    base_offset = records[0].offset
    if magic == 2:
        return build_batch(
            records, base_offset=base_offset, compression=codec, partition_leader_epoch=leader_epoch
        )
    return build_message_set(records, magic=magic, base_offset=base_offset, compression=codec)


def holding(content: bytes) -> FileRecords:
    file_system = SimDisk(Draws(1), lambda: 1000).file_system(Life())
    file_system.open("0.log", OpenMode.CREATE).append(content)
    return FileRecords(file_system, "0.log")


def both_ways(content: bytes) -> Iterator[list[RecordBatch]]:
    yield list(holding(content).batches())
    yield list(iterate_batches(content))


def told(magic: int, *records: Record) -> list[Record]:
    """Return what a reader sees of records that were written in `magic`."""
    return [record if magic else record._replace(timestamp=-1) for record in records]


@pytest.mark.covers("FileLogInputStreamTest.testWriteTo")
@every_kind
def test_fr9_batch_from_a_file_returns_its_bytes(magic: int, codec: Compression) -> None:
    content = built(magic, codec, Record(0, 5, None, b"foo"))
    for (batch,) in both_ways(content):
        assert batch.tobytes() == content
        batch.check_valid()
        assert list(batch.records()) == told(magic, Record(0, 5, None, b"foo"))


@pytest.mark.covers("FileLogInputStreamTest.testSimpleBatchIteration")
@every_kind
def test_fr8_batches_come_in_order_with_their_metadata(magic: int, codec: Compression) -> None:
    first, second = Record(0, 3241324, b"a", b"foo"), Record(1, 234280, b"b", b"bar")
    contents = built(magic, codec, first), built(magic, codec, second)
    for batches in both_ways(b"".join(contents)):
        assert [batch.size_bytes for batch in batches] == list(map(len, contents))
        assert [batch.position for batch in batches] == [0, len(contents[0])]
        for batch, record in zip(batches, (first, second), strict=True):
            assert batch.is_valid() and batch.compression is codec and batch.magic == magic
            assert batch.last_offset == batch.first_offset() == record.offset
            assert batch.max_timestamp == (record.timestamp if magic else -1)
            assert list(batch.records()) == told(magic, record)


@pytest.mark.covers("FileLogInputStreamTest.testBatchIterationWithMultipleRecordsPerBatch")
@pytest.mark.parametrize(
    ("magic", "codec"),
    [(magic, codec) for magic, codec in MADE if magic == 2 or codec is not Compression.NONE],
)
def test_fr9_last_offset_of_many_records_is_in_the_header(magic: int, codec: Compression) -> None:
    two = Record(0, 3241324, b"a", b"1"), Record(1, 234280, None, b"2")
    three = Record(2, 238423489, b"c", b"3"), Record(3, 897839, b"d", None), Record(4, 8234, None, b"e")
    for batches in both_ways(built(magic, codec, *two) + built(magic, codec, *three)):
        assert [batch.last_offset for batch in batches] == [1, 4]
        assert [batch.first_offset() for batch in batches] == [0, 2]
        assert [list(batch.records()) for batch in batches] == [told(magic, *two), told(magic, *three)]


@pytest.mark.covers("FileLogInputStreamTest.testBatchIterationV2")
@pytest.mark.parametrize("codec", Compression)
def test_fr9_fields_of_producers_are_in_the_header(codec: Compression) -> None:
    records = [Record(15, 3241324, b"a", b"1"), Record(16, 234280, b"b", b"2")]
    later = [Record(27, 238423489, b"c", b"3"), Record(28, 897839, b"d", b"4"), Record(29, 8234, b"e", b"5")]
    content = build_batch(
        records,
        base_offset=15,
        compression=codec,
        producer_id=83843,
        producer_epoch=15,
        base_sequence=234,
        partition_leader_epoch=9832,
    ) + build_batch(
        later,
        base_offset=27,
        compression=codec,
        producer_id=83843,
        producer_epoch=15,
        base_sequence=236,
        partition_leader_epoch=9832,
        is_transactional=True,
    )
    for idempotent, transactional in both_ways(content):
        for batch in (idempotent, transactional):
            assert (batch.producer_id, batch.producer_epoch, batch.partition_leader_epoch) == (
                83843,
                15,
                9832,
            )
        assert (idempotent.base_sequence, idempotent.last_sequence, idempotent.last_offset) == (234, 235, 16)
        assert (transactional.base_sequence, transactional.last_sequence) == (236, 238)
        assert not idempotent.is_transactional and transactional.is_transactional
        assert [record.sequence for record in transactional.records()] == [236, 237, 238]


@pytest.mark.covers("FileLogInputStreamTest.testBatchIterationIncompleteBatch")
@every_kind
def test_fr8d_incomplete_last_batch_is_absent_without_an_error(magic: int, codec: Compression) -> None:
    first = built(magic, codec, Record(0, 100, None, b"foo"))
    second = built(magic, codec, Record(1, 200, None, b"bar"))
    for batches in both_ways((first + second)[:-13]):
        assert [batch.tobytes() for batch in batches] == [first]


@pytest.mark.covers(
    "FileLogInputStreamTest.testNextBatchSelectionWithMaxedParams",
    "FileLogInputStreamTest.testNextBatchSelectionWithZeroedParams",
)
def test_fr8a_a_walk_of_an_empty_range_at_either_end_yields_nothing() -> None:
    records = holding(built(2, Compression.NONE, Record(0, 1, None, None)))
    for place in (0, 2**31 - 1):
        assert list(records.batches(place, place)) == []
        assert list(records.scan_headers(place, place)) == []


class TestWhereFileAndMemoryDiffer:
    def test_t23_fr8a_tail_of_up_to_17_bytes_is_silent_in_a_file_and_of_16_in_memory(self) -> None:
        one = built(2, Compression.NONE, Record(0, 1, None, None))
        # The size field is damage, where it is looked at.
        head = struct.pack(">qi", 1, 13)
        for tail_bytes in range(18):
            content = one + (head + bytes(30))[:tail_bytes]
            assert len(list(holding(content).batches())) == 1
            if tail_bytes < 12:
                assert len(list(iterate_batches(content))) == 1
            else:
                with pytest.raises(CorruptBatch, match="size field of 13"):
                    list(iterate_batches(content))
        with pytest.raises(CorruptBatch, match="size field of 13"):
            list(holding(one + (head + bytes(30))[:18]).batches())

    def test_fr10_magic_is_not_read_in_a_tail_below_17_bytes(self) -> None:
        one = built(2, Compression.NONE, Record(0, 1, None, None))
        head = struct.pack(">qiib", 1, 100, 0, 9)
        assert len(list(iterate_batches(one + head[:16]))) == 1
        with pytest.raises(CorruptBatch, match="magic 9"):
            list(iterate_batches(one + head))

    def test_t23_fr8e_odd_magic_is_walked_in_a_file_and_refused_in_memory(self) -> None:
        one = built(2, Compression.NONE, Record(0, 1, b"k", bytes(40)))
        for magic, is_new in ((3, True), (127, True), (-1, False), (-128, False)):
            odd = bytearray(one)
            odd[16] = magic & 0xFF
            first, second = holding(bytes(odd) + one).batches()
            assert first.magic == magic and second.magic == 2
            # Read as magic 2 it is sound, because the checksum leaves out the magic. Read as an old one it is
            # not.
            assert first.is_valid() == is_new
            with pytest.raises(CorruptBatch, match=f"magic {magic & 0xFF} is unknown"):
                list(iterate_batches(bytes(odd)))

    @pytest.mark.covers("ByteBufferLogInputStreamTest.iteratorRaisesOnTooLargeRecords")
    def test_fr10_size_above_the_callers_most_is_damage(self) -> None:
        small = built(2, Compression.NONE, Record(0, 1, None, b"x"))
        large = built(2, Compression.NONE, Record(1, 1, None, b"x" * 30))
        batches = iterate_batches(small + large, max_size_field=60)
        assert next(batches).base_offset == 0
        with pytest.raises(CorruptBatch, match=f"size field of {len(large) - 12}, above the most of 60"):
            next(batches)
        assert len(list(iterate_batches(small + large, max_size_field=len(large) - 12))) == 2

    @pytest.mark.covers("MemoryRecordsTest.testNextBatchSize")
    @every_kind
    def test_fr10_frame_is_known_from_17_bytes_on(self, magic: int, codec: Compression) -> None:
        content = bytearray(built(magic, codec, Record(0, 10, b"a", b"1")))
        for size in (1, 11, 12, 16, 17, len(content) - 1):
            assert list(iterate_batches(content[:size])) == []
        (batch,) = iterate_batches(content)
        assert batch.size_bytes == len(content)
        content[16] = 10
        with pytest.raises(CorruptBatch, match="magic 10"):
            list(iterate_batches(content[:17]))
        content[8:12] = bytes(4)
        with pytest.raises(CorruptBatch, match="size field of 0"):
            list(iterate_batches(content[:12]))

    def test_t24_place_at_the_very_end_is_legal_for_any_slice(self) -> None:
        one = built(2, Compression.NONE, Record(0, 1, None, None))
        records = holding(one * 3)
        assert records.read_slice(3 * len(one), 10) == b""
        assert records.read_slice(2 * len(one), len(one)) == one
        assert list(records.batches(2 * len(one), 2 * len(one))) == []


class TestTimestampSearch:
    @pytest.mark.covers("FileRecordsTest.testSearchForTimestamp")
    @every_kind
    def test_fr13_first_record_at_least_as_late_in_every_magic(self, magic: int, codec: Compression) -> None:
        first = built(magic, codec, Record(5, 10, b"a", b"1"), leader_epoch=0)
        second = built(magic, codec, Record(6, 11, b"b", b"2"), leader_epoch=1)
        records = holding(first + second)
        found = [records.search_for_timestamp(wanted, 0, 5) for wanted in (9, 10, 11, 12)]
        epochs = (0, 1) if magic == 2 else (None, None)
        low = TimestampAndOffset(timestamp=10, offset=5, leader_epoch=epochs[0])
        high = TimestampAndOffset(timestamp=11, offset=6, leader_epoch=epochs[1])
        assert found == ([low, low, high, None] if magic else [None] * 4)

    @pytest.mark.parametrize("magic", [1, 2])
    @pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4])
    def test_fr13_the_search_continues_where_a_batch_has_no_record_at_that_offset(
        self, magic: int, codec: Compression
    ) -> None:
        first = built(magic, codec, Record(0, 50, None, None), Record(1, 10, None, None))
        second = built(magic, codec, Record(2, 20, None, None), Record(3, 60, None, None))
        records = holding(first + second)
        found = records.search_for_timestamp(15, 0, 1)
        assert found is not None and (found.timestamp, found.offset) == (20, 2)
        found = records.search_for_timestamp(15, len(first), 0)
        assert found is not None and found.offset == 2

    @every_kind
    def test_fr14_largest_timestamp_is_that_of_the_header(self, magic: int, codec: Compression) -> None:
        content = built(magic, codec, Record(0, 7, None, None)) + built(
            magic, codec, Record(1, 7, None, None)
        )
        found = holding(content).largest_timestamp_after()
        if magic:
            assert (found.timestamp, found.offset, found.leader_epoch) == (7, 0, None)
        else:
            assert found == TimestampAndOffset(timestamp=-1, offset=-1, leader_epoch=None)

    def test_t28_search_of_a_batch_in_an_unknown_codec_is_one_clean_error(self) -> None:
        content = bytearray(built(2, Compression.NONE, Record(0, 7, None, None)))
        content[22] |= 6
        with pytest.raises(UnsupportedCompression, match="codec 6"):
            holding(bytes(content)).search_for_timestamp(1)


@every_kind
def test_fr12_offset_within_a_batch_of_any_magic_is_found(magic: int, codec: Compression) -> None:
    first = built(magic, codec, Record(0, 1, None, None), Record(4, 1, None, None))
    second = built(magic, codec, Record(9, 1, None, None), Record(10, 1, None, None))
    records = holding(first + second)
    for wanted, last_offset in ((0, 4), (3, 4), (4, 4), (5, 10), (10, 10)):
        found = records.search_for_offset_with_size(wanted)
        assert found is not None
        (batch,) = iterate_batches(records.read_slice(found.position, found.size_bytes))
        if magic < 2 and codec is Compression.NONE:
            assert batch.last_offset == min(offset for offset in (0, 4, 9, 10) if offset >= wanted)
        else:
            assert batch.last_offset == last_offset
    assert records.search_for_offset_with_size(11) is None


@every_kind
def test_fr11_scan_of_headers_checks_every_magic_and_codec(magic: int, codec: Compression) -> None:
    content = built(magic, codec, Record(0, 1, b"k", b"value" * 30)) * 2
    assert [header[3] for *_, header in holding(content).scan_headers()] == [magic] * 2
    damaged = bytearray(content)
    damaged[-1] ^= 1
    walk = holding(bytes(damaged)).scan_headers()
    next(walk)
    with pytest.raises(CorruptBatch, match="checksum") as caught:
        next(walk)
    assert caught.value.position == len(content) // 2
