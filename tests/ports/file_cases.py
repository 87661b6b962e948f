"""Scripts of calls of the file port, each written once. What a script sees must be the same on both disks."""

from __future__ import annotations

from functools import partial
from itertools import product

from storage.disk.filesystem import OpenMode, delete_log_files, replace_file
from tests.ports.file_world import Desk

READ, WRITE, CREATE, CREATE_NEW = OpenMode.READ, OpenMode.WRITE, OpenMode.CREATE, OpenMode.CREATE_NEW
# The longest name that Linux takes, and one byte more.
LONGEST, TOO_LONG = "n" * 255, "n" * 256


def opening_anything_in_every_mode(desk: Desk) -> None:
    desk.make("file", "directory/")
    for mode in OpenMode:
        for name in ("file", "none", "directory", "none/below", "file/below", ""):
            desk.see_open(name, mode)
            desk.see(desk.tree)


def reading_at_every_place(desk: Desk) -> None:
    file = desk.open("a", content=b"0123456789")
    for position in (0, 9, 10, 11, 1 << 40, -1):
        for size in (0, 1, 20, -1):
            desk.see(file.read_at, position, size)
    for position in (0, 8, 10, 99, -1):
        buffer = bytearray(b"....")
        desk.see(file.read_into, position, memoryview(buffer))
        desk.see(bytes, buffer)


def writing_at_every_place(desk: Desk) -> None:
    file = desk.open("a", content=b"0123456789")
    for position in (3, 10, 15, -1):
        for data in (b"", b"XY", bytearray(b"Z"), memoryview(b"abcdef")[1:5]):
            desk.see(file.write_at, position, data)
            desk.see(file.size)
    desk.see(file.read_at, 0, 99)


def writing_nothing_beyond_the_end(desk: Desk) -> None:
    file = desk.open("a", content=b"01")
    desk.see(file.write_at, 50, b"")
    desk.see(file.size)
    file.append(b"2")
    desk.see(file.read_at, 0, 99)


def cutting_to_every_length(desk: Desk) -> None:
    file = desk.open("a", content=b"0123456789")
    for size in (10, 11, -1, 4, 4, 5, 0, 0, 1):
        desk.see(file.truncate, size)
        desk.see(file.size)
    for size in (6, 3, -1, 3, 0, 200_000, 2):
        desk.see(file.set_length, size)
        desk.see(file.size)
        desk.see(file.read_at, 0, 9)


def cutting_and_writing_again_shows_zeros_between(desk: Desk) -> None:
    file = desk.open("a", content=b"0123456789")
    file.truncate(2)
    file.write_at(5, b"x")
    desk.see(file.read_at, 0, 99)
    file.set_length(3)
    file.set_length(8)
    desk.see(file.read_at, 0, 99)


def changing_what_was_opened_for_reading(desk: Desk) -> None:
    desk.make("a")
    file = desk.open("a", READ)
    desk.see(file.write_at, 0, b"x")
    desk.see(file.write_at, 0, b"")
    desk.see(file.append, b"x")
    desk.see(file.append, b"")
    for size in (0, 1, 2, -1):
        desk.see(file.truncate, size)
        desk.see(file.set_length, size)
    desk.see(file.sync)
    desk.see(file.read_at, 0, 9)


def using_what_was_closed(desk: Desk) -> None:
    file = desk.open("a", content=b"x")
    file.close()
    for call in (file.size, file.sync, file.map_for_reading, file.close, file.rest):
        desk.see(call)
    for size in (0, 1, 2):
        desk.see(file.truncate, size)
        desk.see(file.set_length, size)
        desk.see(file.read_at, 0, size)
        desk.see(file.write_at, 0, b"y" * size)
        desk.see(file.append, b"y" * size)
    desk.see(desk.tree)


def deleting_what_is_open(desk: Desk) -> None:
    desk.make("a")
    one, other = desk.open("a", WRITE), desk.open("a", READ)
    desk.see(desk.fs.unlink, desk.path("a"))
    desk.see(desk.fs.unlink, desk.path("a"))
    desk.see(one.append, b"!")
    desk.see(one.sync)
    desk.see(other.read_at, 0, 9)
    desk.see_open("a", READ)
    desk.make("a")
    desk.see(one.append, b"?")
    desk.see(other.read_at, 0, 9)
    desk.see(desk.tree)


