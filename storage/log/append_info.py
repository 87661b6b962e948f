"""The result of an append. Kafka: LogAppendInfo."""

from __future__ import annotations

from typing import NamedTuple

from storage.batch.record import NO_TIMESTAMP
from storage.validation.checked import NO_EPOCH, NO_OFFSET


class AppendInfo(NamedTuple):
    """The result of one append: offsets `first_offset` to `last_offset`, both inclusive; -1 and -1 for none.

    The offsets and `log_append_time_ms` of a duplicate are those of the batch as it was first written.
    `skipped_bytes` is the size of whole batches of a later leader epoch, which were not appended (FET-9).
    """

    first_offset: int
    last_offset: int
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = 0
    last_leader_epoch: int = NO_EPOCH
    batch_count: int = 0
    size_bytes: int = 0
    is_duplicate: bool = False
    has_rolled: bool = False
    skipped_bytes: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing was appended and nothing was found to be a duplicate."""
        return self.first_offset < 0
