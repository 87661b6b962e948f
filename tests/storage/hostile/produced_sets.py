"""Produced sets of at most 1 MB that cost as much as possible, and what one step and the slices take for each.

`python -m tests.storage.hostile.produced_sets` prints the table: milliseconds of the step, the longest slice, CPU
seconds for each MB unpacked, and the memory at its peak.
"""

from __future__ import annotations

import resource
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from storage.batch import Compression, Record, build_batch
from storage.batch.format import HEADER_SIZE, TimestampType
from storage.batch.legacy.builder import build_message_set
from storage.codec.compression import compress
from storage.codec.crc32c import crc32c
from storage.codec.snappy_java import SNAPPY_HEADER
from storage.codec.varint import encode_varint
from storage.errors import CorruptBatch, InvalidRecord, StorageError
from storage.validation.work import STEP_RECORDS, STEP_SCANNED_BYTES, StepWork
from tests.storage.logs import NOW_MS, ROOMY, new_file_system, open_log

MOST_BYTES = 1_000_000
CODECS = list(Compression)
SKIPPABLE_FRAME = b"\x50\x2a\x4d\x18" + bytes(4)
# An empty record with the numbers of its offset and length in as many bytes as they may take.
LONG_NUMBERS = b"\x9c\x80\x80\x80\x00\x00\x80\x80\x80\x80\x00\x80\x80\x80\x80\x00\x01\x01\x00"


class Hostile(NamedTuple):
    """A produced set, and how many bytes it unpacks to."""

    name: str
    records: bytes
    unpacked_bytes: int


def framed(payload: bytes, count: int, codec: Compression) -> bytes:
    """Return a batch that claims `count` records, with the right checksum."""
    return framed_packed(compress(codec, payload), count, codec)


def framed_packed(packed: bytes, count: int, codec: Compression) -> bytes:
    """Return a batch whose records are already compressed."""
    batch = bytearray(build_batch([Record(offset=0, timestamp=NOW_MS, key=None, value=b"")])[:HEADER_SIZE])
    batch += packed
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">ii", batch, 23, count - 1, 0)
    struct.pack_into(">q", batch, 27, NOW_MS)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return bytes(batch)


def numbered(count: int, codec: Compression) -> tuple[bytes, int]:
    """Return `count` empty records with the offsets that they should have, and the bytes that they unpack to."""
    batch = build_batch(
        Record(offset=index, timestamp=NOW_MS, key=None, value=None) for index in range(count)
    )
    return framed(batch[HEADER_SIZE:], count, codec), len(batch) - HEADER_SIZE


def headers(count: int) -> bytes:
    """Return one record that has `count` headers without a name and a value."""
    fields = b"\x00\x00\x00\x01\x01" + encode_varint(count) + b"\x00\x01" * count
    return encode_varint(len(fields)) + fields


def one_value(size_bytes: int) -> bytes:
    fields = b"\x00\x00\x00\x01" + encode_varint(size_bytes) + bytes(size_bytes) + b"\x00"
    return encode_varint(len(fields)) + fields


def one_key(size_bytes: int) -> bytes:
    fields = b"\x00\x00\x00" + encode_varint(size_bytes) + bytes(size_bytes) + b"\x02v\x00"
    return encode_varint(len(fields)) + fields


