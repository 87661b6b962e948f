"""How much a consumer has fetched that its program has not read yet: it fetches no more above a mark."""

from __future__ import annotations

from typing import final

from cluster.core.client.effects import Fetched

# Fetching pauses above the first of each two and continues below the second. Few large records fill memory as many
# small ones do. A fetch that was on its way may add what `fetched_records.py` bounds.
PAUSE_AT_RECORDS, RESUME_AT_RECORDS = 50_000, 10_000
PAUSE_AT_BYTES, RESUME_AT_BYTES = 64 << 20, 16 << 20


@final
class Backlog:
    """The records, and the bytes of their keys and values, that wait to be read."""

    __slots__ = ("records", "size_bytes")

    def __init__(self) -> None:
        self.records, self.size_bytes = 0, 0

    @property
    def is_high(self) -> bool:
        return self.records > PAUSE_AT_RECORDS or self.size_bytes > PAUSE_AT_BYTES

    @property
    def is_low(self) -> bool:
        return self.records < RESUME_AT_RECORDS and self.size_bytes < RESUME_AT_BYTES

    def add(self, fetched: Fetched) -> None:
        self.records += len(fetched.records)
        self.size_bytes += size_of(fetched)

    def take(self, fetched: Fetched) -> None:
        self.records -= len(fetched.records)
        self.size_bytes -= size_of(fetched)
        assert self.records >= 0 <= self.size_bytes, (self.records, self.size_bytes, len(fetched.records))


def size_of(fetched: Fetched) -> int:
    """Returns the bytes of the keys and values of fetched records."""
    return sum(len(record.key or b"") + len(record.value or b"") for record in fetched.records)
