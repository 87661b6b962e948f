"""A flush in two halves: what to sync is fixed while nothing else runs, the syncs happen where waiting is allowed.

Kafka: UnifiedLog.flush, LocalLog.flush; rules FL1 to FL4, T12.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from storage.filesystem import FileSystem
from storage.segment import LogSegment


@final
class PreparedFlush:
    """Call it, once, on any thread; then hand `offset` to the log's `flushed`.

    Appends may go on meanwhile. A truncation below `offset` lowers `valid_up_to`: what was written anew above it
    is not what was synced.
    """

    __slots__ = ("_file_system", "_segments", "_snapshot_syncs", "_sync_directory", "offset", "valid_up_to")

    def __init__(
        self,
        file_system: FileSystem,
        offset: int,
        segments: list[LogSegment],
        snapshot_syncs: list[Callable[[], None]],
        directory_to_sync: str | None,
    ) -> None:
        self._file_system = file_system
        self.offset = self.valid_up_to = offset
        self._segments = segments
        self._snapshot_syncs = snapshot_syncs
        self._sync_directory = directory_to_sync
        for segment in segments:
            # Opened here, in the log's own step: the job must not create files while appends go on.
            _ = segment.offset_index, segment.time_index

    def __call__(self) -> None:
        """Raises OSError; then nothing of it may be taken as synced."""
        for sync in self._snapshot_syncs:
            sync()
        for segment in self._segments:
            try:
                segment.flush()
            except OSError:
                if not segment.is_deleted:  # a truncation took it meanwhile: there is nothing left to sync
                    raise
        if self._sync_directory is not None:
            self._file_system.sync_directory(self._sync_directory)