def renaming_over_what_is_open(desk: Desk) -> None:
    desk.make("a", "b")
    a, b = desk.open("a", WRITE), desk.open("b", WRITE)
    desk.see(desk.fs.rename, desk.path("a"), desk.path("b"))
    desk.see(a.append, b"1")
    desk.see(b.append, b"2")
    desk.see(b.sync)
    desk.see(b.read_at, 0, 9)
    desk.see(desk.tree)
    desk.see(lambda: a.path == desk.path("a"))


def renaming_anything_to_anything(desk: Desk) -> None:
    names = (
        "file",
        "other",
        "empty",
        "full",
        "full/in",
        "none",
        "none/in",
        "file/in",
        "empty/in",
        "full/deep",
    )
    top = "0"
    there = ("", "empty/", "full/", "full/deep/", "file", "other", "full/in")
    for number, (old, new) in enumerate(product(names, names)):
        # Only a rename that was done leaves something else for the next one.
        if number == 0 or desk.seen[-2] == "done":
            top = f"{number}"
            desk.make(*[f"{top}/{name}" for name in there])
        desk.see(desk.fs.rename, desk.path(f"{top}/{old}"), desk.path(f"{top}/{new}"))
        desk.see(desk.tree, top)


def using_names_of_the_wrong_kind(desk: Desk) -> None:
    desk.make("file", "empty/", "full/", "full/in")
    fs = desk.fs
    for name in ("file", "empty", "full", "none", "none/in", "file/in"):
        path = desk.path(name)
        for call in (fs.exists, fs.stat, fs.list, fs.sync_directory, fs.remove_directory, fs.unlink):
            desk.see(call, path)
        desk.see(fs.set_modified, path, 1_600_000_000_000)
        desk.see(fs.make_directory, path)
        desk.see(fs.lock, path)
    desk.see(desk.tree)


def making_directories(desk: Desk) -> None:
    desk.make("file")
    for name in ("a", "a", "b/c/d", "b/c", "file", "file/below", "file/below/deep"):
        desk.see(desk.fs.make_directory, desk.path(name))
        desk.see(desk.tree)


def deleting_a_directory_with_all_in_it(desk: Desk) -> None:
    desk.make("t/", "t/deep/", "t/deep/file", "t/file", "other")
    desk.see(delete_log_files, desk.fs, desk.path("t"))
    desk.see(delete_log_files, desk.fs, desk.path("t"))
    desk.see(desk.tree)


def moving_a_directory_with_open_files(desk: Desk) -> None:
    desk.make("t/", "u/", "t/file")
    file = desk.open("t/file", WRITE)
    desk.see(desk.fs.rename, desk.path("t"), desk.path("u"))
    file.append(b"!")
    desk.see(desk.fs.rename, desk.path("u"), desk.path("v"))
    desk.see(file.append, b"?")
    desk.see(desk.fs.sync_directory, desk.path("u"))
    desk.see(desk.fs.sync_directory, desk.path("v"))
    desk.see(desk.tree)


def mapping(desk: Desk) -> None:
    file = desk.open("a")
    desk.see(file.map_for_reading)
    file.append(b"0123")
    mapped = file.map_for_reading()
    file.append(b"45")
    file.write_at(1, b"A")
    desk.see(bytes, mapped.view)
    for size in (2, 6, 8):
        desk.see(file.truncate, size)
        desk.see(file.set_length, size)
    second = file.map_for_reading()
    mapped.close()
    desk.see(file.truncate, 2)
    desk.see(bytes, second.view)
    file.close()
    desk.see(bytes, second.view)
    second.close()
    desk.see(desk.tree)


def locking(desk: Desk) -> None:
    fs, path = desk.fs, desk.path(".lock")
    for name in ("none/.lock", ""):
        desk.see(fs.lock, desk.path(name))
    lock = fs.lock(path)
    desk.see(fs.lock, path)
    # The lock is that of the file, whatever its name, and a new file of the name is another one.
    fs.rename(path, desk.path("moved"))
    desk.see(fs.lock, desk.path("moved"))
    other = fs.lock(path)
    lock.release()
    desk.see(lock.release)
    desk.see(fs.lock, path)
    fs.unlink(path)
    again = fs.lock(path)
    other.release()
    desk.see(fs.lock, path)
    again.release()
    desk.see(desk.tree)


