"""The aborted transactions of a segment, whose records a reader of committed records leaves out.

The file is a sequence of entries of 34 bytes, without header or trailer, in ascending order of their last offset:

| byte | size | field |
| --- | --- | --- |
| 0 | 2 | version, 0; readers check only the first byte (T13) |
| 2 | 8 | producer id |
| 10 | 8 | first offset of the transaction |
| 18 | 8 | last offset: that of the abort marker |
| 26 | 8 | last stable offset when the marker was written |

A tail shorter than an entry is left by a torn write: readers ignore it, the next append overwrites it.
Kafka: TransactionIndex, AbortedTxn; rules IX26 to IX31.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, final

from storage.codec.buffer import Buffer
from storage.disk.filesystem import File, FileSystem, OpenMode, basename, join
from storage.errors import CorruptIndex

ENTRY: Final = struct.Struct(">hqqqq")
VERSION: Final = 0
# Two pages.
_BLOCK_BYTES: Final = ENTRY.size * 240

assert ENTRY.size == 34


class AbortedTransaction(NamedTuple):
    """One entry; `last_offset` is inclusive. Below `last_stable_offset` no other transaction was open."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedTransactions(NamedTuple):
    """The aborted transactions of a range in one segment; unless complete, the next segment may have more (IX29)."""

    transactions: list[AbortedTransaction]
    is_complete: bool


def unpack_entries(data: Buffer, path: str, position: int = 0) -> Iterator[tuple[int, AbortedTransaction]]:
    """Yield each whole entry in `data` with its position; `data` begins at byte `position` of `path`.

    Raises CorruptIndex for a version above 0.
    """
    whole_bytes = len(data) // ENTRY.size * ENTRY.size
    for at in range(0, whole_bytes, ENTRY.size):
        version, *fields = ENTRY.unpack_from(data, at)
        if version >> 8 > VERSION:
            raise CorruptIndex(path, f"at byte {position + at}: an entry of version {version >> 8}")
        yield position + at, AbortedTransaction(*fields)


