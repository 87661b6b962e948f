"""One read of a log for all followers at the same offset, as most are: they wait for the same append."""

from __future__ import annotations

from typing import final

from storage.log import FetchData, Isolation, PartitionLog
from storage.segment.place import LogOffsetMetadata


@final
class SharedRead:
    """Keeps the last read up to a log's end.

    The read is valid as long as the log's end is the very same object: an append, a truncation or a roll makes another.
    """

    def __init__(self) -> None:
        self._log: PartitionLog | None = None
        self._log_end: LogOffsetMetadata | None = None
        self._asked: tuple[int, int, bool] | None = None
        self._data: FetchData | None = None

    def read(
        self, log: PartitionLog, start_offset: int, *, max_size: int, min_one_message: bool
    ) -> FetchData:
        """Reads up to the log end as `PartitionLog.read` does, and raises the same; the offset is within the log."""
        asked, log_end = (start_offset, max_size, min_one_message), log.local.log_end
        assert start_offset <= log_end.offset, (start_offset, log_end)
        is_same = self._log is log and self._log_end is log_end and self._asked == asked
        if is_same and self._data is not None and log.online.reason is None:
            return self._data
        data = log.read(
            start_offset,
            max_size=max_size,
            isolation=Isolation.LOG_END,
            min_one_message=min_one_message,
            in_step=True,
        )
        if data.records:
            assert start_offset < log_end.offset, (start_offset, log_end)
            self._log, self._log_end, self._asked, self._data = log, log_end, asked, data
        return data
