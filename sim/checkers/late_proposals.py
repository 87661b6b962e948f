"""What the controller does with a proposal that comes again after it was refused for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Request
from cluster.core.messages import AlterPartitionRequest, AlterPartitionResponse, TopicPartition
from sim.checkers.base import Jury

# A proposal: the partition, its topic's id, the life of the leader and its epoch, and the proposal's number there.
Proposed = tuple[TopicPartition, str, int, int, int]


@final
class LateProposals:
    """Judges whether the controller decides about a proposal once.

    Once a leader is told that a member may not be in sync it waits for that member no longer. A copy that the network
    brings later, when the member may be, must not be accepted: the controller would have a member for which its leader
    does not wait (CTL-1, ISR-6).
    """

    name = "late-proposals"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        self._refused: set[Proposed] = set()
        # By call: those that have no answer yet. While the metadata log is flushed each answer waits, also a refusal.
        self._open: dict[int, Proposed] = {}

    def on_died(self) -> None:
        """Forget what was refused: no copy outlives the connections of the controller's process."""
        self._refused.clear()
        self._open.clear()

    def on_step(self, events: Sequence[Event], effects: Sequence[object]) -> None:
        """Receives what a step of the controller took, and what came of it and of the steps before it."""
        for event in events:
            if type(event) is Request and isinstance(event.body, AlterPartitionRequest):
                asked = event.body
                self._open[event.call] = (
                    asked.topic_partition,
                    asked.topic_id,
                    asked.broker_epoch,
                    asked.leader_epoch,
                    asked.attempt,
                )
        for effect in effects if self._open else ():
            if type(effect) is Reply and isinstance(effect.body, AlterPartitionResponse):
                self._on_answer(self._open.pop(effect.call, None), effect.body.error)

    def _on_answer(self, proposed: Proposed | None, error: ErrorCode) -> None:
        if proposed is None or error not in (ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA):
            return
        if proposed in self._refused:
            topic_partition, _, _, leader_epoch, attempt = proposed
            what = f"proposal {attempt} of epoch {leader_epoch} is decided again after it was refused"
            self._jury.report(self.name, f"{topic_partition}: {what}")
        elif error is ErrorCode.INELIGIBLE_REPLICA:
            self._refused.add(proposed)
