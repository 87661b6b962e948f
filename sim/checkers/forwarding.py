"""The requests that brokers forward to the controller: its answer, and no other, reaches the client."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import final

from cluster.core.connection.outgoing import Answer
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import (
    AlterTopicConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    RequestBody,
    ResponseBody,
)
from sim.checkers.base import Jury

# A constant, because a union written in a check would be built for each call.
FORWARDED = (CreateTopicRequest, DeleteTopicRequest, AlterTopicConfigsRequest, CreatePartitionsRequest)
# A life of a broker.
_Life = tuple[int, int]


@final
class ForwardedRequests:
    """Judges what brokers answer to requests that only the controller decides.

    A client gets the controller's answer to that very request, once. Where the controller did not answer, the outcome
    is unknown: the request timed out. Where it refuses the broker that forwards, another one may help. A broker that
    shuts down refuses the request itself.
    """

    name = "forwarded-requests"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # What brokers have asked the controller for and have no outcome of, by life and call.
        self._asked: dict[tuple[_Life, int], RequestBody] = {}
        # The outcomes that no client has been told of.
        self._known: dict[_Life, list[tuple[RequestBody, Answer]]] = defaultdict(list)

    @property
    def is_open(self) -> bool:
        """Whether any request was forwarded whose outcome is awaited."""
        return bool(self._asked)

    def on_sent(self, life: _Life, call: int, body: RequestBody) -> None:
        """Receives a request that a broker forwards."""
        assert isinstance(body, FORWARDED), body
        assert (life, call) not in self._asked, (life, call)
        if body.header is None:
            self._jury.report(self.name, f"broker {life[0]} forwards {body} in nobody's name")
        self._asked[life, call] = replace(body, header=None)

    def on_answered(self, life: _Life, call: int, body: Answer) -> None:
        """Receives the outcome of a call of a broker."""
        asked = self._asked.pop((life, call), None)
        if asked is not None:
            self._known[life].append((asked, body))

    def on_end(self, node_id: int) -> None:
        """Receives the end of a broker's process, which has forgotten all that it had forwarded."""
        for key in [each for each in self._asked if each[0][0] == node_id]:
            del self._asked[key]
        for life in [each for each in self._known if each[0] == node_id]:
            del self._known[life]

    def on_reply(self, life: _Life, request: RequestBody, body: ResponseBody) -> None:
        """Receives a broker's answer to a client, as it leaves."""
        error = getattr(body, "error", None)
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            # Its own word, because it shuts down; no controller says so of a topic.
            return
        for index, (asked, outcome) in enumerate(self._known[life]):
            if asked == request and _says(body, outcome):
                del self._known[life][index]
                return
        outcomes = [outcome for asked, outcome in self._known[life] if asked == request]
        what = f"broker {life[0]} answers {request} with {body}"
        self._jury.report(self.name, f"{what}; outcomes that no client has are {outcomes}")


def _says(body: ResponseBody, outcome: Answer) -> bool:
    """Whether the answer to a client says what the broker has learned."""
    if isinstance(outcome, TransportError):
        return getattr(body, "error", None) is ErrorCode.REQUEST_TIMED_OUT
    if getattr(outcome, "error", None) is ErrorCode.STALE_BROKER_EPOCH:
        # That is said of the broker, and is nothing to the client.
        return getattr(body, "error", None) is ErrorCode.BROKER_NOT_AVAILABLE
    return body == outcome
