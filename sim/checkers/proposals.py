"""The limit of a leader's proposals to the controller: one at a time."""

from __future__ import annotations

from typing import final

from cluster.core.messages import AlterPartitionRequest
from sim.checkers.base import Jury

# A node, and its life.
Life = tuple[int, int]


@final
class Proposals:
    """Judges each proposal of an in-sync set: the leader of an epoch has no other one without an answer (I5).

    Two at a time could reach the controller in the other order, and the leader would not know which set is committed.
    """

    name = "one-proposal"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # The partition and leader epoch of each proposal that has no answer, by life and call.
        self._open: dict[Life, dict[int, tuple[str, int]]] = {}

    @property
    def are_open(self) -> bool:
        """Whether any proposal may have no answer."""
        return bool(self._open)

    def on_sent(self, life: Life, call: int, body: AlterPartitionRequest) -> None:
        """Receives a proposal as it leaves the core."""
        proposals = self._open.setdefault(life, {})
        proposed = (str(body.topic_partition), body.leader_epoch)
        if proposed in proposals.values():
            what = (
                f"broker {life[0]} proposes an ISR in epoch {proposed[1]} beside a proposal without an answer"
            )
            self._jury.report(self.name, f"{proposed[0]}: {what}")
        assert call not in proposals, (life, call)
        proposals[call] = proposed

    def on_answered(self, life: Life, call: int) -> None:
        """Receives the end of a call, by its answer or by a failure."""
        proposals = self._open.get(life)
        if proposals is not None:
            proposals.pop(call, None)
            if not proposals:
                del self._open[life]

    def on_end(self, node: int) -> None:
        """Forget the proposals of the node's lives that have ended."""
        for life in [life for life in self._open if life[0] == node]:
            del self._open[life]
