"""The nodes that clients ask for metadata and ids: not the same each time, nor one that has just failed."""

from __future__ import annotations

from collections.abc import Collection
from typing import final

from cluster.core.connection.outgoing import Answer
from cluster.core.effects import BOOTSTRAP, Send
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import MetadataResponse
from sim.checkers.base import Jury


@final
class BootstrapsInTurn:
    """Judges whom a client asks for what any broker can tell it.

    Each such request goes to another broker than the one before, as long as the client knows the same brokers. One
    that knows no broker, or whose brokers have all failed, asks one of its bootstrap addresses. A call to an address
    has failed that got no answer, or no metadata. The broker there may be away for long, so the next such call goes to
    the address after it. Several calls may fail at one address: with the first of them its turn is over. A client with
    a single address or broker has no choice.
    """

    name = "bootstraps"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # By client and life, as in the next: its addresses, that whose turn it is first.
        self._turns: dict[tuple[str, int], tuple[int, ...]] = {}
        # The address of each call without an outcome.
        self._asked: dict[tuple[str, int], dict[int, int]] = {}
        # The broker that was asked last, and the brokers that the client knew then.
        self._last: dict[tuple[str, int], tuple[int, tuple[int, ...]]] = {}

    def on_asked(self, client: tuple[str, int], target: int, known: Collection[int]) -> None:
        """Receives a request for metadata or an id to one of the brokers that the client knows."""
        this = target, tuple(sorted(known))
        if len(this[1]) > 1 and self._last.get(client) == this:
            what = f"{client[0]} asks node {target} for what each broker knows, as the time before"
            self._jury.report(self.name, f"{what}; it knows {list(this[1])}")
        self._last[client] = this

    def on_sent(self, client: tuple[str, int], effect: Send, target: int, addresses: tuple[int, ...]) -> None:
        """Receives a call as it leaves a core; `addresses` are the client's bootstrap addresses in their order."""
        if effect.to != BOOTSTRAP or len(addresses) < 2:
            return
        assert target != BOOTSTRAP, (client, effect.call)
        self._asked.setdefault(client, {})[effect.call] = target
        turns = self._turns.setdefault(client, addresses)
        if target != turns[0]:
            what = f"{client[0]} asks node {target}; of its addresses it is the turn of {turns[0]}"
            self._jury.report(self.name, f"{what}, then of {list(turns[1:])}")

    def on_answered(self, client: tuple[str, int], call: int, body: Answer) -> None:
        """Receives the outcome of a call as it reaches the core that sent it."""
        target = self._asked.get(client, {}).pop(call, None)
        has_no_metadata = isinstance(body, MetadataResponse) and body.error is not ErrorCode.NONE
        if target is None or not (has_no_metadata or isinstance(body, TransportError)):
            return
        first, *others = self._turns[client]
        # One to an address whose turn is over says nothing new.
        if first == target:
            self._turns[client] = (*others, first)
