"""CRC-32C (Castagnoli), the checksum of magic-2 batches and producer snapshots (Kafka: Crc32C; RFC 3720 B.4).

`crc32c(data)` is the native function itself, so that a loop over batches pays for no Python frame. It takes any
contiguous buffer without a copy.
"""

from __future__ import annotations

from collections.abc import Callable

from fastcrc import crc32

from storage.codec.buffer import Buffer

crc32c: Callable[[Buffer], int] = crc32.iscsi

_crc32c_continued: Callable[[Buffer, int], int] = crc32.iscsi


def crc32c_from(crc: int, data: Buffer) -> int:
    """Continue a checksum: returns that of the bytes whose checksum is `crc`, followed by `data`."""
    return _crc32c_continued(data, crc)


# With another polynomial this library would write logs that no other program can read: do not start.
assert crc32c(b"123456789") == 0xE3069283, "the CRC-32C in use is not Castagnoli's"
assert crc32c_from(crc32c(b"1234"), b"56789") == 0xE3069283, "the CRC-32C in use does not continue"
