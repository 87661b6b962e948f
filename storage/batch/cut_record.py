"""A record of a batch of which only a part is held."""

from __future__ import annotations

from typing import final

from storage.batch.record import Record


@final
class CutRecord(Record):
    """A large record of which only a part is held; `key_size` and `value_size` are those of the whole, -1 for null."""

    key_size: int
    value_size: int
