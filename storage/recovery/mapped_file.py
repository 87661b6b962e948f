"""A `.log` that is not live, walked through a memory map: copying the file would cost as much as the checksums.

Nobody may append or truncate until the walk is closed. A batch of magic 0 or 1 or a damaged one is left to
`odd_batch`, which reads a copy: an error that held a slice of the map would prevent the map from closing. A disk error
under the map ends the process with SIGBUS.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Final, final

from storage.batch.format import FIELD_SIZE, HEADER_SIZE, LOG_OVERHEAD
from storage.segment.file_records import FileRecords, HeaderFields

# The part of a mapped file before the present position that stays in memory.
WINDOW_BYTES: Final = 1 << 24
# What a step of `scan_headers` yields last.
_HEADER: Final = itemgetter(3)


@final
class MappedWalk:
    """A mapped `.log`: `view` is the file, `limit` the byte at which its records end."""

    __slots__ = ("_map", "_odd", "_odd_end", "_records", "_window_bytes", "limit", "view")

    def __init__(self, records: FileRecords, window_bytes: int = WINDOW_BYTES) -> None:
        self._records = records
        self._window_bytes = min(window_bytes, WINDOW_BYTES)
        self._map = records.map_for_reading() if records.size_bytes else None
        self.view = self._map.view if self._map is not None else memoryview(b"")
        self.limit = min(records.size_bytes, len(self.view))
        self._odd: Iterator[HeaderFields] = iter(())
        self._odd_end = -1

    def pass_by(self, position: int) -> int:
        """Release the memory before `position`. Returns the position at which to call this again.

        The result is at most `position` where fewer bytes are left than a header of magic 2 has.
        """
        if self._map is not None:
            self._map.release_until(position)
        return min(self.limit - HEADER_SIZE + 1, position + self._window_bytes)

    def odd_batch(self, position: int) -> HeaderFields | None:
        """The batch at `position`, as `FileRecords.scan_headers` finds it; None at the end. Raises CorruptBatch."""
        assert 0 <= position <= self.limit, (position, self.limit)
        if position != self._odd_end:
            self._odd = map(_HEADER, self._records.scan_headers(position))
        header = next(self._odd, None)
        if header is not None:
            self._odd_end = position + LOG_OVERHEAD + header[FIELD_SIZE]
            assert self._odd_end <= self.limit, (position, self._odd_end, self.limit)
        return header

    def close(self) -> None:
        """Release the map; required before the file is changed."""
        if self._map is not None:
            self._map.close()
