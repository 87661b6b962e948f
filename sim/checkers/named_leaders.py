"""The leaders that answers name, by which clients find their way: each led in that epoch (KIP-951)."""

from __future__ import annotations

from typing import final

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    FetchPartitionResponse,
    FetchResponse,
    ProducePartitionResponse,
    ProduceResponse,
    ResponseBody,
)
from cluster.core.metadata.image import MetadataImage
from sim.checkers.base import Jury

PartitionAnswer = ProducePartitionResponse | FetchPartitionResponse
# What a client or a follower is told that has asked the wrong broker, or the right one in another leader epoch.
_OF_LEADERS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


@final
class NamedLeaders:
    """Judges the leader and the leader epoch that an answer names: such a pair is in the metadata log.

    An answer may be of an earlier state, and of an earlier topic of the name. A client that believes in an epoch which
    does not exist asks no other broker before that epoch has come. Fetches that are answered with records are judged by
    the epoch that they ask in.

    Who asked the wrong broker, or in the wrong leader epoch, is told of the leader that this broker knows: without it
    each client that has lost its leader asks for metadata first.
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

    def on_answer(self, node: int, body: ResponseBody, known: MetadataImage | None = None) -> None:
        """Receives an answer as it leaves a node; `known` is what its broker has read of the metadata by then."""
        if isinstance(body, ProduceResponse):
            for produced in body.partitions:
                named = (produced.leader_id, produced.leader_epoch)
                self._judge(node, produced, named, known)
        elif isinstance(body, FetchResponse):
            for fetched in body.partitions:
                if fetched.error is not ErrorCode.NONE:
                    named = (fetched.leader_id, fetched.leader_epoch)
                    self._judge(node, fetched, named, known)

    def _judge(
        self, node: int, answer: PartitionAnswer, named: tuple[int, int], known: MetadataImage | None
    ) -> None:
        partition = str(answer.topic_partition)
        if named[0] >= 0 and named not in self._led.get(partition, ()):
            what = f"broker {node} names broker {named[0]} as its leader in epoch {named[1]}"
            self._jury.report(self.name, f"{partition}: {what}; the metadata log has no such state")
        if named[0] >= 0 or known is None or answer.error not in _OF_LEADERS:
            return
        registration = known.partition(answer.topic_partition)
        if registration is not None and registration.leader >= 0:
            told = f"{partition}: broker {node} answers {answer.error.name} and names no leader"
            what = f"it knows broker {registration.leader} in epoch {registration.leader_epoch}"
            self._jury.report(self.name, f"{told}; {what}")
