"""One partition's log: append, read, truncation, retention, flushes and compaction."""

from storage.log.append_info import AppendInfo
from storage.log.flushes import PreparedFlush
from storage.log.partition_log import PartitionLog
from storage.producers.entry import AppendOrigin
from storage.recovery.cut import RecoveryCut
from storage.segment.fetch_data import FetchData, Isolation
from storage.segment.place import LogOffsetMetadata

__all__ = [
    "AppendInfo",
    "AppendOrigin",
    "FetchData",
    "Isolation",
    "LogOffsetMetadata",
    "PartitionLog",
    "PreparedFlush",
    "RecoveryCut",
]
