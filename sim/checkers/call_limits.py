"""How long nodes and clients wait for the answers to their calls, before they take them for lost."""

from __future__ import annotations

from typing import final

from cluster.core.broker.broker import Broker
from cluster.core.client.consumer import ConsumerCore
from cluster.core.client.producer import ProducerCore
from cluster.core.config import BrokerConfig
from cluster.core.effects import Send
from cluster.core.messages import (
    BrokerHeartbeatRequest,
    FetchMetadataRequest,
    FetchRequest,
    RegisterBrokerRequest,
    RequestBody,
)
from sim.checkers.base import Jury


@final
class CallLimits:
    """Judges the time-outs of calls.

    A broker whose heartbeat or registration is lost tries again within half of its session, or it would be fenced (L1).
    Other calls take no longer than the setting of their kind, and a fetch no less than its receiver may wait (PRO-8).
    """

    name = "call-limits"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury

    def on_sent(self, name: str, core: object, effect: Send) -> None:
        """Receives a call as it leaves a core."""
        timeout_ms, body = effect.timeout_ms, effect.body
        most_ms: int | None = None
        if isinstance(core, Broker):
            most_ms = most_of_broker(core.config, body)
        elif isinstance(core, (ProducerCore, ConsumerCore)):
            most_ms = core.config.request_timeout_ms
        if most_ms is not None and timeout_ms > most_ms:
            self._report(
                name, body, f"waits {timeout_ms} ms for an answer to its", f"; {most_ms} are allowed"
            )
        elif isinstance(body, (FetchRequest, FetchMetadataRequest)) and timeout_ms < body.max_wait_ms:
            why = f", which may wait {body.max_wait_ms} ms for something to answer with"
            self._report(name, body, f"waits {timeout_ms} ms for an answer to its", why)

    def _report(self, name: str, body: RequestBody, what: str, why: str) -> None:
        self._jury.report(self.name, f"{name} {what} {type(body).__name__}{why}")


def most_of_broker(config: BrokerConfig, body: RequestBody) -> int:
    """Returns how long a broker waits for an answer at most, in milliseconds."""
    of_session_ms = max(1, config.broker_session_timeout_ms // 2)
    match body:
        case BrokerHeartbeatRequest() | RegisterBrokerRequest():
            return of_session_ms
        case FetchMetadataRequest():
            return config.replica_fetch_wait_max_ms + of_session_ms
        case FetchRequest():
            return config.replica_socket_timeout_ms
        case _:
            return config.controller_socket_timeout_ms
