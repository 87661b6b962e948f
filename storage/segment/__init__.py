"""A segment: its `.log` file, its indexes and names, and the replacement of segments by others."""

from storage.segment.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    log_path,
    offset_name,
)
from storage.segment.segment import LogSegment

__all__ = [
    "INDEX_SUFFIX",
    "LOG_SUFFIX",
    "SEGMENT_SUFFIXES",
    "TIME_INDEX_SUFFIX",
    "TRANSACTION_INDEX_SUFFIX",
    "LogSegment",
    "log_path",
    "offset_name",
]
