"""Chooses the partition of a record: by its key's hash, or one partition for a while (KIP-480, KIP-794).

Kafka: BuiltInPartitioner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from storage.draws import Draws

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """Returns Kafka's 32-bit hash of `data` (Utils.murmur2), unsigned."""
    length = len(data)
    mixed = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        block = int.from_bytes(data[position : position + 4], "little")
        block = (block * _MULTIPLIER) & _MASK
        block ^= block >> 24
        block = (block * _MULTIPLIER) & _MASK
        mixed = ((mixed * _MULTIPLIER) & _MASK) ^ block
    if whole < length:
        mixed ^= int.from_bytes(data[whole:], "little")
        mixed = (mixed * _MULTIPLIER) & _MASK
    mixed ^= mixed >> 13
    mixed = (mixed * _MULTIPLIER) & _MASK
    return mixed ^ (mixed >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Returns the key's partition: the same as in any other client that keeps Kafka's default partitioner."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


@final
class StickyPartitioner:
    """Keeps keyless records of one topic on a partition for about one batch, then draws another partition."""

    def __init__(self, topic: str, switch_bytes: int, draws: Draws) -> None:
        self._topic = topic
        self._switch_bytes = switch_bytes
        self._draws = draws
        self._partition = -1
        self._bytes = 0
        self._switches = 0

    def partition(self, size_bytes: int, available: Sequence[int]) -> int:
        """Returns the partition for a record of `size_bytes`, out of `available`, which is not empty."""
        # Otherwise it would never switch.
        assert size_bytes > 0, size_bytes
        if self._bytes >= self._switch_bytes or self._partition not in available:
            choices = len(available)
            # A draw costs more than all else here, and each depends on its own name alone.
            chosen = self._draws.below(choices, "sticky", self._topic, self._switches) if choices > 1 else 0
            self._partition, self._bytes = available[chosen], 0
            self._switches += 1
        self._bytes += size_bytes
        return self._partition
