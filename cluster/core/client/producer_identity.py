"""The producer's id and epoch: asked for once, raised by the producer itself (KIP-360).

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
    """Asks for a producer id until there is one, one question at a time."""

    def __init__(self, retry_backoff_ms: int, request_timeout_ms: int) -> None:
        self.current: ProducerIdentity | None = None
        self._retry_backoff_ms = retry_backoff_ms
        self._request_timeout_ms = request_timeout_ms
        self._call: int | None = None
        self._allowed_ms = 0

    def poll(self, now_ms: int, call: int, next_node: Callable[[], int]) -> Send | None:
        """The request for an id, while there is none."""
        if self.current is not None or self._call is not None or now_ms < self._allowed_ms:
            return None
        self._call = call
        return Send(
            to=next_node(), call=call, body=InitProducerIdRequest(), timeout_ms=self._request_timeout_ms
        )

    def owns(self, call: int) -> bool:
        return call == self._call

    def on_response(self, now_ms: int, body: ResponseBody | TransportError) -> None:
        """Any failure is tried again: without an id nothing can be sent anyway."""
        self._call = None
        self._allowed_ms = now_ms + self._retry_backoff_ms
        if isinstance(body, InitProducerIdResponse) and body.error is ErrorCode.NONE:
            self.current = ProducerIdentity(producer_id=body.producer_id, producer_epoch=body.producer_epoch)

    def bump_above(self, used: ProducerIdentity | None) -> ProducerIdentity | None:
        """An epoch above the one that a partition has used; None at the last one, until there is a new id.

        Partitions that have nothing to restart keep the epoch they have: the broker checks each by itself.
        """
        if self.current is not None and used == self.current:
            epoch = self.current.producer_epoch + 1
            self.current = None if epoch > MAX_EPOCH else replace(self.current, producer_epoch=epoch)
        return self.current

    def next_wake_ms(self) -> int | None:
        return self._allowed_ms if self.current is None and self._call is None else None
