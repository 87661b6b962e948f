"""The addresses that a client asks before it knows the cluster, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar, final

from cluster.core.connection.outgoing import Answer
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import MetadataResponse

Address = TypeVar("Address")


@final
class Bootstrap(Generic[Address]):
    """The addresses in the order in which they are tried: the first one until it fails, then the next."""

    def __init__(self, addresses: Iterable[Address]) -> None:
        self._addresses = deque(addresses)
        self._calls: dict[int, Address] = {}
        # Those that serve no client, as they have answered last.
        self._unserving: dict[Address, None] = {}

    def choose(self, call: int) -> Address | None:
        """Returns the address for a call; None if there are none at all."""
        if not self._addresses:
            return None
        assert call not in self._calls, call
        self._calls[call] = self._addresses[0]
        return self._addresses[0]

    def on_answer(self, call: int, body: Answer) -> Answer:
        """Notes the end of a call. After a failure the next address is tried first: a broker may be starting for long.

        Returns the answer for the client: that an address serves no client only once none of them does. A call that
        was not chosen for here is ignored.
        """
        address = self._calls.pop(call, None)
        if address is None:
            return body
        if _has_failed(body) and self._addresses[0] == address:
            self._addresses.rotate(-1)
        if not (isinstance(body, TransportError) and body.is_unserved):
            self._unserving.pop(address, None)
            return body
        self._unserving[address] = None
        assert len(self._unserving) <= len(self._addresses), (len(self._unserving), len(self._addresses))
        is_everywhere = all(each in self._unserving for each in self._addresses)
        return body if is_everywhere else TransportError(reason=body.reason)


def _has_failed(body: Answer) -> bool:
    if isinstance(body, MetadataResponse):
        return body.error is not ErrorCode.NONE
    return isinstance(body, TransportError)
