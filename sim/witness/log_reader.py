"""Reads a partition's `.log` files on a simulated disk from their bytes alone, independently of `storage.log`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import final

from sim.checkers.chain import Mark, counted
from sim.disk import SimDisk, SimFile, SimFileSystem
from sim.disk.life import Life
from sim.witness.places import Place, no_places
from sim.witness.segment_paths import SWAP, SegmentPaths
from storage.batch import HEADER, HEADER_SIZE
from storage.codec.crc32c import crc32c
from storage.disk.filesystem import OpenMode

# The name of the rules that no damage to a disk excuses.
DAMAGE = "damage"
WRONG_CHECKSUM = "the checksum is wrong"
NO_BATCHES = "no batch follows in a segment that is sealed"
_CRC_COVERS_FROM = 21
_LOG_OVERHEAD = 12
NO_LAST = 1 << 63
# More than any segment has.
_ALL = 1 << 31
_DELETED = ".deleted"
# Names of no directory.
_UNKNOWN: tuple[object, int] = (None, -1)
# A multiple of the size of an entry.
_INDEX_BLOCK = 4096
# More zeros than a batch ends with. A write into a preallocated file that is torn before them leaves a whole batch.
_ZEROS_OF_A_BATCH = 64


@final
class DiskEye:
    """Reads a disk from outside, with a life of its own, which is a new one after each crash."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self._life = Life("eye", sees_through=True)
        self._file_system = disk.file_system(self._life)

    @property
    def file_system(self) -> SimFileSystem:
        if self._life.dead:
            self._life = Life("eye", sees_through=True)
            self._file_system = self.disk.file_system(self._life)
        return self._file_system


