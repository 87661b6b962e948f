"""Batches of very many records: cleaned as small ones are, but read in portions that are not held together."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storage.batch import Compression, Record, RecordBatch, build_batch
from storage.cleaner.filter import FilteredChunk, RecordFilter
from storage.cleaner.keys import MOST_KEYS_AT_ONCE, MOST_RECORDS_AT_ONCE, portions_of_keys, read_keys
from tests.storage.cleaner.filters import filter_of, output

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
