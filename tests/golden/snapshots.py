"""A producer snapshot judged by its content: version, checksum and entries, whatever order the entries are in.

Kafka writes them in the order of a hash map, this project by producer id, and no reader relies on either. The cases
know only size and hash of Kafka's file: ours is the same if an order of its entries has that size and hash.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from storage.codec.crc32c import crc32c

VERSION = 1
# Version, checksum, number of entries.
FRAME = struct.Struct(">hIi")
# Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, transaction's
# offset.
ENTRY = struct.Struct(">qhiqiqiq")
FIELDS = (
    "producer id",
    "epoch",
    "last sequence",
    "last offset",
    "offset delta",
    "timestamp",
    "coordinator epoch",
    "first offset of the open transaction",
)
CRC_COVERS_FROM = 6
# Eight entries have 40,320 orders, and more are not tried. The cases have three entries at most.
MOST_ENTRIES = 8


def digest(content: bytes) -> str:
    """Return the hash by which the cases know a file."""
    return hashlib.sha256(content).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The bytes of a snapshot file, sound or not."""

    content: bytes

    def entries(self) -> list[bytes]:
        """Return the entries by producer id. Raises ValueError if the version, the checksum or the number is wrong."""
        if len(self.content) < FRAME.size:
            raise ValueError(f"{len(self.content)} bytes are no snapshot")
        version, checksum, count = FRAME.unpack_from(self.content)
        if version != VERSION:
            raise ValueError(f"version {version}")
        if checksum != crc32c(self.content[CRC_COVERS_FROM:]):
            raise ValueError(f"the checksum {checksum} does not match")
        if len(self.content) != FRAME.size + count * ENTRY.size:
            raise ValueError(f"{len(self.content)} bytes do not hold exactly {count} entries")
        found = [
            self.content[at : at + ENTRY.size] for at in range(FRAME.size, len(self.content), ENTRY.size)
        ]
        return sorted(found, key=lambda entry: ENTRY.unpack(entry))

    def is_kafkas(self, size_bytes: int, kafkas_digest: str) -> bool:
        """Whether Kafka's file of this size and hash holds the same entries in any order.

        With too many entries to try each order, only equal bytes count as the same.
        """
        if len(self.content) != size_bytes:
            return False
        if digest(self.content) == kafkas_digest:
            return True
        try:
            entries = self.entries()
        except ValueError:
            return False
        orders = permutations(entries) if len(entries) <= MOST_ENTRIES else iter(())
        return any(digest(encoded(order)) == kafkas_digest for order in orders)

    def __str__(self) -> str:
        try:
            entries = [ENTRY.unpack(entry) for entry in self.entries()]
        except ValueError as error:
            return f"an unsound snapshot: {error}"
        too_many = " (too many to try each order)" if len(entries) > MOST_ENTRIES else ""
        return f"a snapshot of {entries}{too_many}"


def encoded(entries: Sequence[bytes]) -> bytes:
    """Return a sound snapshot of the entries, in the order given."""
    body = struct.pack(">i", len(entries)) + b"".join(entries)
    return struct.pack(">hI", VERSION, crc32c(body)) + body


def lies_about(snapshot: Snapshot) -> Iterator[tuple[str, Snapshot]]:
    """Yield copies that differ in one thing each, with the kind of it. A lie in an entry has a right checksum."""
    content, entries = snapshot.content, snapshot.entries()
    version, checksum, count = FRAME.unpack_from(content)
    rest = content[FRAME.size :]
    yield "snapshot: version", Snapshot(FRAME.pack(version + 1, checksum, count) + rest)
    yield "snapshot: checksum", Snapshot(FRAME.pack(version, checksum ^ 1, count) + rest)
    if entries:
        first, *others = entries
        yield "snapshot: an entry missing", Snapshot(encoded(others))
        yield "snapshot: an entry too many", Snapshot(encoded([first, *entries]))
        for number, name in enumerate(FIELDS):
            fields = list(ENTRY.unpack(first))
            fields[number] += 1
            yield f"snapshot: {name}", Snapshot(encoded([ENTRY.pack(*fields), *others]))
