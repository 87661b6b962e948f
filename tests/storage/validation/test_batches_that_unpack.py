"""A produced batch of a few bytes that holds very many records: accepted, in bounded memory."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import replace

import pytest

from storage.batch import Compression, Record, RecordBatch, build_batch
from storage.batch.format import HEADER_SIZE
from storage.codec.compression import compress
from storage.codec.crc32c import crc32c
from storage.errors import InvalidRecord, StorageError
from storage.validation.rules import MOST_ERRORS
from tests.storage.logs import NOW_MS, ROOMY, new_file_system, open_log


def equal_records(count: int, codec: Compression = Compression.ZSTD) -> bytes:
    """Build a batch of `count` records that are the same bytes, so that each has the offset delta 0."""
    one = build_batch([Record(offset=0, timestamp=NOW_MS, key=None, value=b"")])
    batch = bytearray(one[:HEADER_SIZE] + compress(codec, one[HEADER_SIZE:] * count))
    for layout, at, value in (
        (">i", 8, len(batch) - 12),
        (">h", 21, codec),
        (">i", 23, count - 1),
        (">i", 57, count),
    ):
        struct.pack_into(layout, batch, at, value)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return bytes(batch)


@pytest.mark.slow
@pytest.mark.parametrize("codec", [Compression.ZSTD, Compression.GZIP])
def test_lv23_a_batch_of_very_many_equal_records_is_renumbered_in_bounded_memory(codec: Compression) -> None:
    """Kafka accepts it and builds it again. A list of all would take far more than they unpack to."""
    count = 50_000
    data = equal_records(count, codec)
    assert len(data) < 1000 and next(iter(RecordBatch(data, 0, len(data)).records())).offset == 0
    log = open_log(new_file_system(), ROOMY)
    tracemalloc.start()
    try:
        info = log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (info.first_offset, info.last_offset) == (0, count - 1)
    unpacked_bytes = 7 * count
    assert peak_bytes < 6 * unpacked_bytes, peak_bytes


@pytest.mark.slow
def test_lv9_the_refused_records_of_a_batch_are_counted_and_the_first_are_named() -> None:
    log = open_log(new_file_system(), replace(ROOMY, cleanup_policy="compact"))
    with pytest.raises(
        InvalidRecord, match=f"{MOST_ERRORS + 5} of {MOST_ERRORS + 5} records refused"
    ) as raised:
        log.append_as_leader(equal_records(MOST_ERRORS + 5), leader_epoch=0, now_ms=NOW_MS)
    assert isinstance(raised.value, StorageError) and len(raised.value.record_errors) == MOST_ERRORS
