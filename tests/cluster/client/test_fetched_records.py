"""What a consumer reads of fetched bytes: a batch of a few bytes may hold very many records."""

from __future__ import annotations

import pytest

from cluster.core.client.config import MOST_RECORDS
from cluster.core.client.fetched_records import read_fetched
from storage.batch import Compression, Record, build_batch

SHARES = MOST_RECORDS // 100
# The first byte of a batch that its checksum covers.
_CRC_COVERS_FROM = 21


def fetched(count: int, *, headers: int = 0, value_bytes: int = 0) -> bytes:
    return build_batch(
        (
            Record(
                offset=offset,
                timestamp=0,
                key=None,
                value=bytes(value_bytes),
                headers=tuple(("", None) for _ in range(headers)),
            )
            for offset in range(count)
        ),
        compression=Compression.ZSTD,
    )


def test_fet4_a_reading_ends_within_a_batch_and_the_next_one_goes_on_after_it() -> None:
    data, position, sizes = fetched(250) + fetched(0), 0, []
    while position < 250:
        read = read_fetched(data, position, 250, check_crcs=True, shares=SHARES)
        assert [record.offset for record in read.records] == list(range(position, read.next_offset))
        position = read.next_offset
        sizes.append(len(read.records))
    assert sizes == [100, 100, 50]


@pytest.mark.parametrize(("headers", "value_bytes", "count"), [(9, 0, 10), (0, 10_000, 3)])
def test_headers_and_bytes_of_records_take_room_too(headers: int, value_bytes: int, count: int) -> None:
    data = fetched(50, headers=headers, value_bytes=value_bytes)
    read = read_fetched(data, 0, 50, check_crcs=True, shares=SHARES)
    assert read.next_offset == count == len(read.records)


def test_a_record_that_takes_more_than_the_room_is_read_alone() -> None:
    read = read_fetched(fetched(3, value_bytes=100), 1, 3, check_crcs=True, shares=1 << 40)
    assert [record.offset for record in read.records] == [1] and read.next_offset == 2


def test_a_flipped_bit_that_the_checksum_covers_is_never_passed_over() -> None:
    """A damaged last offset may put a whole batch below the position (CompletedFetch checks each batch first)."""
    batches = [build_batch([Record(offset, 0, None, b"v")], base_offset=offset) for offset in range(3)]
    for bit in range(8 * _CRC_COVERS_FROM, 8 * len(batches[1])):
        damaged = bytearray(batches[1])
        damaged[bit // 8] ^= 1 << bit % 8
        read = read_fetched(b"".join((batches[0], damaged, batches[2])), 0, 3, check_crcs=True)
        assert (read.next_offset, len(read.records)) == (1, 1) and read.damage is not None, bit
