"""The entries of a producer snapshot, from and to bytes; `SnapshotRows` decodes one when its producer is asked for.

200,000 entries take a quarter of a second to decode. A truncation needs few of them: those of the producers that write
again. The layout of an entry is in `snapshot.py`.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, starmap
from operator import attrgetter, lt
from typing import Final, final

from storage.disk.filesystem import FileSystem
from storage.producers.entry import ProducerStateEntry
from storage.producers.snapshot import ENTRY_BYTES, entries_in, frame_entries, read_content

_ENTRY: Final = struct.Struct(">qhiqiqiq")
assert _ENTRY.size == ENTRY_BYTES, _ENTRY.size
# The bytes at which fields of an entry begin.
_LAST_OFFSET_AT, _TIMESTAMP_AT, _FIRST_OFFSET_AT = 14, 26, 38
# Last sequence, last offset and offset delta.
_BATCH: Final = struct.Struct(">10xiqi20x")
assert _BATCH.size == ENTRY_BYTES

_NONE: Final = -1
# Last sequence, last offset, offset delta, timestamp of a producer whose batches are not known.
_NO_BATCH: Final = (-1, -1, 0, -1)
PRODUCER_ID: Final = attrgetter("producer_id")


def encode_entries(entries: Sequence[ProducerStateEntry]) -> bytearray:
    """The bytes of the entries, in their order, of `ENTRY_BYTES` each."""
    content = bytearray(len(entries) * ENTRY_BYTES)
    pack, at = _ENTRY.pack_into, 0
    for entry in entries:
        # Read directly: a property for each field would double the time of a stop with many producers. Read once:
        # the entry may be changing on another thread (`PreparedSnapshot`).
        batches, first_offset = entry.batches, entry.transaction_first_offset
        last_sequence, last_offset, delta, _ = batches[-1] if batches else _NO_BATCH
        pack(
            content,
            at,
            entry.producer_id,
            entry.producer_epoch,
            last_sequence,
            last_offset,
            delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            _NONE if first_offset is None else first_offset,
        )
        at += ENTRY_BYTES
    assert at == len(content), (at, len(content))
    return content


def decode_entries(content: bytes | memoryview) -> list[ProducerStateEntry]:
    """The entries in the order of their bytes, which must be whole."""
    assert len(content) % ENTRY_BYTES == 0, len(content)
    return list(starmap(_entry, _ENTRY.iter_unpack(content)))


def _entry(
    producer_id: int,
    producer_epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_first_offset: int,
) -> ProducerStateEntry:
    entry = ProducerStateEntry(
        producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        last_timestamp=timestamp,
        transaction_first_offset=transaction_first_offset if transaction_first_offset >= 0 else None,
    )
    if last_offset >= 0:
        entry.batches = ((last_sequence, last_offset, offset_delta, timestamp),)
    return entry


def encode_snapshot(entries: Iterable[ProducerStateEntry]) -> bytes:
    """The bytes of a whole file, with the entries by ascending producer id."""
    return frame_entries(encode_entries(sorted(entries, key=PRODUCER_ID)))


def decode_snapshot(content: bytes, path: str = "snapshot") -> list[ProducerStateEntry]:
    """The entries in the order of the file. Raises CorruptSnapshot."""
    return decode_entries(entries_in(content, path))


def read_snapshot(file_system: FileSystem, path: str) -> list[ProducerStateEntry]:
    """Read the entries of the snapshot at `path`. Raises CorruptSnapshot, OSError."""
    return decode_snapshot(read_content(file_system, path), path)


def read_rows(file_system: FileSystem, path: str) -> SnapshotRows:
    """Read the snapshot at `path`, and leave its entries as bytes. Raises CorruptSnapshot, OSError."""
    return SnapshotRows(bytes(entries_in(read_content(file_system, path), path)))


@final
class SnapshotRows:
    """The entries of a snapshot by ascending producer id, each of which may be taken out once.

    The bytes never change. A taken entry belongs to the taker; the rows forget it.
    """

    __slots__ = ("_content", "_ids", "_is_taken", "_oldest_timestamp", "left")

    def __init__(self, content: bytes) -> None:
        """Take over the bytes of whole entries, in any order; of two with the same producer id the last one counts."""
        ids = _column(content, 0)
        if not all(map(lt, ids, islice(ids, 1, None))) or not _is_plain(content):
            content = _in_order(content)
            ids = _column(content, 0)
        self._content, self._ids = content, ids
        # No entry is older; None until somebody asks, because a look at 200,000 takes a third of a load.
        self._oldest_timestamp: int | None = None
        # A byte for each row: 1 once it is taken.
        self._is_taken = bytearray(len(ids))
        # The number of entries that were not taken.
        self.left = len(ids)

    def take(self, producer_id: int) -> ProducerStateEntry | None:
        """Take the producer's entry out. Returns None if there is none, or none any more."""
        row = self._row_of(producer_id)
        if row is None:
            return None
        # Before the row is marked: an entry must not be lost where this fails.
        entry = self._decode(row)
        self._is_taken[row] = 1
        self.left -= 1
        assert self.left >= 0, self.left
        return entry

    def look_up(self, producer_id: int) -> ProducerStateEntry | None:
        """Returns a copy of the producer's entry, which stays; None if there is none."""
        row = self._row_of(producer_id)
        return None if row is None else self._decode(row)

    def _row_of(self, producer_id: int) -> int | None:
        ids = self._ids
        row = bisect_left(ids, producer_id)
        if row == len(ids) or ids[row] != producer_id or self._is_taken[row]:
            return None
        return row

    def _decode(self, row: int) -> ProducerStateEntry:
        return _entry(*_ENTRY.unpack_from(self._content, row * ENTRY_BYTES))

    def producer_ids(self) -> Iterator[int]:
        """The ids of the entries that were not taken, ascending."""
        pairs = zip(self._ids, self._is_taken, strict=True)
        return (producer_id for producer_id, is_taken in pairs if not is_taken)

    def left_of(self, is_taken: bytes) -> Iterator[ProducerStateEntry]:
        """Copies of the entries that were not taken when `taken` returned `is_taken`, decoded one by one."""
        return (self._decode(row) for row, was_taken in enumerate(is_taken) if not was_taken)

    def may_have_earlier_batches(self) -> bool:
        """Whether the last batch of some producer may not be its first one; also true if only taken entries are such.

        Its first sequence says nothing: after 2^31-1 comes 0.
        """
        return any(last_offset > max(delta, 0) for _, last_offset, delta in _BATCH.iter_unpack(self._content))

    def with_open_transactions(self) -> list[tuple[int, int]]:
        """The producer id and the first offset of each open transaction, by ascending producer id."""
        signs = self._content[_FIRST_OFFSET_AT::ENTRY_BYTES]
        # The usual case: all are -1.
        if signs.count(0xFF) == len(signs):
            return []
        offsets = _column(self._content, _FIRST_OFFSET_AT)
        return [(self._ids[row], offset) for row, offset in enumerate(offsets) if offset >= 0]

    def drop_old(
        self, *, now_ms: int, expiration_ms: int, is_expired: Callable[[ProducerStateEntry], bool]
    ) -> None:
        """Drop the entries that `is_expired`, which is not asked about those of a lower age than `expiration_ms`."""
        assert expiration_ms > 0, expiration_ms
        if self._oldest_timestamp is None:
            self._oldest_timestamp = min(_column(self._content, _TIMESTAMP_AT), default=0)
        # A timestamp in the future is above the oldest one, and not expired.
        if now_ms - self._oldest_timestamp < expiration_ms:
            return
        oldest = now_ms
        for row, timestamp in enumerate(_column(self._content, _TIMESTAMP_AT)):
            if self._is_taken[row]:
                continue
            if not 0 <= now_ms - timestamp < expiration_ms and is_expired(self._decode(row)):
                self._is_taken[row] = 1
                self.left -= 1
            elif timestamp < oldest:
                oldest = timestamp
        self._oldest_timestamp = oldest
        assert 0 <= self.left <= len(self._ids), (self.left, len(self._ids))

    def taken(self) -> bytes:
        """A byte for each row, 1 if it was taken; for `merged_with` and `left_of`."""
        return bytes(self._is_taken)

    def merged_with(
        self, ordered: Sequence[ProducerStateEntry], encoded: bytearray, is_taken: bytes | bytearray
    ) -> bytes | bytearray:
        """The bytes of all entries by ascending producer id: those of `ordered`, which are `encoded`, and the rest.

        The rest are the entries that were not taken when `taken` returned `is_taken`. Any thread may call it.
        """
        assert len(encoded) == len(ordered) * ENTRY_BYTES, (len(encoded), len(ordered))
        if is_taken.find(0) < 0:
            return encoded
        content, pieces, row = memoryview(self._content), list[bytes | bytearray | memoryview](), 0
        for _, at, replaced, new in self._edits(ordered, encoded, is_taken):
            pieces += (content[row * ENTRY_BYTES : at * ENTRY_BYTES], new)
            row = at + replaced
        pieces.append(content[row * ENTRY_BYTES :])
        return b"".join(pieces)

    def _edits(
        self, ordered: Sequence[ProducerStateEntry], encoded: bytearray, is_taken: bytes | bytearray
    ) -> list[tuple[int, int, int, bytes | bytearray]]:
        """The changes by ascending producer id: the id, the row, how many rows it replaces, the new bytes."""
        ids = self._ids
        dropped = {ids[row]: row for row in _rows_set(is_taken)}
        edits: list[tuple[int, int, int, bytes | bytearray]] = []
        for number, entry in enumerate(ordered):
            producer_id = entry.producer_id
            row = dropped.pop(producer_id, None)
            at = bisect_left(ids, producer_id) if row is None else row
            new = encoded[number * ENTRY_BYTES : (number + 1) * ENTRY_BYTES]
            edits.append((producer_id, at, int(row is not None), new))
        edits += [(producer_id, row, 1, b"") for producer_id, row in dropped.items()]
        edits.sort()
        return edits


