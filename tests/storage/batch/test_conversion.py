"""Down-conversion (BB6)."""

from __future__ import annotations

import pytest

from storage.batch import Compression, Record, RecordBatch, TimestampType, build_batch, iterate_batches
from storage.batch.control_batches import build_end_transaction_marker
from storage.batch.conversion import down_convert
from storage.batch.legacy.builder import build_message_set
from storage.errors import UnsupportedCompression

V0 = [Record(0, 1, b"k1", b"hello"), Record(2, 2, b"k2", b"goodbye"), Record(3, 3, b"k3", b"hello again")]
V1 = [Record(9, 4, b"k4", b"hello"), Record(11, 5, b"k5", b"goodbye"), Record(15, 6, b"k6", None)]
V2 = [
    Record(16, 7, b"k7", b"hello", (("h1", b"v1"), ("h2", b"v2"))),
    Record(17, 8, b"k8", b"goodbye"),
    Record(22, 9, None, b"again"),
    Record(24, 10, b"k10", b"I am headed", (("h3", None),)),
]
codecs = pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.LZ4])


def of_all_magics(codec: Compression) -> bytes:
    return b"".join(
        (
            build_message_set(V0, magic=0, base_offset=0, compression=codec),
            build_message_set(V1, magic=1, base_offset=9, compression=codec),
            build_batch(V2[:2], base_offset=16, compression=codec),
            build_batch(V2[2:], base_offset=22, compression=codec),
        )
    )


def batches(data: object) -> list[RecordBatch]:
    assert isinstance(data, bytes)
    found = list(iterate_batches(data))
    for batch in found:
        batch.check_valid()
    return found


def records(data: object) -> list[Record]:
    return [record for batch in batches(data) for record in batch.records()]


def plain(given: list[Record], *, has_time: bool = True) -> list[Record]:
    return [record._replace(headers=(), timestamp=record.timestamp if has_time else -1) for record in given]


@pytest.mark.covers("FileRecordsTest.testConversion")
@codecs
def test_bb6_batches_above_the_magic_are_converted_and_the_others_stay(codec: Compression) -> None:
    data = of_all_magics(codec)
    converted = down_convert(data, target_magic=1, first_offset=0)
    assert records(converted) == plain(V0, has_time=False) + plain(V1) + plain(V2)
    assert {batch.magic for batch in batches(converted)} == {0, 1}
    assert {batch.compression for batch in batches(converted)} == {codec}
    converted = down_convert(data, target_magic=0, first_offset=0)
    assert records(converted) == plain(V0 + V1 + V2, has_time=False)
    assert {batch.magic for batch in batches(converted)} == {0}


@codecs
def test_bb6_batches_of_the_magic_or_below_are_copied_byte_for_byte(codec: Compression) -> None:
    data = of_all_magics(codec)
    size = sum(batch.size_bytes for batch in batches(data) if batch.magic < 2)
    converted = down_convert(data, target_magic=1, first_offset=0)
    assert bytes(converted[:size]) == data[:size]


@codecs
@pytest.mark.parametrize(("first_offset", "dropped"), [(11, {9}), (17, {9, 11, 15, 16})])
def test_bb6_records_before_the_first_offset_are_dropped_from_plain_batches_alone(
    codec: Compression, first_offset: int, dropped: set[int]
) -> None:
    converted = records(down_convert(of_all_magics(codec), target_magic=0, first_offset=first_offset))
    kept = [record.offset for record in V0 + V1 + V2]
    if codec is Compression.NONE:
        kept = [offset for offset in kept if offset not in dropped]
    assert [record.offset for record in converted] == kept


def test_bb6_a_batch_wholly_before_the_first_offset_is_dropped() -> None:
    data = build_batch(V2[:2], base_offset=16) + build_batch(V2[2:], base_offset=22)
    assert [record.offset for record in records(down_convert(data, target_magic=1, first_offset=20))] == [
        22,
        24,
    ]


def test_bb6_headers_are_dropped() -> None:
    converted = down_convert(build_batch(V2, base_offset=16), target_magic=1, first_offset=0)
    assert all(not record.headers for record in records(converted))


def test_bb6_control_batches_are_dropped() -> None:
    marker = build_end_transaction_marker(
        producer_id=1, producer_epoch=0, is_commit=True, coordinator_epoch=0, timestamp=5, base_offset=30
    )
    data = build_batch(V2, base_offset=16) + marker
    assert [record.offset for record in records(down_convert(data, target_magic=1, first_offset=0))] == [
        16,
        17,
        22,
        24,
    ]
    # Nothing was converted.
    assert down_convert(marker, target_magic=1, first_offset=0) is marker


@pytest.mark.covers("MemoryRecordsBuilderTest.convertToV1WithMixedV0AndV2Data")
def test_bb6_zstd_is_refused() -> None:
    data = build_batch(V2, base_offset=16, compression=Compression.ZSTD)
    for magic in (0, 1):
        with pytest.raises(UnsupportedCompression, match=f"zstd cannot be converted to magic {magic}"):
            down_convert(data, target_magic=magic, first_offset=0)


@pytest.mark.covers("MemoryRecordsBuilderTest.convertV2ToV1UsingMixedCreateAndLogAppendTime")
@codecs
def test_bb6_timestamp_type_of_each_batch_is_kept(codec: Compression) -> None:
    data = build_batch(
        V2[:2],
        base_offset=16,
        compression=codec,
        timestamp_type=TimestampType.LOG_APPEND,
        log_append_time_ms=1000,
    ) + build_batch(V2[2:], base_offset=22, compression=codec)
    converted = down_convert(data, target_magic=1, first_offset=0)
    assert [record.timestamp for record in records(converted)] == [1000, 1000, 9, 10]
    types = [batch.timestamp_type for batch in batches(converted)]
    assert types[0] is TimestampType.LOG_APPEND and types[-1] is TimestampType.CREATE


@pytest.mark.covers("FileRecordsTest.testDownconversionAfterMessageFormatDowngrade")
def test_bb6_newer_batches_before_older_ones_are_converted_too() -> None:
    new = build_batch(V2, base_offset=16, compression=Compression.GZIP)
    old = build_message_set(
        [Record(25, 3, b"k", b"v")], magic=1, base_offset=25, compression=Compression.GZIP
    )
    converted = down_convert(new + old, target_magic=1, first_offset=0)
    assert [batch.magic for batch in batches(converted)] == [1, 1]
    assert records(converted) == [*plain(V2), Record(25, 3, b"k", b"v")]


@pytest.mark.covers(
    "FileRecordsTest.testFormatConversionWithPartialMessage",
    "FileRecordsTest.testFormatConversionWithNoMessages",
)
def test_bb6_where_nothing_is_converted_the_very_bytes_come_back() -> None:
    cut = build_batch(V2, base_offset=16)[:-5]
    assert down_convert(cut, target_magic=1, first_offset=0) is cut
    assert down_convert(b"", target_magic=1, first_offset=0) == b""
    old = build_message_set(V1, magic=1, base_offset=9) + cut
    assert down_convert(old, target_magic=1, first_offset=0) is old
    whole_and_cut = build_batch(V2, base_offset=16) + cut
    assert records(down_convert(whole_and_cut, target_magic=1, first_offset=0)) == plain(V2)


def test_bb6_where_every_record_is_before_the_first_offset_the_very_bytes_come_back() -> None:
    """Kafka does so: no bytes at all would look like the end of the log to the reader."""
    data = build_batch(V2, base_offset=16)
    assert down_convert(data, target_magic=1, first_offset=25) is data
    assert records(down_convert(data, target_magic=1, first_offset=24)) == plain(V2[3:])
