"""The records of a producer that have no outcome yet, and the flushes that wait for them.

Kafka: RecordAccumulator.IncompleteBatches, BufferPool.
"""

from __future__ import annotations

from typing import final

from cluster.core.client.effects import Flushed


@final
class UnfinishedRecords:
    """Counts the records whose `Delivered` is still to come, by generation: the number of flushes before each."""

    def __init__(self) -> None:
        # That of the records which are sent from now on.
        self.generation = 0
        # Of all records without an outcome.
        self.size_bytes = 0
        self._counts: dict[int, int] = {}
        # The ticket of each flush, by generation.
        self._flushes: dict[int, int] = {}

    @property
    def count(self) -> int:
        return sum(self._counts.values())

    @property
    def is_empty(self) -> bool:
        return not self._counts

    @property
    def is_flushing(self) -> bool:
        """Whether a flush waits for its records."""
        return bool(self._flushes)

    def add(self, size_bytes: int) -> None:
        """Counts one record of the present generation."""
        assert size_bytes > 0, size_bytes
        self.size_bytes += size_bytes
        self._counts[self.generation] = self._counts.get(self.generation, 0) + 1

    def end(self, generation: int, record_count: int, size_bytes: int) -> None:
        """Takes away records of a generation that have their outcome."""
        self.size_bytes -= size_bytes
        assert self.size_bytes >= 0, self.size_bytes
        self._counts[generation] -= record_count
        assert self._counts[generation] >= 0, self._counts
        if not self._counts[generation]:
            del self._counts[generation]

    def begin_flush(self, ticket: int) -> None:
        """Begins a new generation; the flush waits for the records of all earlier ones."""
        assert self.generation not in self._flushes, (self.generation, ticket)
        self._flushes[self.generation] = ticket
        self.generation += 1
        # A record of a later generation would be sent before this flush and told after it.
        assert self.generation not in self._counts, (self.generation, self._counts)

    def end_flushes(self) -> list[Flushed]:
        """Removes the flushes whose records all have their outcome; returns what their callers are told, in order."""
        oldest = min(self._counts, default=self.generation)
        finished = [generation for generation in self._flushes if generation < oldest]
        return [Flushed(ticket=self._flushes.pop(generation)) for generation in finished]
