"""The facts about the batches of one set that a segment's indexes need, column by column.

A follower's set may hold a thousand batches, of which few get an index entry: in columns these few are found by
bisection, and the greatest timestamp between two of them by one call.
"""

from __future__ import annotations

from typing import final


@final
class BatchColumns:
    """One row per batch, in order: its first byte in the set, its last offset, its greatest timestamp."""

    __slots__ = ("last_offsets", "max_timestamps", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.last_offsets: list[int] = []
        self.max_timestamps: list[int] = []

    def __len__(self) -> int:
        return len(self.starts)
