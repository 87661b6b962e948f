"""The base of both indexes of a segment: a file of fixed-size entries, written in place, read through a map.

The file of an active index is preallocated with zeros and trimmed when its segment rolls or closes: only the first
`entries` slots are entries. Entries are written by `write_at` (a store through a map would raise SIGBUS on a full disk)
and read through the port's read-only map, which shows them at once. Kafka: AbstractIndex; rules IX1 to IX12.

There is one writer; readers on other threads take no lock. `_version` rises after a truncation of entries and at every
change of the map, because what a reader is reading may change then. A look-up that ends in another version than it
began in starts again, so it returns whole entries of one moment. While the file's length changes it has no map, and
readers see a copy of the entries. A closed index raises ValueError.

The file is mapped at the first look-up; a map that is not used is given up, like a descriptor (`handle_pool.py`), and
made again at the next look-up, which waits for that.

Nothing else may shorten the file: reading a page that no longer exists ends the process with SIGBUS, and no check
before the read could prevent that. The lock of the log directory keeps other brokers out.
"""

from __future__ import annotations

import struct
from _thread import allocate_lock
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, TypeVar

from storage.codec.buffer import Buffer
from storage.disk.filesystem import FileSystem, OpenMode, ReadMap, basename, join
from storage.errors import CorruptIndex, SegmentOffsetOverflow

# The part at the end that every append and most look-ups touch: two or three pages.
WARM_BYTES: Final = 8192
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
# Kafka cannot map more.
MAX_INDEX_BYTES: Final = 2**31 - 1

# The type of Struct.unpack_from for one big-endian column.
Result = TypeVar("Result")
Unpack = Callable[[Buffer, int], tuple[int, ...]]


