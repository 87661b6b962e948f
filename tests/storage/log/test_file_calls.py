"""The calls that a log makes on its files: a `.log` file only grows at its end, is cut, renamed or deleted."""

from __future__ import annotations

from contextlib import AbstractContextManager

from storage.codec.buffer import Buffer
from storage.config import LogConfig
from storage.disk.filesystem import File, FileStat, FileSystem, Lock, OpenMode, ReadMap
from storage.disk.handle_pool import HandlePool
from storage.log import PartitionLog
from tests.storage.logs import DIRECTORY, NOW_MS, SIZE, append_each, batch, marker, new_file_system, produced

# Verb, path, position or size, bytes.
Call = tuple[str, str, int, int]
Calls = list[Call]
Names = list[str]


class RecordedFile:
    """A file that notes the calls that change it. `position` of an append is the end of the file before it."""

    def __init__(self, file: File, calls: Calls) -> None:
        self._file, self._calls = file, calls

    @property
    def path(self) -> str:
        return self._file.path

    def size(self) -> int:
        return self._file.size()

    def read_at(self, position: int, size: int) -> bytes:
        return self._file.read_at(position, size)

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self._file.read_into(position, buffer)

    def write_at(self, position: int, data: Buffer) -> None:
        kind = "append" if position == self._file.size() else "overwrite"
        self._calls.append((kind, self.path, position, len(data)))
        self._file.write_at(position, data)

    def append(self, data: Buffer) -> None:
        self._calls.append(("append", self.path, self._file.size(), len(data)))
        self._file.append(data)

    def truncate(self, size: int) -> None:
        self._calls.append(("truncate", self.path, size, 0))
        self._file.truncate(size)

    def set_length(self, size: int) -> None:
        self._calls.append(("set_length", self.path, size, 0))
        self._file.set_length(size)

    def sync(self) -> None:
        self._file.sync()

    def map_for_reading(self) -> ReadMap:
        return self._file.map_for_reading()

    def moves_to(self, path: str) -> None:
        self._file.moves_to(path)

    def rest(self) -> None:
        self._file.rest()

    def close(self) -> None:
        self._file.close()


