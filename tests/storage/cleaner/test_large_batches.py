"""Batches of very many records: cleaned as small ones are, but read in portions that are not held together."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storage.batch import BatchBuilder, BatchFields, Compression, Record, RecordBatch, build_batch
from storage.batch.record import MAX_INT64
from storage.cleaner.filter import CleanerStats, FilteredChunk, LastRecord, RecordFilter
from storage.cleaner.keys import (
    LONGEST_KEY_BYTES,
    MOST_KEYS_AT_ONCE,
    MOST_RECORDS_AT_ONCE,
    portions_of_keys,
    read_keys,
)
from tests.storage.cleaner.compacted_logs import DAY_MS
from tests.storage.cleaner.filters import filter_of, filtered, output
from tests.storage.logs import NOW_MS

COUNT = MOST_KEYS_AT_ONCE + 10
KEYS = 7


def many(value: Callable[[int], bytes | None], codec: Compression = Compression.ZSTD) -> bytes:
    return build_batch(
        (Record(offset, 5 + offset, b"%d" % (offset % KEYS), value(offset)) for offset in range(COUNT)),
        compression=codec,
    )


def at_once(record_filter: RecordFilter, data: bytes) -> FilteredChunk:
    """Filter the batch as if it were small."""
    result, batch = FilteredChunk(), RecordBatch(data, 0, len(data))
    verdict = record_filter.judge(batch)
    keys = read_keys(batch)
    kept = record_filter._keep(batch, verdict, keys)
    if kept:
        record_filter._write_kept(batch, verdict, keys, kept, result)
    return result


def hold_few_keys(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Make a batch of more than `count` records one of very many."""
    for module in ("filter", "keys"):
        monkeypatch.setattr(f"storage.cleaner.{module}.MOST_KEYS_AT_ONCE", count)


def outcome(
    fields: BatchFields, records: list[Record], superseded: tuple[bytes, ...], last: dict[int, LastRecord]
) -> tuple[bytes, CleanerStats]:
    """Filter one batch. Returns what is left and what was counted."""
    builder = BatchBuilder(fields)
    for record in records:
        builder.append(record)
    record_filter = filter_of(superseded, last_records=last)
    result = record_filter.filter_chunk(builder.build(), 1 << 30, "x.log", 0)
    # The index entry of what is kept is made for this offset.
    assert result.last_offset == (builder.last_offset if result.parts else -1)
    return output(result), record_filter._stats


SEVEN = [Record(offset, 5 + offset, b"%d" % offset, b"v") for offset in range(7)]
TOMBSTONE = SEVEN[3]._replace(value=None)
KEYLESS = SEVEN[5]._replace(key=None)
ALL_KEYS = tuple(b"%d" % offset for offset in range(7))


@pytest.mark.parametrize("held", [1, 2, 3, 6])
@pytest.mark.parametrize("is_last_of_producer", [False, True])
@pytest.mark.parametrize("horizon_ms", [None, NOW_MS, NOW_MS + 1])
@pytest.mark.parametrize(
    "records", [SEVEN, [*SEVEN[:3], TOMBSTONE, *SEVEN[4:]], [*SEVEN[:5], KEYLESS, SEVEN[6]]]
)
def test_cl18_a_batch_of_more_keys_than_are_held_is_filtered_and_counted_as_a_small_one(
    monkeypatch: pytest.MonkeyPatch,
    records: list[Record],
    horizon_ms: int | None,
    is_last_of_producer: bool,
    held: int,
) -> None:
    fields = BatchFields(producer_id=9, producer_epoch=0, base_sequence=0, delete_horizon_ms=horizon_ms)
    last = {9: LastRecord(6, 0)} if is_last_of_producer else {}
    for superseded in ((), (b"0", b"4"), (b"6",), ALL_KEYS):
        monkeypatch.undo()
        whole = outcome(fields, records, superseded, last)
        hold_few_keys(monkeypatch, held)
        assert outcome(fields, records, superseded, last) == whole, superseded


def test_cl17_a_tombstone_in_any_portion_of_a_large_batch_sets_the_horizon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hold_few_keys(monkeypatch, 2)
    for at in range(7):
        records = [each._replace(value=None) if each.offset == at else each for each in SEVEN]
        data, _ = outcome(BatchFields(), records, (), {})
        assert RecordBatch(data, 0, len(data)).delete_horizon_ms == NOW_MS + DAY_MS, at


def test_cl17_a_large_batch_gets_no_horizon_beyond_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    hold_few_keys(monkeypatch, 2)
    data = build_batch([*SEVEN[:6], SEVEN[6]._replace(value=None)])
    (batch,) = filtered(filter_of(retention_ms=MAX_INT64), data)
    assert batch.delete_horizon_ms is None and batch.record_count == 7


def test_cl19_a_large_batch_that_lost_all_records_stays_empty_only_as_its_producers_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hold_few_keys(monkeypatch, 2)
    fields = BatchFields(producer_id=9, producer_epoch=0, base_sequence=0)
    assert outcome(fields, SEVEN, ALL_KEYS, {})[0] == b""
    kept = outcome(fields, SEVEN, ALL_KEYS, {9: LastRecord(6, 0)})[0]
    batch = RecordBatch(kept, 0, len(kept))
    assert (batch.record_count, batch.base_offset, batch.last_offset) == (0, 0, 6)


