"""Judges what compaction leaves of idempotent producers: the last batch of each stays, if need be without records.

A log that is opened without a snapshot knows a producer's last sequence by that batch alone, and would otherwise take a
retry for a new batch (CL14, KAFKA-5490).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

from storage.batch import RecordBatch


class LastBatch(NamedTuple):
    """The batch of a producer that ends at `last_offset`."""

    producer_id: int
    last_offset: int


class _Look(NamedTuple):
    """The last batches that a log had, and where it ended (exclusive)."""

    lasts: frozenset[LastBatch]
    end: int


@final
class KeptProducers:
    """Remembers which producers' batches each broker's log of one partition had, and compares them with what is left.

    A batch that a later one of its producer followed may go. If a cut or a crash takes the later one, the broker knows
    the producer by the earlier batch again, which may be gone: only a batch is missed that was there at the last look,
    or was appended since, without a cut.
    """

    def __init__(self) -> None:
        # None from a cut to the next look.
        self._seen: dict[int, _Look | None] = {}

    def on_cut(self, broker: int) -> None:
        """Forget what the broker's log had."""
        self._seen[broker] = None

    def look(self, broker: int, batches: Sequence[RecordBatch]) -> None:
        """Remember the batches of the broker's log."""
        end = batches[-1].last_offset + 1 if batches else 0
        lasts = frozenset(
            LastBatch(batch.producer_id, batch.last_offset) for batch in batches if batch.has_producer_id
        )
        self._seen[broker] = _Look(lasts, end)

    def judge(
        self, broker: int, batches: Sequence[RecordBatch], held: Mapping[int, int], log_start: int
    ) -> str:
        """Returns which producer's last batch a compaction has just taken; empty if none.

        `held` is the last offset of each producer that the broker knows. Remembers the batches that are left.
        """
        before = self._seen.get(broker, _Look(frozenset(), 0))
        self.look(broker, batches)
        left = self._seen[broker]
        if before is None or left is None:
            return ""
        for producer_id, last_offset in held.items():
            last = LastBatch(producer_id, last_offset)
            was_there = last in before.lasts or last_offset >= before.end
            if last_offset >= log_start and was_there and last not in left.lasts:
                return f"the last batch of producer {producer_id}, up to offset {last_offset}, was deleted"
        return ""
