"""The lock of a log directory excludes Kafka's, which is another kind of lock, and can be asked for."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage.config import LogConfig
from storage.directory.manager import LogManager
from storage.disk import os_filesystem
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from storage.errors import DirectoryInUse
from tests.storage.logs import NOW_MS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has locks of this kind")

# As Java's FileChannel.tryLock does.
KAFKA = """
import fcntl, sys
file = open(sys.argv[1], "a")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("refused", flush=True)
else:
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def locked_by_kafka(path: Path) -> Iterator[str]:
    """Another process has tried to lock `path` as Kafka does; yields what it says, and ends it after the block."""
    with subprocess.Popen(
        [sys.executable, "-c", KAFKA, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        yield holder.stdout.readline().strip()


def test_a_lock_is_refused_while_kafka_has_it(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with locked_by_kafka(path) as answer:
        assert answer == "held"
        with pytest.raises(BlockingIOError, match=r"\.lock"):
            OsFileSystem().lock(str(path))
        assert OsFileSystem().is_locked(str(path))
    assert not OsFileSystem().is_locked(str(path))
    OsFileSystem().lock(str(path)).release()


def test_while_we_have_the_lock_kafka_is_refused(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    lock = OsFileSystem().lock(str(path))
    # Another descriptor of the file that is closed takes nothing away.
    path.open("r+").close()
    with locked_by_kafka(path) as answer:
        assert answer == "refused"
    lock.release()
    with locked_by_kafka(path) as answer:
        assert answer == "held"


def test_a_node_does_not_start_on_a_directory_that_kafka_uses(tmp_path: Path) -> None:
    with locked_by_kafka(tmp_path / ".lock"), pytest.raises(DirectoryInUse, match="another process holds"):
        LogManager(OsFileSystem(), str(tmp_path), LogConfig(), NOW_MS, Draws(1))


def test_whether_a_lock_is_held_is_known_where_linux_lists_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a process in another PID namespace, a container for example, took a directory in use for a free one."""
    monkeypatch.setattr(os_filesystem, "_LOCKS", str(tmp_path / "nowhere"))
    path = str(tmp_path / ".lock")
    lock = OsFileSystem().lock(path)
    assert OsFileSystem().is_locked(path)
    lock.release()
    assert not OsFileSystem().is_locked(path)


def test_a_lock_that_is_an_flock_alone_is_known_too(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert OsFileSystem().is_locked(str(tmp_path / ".lock"))


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_there_are_no_such_locks_an_flock_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def absent(descriptor: int, command: int, argument: object) -> bytes:
        raise OSError(number, "not here")

    monkeypatch.setattr(fcntl, "fcntl", absent)
    path = str(tmp_path / ".lock")
    lock = OsFileSystem().lock(path)
    with pytest.raises(BlockingIOError):
        OsFileSystem().lock(path)
    assert OsFileSystem().is_locked(path)
    lock.release()
