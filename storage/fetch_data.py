"""What a read of the log gives, and how far it may look. Kafka: FetchDataInfo, FetchIsolation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from storage.offset_metadata import LogOffsetMetadata
from storage.transaction_index import AbortedTransaction


class Isolation(Enum):
    LOG_END = "log_end"  # a follower: everything that was appended
    HIGH_WATERMARK = "high_watermark"  # a consumer: what is committed
    TXN_COMMITTED = "txn_committed"  # a consumer that waits for transactions to be decided


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchData:
    """Bytes as stored, from the start of the batch that holds the offset asked for.

    The first batch may begin below that offset, the last may be cut anywhere. `offset_metadata` carries the
    base offset of the first batch, with its place. With `first_entry_incomplete` not even one whole batch is here.
    `aborted_transactions` reach into the bytes; None unless the isolation asks for them, or nothing is left to read.
    """

    offset_metadata: LogOffsetMetadata
    records: bytes = b""
    first_entry_incomplete: bool = False
    aborted_transactions: tuple[AbortedTransaction, ...] | None = None
