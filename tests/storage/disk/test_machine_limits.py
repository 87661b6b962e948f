"""Limits of the machine, each with one clear line: open files, maps, space, a read-only file system."""

from __future__ import annotations

import errno
import gc
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from storage.disk.filesystem import OpenMode
from storage.disk.handle_pool import HandlePool
from storage.disk.machine_limits import handle_limit_of, named_error
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import StorageError
from storage.index.offset_index import OffsetIndex
from storage.log import PartitionLog
from tests.storage.logs import NOW_MS, SMALL, append_each, new_disk, new_file_system, open_log, read_offsets

ROOT = str(Path(__file__).parents[3])


@contextmanager
def open_files_limited_to(count: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_too_many_open_files_names_the_count_and_the_setting(tmp_path: Path) -> None:
    used = len(os.listdir("/proc/self/fd"))
    held = []
    expected = pytest.raises(OSError, match=r"files open of \d+ it may.*ulimit -n")
    with open_files_limited_to(used + 4):
        for number in range(3):
            held.append(OsFileSystem().open(f"{tmp_path}/{number}", OpenMode.CREATE))
        # Numbers below the limit may be free, which other tests have used and closed.
        with expected as raised:
            for number in range(used + 9):
                held.append(OsFileSystem().open(f"{tmp_path}/{number}", OpenMode.CREATE))
    for file in held:
        file.close()
    assert raised.value.errno == errno.EMFILE
    assert str(tmp_path) in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("descriptors", "handles"),
    [
        (None, 30_000),
        (0, 1),
        (1, 1),
        (2, 1),
        (4, 2),
        (1024, 512),
        (59_999, 29_999),
        (60_000, 30_000),
        (10**6, 30_000),
    ],
)
def test_the_handles_of_segments_get_half_of_the_descriptors_up_to_30000_and_one_at_least(
    descriptors: int | None, handles: int
) -> None:
    assert handle_limit_of(descriptors) == handles


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EMFILE, r"this process has \d+ files open of \d+ it may, raise `ulimit -n`"),
        (errno.ENFILE, "the machine has as many files open as it may, raise fs.file-max"),
        (errno.ENOMEM, r"this process has [1-9]\d* maps of \d+ it may, raise vm.max_map_count"),
        (errno.ENXIO, "expected a regular file"),
    ],
)
def test_an_exhausted_limit_is_named_with_its_use_and_the_setting(number: int, said: str) -> None:
    error = named_error(OSError(number, os.strerror(number)), "some/path")
    assert (error.errno, error.filename) == (number, "some/path")
    assert re.search(said, str(error)), error


def test_an_error_of_no_limit_has_the_file_added_and_nothing_else() -> None:
    assert str(named_error(OSError(errno.EIO, "broken"), "p")) == "[Errno 5] broken: 'p'"
    assert str(named_error(OSError(), "p")) == f"[Errno 5] {os.strerror(errno.EIO)}: 'p'"


@pytest.mark.parametrize("keeps_access_times", [False, True])
def test_a_directory_that_cannot_be_listed_for_want_of_files_names_the_setting(
    tmp_path: Path, keeps_access_times: bool
) -> None:
    file_system = OsFileSystem(keeps_access_times=keeps_access_times)
    with open_files_limited_to(3), pytest.raises(OSError, match="ulimit -n") as raised:
        file_system.list(str(tmp_path))
    assert str(tmp_path) in str(raised.value)


def test_a_log_with_more_segments_than_the_process_may_open_files_opens_and_is_read(tmp_path: Path) -> None:
    directory = f"{tmp_path}/topic-0"
    log = PartitionLog.open(OsFileSystem(), directory, SMALL, clean=True, now_ms=NOW_MS)
    append_each(log, 60, value_bytes=100)
    assert len(log.local.segments) > 3
    log.close()
    # A file that an earlier test has left open must not be closed meanwhile.
    gc.collect()
    used = len(os.listdir("/proc/self/fd"))
    # The pool of handles does not know how few there are.
    with open_files_limited_to(used + 4):
        log = PartitionLog.open(OsFileSystem(), directory, SMALL, clean=False, now_ms=NOW_MS)
        assert read_offsets(log) == list(range(60))
        append_each(log, 60, value_bytes=100)
        log.close()
    assert len(os.listdir("/proc/self/fd")) == used


