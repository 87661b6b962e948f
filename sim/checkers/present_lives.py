"""The lives of followers: what an earlier process of a broker asks is not granted to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from cluster.core.errors import ErrorCode
from cluster.core.messages import FetchRequest, FetchResponse
from cluster.core.metadata.image import BrokerRegistration
from sim.checkers.base import Jury

# Later than any time of a run.
LATER_US = 1 << 62


@final
class PresentLives:
    """Judges each fetch of a follower that a leader answers by the lives that the leader knew of before (LED-7).

    An earlier life of a broker has another log than the present one: what it fetched says nothing.
    """

    name = "present-lives"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # What each node knew after the last step that may have changed it, and the life of the node.
        self._known: dict[int, tuple[int, Mapping[int, BrokerRegistration]]] = {}
        # When each node first knew of a registration, by node, broker and broker epoch.
        self._since_us: dict[tuple[int, int, int], int] = {}

    def on_metadata(self, node_id: int, life: int, brokers: Mapping[int, BrokerRegistration]) -> None:
        """Receives the registrations that a node knows at the end of a step: answers of that step may be older."""
        self._known[node_id] = (life, brokers)
        for number, broker in brokers.items():
            self._since_us.setdefault((node_id, number, broker.broker_epoch), self._jury.now_us())

    def on_answer(
        self, node_id: int, life: int, request: FetchRequest, body: FetchResponse, asked_us: int = LATER_US
    ) -> None:
        """Receives an answer to a fetch as it leaves the node, which got the fetch at `asked_us`.

        No registration has two processes. A fetch that names the wrong one is refused when it comes; one that has
        waited since before the node knew the registration is compared with its epoch only.
        """
        known_life, brokers = self._known.get(node_id, (life, {}))
        known = brokers.get(request.replica_id) if known_life == life else None
        if known is None or request.header is None or request.broker_epoch > known.broker_epoch:
            return
        if (request.broker_epoch, request.header.incarnation) == (known.broker_epoch, known.incarnation):
            return
        since_us = self._since_us.get((node_id, request.replica_id, known.broker_epoch), 0)
        if request.broker_epoch == known.broker_epoch and asked_us <= since_us:
            return
        for answer in body.partitions:
            if answer.error is ErrorCode.NONE:
                self._jury.report(
                    self.name,
                    f"{answer.topic_partition}: broker {node_id} answered a fetch of broker {known.broker_id} in "
                    f"epoch {request.broker_epoch}, incarnation {request.header.incarnation}; it knew that it lives in "
                    f"{known.broker_epoch}, {known.incarnation}",
                )
                return
