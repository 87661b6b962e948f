"""A record of a batch of which only a part is held."""

from __future__ import annotations

from typing import final

from storage.batch.record import Record


@final
class CutRecord(Record):
    """A large record of which only a part is held; `key_size` and `value_size` are those of the whole, -1 for null."""

    key_size: int
    value_size: int


def cut_record(record: Record, key_size: int, value_size: int) -> CutRecord:
    """Returns the record as one of which only a part is held; the sizes are as stored."""
    cut = CutRecord(*record)
    cut.key_size, cut.value_size = max(key_size, -1), max(value_size, -1)
    return cut
