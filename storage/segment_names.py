"""The files of one segment: its base offset in 20 digits, and a suffix for each kind. Kafka: LogFileUtils."""

from __future__ import annotations

from typing import Final

from storage.filesystem import join

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


def offset_name(offset: int) -> str:
    """20 digits, so that names sort as offsets do."""
    return f"{offset:020d}"


def log_path(directory: str, base_offset: int, suffix: str = "") -> str:
    return join(directory, offset_name(base_offset) + LOG_SUFFIX + suffix)
