"""Calls that may overlap (`storage/disk/filesystem.py`): readers on other threads and in another process, real disk."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.batch import iterate_batches
from storage.config import LogConfig
from storage.disk.filesystem import OpenMode
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import StorageError
from storage.index.lazy import lazy_offset_index
from storage.index.offset_index import OffsetIndex
from storage.index.time_index import TimeIndex
from storage.inspection.dump.dump import DumpOptions, dump_files
from storage.inspection.verify.partition import verify_partition
from storage.log import PartitionLog
from storage.segment import LogSegment
from storage.segment.segments import LogSegments
from tests.storage.logs import NOW_MS, batch

SMALL = LogConfig(segment_bytes=20_000, segment_index_bytes=4096, index_interval_bytes=200)
ROOT = str(Path(__file__).parents[3])


class Readers:
    """Threads that call `read` again and again. An error ends its thread and is kept."""

    def __init__(self, *reads: Callable[[], None]) -> None:
        self.errors: list[BaseException] = []
        self.counts = [0] * len(reads)
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number, read)) for number, read in enumerate(reads)
        ]

    def _run(self, number: int, read: Callable[[], None]) -> None:
        try:
            while not self._stop.is_set():
                read()
                self.counts[number] += 1
        except BaseException as error:
            self.errors.append(error)
            raise

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert self.errors == []
        assert all(self.counts), self.counts


@pytest.fixture(autouse=True)
def _switch_threads_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def for_seconds(seconds: float) -> Iterator[int]:
    end, round_number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        yield round_number
        round_number += 1


DURATIONS = [pytest.param(0.15), pytest.param(3.0, marks=pytest.mark.slow)]


@pytest.mark.parametrize("seconds", DURATIONS)
def test_ix12_lookups_beside_appends_resizes_and_truncations_see_whole_entries(
    tmp_path: Path, seconds: float
) -> None:
    """An entry's two columns belong together, whatever the writer does: offset o is at position 7 o, with the round."""
    index = OffsetIndex(OsFileSystem(), f"{tmp_path}/0.index", 0, max_index_size=8 * 2000)
    times = TimeIndex(OsFileSystem(), f"{tmp_path}/0.timeindex", 0, max_index_size=12 * 2000)
    index.append(1, 7 << 8)
    times.maybe_append(1, 1)

    def look_up() -> None:
        for target in (1, 50, 400, 1999):
            found = index.lookup(target)
            assert found.offset <= target and found.position >> 8 == 7 * found.offset, found

    def look_up_times() -> None:
        for target in (1, 50 << 8, 400 << 8, 1 << 40):
            found = times.lookup(target)
            assert found.timestamp in (1, -1) or found.timestamp >> 8 == found.offset, found

    with Readers(look_up, look_up_times, look_up):
        for round_number in for_seconds(seconds):
            tag = round_number & 0xFF
            for offset in range(2, 300):
                index.append(offset, (7 * offset) << 8 | tag)
                times.maybe_append(offset << 8 | tag, offset)
            for shared in (index, times):
                shared.trim_to_valid_size()
                shared.resize(8 * 3000)
                shared.truncate_to(2)
                shared.resize(8 * 2400)
    index.close()
    times.close()


@pytest.mark.parametrize("seconds", DURATIONS)
def test_reads_beside_appends_rolls_truncations_and_deletions_see_whole_batches(
    tmp_path: Path, seconds: float
) -> None:
    fs = OsFileSystem()
    log = PartitionLog.open(fs, f"{tmp_path}/topic-0", SMALL, clean=True, now_ms=NOW_MS)
    fill(log, 60)
    # The writer holds it while it truncates or deletes.
    standing_still = threading.Lock()

    def read() -> None:
        for segment in list(log.local.segments):
            try:
                assert_whole_batches_in(segment)
            except (OSError, ValueError, StorageError):
                # An error is allowed only while a segment is cut or deleted.
                with standing_still:
                    if segment in list(log.local.segments):
                        assert_whole_batches_in(segment)

    with Readers(read, read):
        for _ in for_seconds(seconds):
            fill(log, 40)
            log.flushes.flush()
            with standing_still:
                log.truncate_to(max(log.log_end_offset - 55, 0), now_ms=NOW_MS)
            fill(log, 20)
            with standing_still:
                log.truncate_to(100, now_ms=NOW_MS)
    log.close()


@pytest.mark.parametrize("seconds", DURATIONS)
def test_an_iteration_beside_rolls_and_deletions_sees_the_segments_that_stay(
    tmp_path: Path, seconds: float
) -> None:
    segments = LogSegments()
    for base in range(0, 240, 2):
        segments.add(LogSegment.open(OsFileSystem(), str(tmp_path), base, SMALL, now_ms=NOW_MS))
    stays = list(segments)
    comes = LogSegment.open(OsFileSystem(), str(tmp_path), 1, SMALL, now_ms=NOW_MS)

    def look() -> None:
        assert [each for each in segments if each is not comes] == stays

    with Readers(look, look):
        for _ in for_seconds(seconds):
            segments.add(comes)
            segments.remove(comes.base_offset)
    for segment in [*stays, comes]:
        segment.close()