def replacing_a_file(desk: Desk) -> None:
    desk.make("a", "d/")
    old = desk.open("a", READ)
    desk.see(replace_file, desk.fs, desk.path("a"), b"new")
    desk.see(old.read_at, 0, 9)
    desk.see(replace_file, desk.fs, desk.path("d"), b"new")
    desk.see(replace_file, desk.fs, desk.path("none/a"), b"new")
    desk.see(desk.tree)


def names_of_every_length(desk: Desk) -> None:
    fs = desk.fs
    desk.make("a")
    for name in (LONGEST, TOO_LONG, "é" * 127, "é" * 128, f"{TOO_LONG}/in"):
        path = desk.path(name)
        desk.see_open(name, CREATE)
        desk.see(fs.exists, path)
        desk.see(fs.stat, path)
        desk.see(fs.unlink, path)
        desk.see(fs.make_directory, path)
        desk.see(fs.list, path)
        desk.see(fs.rename, desk.path("a"), path)
        desk.see(fs.rename, path, desk.path("a"))
        desk.see(fs.sync_directory, path)
        desk.see(fs.remove_directory, path)
        desk.see(lambda at=path: fs.lock(at).release())
        desk.see(fs.unlink, path)


def names_with_strange_bytes(desk: Desk) -> None:
    for name in ("with space", "tab\there", "new\nline", "ümlaut", "-", "...", "a:b", "%", "\x01"):
        desk.make(name)
    desk.see(desk.fs.list, desk.root)


def paths_with_slashes_and_dots(desk: Desk) -> None:
    desk.make("d/", "d/file")
    for name in ("d//file", "./d/./file", "d/", "d//", "d/.", "d//.//file"):
        desk.see(desk.fs.exists, desk.path(name))
        desk.see(desk.fs.stat, desk.path(name))
        desk.see_open(name, READ)
        desk.see(desk.below_root, desk.fs.canonical(desk.path(name)))


def modification_times(desk: Desk) -> None:
    desk.make("a", "d/")
    for name in ("a", "d"):
        for modified_ms in (0, 1, 1_600_000_000_123):
            desk.see(desk.fs.set_modified, desk.path(name), modified_ms)
            desk.seen.append(desk.fs.stat(desk.path(name)).modified_ms)
    desk.fs.rename(desk.path("a"), desk.path("b"))
    desk.seen.append(desk.fs.stat(desk.path("b")).modified_ms)


def several_handles_share_one_file(desk: Desk) -> None:
    one, other = desk.open("a", content=b"one"), desk.open("a", WRITE)
    desk.see(other.append, b"other")
    desk.see(one.append, b"!")
    desk.see(other.truncate, 4)
    desk.see(one.append, b"?")
    desk.see(one.read_at, 0, 99)
    one.close()
    desk.see(other.read_at, 0, 99)


def resting(desk: Desk) -> None:
    file = desk.fs.open(desk.path("a"), CREATE, can_rest=True)
    file.append(b"1")
    file.rest()
    desk.see(file.append, b"2")
    file.sync()
    file.rest()
    desk.make("b")
    desk.fs.rename(desk.path("b"), desk.path("a"))
    calls = (file.size, file.sync, partial(file.read_at, 0, 9), partial(file.append, b"3"))
    for call in calls:
        desk.see(call)
    desk.fs.unlink(desk.path("a"))
    for call in calls:
        desk.see(call)
    file.close()
    for call in calls:
        desk.see(call)


FILE_CASES = (
    opening_anything_in_every_mode,
    reading_at_every_place,
    writing_at_every_place,
    writing_nothing_beyond_the_end,
    cutting_to_every_length,
    cutting_and_writing_again_shows_zeros_between,
    changing_what_was_opened_for_reading,
    using_what_was_closed,
    deleting_what_is_open,
    renaming_over_what_is_open,
    renaming_anything_to_anything,
    using_names_of_the_wrong_kind,
    making_directories,
    deleting_a_directory_with_all_in_it,
    moving_a_directory_with_open_files,
    mapping,
    locking,
    replacing_a_file,
    names_of_every_length,
    names_with_strange_bytes,
    paths_with_slashes_and_dots,
    modification_times,
    several_handles_share_one_file,
    resting,
)