def test_a_log_that_finds_no_free_file_says_so_and_opens_afterwards(tmp_path: Path) -> None:
    directory = f"{tmp_path}/topic-0"
    log = PartitionLog.open(OsFileSystem(), directory, SMALL, clean=True, now_ms=NOW_MS)
    append_each(log, 60, value_bytes=100)
    log.close()
    used = len(os.listdir("/proc/self/fd"))
    with open_files_limited_to(3), pytest.raises(StorageError, match="ulimit -n"):
        PartitionLog.open(OsFileSystem(), directory, SMALL, clean=False, now_ms=NOW_MS)
    # Nothing of it stays open.
    assert len(os.listdir("/proc/self/fd")) == used
    log = PartitionLog.open(OsFileSystem(), directory, SMALL, clean=False, now_ms=NOW_MS)
    assert read_offsets(log) == list(range(60))
    log.close()


REFUSED_MAP = """
import resource, sys
from storage.disk.filesystem import OpenMode
from storage.disk.os_filesystem import OsFileSystem
file = OsFileSystem().open(sys.argv[1], OpenMode.CREATE)
file.set_length(1 << 33)
resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))
try:
    file.map_for_reading()
except OSError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_refused_map_names_the_count_and_the_setting(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", REFUSED_MAP, f"{tmp_path}/f"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    assert "maps of" in line and "vm.max_map_count" in line and f"{tmp_path}/f" in line


def test_an_index_whose_map_is_refused_is_readable_later_and_leaks_no_file(tmp_path: Path) -> None:
    """The file cannot be opened a second time, so the map is refused: mmap keeps a descriptor of its own."""
    index = OffsetIndex(OsFileSystem(), f"{tmp_path}/0.index", 0, max_index_size=800)
    index.append(5, 50)
    used = len(os.listdir("/proc/self/fd"))
    with open_files_limited_to(3), pytest.raises(OSError, match="ulimit -n"):
        index.lookup(9)
    assert index.lookup(9) == (5, 50)
    index.close_handler()
    assert len(os.listdir("/proc/self/fd")) == used - 1


def test_a_full_disk_while_an_index_grows_leaves_its_entries_readable() -> None:
    disk = new_disk()
    index = OffsetIndex(new_file_system(disk), "0.index", 0, max_index_size=80)
    index.append(5, 50)
    disk.fail(1, errno.ENOSPC, verbs={"set_length"})
    with pytest.raises(OSError, match=r"No space left on device: '0\.index'"):
        index.resize(800)
    assert (index.lookup(9), index.length_bytes) == ((5, 50), 80)
    assert index.resize(800)


def test_a_full_disk_at_the_first_index_of_a_log_is_one_error_and_nothing_is_lost() -> None:
    disk = new_disk()
    fs = new_file_system(disk)
    log = open_log(fs)
    append_each(log, 4)
    disk.fail(1, errno.ENOSPC, verbs={"set_length"})
    with pytest.raises(StorageError, match=r"roll failed.*No space left on device"):
        log.flushes.roll(now_ms=NOW_MS)
    assert log.online.reason is not None
    log.close_handles()
    assert read_offsets(open_log(fs)) == [0, 1, 2, 3]


def test_an_index_that_cannot_hold_its_file_is_no_index(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(OSError, match=f"Not a directory: '{tmp_path}/f/0.index'"):
        OffsetIndex(OsFileSystem(), f"{tmp_path}/f/0.index", 0, max_index_size=800)


@pytest.mark.parametrize("verb", ["read_at", "write_at", "set_length", "sync", "size", "map_for_reading"])
def test_every_error_of_a_descriptor_names_its_file(tmp_path: Path, verb: str) -> None:
    file = OsFileSystem().open(f"{tmp_path}/f", OpenMode.CREATE)
    file.append(b"x")
    file.close()
    arguments = {"read_at": (0, 1), "write_at": (0, b"y"), "set_length": (5,)}.get(verb, ())
    with pytest.raises(OSError, match=f"Bad file descriptor: '{tmp_path}/f'"):
        getattr(file, verb)(*arguments)


READ_ONLY = """
import sys
from storage.config import LogConfig
from storage.inspection.dump.dump import DumpOptions, DumpStatus, dump_files
from storage.errors import StorageError
from storage.log import PartitionLog
from storage.disk.os_filesystem import OsFileSystem
from storage.inspection.verify.partition import verify_partition
fs, directory = OsFileSystem(), sys.argv[1]
assert verify_partition(fs, directory, deep=True).problems == []
paths = [f"{directory}/{name}" for name in fs.list(directory)]
lines = []
for path in paths:
    if path.endswith((".log", "index", ".snapshot")):
        status = dump_files(fs, [path], DumpOptions(print_data_log=True), write=lines.append, report=lines.append)
        assert status is DumpStatus.SOUND, (path, lines)
