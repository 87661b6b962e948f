"""The lock of a whole file that also excludes a process that locks it as Java's FileChannel does, such as Kafka.

That is a lock of `fcntl`, which Linux keeps apart from those of `flock`. A process's own such locks end when it closes
any descriptor of the file, so this is the kind that belongs to an open file, as an flock does (F_OFD_SETLK).
"""

from __future__ import annotations

import errno
import fcntl
import struct
import sys
from typing import Final

# Linux with 64 bits has these numbers and this `struct flock`: type, whence, start, length (0: to the end), process.
_HAS_LOCKS: Final = sys.platform == "linux" and struct.calcsize("P") == 8
_OFD_GETLK, _OFD_SETLK, _FROM_START = 36, 37, 0
_FLOCK: Final = struct.Struct("@hhqqi4x")
# Of an older kernel, and of a file system that has no such locks or cannot reach who keeps them.
_NO_LOCKS: Final = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def lock_whole_file(descriptor: int) -> None:
    """Lock the file until its last descriptor of this opening is closed. The descriptor must be one for writing.

    Raises BlockingIOError while another has such a lock; does nothing where there are none.
    """
    if not _HAS_LOCKS:
        return
    try:
        fcntl.fcntl(descriptor, _OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, _FROM_START, 0, 0, 0))
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def is_whole_file_locked(descriptor: int) -> bool:
    """Whether another opening of the file, in whatever process, has such a lock; takes none. False if that cannot be
    known.
    """
    if not _HAS_LOCKS:
        return False
    try:
        found = fcntl.fcntl(descriptor, _OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, _FROM_START, 0, 0, 0))
    except OSError:
        return False
    lock_type: int = _FLOCK.unpack(found)[0]
    return lock_type != fcntl.F_UNLCK
