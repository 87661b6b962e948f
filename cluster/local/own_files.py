"""The small files that a local cluster keeps for itself, read and written at once, whatever has their names.

A FIFO or a device would keep the reader or the writer waiting, or never end; these are errors here.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from storage.disk.filesystem import OpenMode
from storage.disk.machine_limits import named_error
from storage.disk.os_filesystem import OsFileSystem

# More than any of these files has. What is behind it is not read.
MOST_BYTES = 1 << 20
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY


def read_own(path: Path) -> str:
    """Returns the text of a regular file, MOST_BYTES of it at most. Raises OSError, and ValueError for no text."""
    file = OsFileSystem().open(str(path), OpenMode.READ)
    try:
        return file.read_at(0, MOST_BYTES).decode()
    finally:
        file.close()


def write_own(path: Path, text: str) -> None:
    """Writes `text` in the place of what a regular file has. Raises OSError."""
    file = OsFileSystem().open(str(path), OpenMode.CREATE)
    try:
        file.set_length(0)
        file.write_at(0, text.encode())
    finally:
        file.close()


def open_output(path: Path) -> BinaryIO:
    """Opens `path` to append the output of a process. Raises OSError, without a wait.

    A device is as good as a file: `/dev/null` keeps nothing.
    """
    # The open of a FIFO that nobody reads would wait for ever, and its reader could hold the process up later.
    try:
        descriptor = os.open(path, _APPEND, 0o644)
    except OSError as error:
        raise named_error(error, str(path)) from error
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "expected a regular file, found a FIFO", str(path))
    return open(descriptor, "ab")
