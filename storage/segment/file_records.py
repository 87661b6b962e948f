"""A segment's `.log` file: a sequence of record batches, appended, read as bytes, walked and truncated.

The file may be longer than its records (a preallocated tail of zeros, cut when the segment closes);
`size_bytes` is the byte at which the records end. A live file is read in blocks and never mapped: it is truncated and
appended to while readers keep a position in it. Kafka: FileRecords, FileLogInputStream; rules FR1 to FR14.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Final, final

from storage.batch import (
    CURRENT_MAGIC,
    HEADER,
    HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MIN_SIZE_FIELD,
    Record,
    RecordBatch,
)
from storage.batch.format import (
    CRC_COVERS_FROM,
    FIELD_CRC,
    FIELD_MAGIC,
    FIELD_SIZE,
)
from storage.batch.pieces import HEADS_HELD
from storage.codec.buffer import Buffer
from storage.codec.crc32c import crc32c, crc32c_from
from storage.disk.filesystem import FileSystem, OpenMode, ReadMap, basename, join
from storage.disk.handle_pool import OUT_OF_HANDLES
from storage.errors import (
    CorruptBatch,
    OutOfHandles,
    ReadGoesOn,
    ReadTakesLong,
    StorageError,
    TruncatedWhileRead,
    UnpacksTooFar,
)
from storage.segment.waypoints import Waypoints
from storage.values import quickly_made

# Positions have 32 bits in the offset index.
MAX_FILE_BYTES: Final = 2**31 - 1
# How much of a tail of zeros is looked at by one call.
_ZEROS_BYTES: Final = 1 << 20
# A search starts near its target, so that most searches need one small read.
FIRST_BLOCK_BYTES: Final = 1 << 14
# A block fits into the second-level cache, from which the checksum then reads it.
BLOCK_BYTES: Final = 1 << 18

# So many headers take 7 ms to look at in small batches, and up to 40 ms where each is a read of its own.
HEADERS_A_STEP: Final = 8192
# A search by offset passes so many batches in one step: 2 ms of small ones, 10 ms where each is a read of its own.
SEARCHED_A_STEP: Final = 2048
# A slice of a look at headers ends after so many bytes: each large batch is a read of its own.
BYTES_A_SLICE: Final = 8 << 20

# Above this a size field is trusted only after the checksum was verified.
LONG_BATCH_BYTES: Final = 1 << 22

# What `HEADER` unpacks. A walk over small batches would take a quarter longer if each were a tuple with named fields:
# readers use the places `FIELD_…` of `storage/batch/format.py`.
HeaderFields = tuple[int, ...]

# Where a batch is: a block of the file, the place in the block, the position in the file, the size in bytes; and its
# base offset.
Frame = tuple[bytes, int, int, int, int]
# The base offset and the size field, with which a batch begins.
_FRAME: Final = struct.Struct(">qi")


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class LogOffsetPosition:
    """A batch found by offset: its last offset, and where its bytes are."""

    offset: int
    position: int
    size_bytes: int
    base_offset: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampAndOffset:
    """A record found by its timestamp in milliseconds, with its leader epoch if it has one."""

    timestamp: int
    offset: int
    leader_epoch: int | None


@final
class FileRecords:
    """The open `.log` file at `path`, which is created when missing unless `read_only`.

    A new file with `preallocate_bytes` gets that length at once and has no records; with `file_already_exists`, or
    without preallocation, the whole file counts as records (FR1). Raises StorageError above 2^31-1 bytes.
    """

    __slots__ = ("_file", "_file_system", "_path", "_read_only", "_waypoints", "cuts", "size_bytes")

    def __init__(
        self,
        file_system: FileSystem,
        path: str,
        *,
        read_only: bool = False,
        file_already_exists: bool = False,
        preallocate_bytes: int = 0,
    ) -> None:
        assert preallocate_bytes >= 0, (path, preallocate_bytes)
        self._file_system = file_system
        # A name that was listed may be a link, whose target must not be made.
        mode = OpenMode.WRITE if file_already_exists else OpenMode.CREATE
        if read_only:
            mode = OpenMode.READ
        self._file = file_system.open(path, mode, can_rest=True)
        self._path = path
        self._read_only = read_only
        length = self._file.size()
        if length > MAX_FILE_BYTES:
            self._file.close()
            raise StorageError(f"{path}: {length} bytes are more than a segment may have")
        # The position at which the records end.
        self.size_bytes = length
        self._waypoints = Waypoints()
        # How often the records were cut: bytes that a reader found before a cut may be others after it.
        self.cuts = 0
        if preallocate_bytes and not file_already_exists and not read_only:
            self._file.set_length(preallocate_bytes)
            self.size_bytes = 0
        elif length:
            # Most segments of a log are not used soon after it is loaded.
            self._file.rest()

    @property
    def path(self) -> str:
        return self._path

    def append(self, data: Buffer) -> int:
        """Append whole batches. Returns their position; raises ValueError above 2^31-1 bytes (FR4).

        When the write fails the records end where they did before; the next write overwrites what the failed one wrote.
        Raises OutOfHandles, with nothing written, if the file cannot be opened for it.
        """
        position = self.size_bytes
        end = position + len(data)
        if end > MAX_FILE_BYTES:
            raise ValueError(f"{self._path}: {len(data)} bytes do not fit at position {position}")
        try:
            self._file.write_at(position, data)
        except OSError as error:
            if error.errno in OUT_OF_HANDLES:
                raise OutOfHandles(str(error)) from error
            raise
        self.size_bytes = end
        return position

    def read_slice(self, position: int, size: int) -> bytes:
        """The bytes from `position`, `size` of them or up to the end of the records (FR3).

        Raises ValueError outside the records; StorageError where the file has become shorter than the records (FR15).
        """
        if position < 0 or size < 0 or position > self.size_bytes:
            raise ValueError(
                f"{self._path}: cannot take {size} bytes at position {position} of {self.size_bytes} bytes"
            )
        wanted = min(size, self.size_bytes - position)
        data = self._file.read_at(position, wanted)
        if len(data) < wanted:
            raise StorageError(
                f"{self._path}: read {len(data)} bytes at byte {position}, expected {wanted} bytes of records"
            )
        return data

    def batches(self, start: int = 0, end: int | None = None) -> Iterator[RecordBatch]:
        """The batches in [start, end), framed by their size fields (FR8); each view has its own bytes and may be kept.

        Ends silently at an incomplete last batch and at a tail of 17 bytes or less. Raises CorruptBatch on a
        size field below 14 and where the file is shorter than `end`. Checks neither magic nor checksum.
        """
        for block, at, position, size_bytes, _ in self._frames(start, end, with_bodies=True):
            batch = RecordBatch(block, at, size_bytes, position)
            if size_bytes < HEADER_SIZE and batch.magic >= CURRENT_MAGIC:
                batch = self._with_full_header(batch)
            yield batch

    def scan_headers(
        self, start: int = 0, end: int | None = None
    ) -> Generator[tuple[memoryview, int, int, HeaderFields], None, None]:
        """Walk [start, end) as `batches` does and check each checksum.

        Yields the buffer, the place in the buffer, the position in the file and the header fields. The next step
        overwrites the buffer: copy what must last. The fields of magic 0 and 1 are in the places of magic 2. Raises
        CorruptBatch at the first batch that is not sound.
        """
        limit = self.size_bytes if end is None else end
        buffer = memoryview(bytearray(min(BLOCK_BYTES, max(limit - start, HEADER_SIZE))))
        unpack, checksum, position = HEADER.unpack_from, crc32c, start
        while position < limit - HEADER_SIZE_UP_TO_MAGIC:
            filled = self._file.read_into(position, buffer[: limit - position])
            at, last_start = 0, filled - HEADER_SIZE
            while at <= last_start:
                header = unpack(buffer, at)
                batch_end = at + LOG_OVERHEAD + header[FIELD_SIZE]
                if batch_end > filled:
                    break
                if header[FIELD_MAGIC] < CURRENT_MAGIC or batch_end - at < HEADER_SIZE:
                    header = self._checked_odd(buffer, at, position + at, header[FIELD_SIZE])
                elif checksum(buffer[at + CRC_COVERS_FROM : batch_end]) != header[FIELD_CRC]:
                    RecordBatch(buffer, at, batch_end - at, position + at).check_valid(self._path)
                yield buffer, at, position + at, header
                at = batch_end
            position += at
            if at > 0:
                continue
            # No whole batch of 61 bytes or more: the buffer is too small, or the records end here, or are damaged.
            frame = next(self._frames(position, limit, with_bodies=False), None)
            if frame is None:
                return
            size_bytes = frame[3]
            if size_bytes > len(buffer):
                self._check_long(position, size_bytes)
                buffer = memoryview(bytearray(max(size_bytes, 2 * len(buffer))))
            elif size_bytes > filled:
                raise CorruptBatch(self._path, position, "unexpected end of the file")
            else:
                yield buffer, 0, position, self._checked_odd(buffer, 0, position, size_bytes - LOG_OVERHEAD)
                position += size_bytes

    def _check_long(self, position: int, size_bytes: int) -> None:
        """Check a long batch in blocks, so that nothing is allocated for a damaged size field. Raises CorruptBatch."""
        if size_bytes <= LONG_BATCH_BYTES:
            return
        header = self._file.read_at(position, HEADER_SIZE)
        batch = RecordBatch(header, 0, len(header), position)
        if batch.magic < CURRENT_MAGIC:
            return
        crc, done = crc32c(header[CRC_COVERS_FROM:]), len(header)
        while done < size_bytes:
            block = self._file.read_at(position + done, min(BLOCK_BYTES, size_bytes - done))
            if not block:
                raise CorruptBatch(self._path, position, "unexpected end of the file")
            crc, done = crc32c_from(crc, block), done + len(block)
        if crc != batch.crc:
            reason = f"the checksum of {size_bytes} bytes does not match (stored {batch.crc})"
            raise CorruptBatch(self._path, position, reason)

    def _checked_odd(self, buffer: Buffer, at: int, position: int, size_field: int) -> HeaderFields:
        """The fields of a batch that the quick loop does not read: magic 0 or 1, or damaged.

        Raises CorruptBatch for a damaged one.
        """
        if size_field < MIN_SIZE_FIELD:
            raise self._bad_size(position, size_field)
        batch = RecordBatch(buffer, at, LOG_OVERHEAD + size_field, position)
        batch.check_valid(self._path)
        return (
            batch.base_offset,
            size_field,
            batch.partition_leader_epoch,
            batch.magic,
            batch.crc,
            batch.attributes,
            batch.last_offset_delta,
            batch.base_timestamp,
            batch.max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.record_count,
        )

    def search_for_offset_with_size(
        self, target_offset: int, start: int = 0, a_step: int = SEARCHED_A_STEP, *, in_step: bool = False
    ) -> LogOffsetPosition | None:
        """The batch from byte `start` on that holds `target_offset`, else the first that begins above it (FR12).

        Kafka 4.1 compares base offsets, and reads the last offset only of the batch before one that begins higher, and
        of the last: where offsets go back, the last batch below the target decides. This does the same.
        `in_step` it raises ReadGoesOn after `a_step` batches; the same call goes on from there.
        """
        before: Frame | None = None
        ways = self._waypoints
        greatest_offset, begun = ways.last_before(start, target_offset)
        passed = 0
        # Headers are read whole only where they decide: a search passes many batches.
        for frame in self._frames(begun, None, with_bodies=False):
            base_offset = frame[4]
            if base_offset >= target_offset:
                if base_offset > target_offset and before is not None:
                    batch = self._header_in(before)
                    if batch.last_offset >= target_offset:
                        return _place_of(batch)
                return _place_of(self._header_in(frame))
            if passed == a_step:
                passed = 0
                ways.note(start, max(greatest_offset, base_offset), frame[2])
                if in_step:
                    raise ReadGoesOn(f"{self._path}: a search over more than {a_step} batches")
            if base_offset > greatest_offset:
                greatest_offset = base_offset
            passed += 1
            before = frame
        if before is None:
            return None
        batch = self._header_in(before)
        return None if batch.last_offset < target_offset else _place_of(batch)

    def search_for_timestamp(
        self, target_timestamp: int, start: int = 0, start_offset: int = 0, most_bytes: int | None = None
    ) -> TimestampAndOffset | None:
        """The first record from byte `start` on with at least that timestamp and that offset (FR13).

        Raises ReadTakesLong for a batch of more than `most_bytes` to decode and, if that is given, after
        `HEADERS_A_STEP` batches.
        """
        for seen, header in enumerate(self._headers(start)):
            if most_bytes is not None and seen == HEADERS_A_STEP:
                raise ReadTakesLong(f"a search over more than {HEADERS_A_STEP} batches")
            if header.max_timestamp < target_timestamp:
                continue
            data = self.read_slice(header.position, header.size_bytes)
            for record in decoded(RecordBatch(data, 0, len(data), header.position), most_bytes):
                if record.timestamp >= target_timestamp and record.offset >= start_offset:
                    epoch = header.partition_leader_epoch
                    return TimestampAndOffset(
                        timestamp=record.timestamp,
                        offset=record.offset,
                        leader_epoch=epoch if epoch >= 0 else None,
                    )
        return None

    def find_max_timestamp(
        self, timestamp: int, start: int = 0, *, in_step: bool = False
    ) -> RecordBatch | None:
        """The first batch from byte `start` on whose greatest timestamp is `timestamp`.

        `in_step` it raises ReadTakesLong after `HEADERS_A_STEP` batches.
        """
        for seen, header in enumerate(self._headers(start)):
            if in_step and seen == HEADERS_A_STEP:
                raise ReadTakesLong(f"a search over more than {HEADERS_A_STEP} batches")
            if header.max_timestamp == timestamp:
                data = self.read_slice(header.position, header.size_bytes)
                return RecordBatch(data, 0, len(data), header.position)
        return None

    def first_batch(self) -> RecordBatch | None:
        """The first batch; None without one. Only its header may be read."""
        return next(self._headers(0), None)

    def last_batch(self, start: int = 0) -> RecordBatch | None:
        """The last batch from byte `start` on; None without one. Only its header may be read (FR16).

        It is found by a walk over all of them.
        """
        last = None
        # Only the last one counts.
        for last in self._headers(start):  # noqa: B007
            pass
        return last

    def largest_timestamp_after(self, start: int = 0) -> TimestampAndOffset:
        """The greatest batch timestamp from byte `start` on, with the earliest such batch's last offset.

        It is (-1, -1, None) when there is no batch (FR14).
        """
        return self.greatest_timestamp_in(start, self.size_bytes)[0]

    def greatest_timestamp_in(
        self, start: int, end: int, most_batches: int | None = None
    ) -> tuple[TimestampAndOffset, int]:
        """What `largest_timestamp_after` returns, of the batches in [start, end): all, or a slice of at most
        `most_batches`, which ends after `BYTES_A_SLICE`, too. Also returns where the next slice begins: `end` after
        the last one.
        """
        found = TimestampAndOffset(timestamp=-1, offset=-1, leader_epoch=None)
        seen = 0
        for batch in self._headers(start, end):
            if batch.max_timestamp > found.timestamp:
                epoch = batch.partition_leader_epoch
                found = TimestampAndOffset(
                    timestamp=batch.max_timestamp,
                    offset=batch.last_offset,
                    leader_epoch=epoch if epoch >= 0 else None,
                )
            seen += 1
            after = batch.position + batch.size_bytes
            if most_batches is not None and (seen == most_batches or after - start >= BYTES_A_SLICE):
                return found, after
        return found, end

    def truncate_to(self, target_size_bytes: int) -> int:
        """Cut the records to that size. Returns how many bytes of records were cut (FR5).

        The file is changed only if it is longer, so that an equal size does not change its modification time. Raises
        StorageError when the records are shorter.
        """
        assert not self._read_only, self._path
        original = self.size_bytes
        if not 0 <= target_size_bytes <= original:
            raise StorageError(f"{self._path}: cannot truncate {original} bytes to {target_size_bytes}")
        if target_size_bytes < self._file.size():
            # First the end, then the count, then the file: a reader that sees the count of now sees no byte above the
            # new end, and one that began earlier finds another count when it has read (`check_uncut`).
            self.size_bytes = target_size_bytes
            # A preallocated tail has no records: nobody reads it, or loses one with it.
            if target_size_bytes < original:
                self.cuts += 1
                self._waypoints = Waypoints()
            try:
                self._file.truncate(target_size_bytes)
            except OSError:
                self.size_bytes = original
                raise
        assert self.size_bytes <= target_size_bytes, (self._path, self.size_bytes, target_size_bytes)
        return original - target_size_bytes

    def check_uncut(self, cuts: int) -> None:
        """Raise TruncatedWhileRead if the records were cut since `cuts` was the value of the attribute `cuts`.

        A reader on another thread calls it before it uses what it has read, and before it believes an error: the
        places that it looked up may be inside other batches by now.
        """
        if cuts != self.cuts:
            raise TruncatedWhileRead(f"{self._path} was truncated while it was read")

    def trim(self) -> None:
        """Cut off a preallocated tail (FR6)."""
        self.truncate_to(self.size_bytes)

    def flush(self) -> None:
        self._file.sync()

    def has_only_zeros_from(self, position: int) -> bool:
        """Whether the file has zeros from `position` on, as one that was preallocated has while it is written."""
        while data := self._file.read_at(position, _ZEROS_BYTES):
            if data.count(0) < len(data):
                return False
            position += len(data)
        return True

    def map_for_reading(self) -> ReadMap:
        """Map the whole file, which must not be truncated while it is mapped. Raises ValueError when it is empty."""
        return self._file.map_for_reading()

    def rename_to(self, path: str) -> None:
        self._file.moves_to(path)
        self._file_system.rename(self._path, path)
        self._path = path

    def update_parent_directory(self, directory: str) -> None:
        """Take over the new name of the directory; only the remembered path changes."""
        self._path = join(directory, basename(self._path))
        self._file.moves_to(self._path)

    def set_modified(self, modified_ms: int) -> None:
        self._file_system.set_modified(self._path, modified_ms)

    def modified_ms(self) -> int:
        return self._file_system.stat(self._path).modified_ms

    def close(self) -> None:
        """Trim, sync and close; a read-only file is only closed (FR6).

        Kafka syncs before it trims. A power loss after an orderly stop could give the tail back then, and a clean start
        would take its zeros for records.
        """
        if not self._read_only:
            self.trim()
            self.flush()
        self._file.close()

    def rest(self) -> None:
        """Give the descriptor up until the next use, unless bytes wait for a sync."""
        self._file.rest()

    def close_handlers(self) -> None:
        """Close without sync or trim, as a crash would."""
        self._file.close()

    def delete_if_exists(self) -> bool:
        """Close and delete the file. Returns whether there was one."""
        self._file.close()
        try:
            self._file_system.unlink(self._path)
        except FileNotFoundError:
            return False
        return True

    def _headers(self, start: int, end: int | None = None) -> Iterator[RecordBatch]:
        """Views of which only the header may be read: the bodies of large batches are not read from the disk (FR9)."""
        for frame in self._frames(start, end, with_bodies=False):
            yield self._header_in(frame)

    def _header_in(self, frame: Frame) -> RecordBatch:
        """The view of one frame, of which only the header may be read."""
        block, at, position, size_bytes, _ = frame
        batch = RecordBatch(block, at, size_bytes, position)
        if size_bytes < HEADER_SIZE and batch.magic >= CURRENT_MAGIC:
            return self._with_full_header(batch)
        return batch

    def _with_full_header(self, batch: RecordBatch) -> RecordBatch:
        """Returns the batch with a full header of 61 bytes, although its size field says that it ends inside the
        header.

        That is damage, but Kafka reads 61 bytes: from them it decides where a log ends after an orderly stop, and its
        dump tool shows them.
        """
        assert batch.size_bytes < HEADER_SIZE, (self._path, batch.position, batch.size_bytes)
        header = self._file.read_at(batch.position, HEADER_SIZE)
        if len(header) < HEADER_SIZE:
            return batch
        read = RecordBatch(header, 0, HEADER_SIZE, batch.position)
        read.size_bytes = batch.size_bytes
        return read

    def _frames(self, start: int, end: int | None, *, with_bodies: bool) -> Iterator[Frame]:
        """Frame [start, end) by size fields (FR8)."""
        limit = self.size_bytes if end is None else end
        position, block, block_position, block_bytes = start, b"", start, FIRST_BLOCK_BYTES
        while position < limit - HEADER_SIZE_UP_TO_MAGIC:
            at = position - block_position
            present = len(block) - at
            needed = HEADER_SIZE_UP_TO_MAGIC
            if present >= HEADER_SIZE_UP_TO_MAGIC:
                base_offset, size_field = _FRAME.unpack_from(block, at)
                if size_field < MIN_SIZE_FIELD:
                    raise self._bad_size(position, size_field)
                size_bytes = LOG_OVERHEAD + size_field
                if size_bytes > limit - position:
                    return
                needed = size_bytes if with_bodies or size_bytes < HEADER_SIZE else HEADER_SIZE
                if present >= needed:
                    yield block, at, position, size_bytes, base_offset
                    position += size_bytes
                    continue
            block = self._file.read_at(position, min(max(block_bytes, needed), limit - position))
            if len(block) < needed:
                raise CorruptBatch(self._path, position, "unexpected end of the file")
            block_position = position
            if with_bodies:
                block_bytes = min(2 * block_bytes, BLOCK_BYTES)

    def _bad_size(self, position: int, size_field: int) -> CorruptBatch:
        reason = f"a size field of {size_field}, below the least of {MIN_SIZE_FIELD}"
        return CorruptBatch(self._path, position, reason)


def _place_of(batch: RecordBatch) -> LogOffsetPosition:
    return LogOffsetPosition(
        offset=batch.last_offset,
        position=batch.position,
        size_bytes=batch.size_bytes,
        base_offset=batch.base_offset,
    )


def decoded(batch: RecordBatch, most_bytes: int | None) -> Iterator[Record]:
    """The records of the batch, of a large one its beginnings.

    Raises ReadTakesLong if they have more than `most_bytes`.
    """
    if most_bytes is None:
        return batch.records(held=HEADS_HELD)
    if batch.size_bytes > most_bytes:
        raise ReadTakesLong(f"a batch of {batch.size_bytes} bytes")
    try:
        return batch.records(most_bytes, held=HEADS_HELD)
    except UnpacksTooFar as error:
        raise ReadTakesLong(f"a batch that unpacks to more than {most_bytes} bytes") from error
