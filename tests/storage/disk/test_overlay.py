"""What an overlay says was changed, and that nothing below it is: files cut, written, renamed, deleted and made."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.disk.filesystem import FileSystem, OpenMode, read_file
from storage.disk.os_filesystem import OsFileSystem
from storage.disk.overlay import _COPIED_AT_ONCE, Change, OverlayFileSystem
from tests.storage.index.indexes import simulated

CONTENT = b"0123456789"
# A `.log` is copied only when it is written, not when it is opened or cut.
A, B, NEW = "data/a.log", "data/b", "data/new"


def overlaid(content: bytes = CONTENT) -> tuple[FileSystem, OverlayFileSystem]:
    """A file system with the files a and b, and an overlay over it."""
    _, below = simulated()
    for directory in ("data", "scratch"):
        below.make_directory(directory)
    for path in (A, B):
        file = below.open(path, OpenMode.CREATE)
        file.append(content)
        file.close()
    return below, OverlayFileSystem(below, "scratch")


def write(fs: FileSystem, path: str, position: int, data: bytes) -> None:
    file = fs.open(path, OpenMode.CREATE)
    file.write_at(position, data)
    file.close()


def cut(fs: FileSystem, path: str, size: int) -> None:
    file = fs.open(path, OpenMode.WRITE)
    file.truncate(size)
    file.close()


def replace(fs: FileSystem, content: bytes) -> None:
    write(fs, NEW, 0, content)
    fs.rename(NEW, A)


def make_and_delete(fs: FileSystem) -> None:
    write(fs, NEW, 0, b"x")
    fs.unlink(NEW)


CHANGES: list[tuple[Callable[[FileSystem], None], dict[str, Change]]] = [
    (lambda fs: write(fs, A, 3, b"x"), {A: Change.CHANGED}),
    (lambda fs: write(fs, A, 3, b"3"), {}),
    (lambda fs: write(fs, A, 10, b"x"), {A: Change.CHANGED}),
    (lambda fs: cut(fs, A, 9), {A: Change.CHANGED}),
    (lambda fs: write(fs, B, 3, b"x"), {B: Change.CHANGED}),
    (lambda fs: cut(fs, B, 9), {B: Change.CHANGED}),
    (lambda fs: cut(fs, B, 10), {}),
    (lambda fs: cut(fs, A, 0), {A: Change.CHANGED}),
    (lambda fs: cut(fs, A, 10), {}),
    (lambda fs: write(fs, NEW, 0, b""), {NEW: Change.CREATED}),
    (lambda fs: fs.unlink(A), {A: Change.DELETED}),
    (lambda fs: fs.rename(A, NEW), {A: Change.DELETED, NEW: Change.CREATED}),
    (lambda fs: fs.rename(A, B), {A: Change.DELETED}),
    (lambda fs: replace(fs, CONTENT), {}),
    (lambda fs: replace(fs, b"0"), {A: Change.CHANGED}),
    (make_and_delete, {}),
    (lambda fs: fs.open(A, OpenMode.READ).close(), {}),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES)
def test_the_changes_are_the_files_whose_bytes_differ_and_none_of_them_is_below(
    change: Callable[[FileSystem], None], expected: dict[str, Change]
) -> None:
    below, overlay = overlaid()
    direct, _ = overlaid()
    change(overlay)
    change(direct)
    assert overlay.changes() == expected
    assert [read_file(below, path) for path in (A, B)] == [CONTENT, CONTENT]
    assert below.list("data") == ["a.log", "b"]
    # A reader of the overlay finds what a reader without one would find.
    assert overlay.list("data") == direct.list("data")
    for name in direct.list("data"):
        assert read_file(overlay, f"data/{name}") == read_file(direct, f"data/{name}"), name


@pytest.mark.parametrize("more", [-1, 0, 1, _COPIED_AT_ONCE])
def test_a_file_that_is_copied_and_compared_in_blocks_keeps_each_of_its_bytes(more: int) -> None:
    content = bytes(_COPIED_AT_ONCE + more)
    below, overlay = overlaid(content)
    write(overlay, A, len(content), b"x")
    assert read_file(overlay, A) == content + b"x"
    assert overlay.changes() == {A: Change.CHANGED}
    cut(overlay, A, len(content))
    assert overlay.changes() == {}
    write(overlay, A, len(content) - 1, b"x")
    assert overlay.changes() == {A: Change.CHANGED}
    assert read_file(below, A) == content


def test_a_file_that_was_only_cut_is_read_up_to_the_cut_and_grows_from_there() -> None:
    below, overlay = overlaid()
    file = overlay.open(A, OpenMode.WRITE)
    file.truncate(6)
    assert below.list("scratch") == []
    for position in range(8):
        assert file.read_at(position, 3) == CONTENT[:6][position : position + 3], position
        room = bytearray(3)
        count = file.read_into(position, memoryview(room))
        assert bytes(room[:count]) == CONTENT[:6][position : position + 3], position
    assert (file.size(), overlay.stat(A).size_bytes) == (6, 6)
    with pytest.raises(ValueError, match="cannot truncate 6 bytes to 7"):
        file.truncate(7)
    file.append(b"new")
    assert (file.read_at(0, 20), overlay.stat(A).size_bytes) == (b"012345new", 9)
    file.close()
    assert read_file(below, A) == CONTENT


def test_a_map_of_a_cut_file_ends_at_the_cut_and_holds_the_file_at_its_size() -> None:
    _, overlay = overlaid()
    file = overlay.open(A, OpenMode.WRITE)
    file.truncate(6)
    shown = file.map_for_reading()
    assert bytes(shown.view) == CONTENT[:6]
    file.truncate(6)
    with pytest.raises(BufferError, match="is mapped"):
        file.truncate(5)
    shown.close()
    shown.close()
    file.truncate(5)
    assert file.read_at(0, 9) == CONTENT[:5]
    file.truncate(0)
    with pytest.raises(ValueError, match="empty"):
        file.map_for_reading()
    file.close()


def test_a_reader_sees_what_a_writer_has_written_since_it_was_opened() -> None:
    _, overlay = overlaid()
    write(overlay, A, 0, b"x")
    reader, writer = overlay.open(A, OpenMode.READ), overlay.open(A, OpenMode.WRITE)
    writer.write_at(1, b"y")
    assert reader.read_at(0, 3) == b"xy2"
    with pytest.raises(OSError, match="EBADF"):
        reader.write_at(0, b"z")
    for file in (reader, writer):
        file.close()


def test_the_time_of_a_copied_file_is_that_of_the_file_below_until_it_is_set() -> None:
    below, overlay = overlaid()
    below.set_modified(A, 77)
    write(overlay, A, 0, b"x")
    assert overlay.stat(A).modified_ms == 77
    overlay.set_modified(A, 99)
    assert (overlay.stat(A).modified_ms, below.stat(A).modified_ms) == (99, 77)
    before = below.stat(B).modified_ms
    overlay.set_modified(B, 55)
    assert (overlay.stat(B).modified_ms, below.stat(B).modified_ms) == (55, before)


def test_a_closed_file_stays_closed_when_another_writer_has_copied_it() -> None:
    _, fs = overlaid()
    file = fs.open(A, OpenMode.WRITE)
    file.close()
    write(fs, A, 0, b"x")
    for call in (file.size, file.sync, lambda: file.read_at(0, 1), lambda: file.append(b"y")):
        with pytest.raises((OSError, ValueError)):
            call()
    assert read_file(fs, A) == b"x123456789"


def is_open(path: Path) -> bool:
    descriptors = Path("/proc/self/fd")
    return str(path) in [os.readlink(each) for each in descriptors.iterdir() if each.is_symlink()]


def test_a_copy_that_cannot_be_made_leaves_no_file_open(tmp_path: Path) -> None:
    path, scratch = tmp_path / "a.log", tmp_path / "scratch"
    path.write_bytes(CONTENT)
    file = OverlayFileSystem(OsFileSystem(), str(scratch)).open(str(path), OpenMode.WRITE, can_rest=True)
    file.rest()
    # The error is still at hand, and with it whatever its calls have opened.
    with pytest.raises(FileNotFoundError) as error:
        file.append(b"x")
    assert not is_open(path), error
    file.close()


def test_a_file_that_becomes_shorter_before_it_is_copied_is_no_endless_copy() -> None:
    below, overlay = overlaid()
    file = overlay.open(A, OpenMode.WRITE)
    file.truncate(9)
    cut(below, A, 3)
    with pytest.raises(OSError, match="shorter than 9 bytes"):
        file.append(b"x")
    file.close()
