"""Flips a bit of a frame on its way, past the checksum of TCP: in its records, in its structure, or anywhere.

What the checksum of a batch covers, and what makes a frame unreadable, the receiver must notice. All else around the
batches has no checksum of its own, here as in Kafka: a flip there may change an offset, an epoch or an error without
a trace, and is believed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from cluster.core.connection.codec import Malformed
from cluster.shell.streams import CODEC, STREAMS
from sim.world.streams import Stream
from storage.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD
from storage.codec.crc32c import crc32c

# After so many places that leave a frame readable, it stays as it is.
_MOST_TRIES = 40
_MAGIC_AT = 16
_MAGIC = b"\x02"
_CRC_COVERS_FROM = 21


class Where(Enum):
    """The bits of a frame that may flip."""

    # Those that the checksum of a batch covers.
    RECORDS = "records"
    # Those without which the frame is no message any more.
    STRUCTURE = "structure"
    # Any.
    ANYWHERE = "anywhere"


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


def is_readable(path: str, data: bytes, *, to_target: bool) -> bool:
    """Whether the receiver of a frame of this method finds a message in it, whatever that says."""
    try:
        if path in STREAMS:
            stream = CODEC.stream_at(path)
            stream.calls_from_bytes(data) if to_target else stream.answers_from_bytes(data)
        elif to_target:
            CODEC.unary.request_from_bytes(path, data)
        else:
            CODEC.unary.response_from_bytes(path, data)
    except Malformed:
        return False
    return True


def flip_in_structure(data: bytes, is_sound: Callable[[bytes], bool], draws: Stream) -> bytes | None:
    """Returns the frame with one bit flipped so that it is not `is_sound` any more; None if no such bit was found."""
    for _ in range(_MOST_TRIES if data else 0):
        flipped = flip_anywhere(data, draws)
        if not is_sound(flipped):
            return flipped
    return None


def flip_anywhere(data: bytes, draws: Stream) -> bytes:
    """Returns the frame, which has a byte or more, with any one bit flipped."""
    assert data, "a frame without bytes has no bits"
    flipped = bytearray(data)
    flipped[draws.below(len(data))] ^= 1 << draws.below(8)
    assert flipped != data, len(data)
    return bytes(flipped)


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
