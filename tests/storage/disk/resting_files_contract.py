"""The contract of files that rest: they hold no descriptor until they are used again.

`test_filesystem.py` runs it over the real disk and the simulated one.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from storage.disk.filesystem import File, FileSystem, OpenMode, join, replace_file


class RestingFilesContract:
    """Each test gets a file system and an existing, empty directory in it."""

    def path(self, directory: str, name: str = "file") -> str:
        return join(directory, name)

    def resting(self, fs: FileSystem, path: str, content: bytes = b"0123") -> File:
        file = fs.open(path, OpenMode.CREATE, can_rest=True)
        file.write_at(0, content)
        file.sync()
        file.rest()
        assert len(fs.handles) == 0
        return file

    def test_a_file_that_rests_is_opened_again_by_each_use(self, fs: FileSystem, directory: str) -> None:
        file, buffer = self.resting(fs, self.path(directory)), bytearray(2)
        calls: list[Callable[[], object]] = [
            lambda: file.read_at(1, 2),
            lambda: file.read_into(1, memoryview(buffer)),
            file.size,
            file.sync,
            lambda: file.write_at(1, b"x"),
            lambda: file.append(b"y"),
            lambda: file.set_length(9),
            lambda: file.truncate(3),
        ]
        for call in calls:
            call()
            assert len(fs.handles) == 1
            file.sync()
            file.rest()
        assert file.read_at(0, 9) == b"0x2"
        file.close()
        assert len(fs.handles) == 0

    def test_only_a_file_that_was_opened_so_rests(self, fs: FileSystem, directory: str) -> None:
        path = self.path(directory)
        file = fs.open(path, OpenMode.CREATE)
        file.rest()
        fs.unlink(path)
        file.append(b"kept")
        assert file.read_at(0, 9) == b"kept"
        assert len(fs.handles) == 0
        file.close()

    def test_bytes_that_wait_for_a_sync_keep_a_file_from_rest(self, fs: FileSystem, directory: str) -> None:
        file = self.resting(fs, self.path(directory))
        file.append(b"4")
        file.rest()
        assert len(fs.handles) == 1
        file.sync()
        file.rest()
        assert len(fs.handles) == 0
        file.truncate(2)
        file.rest()
        assert len(fs.handles) == 1
        file.close()

    def test_a_file_that_rests_is_found_under_its_new_name(self, fs: FileSystem, directory: str) -> None:
        old, new = self.path(directory, "t-0.log"), self.path(directory, "t-0.log.deleted")
        file = self.resting(fs, old)
        file.moves_to(new)
        # Another thread may read between the note and the rename.
        assert file.read_at(0, 9) == b"0123"
        file.rest()
        fs.rename(old, new)
        assert file.read_at(0, 9) == b"0123"
        file.close()

    def test_a_file_that_rests_follows_its_directory(self, fs: FileSystem, directory: str) -> None:
        old, new = join(directory, "t-0"), join(directory, "t-0.abc-delete")
        fs.make_directory(old)
        file = self.resting(fs, join(old, "f"))
        file.moves_to(join(new, "f"))
        fs.rename(old, new)
        assert file.read_at(0, 9) == b"0123"
        file.close()

    def test_a_file_that_rests_and_lost_its_name_is_not_found(self, fs: FileSystem, directory: str) -> None:
        path = self.path(directory)
        file = self.resting(fs, path)
        fs.unlink(path)
        with pytest.raises(FileNotFoundError):
            file.read_at(0, 9)
        file.close()

    def test_a_file_that_rests_never_reads_another_under_its_name(
        self, fs: FileSystem, directory: str
    ) -> None:
        path = self.path(directory)
        file, other = self.resting(fs, path), self.path(directory, "other")
        replace_file(fs, other, b"other")
        fs.rename(other, path)
        # It is gone as if nothing were there: tools that look at a live directory begin again.
        with pytest.raises(FileNotFoundError, match="Another file took its place"):
            file.read_at(0, 9)
        file.close()

    def test_a_file_that_rests_is_mapped_without_a_handle(self, fs: FileSystem, directory: str) -> None:
        file = self.resting(fs, self.path(directory))
        mapped = file.map_for_reading()
        assert bytes(mapped.view) == b"0123"
        assert len(fs.handles) == 0
        with pytest.raises(BufferError):
            file.truncate(2)
        mapped.close()
        file.close()

    def test_a_file_that_was_closed_at_rest_refuses(self, fs: FileSystem, directory: str) -> None:
        file = self.resting(fs, self.path(directory))
        file.close()
        with pytest.raises(OSError) as raised:
            file.read_at(0, 9)
        assert raised.value.errno == errno.EBADF

    def test_beyond_the_limit_a_file_is_synced_and_rests(self, fs: FileSystem, directory: str) -> None:
        fs.handles.limit = 2
        files = [fs.open(self.path(directory, str(n)), OpenMode.CREATE, can_rest=True) for n in range(3)]
        for _ in range(2):
            for number, file in enumerate(files):
                file.append(str(number).encode())
                assert len(fs.handles) <= 2
        assert [file.read_at(0, 9) for file in files] == [b"00", b"11", b"22"]
        for file in files:
            file.close()
        assert len(fs.handles) == 0
