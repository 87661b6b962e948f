"""The result of a read of the log, and the end of what a reader may see. Kafka: FetchDataInfo, FetchIsolation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from storage.index.transaction_index import AbortedTransaction
from storage.segment.place import LogOffsetMetadata
from storage.values import quickly_made


class Isolation(Enum):
    """The mark at which a read has to end."""

    # For a follower: everything that was appended.
    LOG_END = "log_end"
    # For a consumer: what is committed.
    HIGH_WATERMARK = "high_watermark"
    # For a consumer that reads only decided transactions.
    TXN_COMMITTED = "txn_committed"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class FetchData:
    """Bytes as stored, from the start of the batch that holds the offset asked for.

    The first batch may begin below that offset, the last one may be cut anywhere. `offset_metadata` is the base offset
    of the first batch, with its place. With `first_entry_incomplete` not even the first batch is whole.
    `aborted_transactions` are those that overlap the bytes; None if the isolation does not need them, and where nothing
    is left to read.
    """

    offset_metadata: LogOffsetMetadata
    records: bytes = b""
    first_entry_incomplete: bool = False
    aborted_transactions: tuple[AbortedTransaction, ...] | None = None
