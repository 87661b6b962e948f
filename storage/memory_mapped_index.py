"""What both indexes of a segment share: a file of fixed-size entries, written in place, read through a map.

An active index is preallocated with zeros and trimmed when its segment rolls or closes, so only `entries`
tells where the entries end. Entries are written by `write_at` (a store through a map of a full disk would
be a SIGBUS) and read through the port's read-only map, which shows them at once. Kafka: AbstractIndex; rules
IX1 to IX12.

One writer; readers on other threads take no lock. `_version` goes up whenever a place that a reader may be
looking at is about to change: after a truncation of entries, around a change of the map. A look-up that ends
in another version than it began in begins anew, so it gives whole entries of one moment. While the file has
no map, for its length changes, readers see a copy of the entries. A closed index is a ValueError.

The file must not be shortened by anybody else: a read of a page that has gone ends the process with SIGBUS, and no
check before the read could close the gap. The lock of the log directory keeps other brokers out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, TypeVar

from storage.buffer import Buffer
from storage.errors import CorruptIndex, SegmentOffsetOverflow
from storage.filesystem import FileSystem, OpenMode, ReadMap, basename, join

WARM_BYTES: Final = 8192  # the part at the end that every append and most lookups touch: two or three pages
MAX_RELATIVE_OFFSET: Final = 2**31 - 1

# Struct.unpack_from of one big-endian column
Result = TypeVar("Result")
Unpack = Callable[[Buffer, int], tuple[int, ...]]


class MemoryMappedIndex:
    """Opens the file at `path`, creating it with `max_index_size` bytes, rounded down to whole entries (IX1).

    An existing file is taken as it is: all its entries count, and it is full until resized (IX2); then
    `max_index_size` -1 is fine. `read_only` never creates, writes, trims or resizes, and reads a copy of the file: it
    may be a live one of another process, which trims it when the segment rolls.
    """

    entry_size: ClassVar[int]
    kept_entries: ClassVar[int] = 0  # how many slots at the end an append leaves free

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
        self._map: ReadMap | None = None
        self._view: memoryview | None = None
        self._version = 0
        created = not read_only and not file_system.exists(path)
        if created and max_index_size < self.entry_size:
            raise ValueError(f"{path}: {max_index_size} bytes do not hold an entry of {self.entry_size}")
        self._file = file_system.open(path, OpenMode.READ if read_only else OpenMode.CREATE)
        self._length = self._entries = 0
        self.is_full = False  # asked for before every append to the segment
        try:
            if created:
                self._file.set_length(self._whole_entries(max_index_size))
            self._remap()
            self._set_entries(0 if created else self.max_entries)
            self._load_last_entry()
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
        """What the entries take."""
        return self._entries * self.entry_size

    @property
    def free_entries(self) -> int:
        """How many more there is room for, the slot that is kept for roll and close too."""
        return self._length // self.entry_size - self._entries

    def can_append_offset(self, offset: int) -> bool:
        """Whether the offset fits the 31 bits relative to the base offset (IX8)."""
        return 0 <= offset - self._base_offset <= MAX_RELATIVE_OFFSET

    def relative_offset(self, offset: int) -> int:
        """Raises SegmentOffsetOverflow. Kafka: IndexOffsetOverflowException."""
        relative = offset - self._base_offset
        if not 0 <= relative <= MAX_RELATIVE_OFFSET:
            raise SegmentOffsetOverflow(self._path, self._base_offset, offset)
        return relative

    def resize(self, size_bytes: int) -> bool:
        """Whether the file's length, rounded down to whole entries, had to change (IX4).

        ValueError, and nothing done, when the entries would not fit.
        """
        length = self._whole_entries(size_bytes)
        if length == self._length:
            return False
        if self.size_bytes > length:
            raise ValueError(f"{self._path}: {self._entries} entries do not fit {size_bytes} bytes")
        self._show_copy()
        try:
            self._file.set_length(length)
        finally:
            self._remap()
        self._load_last_entry()
        assert self._entries <= self.max_entries, (self._path, self._entries, self._length)
        return True

    def trim_to_valid_size(self) -> bool:
        return self.resize(self.size_bytes)

    def truncate(self) -> None:
        """Drop all entries. Their bytes stay behind the end until overwritten or trimmed (IX9)."""
        self._truncate_to_entries(0)

    def reset(self) -> None:
        """Empty, and of the size that a new one would have (IX5)."""
        self.truncate()
        self.resize(self._max_index_size)

    def flush(self) -> None:
        self._file.sync()

    def rename_to(self, path: str) -> None:
        self._file_system.rename(self._path, path)
        self._path = path

    def update_parent_directory(self, directory: str) -> None:
        """The directory was renamed: only the remembered path changes."""
        self._path = join(directory, basename(self._path))

    def close(self) -> None:
        """Trim, then unmap (IX6). Idempotent; read-only: unmap alone."""
        if self._view is not None and not self._read_only:
            self.trim_to_valid_size()
        self.close_handler()

    def close_handler(self) -> None:
        """Unmap without trimming, as a crash would; any later access is a ValueError."""
        self._unmap()
        self._file.close()

    def delete_if_exists(self) -> bool:
        self.close_handler()
        try:
            self._file_system.unlink(self._path)
        except FileNotFoundError:
            return False
        return True

    def sanity_check(self) -> None:
        """Raises CorruptIndex when what can be told from the first and last entry is wrong."""
        raise NotImplementedError

    def _load_last_entry(self) -> None:
        """Entries were loaded, dropped or moved to another map."""

    def _bytes_of(self, slot: int) -> Buffer:
        """An entry that may be a hole of the file, as all are after a crash until recovery has reset the index: to read
        a hole through a map takes a page of a tmpfs, and of a full one that is a SIGBUS.
        """
        start, end = slot * self.entry_size, (slot + 1) * self.entry_size
        if self._map is None:
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
        # After the bytes, for readers without a lock.
        self._set_entries(self._entries + size_bytes // entry_size)

    def _set_entries(self, entries: int) -> None:
        """Also to be called where the length changed."""
        self._entries = entries
        self.is_full = entries >= self._length // self.entry_size - self.kept_entries

    def _check_free(self, entries: int) -> None:
        if entries > self.free_entries:
            raise ValueError(f"{self._path}: no room for {entries} entries behind {self._entries}")

    def _truncate_to_entries(self, entries: int) -> None:
        assert entries <= self._entries, (self._path, entries, self._entries)
        self._set_entries(entries)
        self._version += 1  # behind it: who began before counts with places that the next append writes to
        self._load_last_entry()

    def _mapped(self) -> memoryview:
        if self._view is None:
            raise ValueError(f"{self._path} is closed")
        return self._view

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < self._entries:
            raise ValueError(f"{self._path}: no entry {slot}, there are {self._entries}")

    def _search(self, target: int, unpack: Unpack, column: int) -> tuple[int, int]:
        """Slots of the largest entry <= target and of the smallest >= target; -1 for none (IX10, IX11).

        `unpack` reads the column at byte `column` of an entry; it must not fall from entry to entry. The
        end of the index is searched first: a plain binary search of the whole would touch pages that
        nothing else keeps in memory.
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
        """What `read` gives, of one version. Raises what it raises once nothing has changed meanwhile."""
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

    def _unmap(self, view: memoryview | None = None) -> None:
        mapped, self._map, self._view = self._map, None, view
        self._version += 1  # before the map goes: who is looking at it begins anew
        if mapped is not None:
            mapped.close()

    def _show_copy(self) -> None:
        """A mapped file cannot be shortened; its entries stay readable."""
        self._unmap(memoryview(bytes(self._mapped()[: self.size_bytes])))

    def _remap(self) -> None:
        """An empty file cannot be mapped: its view is empty bytes."""
        self._length = self._file.size()
        if self._read_only:
            self._view = memoryview(self._file.read_at(0, self._length))
            self._length = len(self._view)
        else:
            self._map = self._file.map_for_reading() if self._length else None
            self._view = self._map.view if self._map is not None else memoryview(b"")
        self._set_entries(self._entries)
        self._version += 1


def is_rising(column: Sequence[int]) -> bool:
    """Whether each is above the one before. Sorting what is sorted costs less than a loop of comparisons."""
    return sorted(column) == list(column) and len(set(column)) == len(column)