def hostile_sets(scale: int) -> Iterator[Hostile]:
    """Yield the sets; those that unpack without end unpack to `scale` bytes or so."""
    same = b"\x0c\x00\x00\x00\x01\x01\x00"
    for codec in CODECS[1:]:
        yield Hostile(f"{codec.label}: equal records", framed(same * (scale // 7), scale // 7, codec), scale)
        yield Hostile(f"{codec.label}: one value", framed(one_value(scale), 1, codec), scale)
    for codec in (Compression.NONE, Compression.ZSTD):
        count = STEP_RECORDS
        yield Hostile(f"{codec.label}: the most records of a step", *numbered(count, codec))
        yield Hostile(
            f"{codec.label}: equal records, the most of a step", framed(same * count, count, codec), 7 * count
        )
        long_bytes = len(LONG_NUMBERS)
        yield Hostile(
            f"{codec.label}: long numbers", framed(LONG_NUMBERS * count, count, codec), long_bytes * count
        )
        for size_bytes in (1 << 14, 1 << 16, MOST_BYTES - 100):
            batch = framed(headers(size_bytes // 2 - 30), 1, codec)
            yield Hostile(f"{codec.label}: {size_bytes // 2} headers", batch, size_bytes)
    yield Hostile(
        "zstd: the most bytes of a step",
        framed(one_value(STEP_SCANNED_BYTES - 20), 1, Compression.ZSTD),
        1 << 20,
    )
    yield Hostile("none: as many records as fit", *numbered(110_000, Compression.NONE))
    yield Hostile("none: 2^31 - 1 records claimed", framed(same, (1 << 31) - 1, Compression.NONE), 7)
    tiny = [Record(offset=index, timestamp=NOW_MS, key=None, value=None) for index in range(MOST_BYTES // 34)]
    loose = build_message_set(
        tiny, magic=1, compression=Compression.NONE, timestamp_type=TimestampType.CREATE
    )
    yield Hostile("messages of magic 1", loose, len(loose))
    wrapped = build_message_set(
        [Record(offset=index, timestamp=NOW_MS, key=None, value=None) for index in range(scale // 34)],
        magic=1,
        compression=Compression.GZIP,
        timestamp_type=TimestampType.CREATE,
    )
    yield Hostile("gzip: messages of magic 1", wrapped, scale)
    yield from pieces_of_nothing(MOST_BYTES - 100)
    empty = framed(b"", 1, Compression.NONE)
    yield Hostile("many batches", empty * (MOST_BYTES // len(empty)), MOST_BYTES)


def pieces_of_nothing(size_bytes: int) -> Iterator[Hostile]:
    """Yield batches of one record, among as many pieces of its codec that unpack to nothing as fit into the size."""
    record = b"\x0c\x00\x00\x00\x01\x01\x00"
    codec = Compression.ZSTD
    for name, piece in (
        ("skippable frames", SKIPPABLE_FRAME),
        ("empty frames", compress(codec, b"")),
    ):
        packed = piece * (size_bytes // len(piece)) + compress(codec, record)
        yield Hostile(f"zstd: {name}", framed_packed(packed, 1, codec), len(record))
    blocks = b"\x28\xb5\x2f\xfd\x20\x07" + bytes(3) * (size_bytes // 3) + b"\x39\x00\x00" + record
    yield Hostile("zstd: empty blocks", framed_packed(blocks, 1, codec), len(record))
    member = compress(Compression.GZIP, b"")
    packed = member * (size_bytes // len(member)) + compress(Compression.GZIP, record)
    yield Hostile("gzip: empty members", framed_packed(packed, 1, Compression.GZIP), len(record))
    header, block = SNAPPY_HEADER, b"\x00\x00\x00\x01\x00"
    packed = header + block * (size_bytes // len(block)) + compress(Compression.SNAPPY, record)[len(header) :]
    yield Hostile("snappy: empty blocks", framed_packed(packed, 1, Compression.SNAPPY), len(record))


def seconds_of(work: Callable[[], object]) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def append_in_a_step(records: bytes) -> None:
    """Append as a broker does in its step, which may put the checks off or refuse the set."""
    log = open_log(new_file_system(), ROOMY)
    with suppress(StorageError):
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, work=StepWork())


def step_seconds(records: bytes, rounds: int = 3) -> float:
    """Return the least time that the step takes of a few rounds: another program may slow down one."""
    return min(seconds_of(lambda: append_in_a_step(records)) for _ in range(rounds))


def slices_of(records: bytes) -> list[float]:
    """Return the seconds of each slice of the checks; a set that is refused ends them."""
    log = open_log(new_file_system(), ROOMY)
    validation = log.appends.validation(records, NOW_MS)
    slices = []
    while not validation.is_done:
        begun = time.thread_time()
        with suppress(InvalidRecord, CorruptBatch):
            validation.advance()
        slices.append(time.thread_time() - begun)
    return slices


def main() -> None:
    print("step ms  slice ms  total s  s/MB unpacked  peak MiB  bytes    set")
    for hostile in hostile_sets(20_000_000):
        step = step_seconds(hostile.records, 1)
        slices = slices_of(hostile.records)
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        per_mb = sum(slices) / max(hostile.unpacked_bytes / 1e6, 1)
        print(
            f"{step * 1e3:7.1f} {max(slices) * 1e3:9.1f} {sum(slices):8.2f} {per_mb:14.3f} {peak_mib:9}"
            f"  {len(hostile.records):7}  {hostile.name}",
            flush=True,
        )


if __name__ == "__main__":
    main()
