"""The result of a read of the log, and how far a read may see. Kafka: FetchDataInfo, FetchIsolation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from storage.index.transaction_index import AbortedTransaction
from storage.segment.place import LogOffsetMetadata


class Isolation(Enum):
    """The offset at which a read has to end."""

    # For a follower: everything that was appended.
    LOG_END = "log_end"
    # For a consumer: what is committed.
    HIGH_WATERMARK = "high_watermark"
    # For a consumer that reads only decided transactions.
    TXN_COMMITTED = "txn_committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchData:
    """Bytes as stored, from the start of the batch that holds the offset asked for.

    The first batch may begin below that offset, the last may be cut anywhere. `offset_metadata` has the base offset of
    the first batch, with its place. With `first_entry_incomplete` not even the first batch is whole.
    `aborted_transactions` overlap the bytes; None unless the isolation needs them, and where nothing is left to read.
    """

    offset_metadata: LogOffsetMetadata
    records: bytes = b""
    first_entry_incomplete: bool = False
    aborted_transactions: tuple[AbortedTransaction, ...] | None = None