@pytest.mark.parametrize("held", [2, 10])
def test_cl27_the_last_batch_of_the_producer_with_id_0_stays_too(
    monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    hold_few_keys(monkeypatch, held)
    fields = BatchFields(producer_id=0, producer_epoch=0, base_sequence=0)
    kept = outcome(fields, SEVEN, ALL_KEYS, {0: LastRecord(6, 0)})[0]
    assert RecordBatch(kept, 0, len(kept)).record_count == 0


def test_the_keys_of_a_batch_come_in_portions_above_what_is_held_and_at_once_up_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = build_batch(SEVEN)
    counts = []
    for held in (6, 7):
        hold_few_keys(monkeypatch, held)
        counts.append([len(keys) for keys in portions_of_keys(RecordBatch(data, 0, len(data)))])
    assert counts == [[6, 1], [7]]


@pytest.mark.parametrize("codec", list(Compression))
def test_cl18_records_of_many_bytes_stay_whole_and_in_order_when_one_of_them_is_removed(
    codec: Compression,
) -> None:
    records = [each._replace(value=bytes([each.offset]) * 40_000) for each in SEVEN]
    data = build_batch(records, compression=codec)
    kept = output(filter_of((b"3",)).filter_chunk(data, 1 << 30, "x.log", 0))
    batch = RecordBatch(kept, 0, len(kept))
    batch.check_valid()
    assert batch.compression is codec
    assert list(batch.records()) == records[:3] + records[4:]


@pytest.mark.parametrize("value_bytes", [10, 200_000])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_bb2_timestamps_far_apart_survive_that_a_record_beside_them_is_removed(
    value_bytes: int, codec: Compression
) -> None:
    times = (-1, MAX_INT64, 4, 5)
    data = build_batch(
        [Record(place, time, b"%d" % place, bytes(value_bytes)) for place, time in enumerate(times)],
        compression=codec,
    )
    (batch,) = filtered(filter_of((b"2",)), data)
    assert [record.timestamp for record in batch.records()] == [-1, MAX_INT64, 5]
    assert batch.max_timestamp == MAX_INT64


@pytest.mark.slow
@pytest.mark.parametrize("superseded", [(), (b"1", b"3"), tuple(b"%d" % key for key in range(KEYS))])
@pytest.mark.parametrize("with_tombstones", [False, True])
def test_cl18_a_large_batch_is_filtered_as_a_small_one_is(
    superseded: tuple[bytes, ...], with_tombstones: bool
) -> None:
    data = many(lambda offset: None if with_tombstones and offset % 5 == 0 else b"v")
    in_portions = filter_of(superseded).filter_chunk(data, 1 << 30, "x.log", 0)
    assert output(in_portions) == output(at_once(filter_of(superseded), data))
    assert in_portions.records_read == COUNT


@pytest.mark.slow
def test_cl20_a_chunk_is_left_early_after_very_many_records() -> None:
    data = many(lambda _: b"") * (MOST_RECORDS_AT_ONCE // COUNT + 2)
    result = filter_of().filter_chunk(data, 1 << 30, "x.log", 0)
    assert 0 < result.bytes_read < len(data)
    assert MOST_RECORDS_AT_ONCE < result.records_read <= MOST_RECORDS_AT_ONCE + COUNT


@pytest.mark.slow
def test_the_keys_of_a_large_batch_are_not_held_together() -> None:
    data = many(lambda _: b"")
    counts = [len(keys) for keys in portions_of_keys(RecordBatch(data, 0, len(data)))]
    assert counts == [MOST_KEYS_AT_ONCE, 10]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("size_bytes", [1024, 1025, 70_000])
def test_a_long_key_is_the_same_key_in_batches_of_any_form(size_bytes: int, codec: Compression) -> None:
    """Alone in a small batch, beside others in one that is read in pieces, and not the key that ends otherwise."""
    key, other = b"k" * size_bytes, b"k" * (size_bytes - 1) + b"l"
    rest = [Record(offset, 5, b"r%d" % offset, bytes(1000)) for offset in range(1, 200)]
    found = []
    for records in ([Record(0, 5, key, b"v")], [Record(0, 5, key, b"v"), *rest], [Record(0, 5, other, b"v")]):
        data = build_batch(records, base_offset=0, partition_leader_epoch=0, compression=codec)
        keys = read_keys(RecordBatch(data, 0, len(data)))
        assert len(keys) == len(records)
        found.append(keys[0].key)
        assert keys[0].key is not None and len(keys[0].key) <= LONGEST_KEY_BYTES
    assert found[0] == found[1] != found[2]


def test_t22_an_empty_batch_that_names_an_unknown_codec_has_no_keys_and_no_large_records() -> None:
    data = bytearray(build_batch([Record(0, 5, b"k", b"v")], base_offset=0, partition_leader_epoch=0)[:61])
    data[8:12] = (61 - 12).to_bytes(4, "big")
    data[21:23] = (7).to_bytes(2, "big")
    data[57:61] = bytes(4)
    batch = RecordBatch(bytes(data), 0, len(data))
    assert list(batch.records()) == [] and read_keys(batch) == []
    batch.large_fields()
