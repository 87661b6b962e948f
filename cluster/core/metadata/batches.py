"""Metadata records as magic-2 batches: each decision is one batch, so that it is whole or absent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cluster.core.metadata.records import MetadataRecord, decode_record, encode_record
from storage.batch import build_batch, iterate_batches
from storage.batch.record import Header, Record


def build_metadata_batch(
    records: Sequence[MetadataRecord], *, timestamp_ms: int, headers: tuple[Header, ...] = ()
) -> bytes:
    """Returns one batch with base offset 0; the log assigns offsets and epoch. The first record carries `headers`."""
    assert records, "a decision without records"
    return build_batch(
        Record(
            offset=index,
            timestamp=timestamp_ms,
            key=None,
            value=encode_record(record),
            headers=() if index else headers,
        )
        for index, record in enumerate(records)
    )


def read_metadata_batches(data: bytes) -> Iterator[tuple[int, MetadataRecord]]:
    """Yields (offset, record) of all whole batches in `data`. Raises CorruptBatch, InvalidRecord."""
    for batch in iterate_batches(data):
        batch.check_valid()
        for record in batch.records():
            yield record.offset, decode_record(record.value)


def whole_batches_size(data: bytes) -> int:
    """Returns how many bytes of `data` are whole batches; the rest is the beginning of one more."""
    return sum(batch.size_bytes for batch in iterate_batches(data))
