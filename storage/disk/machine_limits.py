"""The limits of the machine that stop calls on files: which one it was, how much of it is used, how to raise it."""

from __future__ import annotations

import errno
import os
import resource

_OPEN_FILES, _MAPS, _MOST_MAPS = "/proc/self/fd", "/proc/self/maps", "/proc/sys/vm/max_map_count"

# The handles of segments get half of the descriptors: connections and short-lived files need the others.
_SHARE_OF_DESCRIPTORS = 2
# Each index in use is mapped, and a process on Linux may have 65,530 maps.
_MOST_HANDLES = 30_000


def default_handle_limit() -> int:
    """Returns how many handles of segments a process keeps open unless its settings say otherwise: half of
    `ulimit -n`, at most 30,000.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return handle_limit_of(None if soft == resource.RLIM_INFINITY else soft)


def handle_limit_of(most_descriptors: int | None) -> int:
    """Returns the default limit of a process that may have so many descriptors; None: as many as it likes."""
    if most_descriptors is None:
        return _MOST_HANDLES
    return max(1, min(most_descriptors // _SHARE_OF_DESCRIPTORS, _MOST_HANDLES))


def named_error(error: OSError, path: str) -> OSError:
    """Returns the error with the file's name, which calls on a descriptor do not know, and with the exhausted limit."""
    number = error.errno or errno.EIO
    return OSError(number, (error.strerror or os.strerror(number)) + _limit_behind(number), path)


def _limit_behind(number: int) -> str:
    """Returns what stopped a call that ended with `number` (an errno), and the setting that raises a limit; empty for
    other errors.
    """
    if number == errno.ENXIO:
        return ": expected a regular file, found a socket or device"
    if number == errno.EMFILE:
        used, (allowed, _) = _count_lines(_OPEN_FILES), resource.getrlimit(resource.RLIMIT_NOFILE)
        return f": this process has {used} files open of {allowed} it may, raise `ulimit -n`"
    if number == errno.ENFILE:
        return ": the machine has as many files open as it may, raise fs.file-max"
    if number == errno.ENOMEM:
        used, allowed = _count_lines(_MAPS), _read_number(_MOST_MAPS)
        return f": this process has {used} maps of {allowed} it may, raise vm.max_map_count or `ulimit -v`"
    return ""


def _count_lines(path: str) -> int:
    """Returns the number of names in a directory or of lines in a file of /proc; -1 if the system has no such path."""
    try:
        if os.path.isdir(path):
            return len(os.listdir(path))
        descriptor = os.open(path, os.O_RDONLY)
    # A directory cannot be listed when no file can be opened: then the whole limit is in use.
    except OSError:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0] if path == _OPEN_FILES else -1
    try:
        count = 0
        while block := os.read(descriptor, 1 << 16):
            count += block.count(b"\n")
        return count
    finally:
        os.close(descriptor)


def _read_number(path: str) -> int:
    """Returns the number in a file of /proc; -1 if the system has no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return -1
    try:
        return int(os.read(descriptor, 64))
    finally:
        os.close(descriptor)
