"""Sets of records that no leader may append, made of one that a producer has just sent (AP2, AP6, LV3, LV13)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from struct import Struct

from cluster.core.messages import ProducePartition, ProduceRequest
from storage.batch import Compression, Record, RecordBatch, build_batch, iterate_batches
from storage.codec.crc32c import crc32c
from storage.errors import CorruptBatch, InvalidRecord

# Returns a number from 0 to the one before `count`.
Pick = Callable[[int], int]
# Where a batch of magic 2 has its checksum, what that covers, its last offset and the number of its records.
_CRC_AT, _CRC_COVERS_FROM, _LAST_OFFSET_DELTA_AT, _COUNT_AT = 17, 21, 23, 57
_UINT32, _INT32 = Struct(">I"), Struct(">i")
_CODECS = (Compression.NONE, Compression.NONE, Compression.GZIP, Compression.LZ4)


def spoiled(
    body: ProduceRequest, pick: Pick, compacted: Collection[str]
) -> tuple[ProduceRequest, str] | None:
    """Returns the request with one spoiled set, and what is wrong with it; None if it has no set of records.

    The topics in `compacted` take no record without a key. A spoiled set names no producer: that of another set counts
    on its own sequences.
    """
    if not body.acks or not body.partitions:
        return None
    chosen = body.partitions[pick(len(body.partitions))]
    records = _records_of(chosen)
    if not records:
        return None
    # The others are the same for all topics.
    keyless = (_without_key,) * 3 if chosen.topic_partition.topic in compacted else ()
    kinds = (*_KINDS, *keyless)
    data, why = kinds[pick(len(kinds))](records, _CODECS[pick(len(_CODECS))])
    return replace(body, partitions=(replace(chosen, records=data),)), f"with a set {why}"


def _records_of(partition: ProducePartition) -> list[Record]:
    """Returns a few records of a produced set, from offset 0 on; none of one that was damaged."""
    try:
        batch = next(iterate_batches(partition.records), None)
        found = [] if batch is None or not batch.is_valid() else list(batch.records())[:3]
    except (CorruptBatch, InvalidRecord):
        return []
    return [each._replace(offset=number) for number, each in enumerate(found)]


def _of_two_batches(records: list[Record], codec: Compression) -> tuple[bytes, str]:
    return build_batch(records, compression=codec) * 2, "of two batches"


def _of_control_records(records: list[Record], codec: Compression) -> tuple[bytes, str]:
    return build_batch(records, compression=codec, is_control=True), "of control records"


def _with_gap(records: list[Record], codec: Compression) -> tuple[bytes, str]:
    last = records[-1]._replace(offset=len(records) + 1)
    return build_batch([*records, last], compression=codec), "whose offsets have a gap"


def _from_offset(records: list[Record], codec: Compression) -> tuple[bytes, str]:
    moved = [each._replace(offset=each.offset + 1) for each in records]
    return build_batch(moved, base_offset=1, compression=codec), "from offset 1 on"


def _cut_off(records: list[Record], codec: Compression) -> tuple[bytes, str]:
    return build_batch(records, compression=codec)[:-1], "that is cut off"


def _flipped(records: list[Record], codec: Compression) -> tuple[bytes, str]:
    data = bytearray(build_batch(records, compression=codec))
    data[-1] ^= 1
    return bytes(data), "in which a bit has flipped"


def _of_wrong_count(records: list[Record], codec: Compression) -> tuple[bytes, str]:
    """Returns a set that says it has one record more, in all that a header says of it."""
    data = bytearray(build_batch(records, compression=codec))
    _INT32.pack_into(data, _LAST_OFFSET_DELTA_AT, len(records))
    _INT32.pack_into(data, _COUNT_AT, len(records) + 1)
    _UINT32.pack_into(data, _CRC_AT, crc32c(bytes(data[_CRC_COVERS_FROM:])))
    assert RecordBatch(bytes(data), 0, len(data)).record_count == len(records) + 1
    return bytes(data), "of fewer records than it says"


def _without_key(records: list[Record], codec: Compression) -> tuple[bytes, str]:
    keyless = [*records[:-1], records[-1]._replace(key=None)]
    return build_batch(keyless, compression=codec), "with a record without a key, of a compacted topic"


_KINDS: tuple[Callable[[list[Record], Compression], tuple[bytes, str]], ...] = (
    _of_two_batches,
    _of_control_records,
    _with_gap,
    _from_offset,
    _cut_off,
    _flipped,
    _of_wrong_count,
)
