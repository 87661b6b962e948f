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

    def on_died(self) -> None:
        """Forget what was refused: no copy outlives the connections of the controller's process."""
        self._refused.clear()

    def on_step(self, events: Sequence[Event], effects: Sequence[object]) -> None:
        """Receives what a step of the controller took and what came of it; what it accepts it may answer later."""
        for event in events:
            if type(event) is Request and isinstance(event.body, AlterPartitionRequest):
                self._on_proposal(event.call, event.body, effects)

    def _on_proposal(self, call: int, asked: AlterPartitionRequest, effects: Sequence[object]) -> None:
        answers = [
            effect.body.error
            for effect in effects
            if type(effect) is Reply
            and effect.call == call
            and isinstance(effect.body, AlterPartitionResponse)
        ]
        proposed = (
            asked.topic_partition,
            asked.topic_id,
            asked.broker_epoch,
            asked.leader_epoch,
            asked.attempt,
        )
        is_decided = not answers or answers[0] in (ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA)
        if proposed in self._refused and is_decided:
            what = f"proposal {asked.attempt} of epoch {asked.leader_epoch} is decided again after it was refused"
            self._jury.report(self.name, f"{asked.topic_partition}: {what}")
        elif answers and answers[0] is ErrorCode.INELIGIBLE_REPLICA:
            self._refused.add(proposed)
