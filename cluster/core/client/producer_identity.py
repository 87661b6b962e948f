"""The producer's id and epoch: the id is asked for once, the epoch is raised by the producer itself (KIP-360).

Kafka: TransactionManager.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import final

from cluster.core.client.accumulator import ProducerIdentity
from cluster.core.effects import Send
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import InitProducerIdRequest, InitProducerIdResponse, ResponseBody

MAX_EPOCH = (1 << 15) - 1


@final
class IdentityKeeper:
    """Asks for a producer id until there is one, with one request at a time."""

    def __init__(self, retry_backoff_ms: int, request_timeout_ms: int) -> None:
        self.current: ProducerIdentity | None = None
        self._retry_backoff_ms = retry_backoff_ms
        self._request_timeout_ms = request_timeout_ms
        self._call: int | None = None
        self._allowed_ms = 0

    def poll(self, now_ms: int, call: int, next_node: Callable[[], int]) -> Send | None:
        """Returns a request for an id under the number `call`, or None while there is an id or none may be sent yet."""
        assert self._call is None or call > self._call, (call, self._call)
        # While there is an id, no other one is asked for.
        assert self.current is None or self._call is None, (self.current, self._call)
        if self.current is not None or self._call is not None or now_ms < self._allowed_ms:
            return None
        self._call = call
        return Send(
            to=next_node(), call=call, body=InitProducerIdRequest(), timeout_ms=self._request_timeout_ms
        )

    def owns(self, call: int) -> bool:
        return call == self._call

    def on_response(self, now_ms: int, body: ResponseBody | TransportError) -> None:
        """Takes the answer; after any failure asks again, because without an id no record can be sent."""
        assert self._call is not None, "no request is pending"
        assert self.current is None, self.current
        self._call = None
        self._allowed_ms = now_ms + self._retry_backoff_ms
        if isinstance(body, InitProducerIdResponse) and body.error is ErrorCode.NONE:
            self.current = ProducerIdentity(producer_id=body.producer_id, producer_epoch=body.producer_epoch)

    def bump_above(self, used: ProducerIdentity | None) -> ProducerIdentity | None:
        """Returns an identity with an epoch above the one that a partition has used.

        Returns None after the highest epoch, until there is a new id. Partitions that need no restart keep their
        epoch: the broker checks each partition by itself.
        """
        # While there is an id, no other one is asked for.
        assert self.current is None or self._call is None, (self.current, self._call)
        if self.current is not None and used == self.current:
            epoch = self.current.producer_epoch + 1
            self.current = None if epoch > MAX_EPOCH else replace(self.current, producer_epoch=epoch)
        assert self.current is None or self.current != used, used
        return self.current

    def forget(self) -> None:
        """Asks for another id: the cluster that has given this one is gone."""
        self.current = None

    def next_wake_ms(self) -> int | None:
        return self._allowed_ms if self.current is None and self._call is None else None
