"""The partition of each key by Kafka's default partitioner, worked out without the product's own hash.

Kafka: Utils.murmur2 and toPositive, BuiltInPartitioner.partitionForKey.
"""

from __future__ import annotations

from functools import lru_cache

_FACTOR, _SHIFT = 0x5BD1E995, 24
_ALL = (1 << 32) - 1


def _times(value: int) -> int:
    return value * _FACTOR & _ALL


def _hash(data: bytes) -> int:
    """Returns murmur2 of the bytes as 32 bits without a sign: whole words first, then what is left of them."""
    found = 0x9747B28C ^ len(data)
    words, left = divmod(len(data), 4)
    for word in range(words):
        part = _times(int.from_bytes(data[4 * word : 4 * word + 4], "little"))
        found = _times(found) ^ _times(part ^ part >> _SHIFT)
    if left:
        found = _times(found ^ int.from_bytes(data[-left:], "little"))
    found = _times(found ^ found >> 13)
    return found ^ found >> 15


@lru_cache(maxsize=4096)
def place_of_key(key: bytes, partitions: int) -> int:
    """Returns the partition of a key; the hash is made positive by dropping its sign, as Java does it."""
    return (_hash(key) & 0x7FFFFFFF) % partitions