def _rows_set(flags: bytes | bytearray) -> Iterator[int]:
    row = flags.find(1)
    while row >= 0:
        yield row
        row = flags.find(1, row + 1)


def _column(content: bytes, at: int) -> array[int]:
    """The 64-bit field at byte `at` of each entry."""
    fields = bytearray(len(content) // ENTRY_BYTES * 8)
    for byte in range(8):
        fields[byte::8] = content[at + byte :: ENTRY_BYTES]
    column = array("q")
    column.frombytes(fields)
    if sys.byteorder == "little":
        column.byteswap()
    assert len(column) * ENTRY_BYTES == len(content), (len(column), len(content))
    return column


def _is_plain(content: bytes) -> bool:
    """Whether the decoded entries encode to the same bytes: each negative offset is that of an entry without one."""
    signs = content[_LAST_OFFSET_AT::ENTRY_BYTES]
    for row in [] if signs.isascii() else range(len(signs)):
        if signs[row] > 0x7F and _BATCH.unpack_from(content, row * ENTRY_BYTES) != _NO_BATCH[:3]:
            return False
    signs = content[_FIRST_OFFSET_AT::ENTRY_BYTES]
    # The usual cases: in no entry, or in each one, is a transaction open. A comparison of numbers takes five times as
    # long.
    if signs.isascii():
        return True
    if all(content[_FIRST_OFFSET_AT + byte :: ENTRY_BYTES].count(0xFF) == len(signs) for byte in range(8)):
        return True
    return min(_column(content, _FIRST_OFFSET_AT), default=_NONE) >= _NONE


def _in_order(content: bytes) -> bytes:
    """The bytes of the entries by ascending producer id, without those that a later one replaces."""
    entries = {entry.producer_id: entry for entry in decode_entries(content)}
    return bytes(encode_entries(sorted(entries.values(), key=PRODUCER_ID)))
