"""The ids of idempotent producers: each is handed out once, by the broker that it was granted to."""

from __future__ import annotations

from typing import final

from cluster.core.errors import ErrorCode
from cluster.core.messages import AllocateProducerIdsResponse, InitProducerIdResponse
from sim.checkers.base import Jury


@final
class ProducerIdsOnce:
    """Judges the ids that brokers hand out: two producers with one id and epoch would take each other's sequences.

    So a broker hands out none that is not in a block of its own, and no two blocks have an id in common.
    """

    name = "producer-ids"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # The broker that has handed out each id.
        self._owners: dict[int, str] = {}
        # All blocks: the end of each, exclusive, by its first id.
        self._ends: dict[int, int] = {}
        # The blocks that each broker has got from the controller: first id and end, exclusive.
        self._granted: dict[str, list[tuple[int, int]]] = {}

    def on_granted(self, broker: str, body: AllocateProducerIdsResponse) -> None:
        """Receives the controller's answer to a broker, as the broker gets it."""
        if body.error is ErrorCode.NONE:
            block = (body.first_producer_id, body.first_producer_id + body.count)
            self._granted.setdefault(broker, []).append(block)
            self._judge_block(broker, *block)

    def _judge_block(self, broker: str, first: int, end: int) -> None:
        for other, its_end in self._ends.items():
            if first < its_end and other < end:
                what = f"{broker} was granted the ids {first} to {end} (excl.)"
                self._jury.report(self.name, f"{what}; {other} to {its_end} (excl.) are granted already")
        self._ends[first] = end

    def on_answer(self, broker: str, body: InitProducerIdResponse) -> None:
        """Receives a broker's answer as it leaves, also one that never arrives."""
        if body.error is not ErrorCode.NONE:
            return
        if not any(first <= body.producer_id < end for first, end in self._granted.get(broker, ())):
            self._jury.report(
                self.name, f"{broker} hands out id {body.producer_id}, which is in no block of its own"
            )
        owner = self._owners.get(body.producer_id)
        if owner is not None:
            self._jury.report(self.name, f"{broker} hands out id {body.producer_id}, as {owner} has before")
        self._owners[body.producer_id] = broker
