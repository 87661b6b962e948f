"""Flips a bit of the records in a frame on its way, past the checksum of TCP.

Only what the checksum of a batch covers is struck: whoever takes the batch must notice. What is around the batches has
no checksum of its own, here as in Kafka: a flip there may change an offset, an epoch or an error without a trace.
"""

from __future__ import annotations

from sim.world.streams import Stream
from storage.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD
from storage.codec.crc32c import crc32c

_MAGIC_AT = 16
_MAGIC = b"\x02"
_CRC_COVERS_FROM = 21


def batches_in(data: bytes) -> list[tuple[int, int]]:
    """Returns start and end (exclusive) of each record batch of magic 2 in the bytes, whatever is around them."""
    found: list[tuple[int, int]] = []
    end, magic_at = 0, data.find(_MAGIC, _MAGIC_AT)
    while magic_at >= 0:
        start = magic_at - _MAGIC_AT
        if start >= end and (batch_end := _end_of_batch(data, start)):
            found.append((start, batch_end))
            end = batch_end
        magic_at = data.find(_MAGIC, max(magic_at + 1, end + _MAGIC_AT))
    return found


def _end_of_batch(data: bytes, start: int) -> int:
    """Returns the end of the batch at `start`, 0 if there is none."""
    if start + HEADER_SIZE > len(data):
        return 0
    fields = HEADER.unpack_from(data, start)
    end = start + fields[1] + LOG_OVERHEAD
    if not start + HEADER_SIZE <= end <= len(data):
        return 0
    return end if crc32c(memoryview(data)[start + _CRC_COVERS_FROM : end]) == fields[4] else 0


def flip_in_records(data: bytes, draws: Stream) -> bytes | None:
    """Returns the frame with one bit flipped in what the checksum of one of its batches covers; None without any."""
    batches = batches_in(data)
    if not batches:
        return None
    start, end = batches[draws.below(len(batches))]
    position = start + _CRC_COVERS_FROM + draws.below(end - start - _CRC_COVERS_FROM)
    flipped = bytearray(data)
    flipped[position] ^= 1 << draws.below(8)
    assert len(flipped) == len(data) and flipped != data, (len(flipped), position)
    return bytes(flipped)