assert len(lines) > 60
try:
    PartitionLog.open(fs, directory, LogConfig(), clean=True, now_ms=0)
except StorageError as error:
    assert "\\n" not in str(error)
    print(error)
"""


@pytest.mark.slow
def test_dump_and_verify_work_on_a_read_only_mount_and_a_log_does_not_open(tmp_path: Path) -> None:
    directory = f"{tmp_path}/data/topic-0"
    os.makedirs(f"{tmp_path}/mounted")
    log = PartitionLog.open(OsFileSystem(), directory, SMALL, clean=True, now_ms=NOW_MS)
    append_each(log, 60, value_bytes=100)
    log.close()
    mounts = f"mount --bind {tmp_path}/data {tmp_path}/mounted && mount -o remount,ro,bind {tmp_path}/mounted"
    own_mounts = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-r", "-m"]
    probe = subprocess.run([*own_mounts, "sh", "-c", mounts], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"a mount of one's own is not allowed here: {probe.stderr.strip()}")
    done = subprocess.run(
        [*own_mounts, "sh", "-c", f'{mounts} && exec "$0" -c "$1" {tmp_path}/mounted/topic-0',
         sys.executable, READ_ONLY],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1 and "Read-only file system" in done.stdout


def test_descriptors_that_can_be_had_are_left_as_they_were(tmp_path: Path) -> None:
    file_system = OsFileSystem(handles=HandlePool(100))
    file = file_system.open(f"{tmp_path}/idle", OpenMode.CREATE, can_rest=True)
    used = len(os.listdir("/proc/self/fd"))
    with file_system.reserved(20):
        pass
    assert len(os.listdir("/proc/self/fd")) == used
    with (
        open_files_limited_to(3),
        pytest.raises(OSError, match="ulimit -n") as raised,
        file_system.reserved(1),
    ):
        pytest.fail("there is none to reserve")
    assert raised.value.errno == errno.EMFILE
    # The idle file has made room in vain.
    assert file not in file_system.handles
    file.close()


def test_descriptors_that_idle_files_hold_can_be_had(tmp_path: Path) -> None:
    file_system = OsFileSystem(handles=HandlePool(100))
    files = [file_system.open(f"{tmp_path}/{number}", OpenMode.CREATE, can_rest=True) for number in range(9)]
    descriptors = [os.open(os.devnull, os.O_RDONLY)]
    # All numbers below the limit are in use.
    with open_files_limited_to(descriptors[0] + 1):
        while True:
            try:
                descriptors.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        with file_system.reserved(9):
            pass
        with pytest.raises(OSError, match="ulimit -n"), file_system.reserved(10):
            pytest.fail("there are only nine")
    for descriptor in descriptors:
        os.close(descriptor)
    for file in files:
        file.close()


def take_all(others: list[int]) -> None:
    with suppress(OSError):
        while True:
            others.append(os.open(os.devnull, os.O_RDONLY))


def test_reserved_descriptors_are_there_for_the_block_and_for_its_thread_alone(tmp_path: Path) -> None:
    file_system = OsFileSystem()
    others: list[int] = []
    with open_files_limited_to(len(os.listdir("/proc/self/fd")) + 20):
        with file_system.reserved(2):
            take_all(others)
            with ThreadPoolExecutor(1) as other, pytest.raises(OSError):
                other.submit(file_system.sync_directory, str(tmp_path)).result()
            # Its descriptor goes back to the reserve each time.
            for _ in range(5):
                file_system.sync_directory(str(tmp_path))
            first, second = (
                file_system.open(f"{tmp_path}/{name}", OpenMode.CREATE) for name in ("first", "second")
            )
            with pytest.raises(OSError):
                file_system.sync_directory(str(tmp_path))
            first.close()
            second.close()
        for each in others:
            os.close(each)
