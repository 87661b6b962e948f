"""The handles that are closed when there are too many, and the bytes in them that wait for a sync."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from threading import Thread

import pytest

from sim.disk import SimFileSystem
from sim.disk.life import Life
from storage.disk.filesystem import File, OpenMode
from storage.disk.handle_pool import MOST_PASSED_OVER, HandlePool
from storage.disk.os_filesystem import OsFile, OsFileSystem
from storage.errors import StorageError
from storage.index.offset_index import OffsetIndex
from tests.storage.logs import NOW_MS, SMALL, append_each, new_disk, open_log, read_offsets


def limited(limit: int) -> SimFileSystem:
    return new_disk().file_system(Life(), HandlePool(limit))


def opened(fs: SimFileSystem, *names: str) -> list[File]:
    """Create files, synced and with one byte each; none is open afterwards."""
    files: list[File] = []
    for name in names:
        file = fs.open(name, OpenMode.CREATE, can_rest=True)
        file.append(b"x")
        file.sync()
        file.rest()
        files.append(file)
    assert len(fs.handles) == 0
    return files


def held(fs: SimFileSystem, files: list[File]) -> list[str]:
    return [file.path for file in files if file in fs.handles]


def test_the_handle_that_was_not_used_for_longest_is_closed() -> None:
    fs = limited(3)
    a, b, c, d = files = opened(fs, "a", "b", "c", "d")
    for file in (a, b, c):
        file.size()
    assert fs.handles.make_room(1) == 1
    assert held(fs, files) == ["b", "c"]
    b.size()
    a.size()
    d.size()
    assert held(fs, files) == ["a", "b", "d"]


def test_a_handle_that_is_used_often_stays_open() -> None:
    fs = limited(2)
    often, *others = opened(fs, "often", *map(str, range(20)))
    often.size()
    for each in others:
        each.size()
        often.size()
        assert held(fs, [often, each]) == ["often", str(each.path)]


def test_an_index_that_is_looked_up_often_stays_mapped() -> None:
    fs = limited(20)
    often, *others = [OffsetIndex(fs, f"{number}.index", 0, max_index_size=800) for number in range(4)]
    for index in (often, *others):
        index.append(5, 50)
    fs.handles.make_room(20)
    for index in others:
        assert often.lookup(9) == index.lookup(9) == (5, 50)
        index.is_used = False
        assert fs.handles.make_room(1) == 1
        assert often in fs.handles and index not in fs.handles


def test_the_handle_that_is_opened_now_stays_open_whatever_the_limit_is() -> None:
    fs = limited(1)
    files = opened(fs, "a", "b")
    for _ in range(3):
        for file in files:
            assert file.read_at(0, 1) == b"x"
            assert held(fs, files) == [file.path]


def test_a_handle_without_bytes_to_sync_is_closed_first() -> None:
    fs = limited(10)
    dirty, clean = files = opened(fs, "dirty", "clean")
    dirty.append(b"y")
    clean.size()
    for file in files:
        file.is_used = False  # type: ignore[attr-defined]
    assert fs.handles.make_room(1) == 1
    assert held(fs, files) == ["dirty"]


def test_the_search_for_one_without_bytes_to_sync_ends_after_some() -> None:
    """It would otherwise visit ten thousand segments that are written, for each file that is opened."""
    fs = limited(1000)
    files = opened(fs, *map(str, range(MOST_PASSED_OVER)), "clean")
    for file in files[:-1]:
        file.append(b"y")
    files[-1].size()
    for file in files:
        file.is_used = False  # type: ignore[attr-defined]
    assert fs.handles.make_room(1) == 1
    assert held(fs, [files[0], files[-1]]) == ["clean"]


def test_bytes_are_on_disk_before_their_handle_is_closed() -> None:
    disk = new_disk()
    fs = disk.file_system(Life(), HandlePool(1))
    first, second = (fs.open(name, OpenMode.CREATE, can_rest=True) for name in ("a", "b"))
    fs.sync_directory("")
    first.append(b"written")
    second.append(b"not synced")
    disk.lose_power("none")
    again = disk.file_system(Life())
    assert again.stat("a").size_bytes == len(b"written")
    assert again.stat("b").size_bytes == 0


def test_a_sync_that_fails_for_want_of_room_is_the_error_of_its_own_file() -> None:
    """The kernel reports it once: a second sync would say that the bytes are on disk."""
    disk = new_disk()
    fs = disk.file_system(Life(), HandlePool(1))
    failing, other = (fs.open(name, OpenMode.CREATE, can_rest=True) for name in ("failing", "other"))
    failing.append(b"lost")
    disk.fail(1, verbs={"sync"}, path_suffix="failing")
    other.append(b"kept")
    for _ in range(2):
        with pytest.raises(OSError) as raised:
            failing.sync()
        assert raised.value.errno == errno.EIO
    other.sync()


def test_the_log_whose_sync_failed_goes_offline_and_not_the_log_that_needed_the_room() -> None:
    disk = new_disk()
    fs = disk.file_system(Life(), HandlePool(1))
    failing, other = open_log(fs), open_log(fs, directory="logs/other-0")
    append_each(failing, 1)
    disk.fail(1, verbs={"sync"}, path_suffix=failing.local.segments.active.path)
    append_each(other, 5)
    assert other.online.reason is None
    other.flushes.flush()
    with pytest.raises(StorageError, match="flush failed"):
        failing.flushes.flush()
    assert failing.online.reason is not None


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_a_log_does_all_of_its_work_with_few_handles(limit: int) -> None:
    disk = new_disk()
    fs = disk.file_system(Life(), HandlePool(limit))
    log = open_log(fs)
    append_each(log, 100, value_bytes=50)
    assert len(log.local.segments) > 5
    assert read_offsets(log) == list(range(100))
    assert [log.reads.offset_for_timestamp(NOW_MS + n) is None for n in (0, 100)] == [False, True]
    log.truncate_to(70, now_ms=NOW_MS)
    append_each(log, 5)
    assert read_offsets(log) == list(range(75))
    assert len(fs.handles) <= limit
    log.close()
    assert len(fs.handles) == 0
    assert read_offsets(open_log(fs, clean=True)) == list(range(75))


def test_a_closed_map_is_made_again_by_the_next_look_up() -> None:
    fs = limited(8)
    index = OffsetIndex(fs, "0.index", 0, max_index_size=800)
    index.append(5, 50)
    index.flush()
    for _ in range(2):
        assert index.lookup(9) == (5, 50)
        assert index in fs.handles
        fs.handles.make_room(2)
        assert len(fs.handles) == 0
    index.append(6, 60)
    assert index.lookup(9) == (6, 60)
    index.close_handler()
    with pytest.raises(ValueError, match="is closed"):
        index.lookup(9)


def test_a_map_that_is_being_changed_is_not_closed() -> None:
    fs = limited(8)
    index = OffsetIndex(fs, "0.index", 0, max_index_size=800)
    index.append(5, 50)
    assert index.lookup(9) == (5, 50)
    with index._mapping:
        assert not index.give_up()
        fs.handles.make_room(8)
        # It is asked again later.
        assert index in fs.handles
    fs.handles.make_room(8)
    assert index not in fs.handles
    assert index.give_up()


@pytest.mark.slow
def test_readers_and_a_writer_on_other_threads_share_three_handles(tmp_path: Path) -> None:
    """Each file is opened again and again while others use it; no byte is missing and none is another's."""
    pool = HandlePool(3)
    fs = OsFileSystem(handles=pool)
    log = open_log(fs, SMALL, directory=f"{tmp_path}/t-0")  # type: ignore[arg-type]
    append_each(log, 100, value_bytes=100)
    errors: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(20):
                assert read_offsets(log)[:100] == list(range(100))
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    append_each(log, 200, value_bytes=100)
    for thread in threads:
        thread.join()
    assert errors == []
    log.flushes.flush()
    assert read_offsets(log) == list(range(300))
    log.close()
    assert len(pool) == 0


def test_the_next_sync_raises_what_the_sync_before_a_rest_met_on_the_real_disk(tmp_path: Path) -> None:
    """A pipe stands for a disk that fails: its sync does."""
    read_end, write_end = os.pipe()
    file = OsFile(OsFileSystem(), "pipe", write_end, is_writable=True, can_rest=True)
    file.is_unsynced = True
    assert not file.give_up()
    # The system reports an error once: the next sync would pass.
    whole = os.open(tmp_path / "whole", os.O_CREAT | os.O_RDWR)
    os.dup2(whole, write_end)
    os.close(whole)
    for _ in range(2):
        with pytest.raises(OSError, match="pipe"):
            file.sync()
        assert not file.give_up()
    file.close()
    os.close(read_end)


def test_a_file_whose_sync_failed_keeps_its_descriptor_on_the_real_disk() -> None:
    """Another descriptor would not be told that the bytes were lost."""
    read_end, write_end = os.pipe()
    file_system = OsFileSystem()
    file = OsFile(file_system, "pipe", write_end, is_writable=True, can_rest=True)
    with pytest.raises(OSError, match="pipe"):
        file.sync()
    file.rest()
    assert file.is_unsynced and file in file_system.handles
    file.close()
    os.close(read_end)
