"""A `.log` that is not live, walked through a map: copying it would cost as much as the checksums.

Nobody may append or truncate until the walk is closed. What a loop over the map finds odd, a batch of magic 0 or 1 or
one that is damaged, it leaves to `odd_batch`, which reads a copy: an error that held a piece of the map would keep it
from closing. A disk error under the map ends the process with SIGBUS.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from storage.batch_format import FIELD_SIZE, HEADER_SIZE, LOG_OVERHEAD
from storage.file_records import FileRecords, HeaderFields

WINDOW_BYTES: Final = 1 << 24  # of a mapped file that stay in memory behind a walk


@final
class MappedWalk:
    """`view` is the file, `limit` where its records end in it."""

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
        """What lies before `position` is done with; gives where to call this again.

        That is not above `position` where fewer bytes are left than a header of magic 2 takes.
        """
        if self._map is not None:
            self._map.release_until(position)
        return min(self.limit - HEADER_SIZE + 1, position + self._window_bytes)

    def odd_batch(self, position: int) -> HeaderFields | None:
        """As `FileRecords.scan_headers` finds it there; None at the end. Raises CorruptBatch."""
        if position != self._odd_end:
            self._odd = (header for *_, header in self._records.scan_headers(position))
        header = next(self._odd, None)
        if header is not None:
            self._odd_end = position + LOG_OVERHEAD + header[FIELD_SIZE]
        return header

    def close(self) -> None:
        """Before the file is changed."""
        if self._map is not None:
            self._map.close()