@final
class TransactionIndex:
    """The index file of one segment. It is opened at the first use and created at the first append: most segments never
    have one (IX26).

    `append` compares only with entries that this object appended or kept in a truncation, not with those that it found
    in the file (IX27).
    """

    __slots__ = (
        "_base_offset",
        "_file",
        "_file_system",
        "_is_missing",
        "_last_offset",
        "_path",
        "_size_bytes",
    )

    def __init__(self, file_system: FileSystem, path: str, base_offset: int) -> None:
        self._file_system, self._path, self._base_offset = file_system, path, base_offset
        self._file: File | None = None
        # Whether the file is known not to exist.
        self._is_missing = False
        # The size of the whole entries in bytes, without a torn tail.
        self._size_bytes = 0
        self._last_offset: int | None = None

    @property
    def path(self) -> str:
        return self._path

    @property
    def exists(self) -> bool:
        return self._open_existing() is not None

    def is_present(self) -> bool:
        """Whether there is a file; it is not opened. Once none was found the system is not asked again."""
        if self._file is None and not self._is_missing:
            self._is_missing = not self._file_system.exists(self._path)
        return not self._is_missing

    def note_missing(self) -> None:
        """Note that there is no file, as a list of the directory shows: it need not be looked for."""
        assert self._file is None, self._path
        self._is_missing = True

    def append(self, entry: AbortedTransaction) -> None:
        """Append an entry. Raises ValueError, and writes nothing, unless its last offset is above the previous one."""
        assert self._last_offset is None or self._size_bytes > 0, (self._path, self._last_offset)
        if self._last_offset is not None and entry.last_offset <= self._last_offset:
            raise ValueError(
                f"{self._path}: cannot append an aborted transaction that ends at {entry.last_offset} "
                f"after one that ends at {self._last_offset}"
            )
        file = self._open_existing()
        if file is None:
            file = self._file = self._file_system.open(self._path, OpenMode.CREATE, can_rest=True)
            self._is_missing = False
        file.write_at(self._size_bytes, ENTRY.pack(VERSION, *entry))
        # The entry is counted only after its bytes are written, because readers take no lock.
        self._size_bytes += ENTRY.size
        self._last_offset = entry.last_offset
        assert self._size_bytes % ENTRY.size == 0, (self._path, self._size_bytes)

    def entries(self) -> Iterator[AbortedTransaction]:
        """Yield all entries, oldest first. Raises CorruptIndex for a version above 0."""
        for _, entry in self._placed_entries():
            yield entry

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> AbortedTransactions:
        """Returns the transactions that overlap [fetch_offset, upper_bound_offset) (IX29).

        They are complete if an entry was written when the last stable offset was at or above the bound: then all
        transactions of later entries begin after the bound.
        """
        found: list[AbortedTransaction] = []
        # Where an entry before these is complete, no later one begins before the bound.
        for _, entry in self._placed_entries(self._first_that_ends_at(fetch_offset)):
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound_offset:
                return AbortedTransactions(found, is_complete=True)
        return AbortedTransactions(found, is_complete=False)

    def truncate_to(self, offset: int) -> None:
        """Drop the first entry whose last offset is at least `offset`, and all entries after it (IX28)."""
        last_offset = None
        for position, entry in self._placed_entries():
            if entry.last_offset >= offset:
                self._cut(position)
                self._last_offset = last_offset
                assert (last_offset is None) == (self._size_bytes == 0), (self._path, self._size_bytes)
                assert last_offset is None or last_offset < offset, (self._path, last_offset, offset)
                return
            last_offset = entry.last_offset

    def reset(self) -> None:
        """Empty the file, if there is one (IX31)."""
        if self._open_existing() is not None:
            self._cut(0)
        self._last_offset = None
        assert self._size_bytes == 0, (self._path, self._size_bytes)

    def restart_empty(self) -> None:
        """Delete the file; the next append creates a new one."""
        self.delete_if_exists()
        self._file, self._is_missing, self._size_bytes, self._last_offset = None, True, 0, None

    def sanity_check(self) -> None:
        """Raise CorruptIndex for an entry that ends before the segment begins, and for a version above 0 (IX30)."""
        for position, entry in self._placed_entries():
            if entry.last_offset < self._base_offset:
                reason = f"at byte {position}: the end {entry.last_offset} is below {self._base_offset}"
                raise CorruptIndex(self._path, reason)

    def flush(self) -> None:
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Close without a sync; may be called again."""
        if self._file is not None:
            self._file.close()

    def delete_if_exists(self) -> bool:
        """Close and delete the file. Returns whether there was one."""
        self.close()
        try:
            self._file_system.unlink(self._path)
        except FileNotFoundError:
            return False
        return True

    def rename_to(self, path: str) -> None:
        """Rename the file, if there is one; the new path is remembered in any case (IX31)."""
        assert path != self._path, path
        self._note_path(path)
        try:
            self._file_system.rename(self._path, path)
        except FileNotFoundError:
            assert self._file is None, self._path
        self._path = path

    def update_parent_directory(self, directory: str) -> None:
        """Take over the new name of the directory; only the remembered path changes."""
        self._path = join(directory, basename(self._path))
        self._note_path(self._path)

    def _note_path(self, path: str) -> None:
        if self._file is not None:
            self._file.moves_to(path)

    def _open_existing(self) -> File | None:
        if self._file is None and not self._is_missing:
            try:
                self._file = self._file_system.open(self._path, OpenMode.WRITE, can_rest=True)
            except FileNotFoundError:
                self._is_missing = True
            else:
                self._size_bytes = self._file.size() // ENTRY.size * ENTRY.size
        return self._file

    def _first_that_ends_at(self, offset: int) -> int:
        """The position of the first entry whose last offset is at least `offset`, by a binary search.

        Few entries are read from the start: one call reads them all.
        """
        file = self._open_existing()
        if file is None or self._size_bytes <= _BLOCK_BYTES:
            return 0
        low, high = 0, self._size_bytes // ENTRY.size
        while low < high:
            middle = (low + high) // 2
            data = file.read_at(middle * ENTRY.size, ENTRY.size)
            # The file was truncated meanwhile.
            if len(data) < ENTRY.size:
                return 0
            if ENTRY.unpack(data)[3] < offset:
                low = middle + 1
            else:
                high = middle
        return low * ENTRY.size

    def _placed_entries(self, position: int = 0) -> Iterator[tuple[int, AbortedTransaction]]:
        file = self._open_existing()
        if file is None:
            return
        while position < self._size_bytes:
            block = file.read_at(position, min(_BLOCK_BYTES, self._size_bytes - position))
            # The file was truncated meanwhile.
            if not block:
                return
            yield from unpack_entries(block, self._path, position)
            position += len(block)

    def _cut(self, size_bytes: int) -> None:
        assert self._file is not None, self._path
        assert 0 <= size_bytes <= self._size_bytes, (self._path, size_bytes, self._size_bytes)
        assert size_bytes % ENTRY.size == 0, (self._path, size_bytes)
        self._file.truncate(size_bytes)
        self._size_bytes = size_bytes
