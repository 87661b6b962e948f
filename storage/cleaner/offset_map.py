"""The offset where each key was last written: what a round of compaction keeps in memory about the dirty part of a log.

One flat table with slots of 24 bytes, so that it takes the configured memory, however many keys there are:

| byte | size | field |
| --- | --- | --- |
| 0 | 16 | MD5 of the key; equal hashes count as equal keys (T49) |
| 16 | 8 | offset |

A dictionary, which is several times as fast, holds the keys as long as they are few; when it would exceed its share of
the memory they move to the table. Kafka has only the table.

A slot of 24 zero bytes is free. The first probes for a key are the thirteen 4-byte windows of its hash; then every next
slot is probed.
Kafka: SkimpyOffsetMap; rule CL7.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final, final

SLOT_BYTES: Final = 24
_HASH_BYTES: Final = 16
_LAST_WINDOW: Final = _HASH_BYTES - 4
_FREE: Final = bytes(SLOT_BYTES)
_PACK_OFFSET: Final = struct.Struct(">q").pack
_WINDOW: Final = struct.Struct(">i")
_FIRST_WINDOW: Final = struct.Struct(">i12x").unpack
_HIGHEST_INT32: Final = (1 << 31) - 1
_LEAST_TABLE_SLOTS: Final = 1024
NOT_FOUND: Final = -1
_UNKNOWN: Final = bytearray(_HASH_BYTES) + _PACK_OFFSET(NOT_FOUND)
# The greatest size of a key in the dictionary; of a longer key it holds the hash.
HELD_KEY_BYTES: Final = 32
# The most memory that a key takes in the dictionary: entry, key and offset.
HELD_BYTES: Final = 256
# Appended to a hash, so that it is longer than any key that the dictionary holds.
_AFTER_HASH: Final = bytes(HELD_KEY_BYTES + 1 - _HASH_BYTES)

_md5 = hashlib.md5


@final
class OffsetMap:
    """Maps keys to their last offset.

    `latest_offset` is the last offset that was read, -1 in an empty map; callers may set it. `slots` is the number of
    keys that `memory_bytes` allow; the table is smaller when at most `expected_keys` will be put. As long as the keys
    take at most `dictionary_bytes`, which are not part of `memory_bytes`, they are in a dictionary and there is no
    table.
    """

    __slots__ = ("_entries", "_held", "_most_held", "_table", "_table_slots", "latest_offset", "slots")

    def __init__(
        self, memory_bytes: int, expected_keys: int | None = None, *, dictionary_bytes: int = 0
    ) -> None:
        self.slots: Final = memory_bytes // SLOT_BYTES
        assert self.slots > 0, memory_bytes
        self._table_slots = self.slots
        if expected_keys is not None:
            self._table_slots = min(self.slots, max(4 * expected_keys, _LEAST_TABLE_SLOTS))
        self._most_held: Final = min(dictionary_bytes // HELD_BYTES, self._table_slots - 1)
        assert self._table_slots <= self.slots, (self._table_slots, self.slots)
        self.clear()

    def clear(self) -> None:
        """Remove all keys."""
        # All held keys must fit into the table with a slot left free, at which a search for a missing key ends.
        assert self._most_held < self._table_slots, (self._most_held, self._table_slots)
        self._held: dict[bytes, int] | None = {} if self._most_held > 0 else None
        self._table = bytearray(0 if self._most_held > 0 else self._table_slots * SLOT_BYTES)
        # The number of keys in the table.
        self._entries = 0
        self.latest_offset = -1

    def __len__(self) -> int:
        return self._entries if self._held is None else len(self._held)

    @property
    def utilization(self) -> float:
        return len(self) / self.slots

    def put(self, key: bytes, offset: int) -> int:
        """Store `offset` for `key`. Returns the offset that it had before, -1 for a new key.

        Raises ValueError when every slot is taken, even for a known key.
        """
        held = self._held
        if held is None:
            return self._put_in_table(_md5(key, usedforsecurity=False).digest(), offset)
        if len(key) > HELD_KEY_BYTES:
            key = _md5(key, usedforsecurity=False).digest() + _AFTER_HASH
        before = held.get(key, NOT_FOUND)
        if before == NOT_FOUND and len(held) >= self._most_held:
            self._move_to_table(held)
            return self._put_in_table(_hash_of_held(key), offset)
        held[key] = self.latest_offset = offset
        return before

    def _move_to_table(self, held: dict[bytes, int]) -> None:
        # There is room for the key that did not fit the dictionary, too.
        assert len(held) < self._table_slots, (len(held), self._table_slots)
        self._table, self._held = bytearray(self._table_slots * SLOT_BYTES), None
        latest_offset = self.latest_offset
        for key, offset in held.items():
            self._put_in_table(_hash_of_held(key), offset)
        self.latest_offset = latest_offset
        assert self._entries == len(held), (self._entries, len(held))

    def _put_in_table(self, digest: bytes, offset: int) -> int:
        if self._entries >= self._table_slots:
            raise ValueError(f"the offset map is full with all of its {self._table_slots} slots taken")
        (window,) = _FIRST_WINDOW(digest)
        position = (abs(window) & _HIGHEST_INT32) % self._table_slots * SLOT_BYTES
        found = self._table[position : position + SLOT_BYTES]
        if found == _FREE:
            self._entries += 1
            found = _UNKNOWN
        # Another key is in the first slot of this one, which is rare.
        elif not found.startswith(digest):
            position, is_known = self._find(digest)
            assert position >= 0, self._entries
            self._entries += not is_known
            found = self._table[position : position + SLOT_BYTES] if is_known else _UNKNOWN
        self._table[position : position + SLOT_BYTES] = digest + _PACK_OFFSET(offset)
        self.latest_offset = offset
        return int.from_bytes(found[_HASH_BYTES:], "big", signed=True)

    def get(self, key: bytes) -> int:
        """The key's last offset, -1 for an unknown key."""
        if self._held is not None:
            if len(key) > HELD_KEY_BYTES:
                key = _md5(key, usedforsecurity=False).digest() + _AFTER_HASH
            return self._held.get(key, NOT_FOUND)
        digest = _md5(key, usedforsecurity=False).digest()
        (window,) = _FIRST_WINDOW(digest)
        position = (abs(window) & _HIGHEST_INT32) % self._table_slots * SLOT_BYTES
        found = self._table[position : position + SLOT_BYTES]
        if not found.startswith(digest):
            position, is_known = self._find(digest)
            if not is_known:
                return NOT_FOUND
            found = self._table[position : position + SLOT_BYTES]
        return int.from_bytes(found[_HASH_BYTES:], "big")

    def _find(self, digest: bytes) -> tuple[int, bool]:
        """The byte position of the key's slot and True, or of a free slot for the key and False.

        Returns -1 and False if all slots are taken by other keys.
        """
        table, slots = self._table, self._table_slots
        # The linear part visits every slot once (KAFKA-3682).
        for attempt in range(slots + _LAST_WINDOW):
            position = _slot(digest, attempt, slots) * SLOT_BYTES
            found = table[position : position + _HASH_BYTES]
            if found == digest:
                return position, True
            if table[position : position + SLOT_BYTES] == _FREE:
                return position, False
        return -1, False


def _hash_of_held(key: bytes) -> bytes:
    return key[:_HASH_BYTES] if len(key) > HELD_KEY_BYTES else _md5(key, usedforsecurity=False).digest()


def _slot(digest: bytes, attempt: int, slots: int) -> int:
    """The slot of a probe, in the arithmetic of a 32-bit int (Kafka: SkimpyOffsetMap.positionOf)."""
    (window,) = _WINDOW.unpack_from(digest, min(attempt, _LAST_WINDOW))
    probe = int(window) + max(0, attempt - _LAST_WINDOW)
    if probe > _HIGHEST_INT32:
        probe -= 1 << 32
    # The lowest int has no absolute value and counts as 0.
    return (abs(probe) & _HIGHEST_INT32) % slots
