"""The ids of idempotent producers: each is handed out once."""

from __future__ import annotations

from typing import final

from cluster.core.errors import ErrorCode
from cluster.core.messages import InitProducerIdResponse
from sim.checkers.base import Jury


@final
class ProducerIdsOnce:
    """Judges the ids that brokers hand out: two producers with one id and epoch would take each other's sequences."""

    name = "producer-ids"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # The broker that has handed out each id.
        self._owners: dict[int, str] = {}

    def on_answer(self, broker: str, body: InitProducerIdResponse) -> None:
        """Receives a broker's answer as it leaves, also one that never arrives."""
        if body.error is not ErrorCode.NONE:
            return
        owner = self._owners.get(body.producer_id)
        if owner is not None:
            self._jury.report(self.name, f"{broker} hands out id {body.producer_id}, as {owner} has before")
        self._owners[body.producer_id] = broker