def assert_whole_batches_in(segment: LogSegment) -> None:
    """Read from somewhere inside to the end, and check that each batch is whole and sound."""
    end = segment.size_bytes
    found = segment.read(segment.base_offset + 5, 5000, end)
    if found is None or not found.records:
        return
    offset = -1
    for each in iterate_batches(found.records):
        assert each.is_valid() or segment.size_bytes < end, each.base_offset
        if each.is_valid():
            assert each.base_offset > offset
            offset = each.base_offset


def fill(log: PartitionLog, batches: int) -> None:
    for _ in range(batches):
        data = batch(log.log_end_offset, 3, timestamp=NOW_MS + log.log_end_offset, value_bytes=40)
        log.append_as_follower(data, leader_epoch=0, now_ms=NOW_MS)


def test_kafka_9156_two_threads_that_ask_first_get_one_index(tmp_path: Path) -> None:
    for number in range(60):
        lazy = lazy_offset_index(OsFileSystem(), f"{tmp_path}/{number}.index", 0, max_index_size=80)
        found: list[OffsetIndex] = []
        barrier = threading.Barrier(4)

        def ask(
            found: list[OffsetIndex] = found, barrier: threading.Barrier = barrier, lazy: object = lazy
        ) -> None:
            barrier.wait()
            found.append(lazy.get())  # type: ignore[attr-defined]

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(each is lazy.get() for each in found) and len(found) == 4
        assert (lazy.get().entries, lazy.get().max_entries) == (0, 10)
        lazy.close()


def test_a_reader_that_comes_after_the_deletion_makes_no_file(tmp_path: Path) -> None:
    lazy = lazy_offset_index(OsFileSystem(), f"{tmp_path}/0.index", 0, max_index_size=80)
    assert not lazy.delete_if_exists()
    with pytest.raises(FileNotFoundError, match="deleted"):
        lazy.get()
    assert os.listdir(tmp_path) == []


def test_an_index_opened_for_reading_outlives_the_trim_of_its_owner(tmp_path: Path) -> None:
    """A read-only index uses no map: pages that a roll cuts off would end the reader's process."""
    index = OffsetIndex(OsFileSystem(), f"{tmp_path}/0.index", 0, max_index_size=1 << 20)
    index.append_all(range(1, 3000), range(1, 3000))
    other = OffsetIndex(OsFileSystem(), f"{tmp_path}/0.index", 0, read_only=True)
    index.truncate_to(2)
    index.close()
    assert os.stat(f"{tmp_path}/0.index").st_size == 8
    assert other.entry(2998) == (2999, 2999)
    assert other.entry((1 << 17) - 1) == (0, 0)
    other.close()


WRITER = """
import sys, time
from storage.disk.os_filesystem import OsFileSystem
from storage.log import PartitionLog
from tests.storage.segment.test_overlap import SMALL, fill, NOW_MS
log = PartitionLog.open(OsFileSystem(), sys.argv[1], SMALL, clean=True, now_ms=NOW_MS)
print("open", flush=True)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    fill(log, 70)
    log.truncate_to(max(log.log_end_offset - 45, 0), now_ms=NOW_MS)
    if log.log_end_offset > 3000:
        log.truncate_to(30, now_ms=NOW_MS)
log.close()
"""


@pytest.mark.slow
def test_a_second_process_dumps_verifies_and_reads_a_live_directory(tmp_path: Path) -> None:
    directory = f"{tmp_path}/topic-0"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, directory, "4"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "open\n"
        rounds = 0
        while writer.poll() is None:
            rounds += 1
            # A segment was deleted after the directory was listed.
            with contextlib.suppress(FileNotFoundError):
                assert verify_partition(OsFileSystem(), directory, deep=True).segments > 0
            for name in os.listdir(directory):
                if name.endswith(("log", "index")):
                    dump_one(f"{directory}/{name}")
        assert writer.wait() == 0
    assert rounds > 2
    assert verify_partition(OsFileSystem(), directory, deep=True).problems == []


def dump_one(path: str) -> None:
    """Dump one file. It may vanish or end inside a batch meanwhile; that is reported in a line and does no harm."""
    lines: list[str] = []
    options = DumpOptions(print_data_log=True, deep_iteration=True)
    dump_files(OsFileSystem(), [path], options, write=lines.append, report=lines.append)
    assert lines


def test_a_map_of_a_live_index_shows_what_its_writer_appends(tmp_path: Path) -> None:
    fs = OsFileSystem()
    index = OffsetIndex(fs, f"{tmp_path}/0.index", 0, max_index_size=800)
    file = fs.open(f"{tmp_path}/0.index", OpenMode.READ)
    mapped = file.map_for_reading()
    index.append(3, 9)
    assert bytes(mapped.view[:8]) == b"\0\0\0\3\0\0\0\t"
    mapped.close()
    file.close()
    index.close()
