"""The contract of the port over both of its implementations, and tests that only the real one can answer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.disk.filesystem import File, FileSystem, OpenMode, read_file
from storage.disk.os_filesystem import OsFile, OsFileSystem
from storage.disk.overlay import OverlayFileSystem
from storage.draws import Draws
from tests.storage.disk.filesystem_contract import FileSystemContract
from tests.storage.disk.resting_files_contract import RestingFilesContract


class TestOsFileSystem(FileSystemContract, RestingFilesContract):
    @pytest.fixture
    def fs(self) -> FileSystem:
        return OsFileSystem()

    @pytest.fixture
    def directory(self, tmp_path: Path) -> str:
        return str(tmp_path)


class TestSimFileSystem(FileSystemContract, RestingFilesContract):
    @pytest.fixture
    def fs(self) -> FileSystem:
        file_system = SimDisk(Draws(1), lambda: 1_700_000_000_000).file_system(Life())
        file_system.make_directory("data/broker-1")
        return file_system

    @pytest.fixture
    def directory(self) -> str:
        return "data/broker-1"


class TestOverlayFileSystem(FileSystemContract):
    """Over the real disk, where the tests begin with what another program has written."""

    @pytest.fixture
    def fs(self, tmp_path: Path) -> FileSystem:
        (tmp_path / "scratch").mkdir()
        (tmp_path / "data").mkdir()
        return OverlayFileSystem(OsFileSystem(), str(tmp_path / "scratch"))

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Iterator[str]:
        yield str(tmp_path / "data")
        assert list((tmp_path / "data").iterdir()) == []

    # An overlay renames no directory and locks nothing.
    test_rename_of_a_directory_takes_its_files_along = None  # type: ignore[assignment]
    test_rename_keeps_files_and_directories_apart = None  # type: ignore[assignment]
    test_a_lock_excludes_a_second_holder = None  # type: ignore[assignment]
    test_locks_of_two_paths_are_independent = None  # type: ignore[assignment]


def test_a_lock_excludes_another_process_and_ends_with_it(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    program = (
        "import sys; from storage.disk.os_filesystem import OsFileSystem; lock = OsFileSystem().lock(sys.argv[1]);"
        "print('held', flush=True); sys.stdin.read()"
    )
    root = str(Path(__file__).parents[3])
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


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="/dev/full is absent, a device of Linux that is always full"
)
def test_a_write_to_a_full_disk_is_an_error_and_not_a_signal() -> None:
    descriptor = os.open("/dev/full", os.O_RDWR)
    file = OsFile(OsFileSystem(), "/dev/full", descriptor, is_writable=True, can_rest=False)
    with pytest.raises(OSError, match="No space left"):
        file.write_at(0, b"x")
    file.close()


def test_open_files_are_not_passed_on_to_child_processes(tmp_path: Path) -> None:
    lock = OsFileSystem().lock(str(tmp_path / ".lock"))
    # Once the program runs, it is settled which descriptors it inherits.
    program = "print('running', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == b"running\n"
        lock.release()
        OsFileSystem().lock(str(tmp_path / ".lock")).release()
        child.stdin.write(b"\n")


NAMES = st.sampled_from(["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "write",
                "append",
                "truncate",
                "set_length",
                "rename",
                "unlink",
                "make",
                "remove",
                "list",
                "read",
            ]
        ),
        NAMES,
        NAMES,
        st.integers(0, 9),
    ),
    max_size=25,
)


def outcome(fs: FileSystem, root: str, verb: str, name: str, other: str, number: int) -> object:
    """Return what a caller sees of one step: the result, or the class and number of the error."""
    path = f"{root}/{name}"
    names: dict[str, Callable[[], object]] = {
        "rename": lambda: fs.rename(path, f"{root}/{other}"),
        "unlink": lambda: fs.unlink(path),
        "make": lambda: fs.make_directory(path),
        "remove": lambda: fs.remove_directory(path),
        "list": lambda: fs.list(path),
        "read": lambda: read_file(fs, path),
    }
    changes: dict[str, Callable[[File], None]] = {
        "write": lambda file: file.write_at(number, b"w" * number),
        "append": lambda file: file.append(b"a" * number),
        "truncate": lambda file: file.truncate(number),
        "set_length": lambda file: file.set_length(number),
    }
    try:
        if verb in names:
            return names[verb]()
        file = fs.open(path, OpenMode.CREATE if number % 2 else OpenMode.WRITE)
        try:
            changes[verb](file)
            return file.size()
        finally:
            file.close()
    except OSError as error:
        return type(error), error.errno
    except ValueError as error:
        return type(error)


@settings(max_examples=150, deadline=None)
@given(STEPS)
@pytest.mark.slow
def test_both_disks_answer_any_calls_alike(steps: list[tuple[str, str, str, int]]) -> None:
    simulated = SimDisk(Draws(1), lambda: 1000).file_system(Life())
    with TemporaryDirectory() as directory:
        for root_name, fs in (("sim", simulated), ("os", OsFileSystem())):
            fs.make_directory(f"{directory}/{root_name}")
        for step in steps:
            real = outcome(OsFileSystem(), f"{directory}/os", *step)
            assert outcome(simulated, f"{directory}/sim", *step) == real, step
