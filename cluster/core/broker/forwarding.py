"""Requests that clients send to any broker and only the controller decides; and the broker's producer ids.

Kafka: ForwardingManager, ProducerIdManager.
"""

from __future__ import annotations

from dataclasses import replace
from typing import final

from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterTopicConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    InitProducerIdResponse,
    ResponseBody,
)
from cluster.core.refusals import refusal
from cluster.core.replica.context import ReplicaContext

Forwarded = CreateTopicRequest | DeleteTopicRequest | AlterTopicConfigsRequest | CreatePartitionsRequest


@final
class Forwarding:
    """Forwards the requests of clients to the controller, and its answers to the clients."""

    def __init__(self, context: ReplicaContext) -> None:
        self._context = context

    def forward(self, call: int, body: Forwarded) -> None:
        """Sends `body` to the controller, and answers `call` with its answer, or with an error if none comes."""

        def then(now_ms: int, answer: ResponseBody | TransportError) -> None:
            if isinstance(answer, TransportError):
                # The controller may have carried the request out: the outcome is unknown.
                lost = ClusterError(
                    ErrorCode.REQUEST_TIMED_OUT, f"the controller did not answer: {answer.reason}"
                )
                answer = refusal(body, lost)
            elif getattr(answer, "error", None) is ErrorCode.STALE_BROKER_EPOCH:
                # It is this broker that is refused, in whose name the request came: another one can help.
                superseded = "another process has the id of this broker, or it is not registered any more"
                answer = refusal(body, ClusterError(ErrorCode.BROKER_NOT_AVAILABLE, superseded))
            self._context.outbox.reply(call, answer)

        config = self._context.config
        self._context.outbox.send(
            config.controller_id,
            replace(body, header=self._context.header),
            timeout_ms=config.controller_socket_timeout_ms,
            then=then,
        )


@final
class ProducerIds:
    """Assigns the ids of the present block in order. Ids that are left when the broker dies are never used."""

    def __init__(self, context: ReplicaContext) -> None:
        self._context = context
        self._next_id = 0
        # The end of the present block, exclusive.
        self._end_id = 0
        # The calls that wait for an id.
        self._waiting: list[int] = []
        self._is_asking = False

    @property
    def are_awaited(self) -> bool:
        """Whether any call waits for an id."""
        return bool(self._waiting)

    def on_request(self, call: int) -> None:
        """Answers `call` with the next id, as soon as there is one; refuses it if too many calls wait."""
        if len(self._waiting) >= self._context.config.max_parked_requests:
            self._refuse(call, ErrorCode.REQUEST_TIMED_OUT)
            return
        self._waiting.append(call)
        self._serve()

    def forget(self, call: int) -> None:
        """Takes the call out of those that wait: its caller has left, and an id for it would be lost."""
        if call in self._waiting:
            self._waiting.remove(call)

    def _serve(self) -> None:
        most = self._context.config.max_parked_requests
        assert len(self._waiting) <= most, (len(self._waiting), most)
        while self._waiting and self._next_id < self._end_id:
            self._context.outbox.reply(
                self._waiting.pop(0), InitProducerIdResponse(producer_id=self._next_id, producer_epoch=0)
            )
            self._next_id += 1
        if self._waiting and not self._is_asking:
            self._ask()
        assert self._is_asking or not self._waiting, (len(self._waiting), self._next_id, self._end_id)

    def _ask(self) -> None:
        assert not self._is_asking, self._next_id
        assert self._next_id >= self._end_id, (self._next_id, self._end_id)
        config = self._context.config
        self._is_asking = True
        request = AllocateProducerIdsRequest(
            header=self._context.header, broker_id=config.node_id, broker_epoch=self._context.broker_epoch
        )
        self._context.outbox.send(
            config.controller_id,
            request,
            timeout_ms=config.controller_socket_timeout_ms,
            then=self._on_answer,
        )

    def _on_answer(self, now_ms: int, body: ResponseBody | TransportError) -> None:
        assert self._is_asking, body
        # A new block would replace ids that are left.
        assert self._next_id >= self._end_id, (self._next_id, self._end_id)
        self._is_asking = False
        if isinstance(body, AllocateProducerIdsResponse) and body.error is ErrorCode.NONE and body.count > 0:
            self._next_id, self._end_id = body.first_producer_id, body.first_producer_id + body.count
            self._serve()
            return
        waiting, self._waiting = self._waiting, []
        # The error is retriable: the client asks again, here or elsewhere.
        for call in waiting:
            self._refuse(call, ErrorCode.NETWORK_EXCEPTION)

    def _refuse(self, call: int, error: ErrorCode) -> None:
        self._context.outbox.reply(call, InitProducerIdResponse(error=error))
