"""The leaders that answers name, by which clients find their way: each led in that epoch (KIP-951)."""

from __future__ import annotations

from typing import final

from cluster.core.errors import ErrorCode
from cluster.core.messages import FetchResponse, ProduceResponse, ResponseBody
from sim.checkers.base import Jury


@final
class NamedLeaders:
    """Judges the leader and the leader epoch that an answer names: such a pair is in the metadata log.

    An answer may be of an earlier state, and of an earlier topic of the name. A client that believes in an epoch which
    does not exist asks no other broker before that epoch has come. Fetches that are answered with records are judged by
    the epoch that they ask in.
    """

    name = "named-leaders"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # By partition: all pairs of a leader and its epoch that there ever were.
        self._led: dict[str, set[tuple[int, int]]] = {}

    def on_recorded(self, partition: str, leader: int, leader_epoch: int) -> None:
        """Receives a state of a partition, as the metadata log has it."""
        assert leader_epoch >= 0, (partition, leader, leader_epoch)
        self._led.setdefault(partition, set()).add((leader, leader_epoch))

    def on_answer(self, node: int, body: ResponseBody) -> None:
        """Receives an answer as it leaves a node."""
        if isinstance(body, ProduceResponse):
            for produced in body.partitions:
                named = (produced.leader_id, produced.leader_epoch)
                self._judge(node, str(produced.topic_partition), named)
        elif isinstance(body, FetchResponse):
            for fetched in body.partitions:
                if fetched.error is not ErrorCode.NONE:
                    named = (fetched.leader_id, fetched.leader_epoch)
                    self._judge(node, str(fetched.topic_partition), named)

    def _judge(self, node: int, partition: str, named: tuple[int, int]) -> None:
        if named[0] >= 0 and named not in self._led.get(partition, ()):
            what = f"broker {node} names broker {named[0]} as its leader in epoch {named[1]}"
            self._jury.report(self.name, f"{partition}: {what}; the metadata log has no such state")