class MemoryMappedIndex:
    """An open index file at `path`, created with `max_index_size` bytes, rounded down to whole entries (IX1).

    An existing file keeps its length: all its entries count, and it is full until resized (IX2); then
    `max_index_size` may be -1. `read_only` never creates, writes, trims or resizes, and reads a copy of the file: it
    may be a live one of another process, which trims it when the segment rolls.
    """

    entry_size: ClassVar[int]
    # The number of slots at the end that an append leaves free.
    kept_entries: ClassVar[int] = 0

    def __init__(
        self,
        file_system: FileSystem,
        path: str,
        base_offset: int,
        *,
        max_index_size: int = -1,
        read_only: bool = False,
    ) -> None:
        self._file_system = file_system
        self._path = path
        self._base_offset = base_offset
        self._max_index_size = max_index_size
        self._read_only = read_only
        # Held while the map is made, changed or given up.
        self._mapping = allocate_lock()
        self._map: ReadMap | None = None
        # The entries: the map's, or a copy; None while the index rests, and after it was closed.
        self._view: memoryview | None = None
        self._is_closed = False
        self._version = 0
        self.is_used = True
        created = not read_only and not file_system.exists(path)
        if created and max_index_size < self.entry_size:
            raise ValueError(
                f"{path}: max_index_size={max_index_size} is below one entry of {self.entry_size} bytes"
            )
        mode = OpenMode.READ if read_only else OpenMode.CREATE
        self._file = file_system.open(path, mode, can_rest=True)
        self._length = self._entries = 0
        # An attribute, because every append to the segment reads it.
        self.is_full = False
        try:
            if created:
                self._file.set_length(self._whole_entries(max_index_size))
            self._measure()
            self._set_entries(0 if created else self.max_entries)
            self._load_last_entry()
            if not created:
                self._file.rest()
        except BaseException:
            self.close_handler()
            raise

    @property
    def path(self) -> str:
        return self._path

    @property
    def base_offset(self) -> int:
        return self._base_offset

    @property
    def entries(self) -> int:
        return self._entries

    @property
    def max_entries(self) -> int:
        return self._length // self.entry_size

    @property
    def length_bytes(self) -> int:
        """The file's length, the unused tail included."""
        return self._length

    @property
    def size_bytes(self) -> int:
        """The size of the entries in bytes."""
        return self._entries * self.entry_size

    @property
    def free_entries(self) -> int:
        """The number of entries that still fit, including the slot that is kept for roll and close."""
        return self._length // self.entry_size - self._entries

    def can_append_offset(self, offset: int) -> bool:
        """Whether the offset, relative to the base offset, fits 31 bits (IX8)."""
        return 0 <= offset - self._base_offset <= MAX_RELATIVE_OFFSET

    def relative_offset(self, offset: int) -> int:
        """Returns the offset relative to the base offset.

        Raises SegmentOffsetOverflow unless it fits 31 bits (Kafka: IndexOffsetOverflowException).
        """
        relative = offset - self._base_offset
        if not 0 <= relative <= MAX_RELATIVE_OFFSET:
            raise SegmentOffsetOverflow(self._path, self._base_offset, offset)
        return relative

    def resize(self, size_bytes: int) -> bool:
        """Set the file's length, rounded down to whole entries. Returns whether it changed (IX4).

        Raises ValueError, having changed nothing, when the entries would not fit.
        """
        length = self._whole_entries(size_bytes)
        if length == self._length:
            return False
        if self.size_bytes > length:
            raise ValueError(f"{self._path}: {self._entries} entries do not fit into {size_bytes} bytes")
        with self._mapping:
            self._show_copy()
            try:
                self._file.set_length(length)
            finally:
                self._measure()
                self._drop_view()
        self._file_system.handles.remove(self)
        self._load_last_entry()
        assert self._length == length, (self._path, self._length, length)
        assert self._entries <= self.max_entries, (self._path, self._entries, self._length)
        return True

    def trim_to_valid_size(self) -> bool:
        return self.resize(self.size_bytes)

    def truncate(self) -> None:
        """Drop all entries. Their bytes remain after the end until they are overwritten or trimmed (IX9)."""
        self._truncate_to_entries(0)

    def reset(self) -> None:
        """Drop all entries and resize the file to the size of a new one (IX5)."""
        self.truncate()
        self.resize(self._max_index_size)

    def flush(self) -> None:
        self._file.sync()

    def rename_to(self, path: str) -> None:
        self._file.moves_to(path)
        self._file_system.rename(self._path, path)
        self._path = path

    def update_parent_directory(self, directory: str) -> None:
        """Take over the new name of the directory; only the remembered path changes."""
        self._path = join(directory, basename(self._path))
        self._file.moves_to(self._path)

    @property
    def is_unsynced(self) -> bool:
        """False: a map has nothing to sync, the file has a handle of its own."""
        return False

    def give_up(self) -> bool:
        """Unmap until the next look-up. Returns False while the map is being changed."""
        if not self._mapping.acquire(blocking=False):
            return False
        try:
            if self._map is not None:
                self._drop_view()
            return True
        finally:
            self._mapping.release()

    def rest(self) -> None:
        """Give the map and the file's descriptor up until the next use, as far as nothing waits for a sync."""
        if self.give_up():
            self._file_system.handles.remove(self)
        self._file.rest()

    def close(self) -> None:
        """Trim and unmap (IX6); a read-only index is only unmapped. May be called again."""
        if not self._is_closed and not self._read_only:
            self.trim_to_valid_size()
        self.close_handler()

    def close_handler(self) -> None:
        """Unmap without trimming, as a crash would; any later access is a ValueError."""
        with self._mapping:
            self._is_closed = True
            self._drop_view()
        self._file_system.handles.remove(self)
        self._file.close()

    def delete_if_exists(self) -> bool:
        """Unmap and delete the file. Returns whether there was one."""
        self.close_handler()
        try:
            self._file_system.unlink(self._path)
        except FileNotFoundError:
            return False
        return True

    def sanity_check(self) -> None:
        """Raise CorruptIndex when the first or the last entry shows that the index is damaged."""
        raise NotImplementedError

    def _load_last_entry(self) -> None:
        """Read the last entry after entries were loaded, dropped or moved to another map."""

    def _bytes_of(self, slot: int) -> Buffer:
        """Read an entry that may be a hole in the file: after a crash any entry may be one until recovery resets the
        index. On a tmpfs, reading a hole through a map allocates a page, and a full tmpfs raises SIGBUS: so the entry
        is read from the file.
        """
        start, end = slot * self.entry_size, (slot + 1) * self.entry_size
        if self._read_only:
            return self._mapped()[start:end]
        return self._file.read_at(start, self.entry_size)

    def _check_length(self) -> None:
        if self._length % self.entry_size:
            reason = f"{self._length} bytes are no whole number of entries of {self.entry_size}"
            raise CorruptIndex(self._path, reason)

    def _whole_entries(self, size_bytes: int) -> int:
        return max(size_bytes, 0) // self.entry_size * self.entry_size

    def _append_entries(self, packed: bytes) -> None:
        assert not self._read_only, self._path
        entry_size, size_bytes = self.entry_size, len(packed)
        end = self._entries * entry_size
        assert end + size_bytes <= self._length, (self._path, self._entries, size_bytes)
        self._file.write_at(end, packed)
        # The entries are counted only after their bytes are written, because readers take no lock.
        self._set_entries(self._entries + size_bytes // entry_size)

    def _set_entries(self, entries: int) -> None:
        """Set the number of entries and what follows from it; also called after the length changed."""
        self._entries = entries
        self.is_full = entries >= self._length // self.entry_size - self.kept_entries

    def _check_free(self, entries: int) -> None:
        if entries > self.free_entries:
            raise ValueError(f"{self._path} has {self._entries} entries and no room for {entries} more")

    def _truncate_to_entries(self, entries: int) -> None:
        assert 0 <= entries, (self._path, entries)
        assert entries <= self._entries, (self._path, entries, self._entries)
        self._set_entries(entries)
        # Raised after the change: a look-up that began earlier may read slots that the next append overwrites.
        self._version += 1
        self._load_last_entry()

    def _mapped(self) -> memoryview:
        """Returns the entries, mapped if the index rests. Raises ValueError for a closed index, OSError."""
        self.is_used = True
        view = self._view
        return self._wake() if view is None else view

    def _wake(self) -> memoryview:
        with self._mapping:
            view = self._view
            if view is None:
                view = self._map_entries()
        if self._map is not None:
            self._file_system.handles.add(self)
        return view

    def _map_entries(self) -> memoryview:
        """Map the entries of an index that rests; an empty file cannot be mapped, so its view is empty bytes."""
        assert self._view is None and self._map is None, self._path
        if self._is_closed:
            raise ValueError(f"{self._path} is closed")
        self._map = self._file.map_for_reading() if self._length else None
        view = self._view = memoryview(b"") if self._map is None else self._map.view
        self._version += 1
        return view

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < self._entries:
            raise ValueError(f"{self._path}: entry {slot} does not exist, there are {self._entries} entries")

    def _search(self, target: int, unpack: Unpack, column: int) -> tuple[int, int]:
        """Returns the slots of the largest entry <= target and of the smallest >= target; -1 for none (IX10, IX11).

        `unpack` reads the column at byte `column` of an entry; the column must be non-decreasing. The end of the index
        is searched first: a binary search of the whole index would touch pages that nothing else keeps in memory.
        """
        view, entries, entry_size = self._mapped(), self._entries, self.entry_size
        if entries == 0:
            return -1, -1
        first_warm = max(0, entries - 1 - WARM_BYTES // entry_size)
        low, high = first_warm, entries - 1
        if unpack(view, first_warm * entry_size + column)[0] >= target:
            (first,) = unpack(view, column)
            if first >= target:
                return (0, 0) if first == target else (-1, 0)
            low, high = 0, first_warm
        while low < high:
            middle = (low + high + 1) >> 1
            found = unpack(view, middle * entry_size + column)[0]
            if found > target:
                high = middle - 1
            elif found < target:
                low = middle
            else:
                return middle, middle
        return low, low + 1 if low + 1 < entries else -1

    def _settled(self, read: Callable[[], Result]) -> Result:
        """Returns the result of `read` within one version. Raises its error only if the version is still the same."""
        while True:
            version = self._version
            try:
                found = read()
            except (ValueError, struct.error):
                if version == self._version:
                    raise
                continue
            if version == self._version:
                return found

    def _show_copy(self) -> None:
        """Replace the map by a copy of the entries, which must stay readable: a mapped file cannot be shortened."""
        view = memoryview(b"")
        if self._entries:
            view = self._map_entries() if self._view is None else self._view
        self._drop_view(memoryview(bytes(view[: self.size_bytes])))

    def _drop_view(self, view: memoryview | None = None) -> None:
        """Unmap; readers see `view` from now on, or map the file again."""
        mapped, self._map, self._view = self._map, None, view
        # Raised before the map is closed: a look-up that is reading it starts again.
        self._version += 1
        if mapped is not None:
            mapped.close()

    def _measure(self) -> None:
        """Note the file's length; a read-only index reads the file instead."""
        self._length = self._file.size()
        if self._length > MAX_INDEX_BYTES:
            raise CorruptIndex(self._path, f"{self._length} bytes are more than an index may have")
        if self._read_only:
            # Into one buffer: a read of nearly 2 GiB comes in pieces, which would be joined in as much memory again.
            view = memoryview(bytearray(self._length))
            self._length = self._file.read_into(0, view)
            self._view = view[: self._length].toreadonly()
        self._set_entries(self._entries)


def is_rising(column: Sequence[int]) -> bool:
    """Whether each number is above the previous one. Sorting a sorted list costs less than a loop of comparisons."""
    return sorted(column) == list(column) and len(set(column)) == len(column)
