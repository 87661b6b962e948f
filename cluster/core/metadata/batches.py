"""Metadata records as magic-2 batches. A change is one batch, or several that are read as one (`changes.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.metadata.records import MetadataRecord, encode_record
from storage.batch import HEADER_SIZE, build_batch, iterate_batches
from storage.batch.record import Header, Record

# The header on the first record of a batch after which the same change goes on.
MORE_HEADER = "more"
_MORE: Header = (MORE_HEADER, b"")
# The most that a record's own fields and the lengths before its value and its headers take.
_RECORD_OVERHEAD = 40


def build_change(
    records: Sequence[MetadataRecord], *, timestamp_ms: int, max_bytes: int, headers: tuple[Header, ...] = ()
) -> list[bytes]:
    """Returns the batches of one change, each with base offset 0; the log assigns offsets and epoch.

    The first record of each batch carries `headers`. Each batch but the last one says that the change goes on. Raises
    ClusterError for a record that does not fit into a batch of `max_bytes` by itself.
    """
    assert records, "a change without records"
    values = [encode_record(record) for record in records]
    shared_bytes = HEADER_SIZE + sum(len(name) + len(value or b"") + 20 for name, value in (*headers, _MORE))
    parts = list(_parts(values, max_bytes - shared_bytes))
    batches = []
    for number, part in enumerate(parts, 1):
        marks = headers if number == len(parts) else (*headers, _MORE)
        batch = _build_batch(part, timestamp_ms, marks)
        if len(batch) > max_bytes:
            assert len(part) == 1, (len(part), len(batch), max_bytes)
            raise ClusterError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of the change takes {len(batch)} bytes in the metadata log, the limit is {max_bytes}",
            )
        batches.append(batch)
    return batches


def _parts(values: Sequence[bytes], room_bytes: int) -> Iterator[list[bytes]]:
    """Yields the values in order, as many in each part as surely fit into `room_bytes`, at least one."""
    part: list[bytes] = []
    size_bytes = 0
    for value in values:
        value_bytes = len(value) + _RECORD_OVERHEAD
        if part and size_bytes + value_bytes > room_bytes:
            yield part
            part, size_bytes = [], 0
        part.append(value)
        size_bytes += value_bytes
    yield part


def _build_batch(values: Sequence[bytes], timestamp_ms: int, headers: tuple[Header, ...]) -> bytes:
    return build_batch(
        Record(offset=index, timestamp=timestamp_ms, key=None, value=value, headers=() if index else headers)
        for index, value in enumerate(values)
    )


def whole_batches_size(data: bytes) -> int:
    """Returns how many bytes of `data` are whole batches; the rest is the beginning of one more."""
    return sum(batch.size_bytes for batch in iterate_batches(data))