class RecordingFileSystem:
    """A file system that notes in `calls` what changes its files."""

    def __init__(self, file_system: FileSystem) -> None:
        self._file_system = file_system
        self.calls: Calls = []

    @property
    def handles(self) -> HandlePool:
        return self._file_system.handles

    def reserved(self, count: int) -> AbstractContextManager[None]:
        return self._file_system.reserved(count)

    def open(self, path: str, mode: OpenMode, *, can_rest: bool = False) -> File:
        return RecordedFile(self._file_system.open(path, mode, can_rest=can_rest), self.calls)

    def exists(self, path: str) -> bool:
        return self._file_system.exists(path)

    def stat(self, path: str) -> FileStat:
        return self._file_system.stat(path)

    def list(self, path: str) -> Names:
        return self._file_system.list(path)

    def canonical(self, path: str) -> str:
        return self._file_system.canonical(path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        self.calls.append(("set_modified", path, modified_ms, 0))
        self._file_system.set_modified(path, modified_ms)

    def rename(self, old: str, new: str) -> None:
        self.calls.append(("rename", old, 0, 0))
        self._file_system.rename(old, new)

    def unlink(self, path: str) -> None:
        self.calls.append(("unlink", path, 0, 0))
        self._file_system.unlink(path)

    def make_directory(self, path: str) -> None:
        self._file_system.make_directory(path)

    def remove_directory(self, path: str) -> None:
        self._file_system.remove_directory(path)

    def lock(self, path: str) -> Lock:
        return self._file_system.lock(path)

    def sync_directory(self, path: str) -> None:
        self._file_system.sync_directory(path)

    def of_logs(self) -> Calls:
        """Return the calls on `.log` files, with any suffix after that."""
        return [call for call in self.calls if ".log" in call[1].rsplit("/", 1)[-1]]


def open_recorded(
    file_system: RecordingFileSystem, config: LogConfig, *, clean: bool = False
) -> PartitionLog:
    return PartitionLog.open(file_system, DIRECTORY, config, clean=clean, now_ms=NOW_MS)


def test_one_append_is_one_append_of_the_port_for_the_whole_set_of_batches() -> None:
    file_system = RecordingFileSystem(new_file_system())
    log = open_recorded(file_system, LogConfig(segment_index_bytes=1200, index_interval_bytes=0))
    data = b"".join(batch(offset, timestamp=NOW_MS + offset) for offset in range(20))
    file_system.calls.clear()
    log.append_as_follower(data, leader_epoch=0, now_ms=NOW_MS)
    assert file_system.of_logs() == [("append", f"{DIRECTORY}/{0:020d}.log", 0, len(data))]
    file_system.calls.clear()
    log.append_as_leader(produced(7), leader_epoch=0, now_ms=NOW_MS)
    assert [call[0] for call in file_system.of_logs()] == ["append"]


def test_log_files_are_only_appended_to_truncated_renamed_or_deleted() -> None:
    """Every verb of a log runs: appends, transactions, rolls, reads, truncations, retention, recovery, close."""
    inner = new_file_system()
    file_system = RecordingFileSystem(inner)
    config = LogConfig(
        segment_bytes=4 * SIZE, segment_index_bytes=1200, index_interval_bytes=SIZE, retention_bytes=8 * SIZE
    )
    log = open_recorded(file_system, config)
    append_each(log, 20)
    log.append_as_follower(batch(25) + batch(27), leader_epoch=0, now_ms=NOW_MS)
    begun = batch(28, producer_id=1, producer_epoch=0, sequence=0, is_transactional=True)
    ended = marker(1, is_commit=False, offset=29, epoch=0)
    log.append_as_follower(begun + ended, leader_epoch=0, now_ms=NOW_MS)
    log.flushes.roll(now_ms=NOW_MS)
    log.flushes.roll(now_ms=NOW_MS)
    log.flushes.flush()
    log.truncate_to(26, now_ms=NOW_MS)
    log.marks.update_high_watermark(26)
    log.retention.delete_old(NOW_MS)
    log.reads.offset_for_timestamp(NOW_MS)
    log.close_handles()
    log = open_recorded(file_system, config)
    append_each(log, 3)
    log.close()
    path = f"{DIRECTORY}/{log.local.segments.base_offsets[-1]:020d}.log"
    torn = inner.open(path, OpenMode.WRITE)
    torn.append(b"torn")
    torn.close()
    log = open_recorded(file_system, config)
    log.truncation.truncate_fully_and_start_at(100, now_ms=NOW_MS)
    append_each(log, 2)
    log.close()
    log.delete()
    verbs = {call[0] for call in file_system.of_logs()}
    assert verbs == {"append", "truncate", "rename", "unlink"}
    cuts = [call for call in file_system.of_logs() if call[0] == "truncate"]
    assert len(cuts) >= 2 and all(size >= 0 for _, _, size, _ in cuts)


def test_a_preallocated_log_is_written_from_its_start_on() -> None:
    """A preallocated file has its length before its bytes. The writes follow each other all the same."""
    file_system = RecordingFileSystem(new_file_system())
    config = LogConfig(segment_bytes=1 << 20, segment_index_bytes=1200, preallocate=True)
    log = open_recorded(file_system, config)
    append_each(log, 5)
    writes = [call for call in file_system.of_logs() if call[0] in ("append", "overwrite")]
    assert [position for _, _, position, _ in writes] == [index * SIZE for index in range(5)]
    log.close()
    log_file = f"{DIRECTORY}/{0:020d}.log"
    assert [call for call in file_system.of_logs() if call[0] != "overwrite"] == [
        ("set_length", log_file, 1 << 20, 0),
        ("truncate", log_file, 5 * SIZE, 0),
    ]
