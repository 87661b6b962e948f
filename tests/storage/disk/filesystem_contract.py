"""The contract of every `FileSystem`. `test_filesystem.py` runs it over the real disk and the simulated one."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from storage.disk.filesystem import FileSystem, OpenMode, join, read_file, replace_file


class FileSystemContract:
    """Each test gets a file system and an existing, empty directory in it."""

    def path(
        self, directory: str, name: str = "file", content: bytes = b"", fs: FileSystem | None = None
    ) -> str:
        path = join(directory, name)
        if fs is not None:
            file = fs.open(path, OpenMode.CREATE)
            file.write_at(0, content)
            file.close()
        return path

    # Opening.

    def test_open_create_makes_an_empty_file(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory), OpenMode.CREATE)
        assert file.size() == 0
        assert file.path == self.path(directory)
        file.close()
        assert fs.list(directory) == ["file"]

    def test_open_create_keeps_what_is_there(self, fs: FileSystem, directory: str) -> None:
        path = self.path(directory, content=b"kept", fs=fs)
        file = fs.open(path, OpenMode.CREATE)
        assert file.read_at(0, 10) == b"kept"
        file.close()

    @pytest.mark.parametrize("mode", [OpenMode.READ, OpenMode.WRITE])
    def test_open_of_a_missing_file_raises(self, fs: FileSystem, directory: str, mode: OpenMode) -> None:
        with pytest.raises(FileNotFoundError):
            fs.open(self.path(directory), mode)
        assert fs.list(directory) == []

    @pytest.mark.parametrize("mode", list(OpenMode))
    def test_open_in_a_missing_directory_raises(self, fs: FileSystem, directory: str, mode: OpenMode) -> None:
        with pytest.raises(FileNotFoundError):
            fs.open(directory + "/none/file", mode)

    def test_open_create_new_refuses_an_existing_file(self, fs: FileSystem, directory: str) -> None:
        path = self.path(directory)
        fs.open(path, OpenMode.CREATE_NEW).close()
        with pytest.raises(FileExistsError):
            fs.open(path, OpenMode.CREATE_NEW)

    @pytest.mark.parametrize("mode", [OpenMode.READ, OpenMode.WRITE, OpenMode.CREATE])
    def test_open_of_a_directory_raises(self, fs: FileSystem, directory: str, mode: OpenMode) -> None:
        with pytest.raises(IsADirectoryError):
            fs.open(directory, mode)

    def test_open_below_a_file_raises(self, fs: FileSystem, directory: str) -> None:
        path = self.path(directory, content=b"x", fs=fs)
        with pytest.raises(NotADirectoryError):
            fs.open(path + "/below", OpenMode.CREATE)

    def test_a_file_opened_for_reading_takes_no_write_verb(self, fs: FileSystem, directory: str) -> None:
        path = self.path(directory, content=b"12345", fs=fs)
        file = fs.open(path, OpenMode.READ)
        calls: list[Callable[[], None]] = [
            lambda: file.write_at(0, b"x"),
            lambda: file.append(b"x"),
            lambda: file.truncate(2),
            lambda: file.set_length(9),
            lambda: file.set_length(0),
        ]
        for call in calls:
            with pytest.raises(OSError) as raised:
                call()
            assert raised.value.errno == errno.EBADF
        assert file.read_at(0, 9) == b"12345"
        file.close()

    def test_a_closed_file_refuses_and_closes_again(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory), OpenMode.CREATE)
        file.append(b"x")
        file.close()
        file.close()
        calls: list[Callable[[], object]] = [
            lambda: file.read_at(0, 1),
            lambda: file.append(b"x"),
            lambda: file.set_length(3),
            file.size,
            file.sync,
            file.map_for_reading,
        ]
        for call in calls:
            with pytest.raises(OSError) as raised:
                call()
            assert raised.value.errno == errno.EBADF

    # Reading and writing.

    def test_read_is_short_only_at_the_end(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory, content=b"0123456789", fs=fs), OpenMode.READ)
        assert file.read_at(2, 3) == b"234"
        assert file.read_at(8, 5) == b"89"
        assert file.read_at(10, 5) == b""
        assert file.read_at(99, 5) == b""
        assert file.read_at(0, 0) == b""
        file.close()

    def test_read_into_fills_and_counts(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory, content=b"0123456789", fs=fs), OpenMode.READ)
        buffer = bytearray(b"....")
        assert file.read_into(3, memoryview(buffer)) == 4
        assert buffer == b"3456"
        assert file.read_into(8, memoryview(buffer)) == 2
        assert buffer == b"8956"
        assert file.read_into(20, memoryview(buffer)) == 0
        file.close()

    def test_every_buffer_can_be_written(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory), OpenMode.CREATE)
        file.append(bytearray(b"abc"))
        file.write_at(1, memoryview(b"vXYw")[1:3])
        assert file.read_at(0, 9) == b"aXY"
        file.close()

    def test_what_was_written_is_a_copy(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory), OpenMode.CREATE)
        data = bytearray(b"abc")
        file.append(data)
        data[:] = b"xyz"
        assert file.read_at(0, 3) == b"abc"
        file.close()

    def test_write_after_the_end_leaves_zeros_between(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory, content=b"ab", fs=fs), OpenMode.WRITE)
        file.write_at(5, b"cd")
        assert file.read_at(0, 9) == b"ab\0\0\0cd"
        assert file.size() == 7
        file.close()

    def test_append_writes_at_the_present_end(self, fs: FileSystem, directory: str) -> None:
        path = self.path(directory)
        one, other = fs.open(path, OpenMode.CREATE), fs.open(path, OpenMode.WRITE)
        one.append(b"one")
        other.append(b"other")
        one.append(b"!")
        assert one.read_at(0, 99) == other.read_at(0, 99) == b"oneother!"
        one.close()
        other.close()

    def test_append_of_nothing_changes_nothing(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory), OpenMode.CREATE)
        file.append(b"")
        assert file.size() == 0
        file.close()

    def test_a_large_write_is_whole(self, fs: FileSystem, directory: str) -> None:
        data = bytes(range(256)) * 2048
        file = fs.open(self.path(directory), OpenMode.CREATE)
        for _ in range(3):
            file.append(data)
        assert file.size() == 3 * len(data)
        assert file.read_at(len(data), len(data)) == data
        file.close()

    # Length.

    def test_truncate_cuts_and_append_continues_there(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory, content=b"0123456789", fs=fs), OpenMode.WRITE)
        file.truncate(4)
        assert file.size() == 4
        file.append(b"!")
        assert file.read_at(0, 99) == b"0123!"
        file.close()

    def test_truncate_above_the_size_raises(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory, content=b"0123", fs=fs), OpenMode.WRITE)
        with pytest.raises(ValueError):
            file.truncate(5)
        file.truncate(4)
        assert file.size() == 4
        file.close()

    def test_set_length_grows_with_zeros_and_shrinks(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory, content=b"0123", fs=fs), OpenMode.WRITE)
        file.set_length(6)
        assert file.read_at(0, 99) == b"0123\0\0"
        file.set_length(2)
        file.set_length(4)
        assert file.read_at(0, 99) == b"01\0\0"
        file.close()

    def test_set_length_takes_ten_mebibytes(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory), OpenMode.CREATE)
        file.set_length(10 << 20)
        file.write_at(8, b"entry")
        assert file.size() == 10 << 20
        assert file.read_at(6, 9) == b"\0\0entry\0\0"
        assert file.read_at((10 << 20) - 2, 9) == b"\0\0"
        file.set_length(13)
        assert file.read_at(0, 99) == b"\0" * 8 + b"entry"
        file.close()

    def test_set_length_below_zero_raises(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory), OpenMode.CREATE)
        with pytest.raises(OSError) as raised:
            file.set_length(-1)
        assert raised.value.errno == errno.EINVAL
        file.close()

    # Maps.

    def test_a_map_shows_the_whole_file_and_later_writes(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory, content=b"0123456789", fs=fs), OpenMode.WRITE)
        mapped = file.map_for_reading()
        assert bytes(mapped.view) == b"0123456789"
        file.write_at(4, b"XY")
        assert bytes(mapped.view) == b"0123XY6789"
        mapped.close()
        file.close()

    def test_a_map_keeps_its_length_while_the_file_grows(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory, content=b"0123", fs=fs), OpenMode.WRITE)
        mapped = file.map_for_reading()
        file.append(b"x" * 200_000)
        file.write_at(1, b"A")
        assert bytes(mapped.view) == b"0A23"
        again = file.map_for_reading()
        file.write_at(2, b"B")
        assert bytes(mapped.view) == b"0AB3"
        assert bytes(again.view[:5]) == b"0AB3x"
        mapped.close()
        again.close()
        file.close()

    def test_a_map_is_read_only_and_closes_twice(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory, content=b"0123", fs=fs), OpenMode.WRITE)
        mapped = file.map_for_reading()
        assert mapped.view.readonly
        mapped.close()
        mapped.close()
        file.close()

    def test_a_map_of_a_file_opened_for_reading(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory, content=b"0123", fs=fs), OpenMode.READ)
        mapped = file.map_for_reading()
        assert bytes(mapped.view) == b"0123"
        mapped.close()
        file.close()

    def test_an_empty_file_cannot_be_mapped(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory), OpenMode.CREATE)
        with pytest.raises(ValueError):
            file.map_for_reading()
        file.close()

    def test_shrinking_a_mapped_file_raises(self, fs: FileSystem, directory: str) -> None:
        file = fs.open(self.path(directory, content=b"0123", fs=fs), OpenMode.WRITE)
        mapped = file.map_for_reading()
        with pytest.raises(BufferError):
            file.truncate(2)
        with pytest.raises(BufferError):
            file.set_length(2)
        file.set_length(8)
        mapped.close()
        file.truncate(2)
        assert file.read_at(0, 9) == b"01"
        file.close()

    # Names.

    def test_exists_and_stat(self, fs: FileSystem, directory: str) -> None:
        path = self.path(directory, content=b"0123", fs=fs)
        assert fs.exists(path)
        assert fs.exists(directory)
        assert not fs.exists(path + "x")
        assert fs.stat(path).size_bytes == 4
        assert not fs.stat(path).is_directory
        assert fs.stat(directory).is_directory
        with pytest.raises(FileNotFoundError):
            fs.stat(path + "x")

    def test_set_modified(self, fs: FileSystem, directory: str) -> None:
        path = self.path(directory, content=b"0123", fs=fs)
        fs.set_modified(path, 1_600_000_000_123)
        assert fs.stat(path).modified_ms == 1_600_000_000_123
        with pytest.raises(FileNotFoundError):
            fs.set_modified(path + "x", 1)

    def test_list_is_sorted_and_of_one_level(self, fs: FileSystem, directory: str) -> None:
        for name in ("b", "a.log", "B", "10", "9"):
            self.path(directory, name, b"", fs)
        fs.make_directory(join(directory, "c"))
        self.path(join(directory, "c"), "below", b"", fs)
        assert fs.list(directory) == ["10", "9", "B", "a.log", "b", "c"]
        with pytest.raises(FileNotFoundError):
            fs.list(join(directory, "none"))
        with pytest.raises(NotADirectoryError):
            fs.list(join(directory, "b"))

    def test_rename_replaces_and_open_files_follow(self, fs: FileSystem, directory: str) -> None:
        old, new = self.path(directory, "old", b"old", fs), self.path(directory, "new", b"new", fs)
        replaced, moved = fs.open(new, OpenMode.READ), fs.open(old, OpenMode.WRITE)
        fs.rename(old, new)
        assert fs.list(directory) == ["new"]
        moved.append(b"!")
        assert read_file(fs, new) == b"old!"
        assert replaced.read_at(0, 9) == b"new"
        replaced.close()
        moved.close()

    def test_rename_of_a_missing_file_raises(self, fs: FileSystem, directory: str) -> None:
        new = self.path(directory, "new", b"new", fs)
        with pytest.raises(FileNotFoundError):
            fs.rename(join(directory, "old"), new)
        with pytest.raises(FileNotFoundError):
            fs.rename(new, directory + "/none/new")
        assert read_file(fs, new) == b"new"

    def test_rename_to_itself_changes_nothing(self, fs: FileSystem, directory: str) -> None:
        path = self.path(directory, "a", b"a", fs)
        fs.rename(path, path)
        assert read_file(fs, path) == b"a"

    def test_rename_of_a_directory_takes_its_files_along(self, fs: FileSystem, directory: str) -> None:
        old, new = join(directory, "t-0"), join(directory, "t-0.abc-delete")
        fs.make_directory(old)
        path = self.path(old, "f", b"1", fs)
        file = fs.open(path, OpenMode.WRITE)
        fs.rename(old, new)
        file.append(b"2")
        assert read_file(fs, join(new, "f")) == b"12"
        assert not fs.exists(old)
        file.close()

    def test_rename_keeps_files_and_directories_apart(self, fs: FileSystem, directory: str) -> None:
        file, folder, full = self.path(directory, "f", b"1", fs), directory + "/d", directory + "/full"
        fs.make_directory(folder)
        fs.make_directory(full)
        self.path(full, "x", b"", fs)
        with pytest.raises(IsADirectoryError):
            fs.rename(file, folder)
        with pytest.raises(NotADirectoryError):
            fs.rename(folder, file)
        with pytest.raises(OSError) as raised:
            fs.rename(folder, full)
        assert raised.value.errno == errno.ENOTEMPTY
        assert fs.list(directory) == ["d", "f", "full"]

    def test_unlink_takes_the_name_and_leaves_open_files(self, fs: FileSystem, directory: str) -> None:
        path = self.path(directory, content=b"0123", fs=fs)
        file = fs.open(path, OpenMode.WRITE)
        fs.unlink(path)
        assert not fs.exists(path)
        file.append(b"4")
        assert file.read_at(0, 9) == b"01234"
        file.close()
        with pytest.raises(FileNotFoundError):
            fs.unlink(path)

    def test_a_name_given_again_is_another_file(self, fs: FileSystem, directory: str) -> None:
        path = self.path(directory, content=b"0123", fs=fs)
        file = fs.open(path, OpenMode.READ)
        fs.unlink(path)
        self.path(directory, content=b"new", fs=fs)
        assert file.read_at(0, 9) == b"0123"
        assert read_file(fs, path) == b"new"
        file.close()

    def test_make_directory_makes_its_parents_and_may_be_repeated(
        self, fs: FileSystem, directory: str
    ) -> None:
        path = directory + "/a/b/c"
        fs.make_directory(path)
        fs.make_directory(path)
        assert fs.list(directory + "/a") == ["b"]
        file = self.path(directory, "f", b"", fs)
        with pytest.raises(OSError):
            fs.make_directory(file)

    def test_remove_directory_only_when_empty(self, fs: FileSystem, directory: str) -> None:
        folder = join(directory, "d")
        fs.make_directory(folder)
        path = self.path(folder, content=b"", fs=fs)
        with pytest.raises(OSError) as raised:
            fs.remove_directory(folder)
        assert raised.value.errno == errno.ENOTEMPTY
        fs.unlink(path)
        fs.remove_directory(folder)
        assert not fs.exists(folder)
        with pytest.raises(FileNotFoundError):
            fs.remove_directory(folder)

    def test_directories_are_not_unlinked_and_files_not_removed(self, fs: FileSystem, directory: str) -> None:
        folder, file = join(directory, "d"), self.path(directory, "f", b"", fs)
        fs.make_directory(folder)
        with pytest.raises(OSError):
            fs.unlink(folder)
        with pytest.raises(NotADirectoryError):
            fs.remove_directory(file)
        assert fs.list(directory) == ["d", "f"]

    # Durability and locks: tests can only see that they are taken and that locks exclude each other.

    def test_sync_and_sync_directory_are_taken(self, fs: FileSystem, directory: str) -> None:
        path = self.path(directory)
        file = fs.open(path, OpenMode.CREATE)
        file.append(b"x")
        file.sync()
        fs.sync_directory(directory)
        file.close()
        with pytest.raises(FileNotFoundError):
            fs.sync_directory(directory + "/none")
        with pytest.raises(NotADirectoryError):
            fs.sync_directory(path)

    def test_replace_file_puts_the_new_content_and_leaves_no_trace(
        self, fs: FileSystem, directory: str
    ) -> None:
        path = self.path(directory, content=b"a longer old content", fs=fs)
        replace_file(fs, path, b"new")
        assert read_file(fs, path) == b"new"
        assert fs.list(directory) == ["file"]

    def test_a_lock_excludes_a_second_holder(self, fs: FileSystem, directory: str) -> None:
        path = join(directory, ".lock")
        lock = fs.lock(path)
        assert fs.exists(path)
        with pytest.raises(BlockingIOError):
            fs.lock(path)
        lock.release()
        lock.release()
        again = fs.lock(path)
        again.release()
        assert fs.exists(path)

    def test_locks_of_two_paths_are_independent(self, fs: FileSystem, directory: str) -> None:
        one, other = fs.lock(join(directory, "1")), fs.lock(join(directory, "2"))
        one.release()
        with pytest.raises(BlockingIOError):
            fs.lock(join(directory, "2"))
        other.release()
