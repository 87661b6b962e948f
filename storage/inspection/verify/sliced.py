"""Reads index files in slices, so that what is in place of one, a sparse giant for example, takes little memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from storage.disk.filesystem import File, FileSystem, OpenMode
from storage.index.memory_mapped import MAX_INDEX_BYTES

# Path, position, rule, message.
Finding = tuple[str, int | None, str, str]

# The findings about one file that are reported: garbage contradicts itself at every entry.
MOST_FINDINGS: Final = 1000
_SLICE_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(_SLICE_BYTES)


class SlicedIndex:
    """One index file of entries of `entry_size` bytes, open for reading until `close`."""

    def __init__(self, file_system: FileSystem, path: str, entry_size: int) -> None:
        self._file: File = file_system.open(path, OpenMode.READ)
        self.path, self._entry_size = path, entry_size
        self.size_bytes = self._file.size()
        # A whole number of entries.
        self._slice_bytes = _SLICE_BYTES // entry_size * entry_size

    def close(self) -> None:
        self._file.close()

    def check_size(self, rule: str) -> Iterator[Finding]:
        """Report a length that no index has. A file that is too large must not be read then."""
        if self.is_too_large:
            yield self.path, None, rule, f"{self.size_bytes} bytes are more than an index may have"
        elif left := self.size_bytes % self._entry_size:
            message = f"{self.size_bytes} bytes are no whole number of entries of {self._entry_size}"
            yield self.path, self.size_bytes - left, rule, message

    @property
    def is_too_large(self) -> bool:
        return self.size_bytes > MAX_INDEX_BYTES

    def used_bytes(self) -> int:
        """Returns the size up to the last entry that is not all zeros: the rest is preallocated space."""
        entry_size, end = self._entry_size, self.size_bytes
        while end > 0:
            start = max(0, (end - 1) // self._slice_bytes * self._slice_bytes)
            block = self._file.read_at(start, end - start)
            # A comparison is much faster than a strip, and nearly all of a sparse file is zeros.
            used = 0 if block == _ZEROS[: len(block)] else len(block.rstrip(b"\0"))
            if used:
                whole = self.size_bytes // entry_size * entry_size
                return min(start + -(-used // entry_size) * entry_size, whole)
            end = start
        return 0

    def slices(self, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes up to `end` in whole entries, each slice with its position. Ends where the file does."""
        assert 0 <= end <= self.size_bytes, (self.path, end, self.size_bytes)
        position = 0
        while position < end:
            block = self._file.read_at(position, min(self._slice_bytes, end - position))
            whole = len(block) // self._entry_size * self._entry_size
            if not whole:
                return
            yield position, block[:whole]
            position += whole


def first_findings(findings: Iterator[Finding], path: str) -> Iterator[Finding]:
    """Yield the first findings about one file, and after the last of them that there are more."""
    for number, finding in enumerate(findings, start=1):
        yield finding
        if number == MOST_FINDINGS:
            yield path, None, finding[2], f"the file was read no further after {MOST_FINDINGS} contradictions"
            return