@final
class LogReader:
    """Follows one replica's files as they grow. `places` are the batches read so far, in order.

    A log that `is_compacted` may lack offsets, and batches read before may have moved to another place. A file of one
    that `is_preallocated` may be longer than its batches: zeros up to its end are none.
    """

    def __init__(
        self, eye: DiskEye, directory: str, *, is_compacted: bool = False, is_preallocated: bool = False
    ) -> None:
        self._eye, self.directory, self._is_compacted = eye, directory, is_compacted
        self.is_preallocated = is_preallocated
        self.places = no_places()
        # The offset after the batches read so far, 0 without one.
        self._end = 0
        # Where the log was cut within a batch, which went as a whole: the next one begins there, behind a gap.
        self._ends_of_cuts: set[int] = set()
        self._path = ""
        self._file_number = -1
        # The names of the directory, and the version of the disk's names for which they were looked up.
        self._found_names, self._found_version = _UNKNOWN, -1
        # The paths of the segments, and the names of the directory when they were listed.
        self._listed_paths: Sequence[str] = ()
        self._listed_names = _UNKNOWN
        self._segments = SegmentPaths(directory)
        # The present file, open as long as its path names it, and the directory's names when it was opened.
        self._file: SimFile | None = None
        self._opened_names = _UNKNOWN
        # The names among which no file follows the present one.
        self._last_names = _UNKNOWN
        self._position = 0
        # The attributes of the batch that was read last: its codec, and whose time its records have.
        self.last_attributes = 0
        # The count of `places`, from the first on, that are known to be durable, and the names for which the files of
        # the others were compared with those that their paths name.
        self._durable_count = 0
        self._compared_names = _UNKNOWN
        self.unsound = ""
        # The base offset of the segment in which a batch of a lower offset follows; None if there is none.
        self.step_back: int | None = None

    def read_all(self) -> tuple[Mark, ...]:
        """Read from the first byte. Returns every sound batch before the first damage, which `unsound` describes."""
        self._forget()
        return self.read_on(check=True)

    def read_on(self, *, last_offset: int = NO_LAST, check: bool = False) -> tuple[Mark, ...]:
        """Read the batches after those read so far: all, or at least up to `last_offset`. Returns their marks.

        `check` verifies checksums and order, and stops at damage.
        """
        if self._path and not self._is_same_file():
            self.refresh()
        assert self._durable_count <= len(self.places), (
            self.directory,
            self._durable_count,
            len(self.places),
        )
        self.unsound, self.step_back = "", None
        found = self._read_file(self._path, check) if self._path else []
        if self._end <= last_offset and self._last_names != self._names():
            found += self._read_next_files(check)
        return tuple(found)

    def _read_next_files(self, check: bool) -> list[Mark]:
        """Read the files after the present one, up to the first damage. Returns the marks of their batches."""
        found: list[Mark] = []
        paths = self._paths()
        for path in paths[bisect_right(paths, self._path) :]:
            if not self.unsound and not self._is_replaced(path):
                self._begin_file(path)
                found += self._read_file(path, check)
        self._last_names = _UNKNOWN if self.unsound else self._names()
        return found

    def refresh(self) -> None:
        """Find the batches read so far again, as far as they still exist: compaction and retention replace files."""
        seen_end = self._end
        self._forget()
        for path in self._paths():
            if not self._is_at(seen_end) and not self._is_replaced(path):
                self._begin_file(path)
                self._read_file(path, False, seen_end)
        assert self._end <= seen_end, (self.directory, self._end, seen_end)
        if not self.places:
            self._begin_file("")

    def _forget(self) -> None:
        self.places, self._end, self._durable_count = no_places(), 0, 0
        self._begin_file("")

    def _is_at(self, end: int) -> bool:
        return bool(self.places) and self._end >= end

    def _is_same_file(self) -> bool:
        """Whether the present path still names the file that was read so far."""
        if self._opened_names != self._names():
            self._file = None
            return self._number_of(self._path) == self._file_number
        return True

    def _opened(self) -> SimFile:
        """Returns the present file. A handle dies with the life of its eye, so with the process of the machine."""
        if self._file is None or self._file.is_dead:
            self._file = self._eye.file_system.open(self._path, OpenMode.READ)
            self._opened_names = self._names()
        return self._file

    def _names(self) -> tuple[object, int]:
        """Returns what stays equal as long as each name in the log's directory names the same file."""
        disk = self._eye.disk
        if self._found_version != disk.names_version:
            self._found_names, self._found_version = disk.names_of(self.directory), disk.names_version
        return self._found_names

    def _begin_file(self, path: str) -> None:
        self._path, self._position, self._file = path, 0, None
        self._last_names = _UNKNOWN
        self._file_number = self._opened().number if path else -1

    def _number_of(self, path: str) -> int:
        """Returns the number of the file with that name, -1 if there is none."""
        node = self._eye.file_system.file_at(path)
        return -1 if node is None else node.number

    def _paths(self) -> Sequence[str]:
        """Returns the paths of the segments, in the order of their offsets."""
        present = self._names()
        if self._listed_names != present:
            file_system = self._eye.file_system
            names = file_system.list(self.directory) if file_system.exists(self.directory) else []
            self._listed_paths, self._listed_names = self._segments.among(names), present
        return self._listed_paths

    def _is_replaced(self, path: str) -> bool:
        """Whether the present file is a swap that takes the place of the segment at `path`, too: it goes further."""
        return self._path.endswith(SWAP) and bool(self.places) and _base_of(path) < self._end

    def base_offset(self) -> int:
        """Returns the base offset of the first segment, 0 if there is none: the records before it were deleted."""
        paths = self._paths()
        return _base_of(paths[0]) if paths else 0

    def last_base_offset(self) -> int:
        """Returns the base offset of the last segment, 0 if there is none: a log without later batches ends there."""
        paths = self._paths()
        return _base_of(paths[-1]) if paths else 0

    def indexes(self, suffix: str = ".index") -> Iterator[tuple[int, list[Place], bytes]]:
        """Yield the base offset of each sealed segment with such an index, its batches read so far, and the index.

        The index of the active segment may have entries of batches that were cut: they count no more, and the next
        ones overwrite them. It loses them when the segment is sealed.
        """
        file_system = self._eye.file_system
        batches: dict[str, list[Place]] = {}
        for place in self.places:
            batches.setdefault(place.path, []).append(place)
        for path in self._paths()[:-1]:
            index = path.removesuffix(".log") + suffix
            if file_system.exists(index):
                yield _base_of(path), batches.get(path, []), self._used_bytes(index)

    def _used_bytes(self, path: str) -> bytes:
        """Returns an index up to its first block of zeros: the file has room for far more entries than it has."""
        file = self._eye.file_system.open(path, OpenMode.READ)
        found = b""
        while (block := file.read_at(len(found), _INDEX_BLOCK)) and any(block):
            found += block
        file.close()
        return found

    def hole(self) -> str:
        """Returns in words that the last segment begins after the last batch, or the first batch after its segment."""
        paths, end = self._paths(), self._end
        first = self.places[0].mark.base_offset if self.places else 0
        if self.places and not self._is_compacted and first > _base_of(paths[0]):
            return f"offset {first} is the first of {paths[0]}"
        is_after = bool(paths) and _base_of(paths[-1]) > end and (bool(self.places) or len(paths) > 1)
        return f"{paths[-1]} follows offset {end - 1}" if is_after else ""

    def deleted_segments(self) -> tuple[tuple[str, int, int, int], ...]:
        """Returns each deleted segment's path, end (exclusive) and newest timestamp, and the size of the log after it.

        A deleted segment's places stay until `refresh`.
        """
        ends: dict[str, int] = {}
        newest: dict[str, int] = {}
        sizes: dict[str, int] = {}
        for place in self.places:
            ends[place.path] = place.mark.next_offset
            newest[place.path] = max(newest.get(place.path, -1), place.newest_ms)
            sizes[place.path] = sizes.get(place.path, 0) + place.size_bytes
        base_offset = self.base_offset()
        gone = [path for path in newest if _base_of(path) < base_offset]
        left_bytes = sum(self._size_of(path) for path in self._paths())
        found: list[tuple[str, int, int, int]] = []
        for path in reversed(gone):
            found.append((path, ends[path], newest[path], left_bytes))
            left_bytes += sizes[path]
        return tuple(reversed(found))

    def oldest_batches(self) -> Iterator[bytes]:
        """Yields the batches of the segments that were deleted since the last `refresh`, and of the one after them.

        The files of deleted segments stay for a while, and nothing is known of those that are gone.
        """
        base_offset, path, data = self.base_offset(), "", b""
        for place in self.places:
            first = _base_of(place.path)
            if first > base_offset:
                return
            if place.path != path:
                path = place.path
                name = path + _DELETED if first < base_offset else path
                data = self._written_bytes(name) if self._number_of(name) == place.file_number else b""
            if data:
                yield data[place.position : place.position + place.size_bytes]

    def _size_of(self, path: str) -> int:
        """Returns the bytes of a segment, without those of its room that nothing was written to."""
        size_bytes = self._eye.file_system.stat(path).size_bytes
        node = self._eye.file_system.file_at(path) if self.is_preallocated else None
        return size_bytes if node is None else min(size_bytes, node.data_end)

    def _read_file(self, path: str, check: bool, end: int = NO_LAST) -> list[Mark]:
        """Read the batches of the present file from the present position on, those below `end` only.

        Returns their marks, up to the first damage.
        """
        assert path == self._path, (path, self._path)
        file, start, number = self._opened(), self._position, self._file_number
        # A preallocated file may be far longer than its batches.
        written = max(0, file.data_end - start) if self.is_preallocated else _ALL
        data, position = file.read_at(start, written + _ZEROS_OF_A_BATCH), 0
        has_places = bool(self.places)
        found: list[Mark] = []
        while position < len(data):
            fields, what = _look(data, position, check, written)
            if check and not what and has_places and not self._follows(fields[0]):
                what = f"offset {fields[0]} follows {self._end - 1}"
                if fields[0] < self._end:
                    self.step_back = _base_of(path)
            if what and self.is_preallocated and not any(data[position:]):
                break
            if what:
                self.unsound = f"{path} at byte {start + position}: {what}"
                return found
            count = counted(fields[5], fields[12])
            mark = Mark(fields[0], fields[0] + fields[6] + 1, fields[2], fields[4], count)
            if mark.next_offset > end:
                return found
            size_bytes = fields[1] + _LOG_OVERHEAD
            self.places.append(Place(mark, path, number, start + position, size_bytes, fields[8]))
            found.append(mark)
            self._end, has_places = mark.next_offset, True
            self.last_attributes = fields[5]
            position += size_bytes
            self._position = start + position
        assert self.is_preallocated or self._position == start + len(data), (path, self._position, start)
        if check and self.is_preallocated and path != self._paths()[-1] and file.size() > self._position:
            # A segment that is sealed is cut to its batches (FR6).
            self.unsound = f"{path} at byte {self._position}: {NO_BATCHES}"
        return found

    def _follows(self, base_offset: int) -> bool:
        next_offset = self._end
        if self._is_compacted or base_offset in self._ends_of_cuts:
            return base_offset >= next_offset
        return base_offset == next_offset

    def truncated(self, offset: int) -> None:
        """Forget every batch that holds `offset` or a later one, because the log has dropped it."""
        if self._is_compacted:
            # What it has appended since, in the same step, is read again later.
            self.read_all()
        places = self.places
        assert self._durable_count <= len(places), (self.directory, self._durable_count, len(places))
        keep = places.index_of(offset, _base_offset_of)
        if keep and places[keep - 1].mark.next_offset > offset:
            keep -= 1
        places.truncate(keep)
        self._end = places[-1].mark.next_offset if places else 0
        if self._end < offset:
            self._ends_of_cuts.add(offset)
        self._durable_count = min(self._durable_count, len(places))
        assert not places or self._end <= offset, (self.directory, offset)
        self._begin_file("")
        if places:
            last = places[-1]
            self._path, self._file_number = last.path, last.file_number
            self._position = last.position + last.size_bytes

    def at(self, base_offset: int) -> Mark | None:
        """Returns the batch that begins at `base_offset`, if it was read."""
        index = self.places.index_of(base_offset, _base_offset_of)
        found = self.places[index].mark if index < len(self.places) else None
        return found if found is not None and found.base_offset == base_offset else None

    def power_lost(self) -> None:
        self._durable_count, self._compared_names = 0, _UNKNOWN

    def durable_end(self) -> int:
        """Returns the log's end (exclusive) after a power loss that keeps nothing pending."""
        if self._compared_names != self._names():
            self._compare_files()
        path, data = "", b""
        assert self._durable_count <= len(self.places), (self._durable_count, len(self.places))
        for place in self.places[self._durable_count :]:
            if place.path != path:
                path = place.path
                found = self._durable_bytes(path)
                if found is None:
                    break
                data = found
            end = place.position + place.size_bytes
            fields, what = _look(data, place.position, True)
            if end > len(data) or what or fields[4] != place.mark.crc:
                break
            self._durable_count += 1
        return self.places[self._durable_count - 1].mark.next_offset if self._durable_count else 0

    def first_not_durable(self) -> int | None:
        """Returns the base offset of the first batch that such a power loss takes; None if there is none."""
        self.durable_end()
        has_lost = self._durable_count < len(self.places)
        return self.places[self._durable_count].mark.base_offset if has_lost else None

    def _compare_files(self) -> None:
        """Find the batches again that may not be durable, if a path of theirs names another file than before."""
        new = self.places[self._durable_count :]
        if any(self._number_of(path) != number for path, number in {each[1:3]: None for each in new}):
            self.refresh()
        self._compared_names = self._names()

    def _durable_bytes(self, path: str) -> bytes | None:
        """Returns the durable bytes of a file, also where the last rename of a compaction is not durable yet."""
        for name in (path, path + SWAP):
            try:
                return self._eye.disk.durable_bytes(name, zeros=_ZEROS_OF_A_BATCH)
            except FileNotFoundError:
                continue
        return None

    def damaged(self, last: int) -> str:
        """Returns what is wrong with the last `last` of the batches read so far; empty if nothing is."""
        for place, data in self.batches(last):
            if what := _look(data, 0, True)[1]:
                return f"{place.path} at byte {place.position}: {what}"
        return ""

    def batches(self, last: int | None = None) -> Iterator[tuple[Place, bytes]]:
        """Yield the batches read so far, or only the last `last` of them, with their bytes."""
        path, data = "", b""
        for place in self.places[0 if last is None else len(self.places) - last :]:
            if place.path != path:
                path, data = place.path, self._written_bytes(place.path)
            yield place, data[place.position : place.position + place.size_bytes]

    def batch_at(self, base_offset: int) -> bytes | None:
        """Returns the batch of that base offset among those read so far; None without one, or if its file is gone."""
        index = self.places.index_of(base_offset, _base_offset_of)
        place = self.places[index] if index < len(self.places) else None
        if place is None or place.mark.base_offset != base_offset:
            return None
        if self._number_of(place.path) != place.file_number:
            return None
        file = self._eye.file_system.open(place.path, OpenMode.READ)
        data = file.read_at(place.position, place.size_bytes)
        file.close()
        return data

    def _written_bytes(self, path: str) -> bytes:
        """Returns the bytes of a file up to the last one that was written, and few after it: more may be set aside."""
        file = self._eye.file_system.open(path, OpenMode.READ)
        data = file.read_at(0, file.data_end + _ZEROS_OF_A_BATCH)
        file.close()
        return data


def _base_offset_of(place: Place) -> int:
    return place.mark.base_offset


def _base_of(path: str) -> int:
    """Returns the base offset in a segment's name."""
    return int(path.rpartition("/")[2].partition(".")[0])


def _look(data: bytes, position: int, check: bool, written: int = _ALL) -> tuple[tuple[int, ...], str]:
    """Returns the header's fields of the batch at `position`, and what is wrong with it; empty if nothing is.

    `check` verifies the checksum; that of a batch which ends after the `written` bytes is always verified.
    """
    if position + HEADER_SIZE > len(data):
        return (), "a header is cut"
    fields = HEADER.unpack_from(data, position)
    size_bytes, magic, crc = fields[1] + _LOG_OVERHEAD, fields[3], fields[4]
    if size_bytes < HEADER_SIZE or magic != 2:
        return fields, f"no batch: size {size_bytes}, magic {magic}"
    end = position + size_bytes
    if end > len(data):
        return fields, f"a batch of {size_bytes} bytes is cut after {len(data) - position}"
    if (check or end > written) and crc32c(memoryview(data)[position + _CRC_COVERS_FROM : end]) != crc:
        return fields, WRONG_CHECKSUM
    return fields, ""
