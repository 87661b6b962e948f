"""The contract of the port over both of its implementations, and what only the real one can be asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sim.crash import Life
from sim.disk import SimDisk
from storage.draws import Draws
from storage.filesystem import FileSystem, OpenMode
from storage.os_filesystem import OsFileSystem
from tests.storage.filesystem_contract import FileSystemContract


class TestOsFileSystem(FileSystemContract):
    @pytest.fixture
    def fs(self) -> FileSystem:
        return OsFileSystem()

    @pytest.fixture
    def directory(self, tmp_path: Path) -> str:
        return str(tmp_path)


class TestSimFileSystem(FileSystemContract):
    @pytest.fixture
    def fs(self) -> FileSystem:
        file_system = SimDisk(Draws(1), lambda: 1_700_000_000_000).file_system(Life())
        file_system.make_directory("data/broker-1")
        return file_system

    @pytest.fixture
    def directory(self) -> str:
        return "data/broker-1"


def test_a_lock_excludes_another_process_and_ends_with_it(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    program = (
        "import sys; from storage.os_filesystem import OsFileSystem; lock = OsFileSystem().lock(sys.argv[1]);"
        "print('held', flush=True); sys.stdin.read()"
    )
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", program, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=root,
        text=True,
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError):
            OsFileSystem().lock(path)
        holder.kill()
        holder.wait()
    OsFileSystem().lock(path).release()


def test_the_empty_path_is_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file_system = OsFileSystem()
    file_system.open("here", OpenMode.CREATE).close()
    file_system.make_directory("")
    file_system.sync_directory("")
    assert file_system.list("") == ["here"]
    assert file_system.stat("").is_directory


def test_a_write_to_a_full_disk_is_an_error_and_not_a_signal() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    file = OsFileSystem().open("/dev/full", OpenMode.WRITE)
    with pytest.raises(OSError, match="No space left"):
        file.write_at(0, b"x")
    file.close()


def test_open_files_are_not_passed_on_to_child_processes(tmp_path: Path) -> None:
    lock = OsFileSystem().lock(str(tmp_path / ".lock"))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False) as child:
        lock.release()
        OsFileSystem().lock(str(tmp_path / ".lock")).release()
        assert child.stdin is not None
        child.stdin.write(b"\n")
