"""The file that saves the producers' state at an offset, so that a start need not read the whole log.

| byte | size | field |
| --- | --- | --- |
| 0 | 2 | version, 1 |
| 2 | 4 | CRC-32C of the bytes from 6 to the end |
| 6 | 4 | number of entries |
| 10 | 46 each | the entries |

An entry: producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32,
timestamp int64, coordinator epoch int32, first offset of the open transaction int64; -1 where there is none.

Only the last of the up to five batches in memory is saved. The digits of the name, `<20 digits>.snapshot`, are the
offset, exclusive, up to which the state includes the log's batches. Entries are written by ascending producer id. Kafka
writes them in the order of its hash map (T10); no reader relies on any order. Kafka:
ProducerStateManager.writeSnapshot, ProducerSnapshot.json.
"""

from __future__ import annotations

import re
import struct
from contextlib import closing

from storage.codec.crc32c import crc32c, crc32c_from
from storage.disk.filesystem import File, FileSystem, OpenMode, join
from storage.errors import CorruptSnapshot

SNAPSHOT_SUFFIX = ".snapshot"
SNAPSHOT_VERSION = 1

ENTRY_BYTES = 46
_FRAME = struct.Struct(">hIi")
_COUNT = struct.Struct(">i")
_CRC_COVERS_FROM = 6
# Above this size the count of entries is compared with the size before anything else is read.
_LARGE_BYTES = 1 << 20
# Above this size the checksum is computed in blocks before the file is read whole.
_HUGE_BYTES = 1 << 26
_BLOCK_BYTES = 1 << 20
# Kafka reads the file into one array, so it loads none that is larger.
_MOST_BYTES = 2**31 - 1
_NAME = re.compile(r"([0-9]{20,})\.snapshot", re.ASCII)
assert _FRAME.size == 10, _FRAME.size


def snapshot_name(offset: int) -> str:
    assert offset >= 0, offset
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


def snapshot_offset(name: str) -> int | None:
    """The offset in a snapshot's name; None for any other name (Kafka fails on one that is no number)."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])


def list_snapshots(file_system: FileSystem, directory: str) -> list[int]:
    """The offsets of the snapshots in `directory`, ascending."""
    offsets = (snapshot_offset(name) for name in file_system.list(directory))
    return sorted(offset for offset in offsets if offset is not None)


def frame_entries(entries: bytes | bytearray) -> bytes:
    """The file's bytes around those of its entries."""
    count = len(entries) // ENTRY_BYTES
    assert len(entries) == count * ENTRY_BYTES, len(entries)
    checksum = crc32c_from(crc32c(_COUNT.pack(count)), entries)
    return _FRAME.pack(SNAPSHOT_VERSION, checksum, count) + entries


def entries_in(content: bytes, path: str) -> memoryview:
    """The bytes of the entries of a sound file. Raises CorruptSnapshot."""
    if len(content) < _FRAME.size:
        raise CorruptSnapshot(
            f"{path}: {len(content)} bytes are too few, a snapshot has at least {_FRAME.size}"
        )
    version, crc, count = _FRAME.unpack_from(content)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"{path}: version {version} is unknown, expected {SNAPSHOT_VERSION}")
    computed = crc32c(memoryview(content)[_CRC_COVERS_FROM:])
    if computed != crc:
        raise _wrong_checksum(path, crc, computed)
    if len(content) != _FRAME.size + count * ENTRY_BYTES:
        raise CorruptSnapshot(f"{path}: {len(content)} bytes do not hold exactly {count} entries")
    return memoryview(content)[_FRAME.size :]


def read_content(file_system: FileSystem, path: str) -> bytes:
    """Read the whole file; one that is large only if it is a sound snapshot. Raises CorruptSnapshot, OSError."""
    with closing(file_system.open(path, OpenMode.READ)) as file:
        size_bytes = file.size()
        # What has no sound content, a sparse giant for example, must not be read whole.
        if size_bytes > _LARGE_BYTES:
            _check_large(file, path, size_bytes)
        return file.read_at(0, size_bytes)


def _check_large(file: File, path: str, size_bytes: int) -> None:
    """Check what a few bytes show of a large file, and the checksum of a huge one. Raises CorruptSnapshot, OSError."""
    if size_bytes > _MOST_BYTES:
        raise CorruptSnapshot(
            f"{path}: {size_bytes} bytes are too many, a snapshot has at most {_MOST_BYTES}"
        )
    header = file.read_at(0, _FRAME.size)
    if len(header) < _FRAME.size:
        raise CorruptSnapshot(f"{path}: became shorter than {_FRAME.size} bytes while it was read")
    version, crc, count = _FRAME.unpack(header)
    if version != SNAPSHOT_VERSION or size_bytes != _FRAME.size + count * ENTRY_BYTES:
        raise CorruptSnapshot(
            f"{path}: {size_bytes} bytes do not hold exactly {count} entries of version {SNAPSHOT_VERSION}"
        )
    if size_bytes > _HUGE_BYTES:
        computed = _checksum_in_blocks(file, size_bytes)
        if computed != crc:
            raise _wrong_checksum(path, crc, computed)


def _checksum_in_blocks(file: File, size_bytes: int) -> int:
    computed = crc32c(b"")
    for position in range(_CRC_COVERS_FROM, size_bytes, _BLOCK_BYTES):
        computed = crc32c_from(computed, file.read_at(position, min(_BLOCK_BYTES, size_bytes - position)))
    return computed


def _wrong_checksum(path: str, stored: int, computed: int) -> CorruptSnapshot:
    return CorruptSnapshot(f"{path}: the checksum does not match (stored {stored}, computed {computed})")


def write_snapshot(
    file_system: FileSystem,
    directory: str,
    offset: int,
    entries: bytes | bytearray,
    *,
    sync: bool,
) -> str:
    """Write the snapshot at `offset`, which has the bytes of these entries, in place. Returns its path.

    A crash or an OSError in the middle leaves a file that does not load. Unlike Kafka (T11) a longer file of the same
    name is emptied first: its tail would break the checksum.
    """
    path = join(directory, snapshot_name(offset))
    write_content(file_system, path, frame_entries(entries), sync=sync)
    return path


def write_content(file_system: FileSystem, path: str, content: bytes, *, sync: bool) -> None:
    """Write the file's bytes in place, as `write_snapshot` does."""
    file = file_system.open(path, OpenMode.CREATE)
    try:
        if file.size() > len(content):
            file.set_length(0)
        file.write_at(0, content)
        if sync:
            file.sync()
    finally:
        file.close()
