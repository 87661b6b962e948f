"""The produce requests that wait for their answers, of which each leader has a bounded number.

Kafka: InFlightRequests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from cluster.core.client.accumulator import ProducerBatch
from storage.values import maker, quickly_made


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class _ProduceCall:
    leader: int
    # Whether its partitions are slow ones.
    is_slow: bool
    batches: tuple[ProducerBatch, ...]


_produce_call = maker(_ProduceCall)


@final
class RequestsInFlight:
    """The requests without an answer by call, and how many of them each leader has."""

    def __init__(self, most_a_leader: int) -> None:
        self._most_a_leader = most_a_leader
        self._calls: dict[int, _ProduceCall] = {}
        # The number of requests, by leader.
        self._counts: dict[int, int] = {}
        # Those of them with slow partitions.
        self._slow_counts: dict[int, int] = {}

    def is_asking(self, leader: int) -> bool:
        """Whether the leader has a request without an answer."""
        return self._counts.get(leader, 0) > 0

    def may_ask(self, leader: int, *, is_slow: bool) -> bool:
        """Whether the leader may have one more request; slow partitions leave one to the others, if there are two."""
        if self._counts.get(leader, 0) >= self._most_a_leader:
            return False
        return not is_slow or self._slow_counts.get(leader, 0) < max(1, self._most_a_leader - 1)

    def sent(self, call: int, leader: int, batches: tuple[ProducerBatch, ...], *, is_slow: bool) -> None:
        """Notes a request that expects an answer."""
        assert call not in self._calls, call
        self._calls[call] = _produce_call(leader=leader, is_slow=is_slow, batches=batches)
        self._counts[leader] = self._counts.get(leader, 0) + 1
        if is_slow:
            self._slow_counts[leader] = self._slow_counts.get(leader, 0) + 1
        assert self._counts[leader] <= self._most_a_leader, (leader, self._counts)

    def answered(self, call: int) -> tuple[ProducerBatch, ...] | None:
        """Forgets the request, which was answered or failed; returns its batches, None if it expected no answer."""
        sent = self._calls.pop(call, None)
        if sent is None:
            return None
        self._counts[sent.leader] -= 1
        assert self._counts[sent.leader] >= 0, (sent.leader, self._counts)
        if sent.is_slow:
            self._slow_counts[sent.leader] -= 1
            assert self._slow_counts[sent.leader] >= 0, (sent.leader, self._slow_counts)
        return sent.batches
