"""What vouches for the logs of a directory, so that a start does not look at them: the mark of an orderly stop, and the
recovery points.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, final

from storage.disk.checkpoints import RECOVERY_POINT_CHECKPOINT, CleanShutdownFile, OffsetCheckpoint
from storage.disk.filesystem import FileSystem, join, read_file, replace_file

# Of a checkpoint; a million partitions with long names have fewer.
_MOST_BYTES: Final = 1 << 25

# A topic and a partition.
Key = tuple[str, int]
# Returns the offsets of a checkpoint: none without the file, and none where it is damaged, as in a node.
ReadOffsets = Callable[[FileSystem, str], dict[Key, int]]


@final
class Vouchers:
    """The mark and the recovery points of `keys` in a log directory, as they were when this was made.

    A recovery builds indexes in place, and cuts logs. If it ends in the midst of that, a start that trusts the mark or
    a recovery point takes a half-built index for whole, and retention deletes segments by it.
    """

    def __init__(
        self, file_system: FileSystem, log_directory: str, keys: Collection[Key], read: ReadOffsets
    ) -> None:
        self._file_system, self._keys, self._read = file_system, keys, read
        self._checkpoint = join(log_directory, RECOVERY_POINT_CHECKPOINT)
        self._points = read(file_system, self._checkpoint)
        self._written = _content_of(file_system, self._checkpoint)
        self._mark = CleanShutdownFile(file_system, log_directory)
        self._content = _content_of(file_system, self._mark.path)

    def withdraw(self) -> None:
        """Let nothing vouch for the logs. On return that is on the disk. Does nothing without logs. Raises OSError."""
        if not self._keys:
            return
        self._write({key: 0 if key in self._keys else offset for key, offset in self._points.items()})
        self._mark.delete()

    def give_back(self, ends: Mapping[Key, int]) -> None:
        """Let all vouch again that holds: `ends` has the logs that are recovered, with their ends. Raises OSError.

        Without some of them there is no mark, and the next start recovers those. In a dry run, too, this is what is
        left in the end.
        """
        if not self._keys:
            return
        points = {
            key: min(offset, ends.get(key, 0)) if key in self._keys else offset
            for key, offset in self._points.items()
        }
        if points != self._points or self._written is None:
            self._write(points)
        elif _content_of(self._file_system, self._checkpoint) != self._written:
            # Kafka writes them in another order.
            replace_file(self._file_system, self._checkpoint, self._written)
        if not all(key in ends for key in self._keys):
            self._mark.delete()
        elif self._content is not None and not self._mark.exists():
            replace_file(self._file_system, self._mark.path, self._content)

    def _write(self, points: dict[Key, int]) -> None:
        if points != self._read(self._file_system, self._checkpoint):
            OffsetCheckpoint(self._file_system, self._checkpoint).write(points)


def _content_of(file_system: FileSystem, path: str) -> bytes | None:
    """Returns what is in the file; None without one, and for one that no node has written: it may be a sparse giant."""
    if not file_system.exists(path) or file_system.stat(path).size_bytes > _MOST_BYTES:
        return None
    return read_file(file_system, path)
