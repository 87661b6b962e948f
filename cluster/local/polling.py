"""Asks nodes for their replicas outside any core, for tables and checks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import final

from cluster.core.effects import Send
from cluster.core.events import TransportError
from cluster.core.messages import DescribeReplicasRequest, DescribeReplicasResponse, ResponseBody
from cluster.local.layout import HOST, NodeSpec
from cluster.shell.transport import Answers, Peers

POLL_TIMEOUT_MS = 1_000


@final
class Poller:
    """Asks brokers for their replicas, over connections of its own."""

    def __init__(self, nodes: Sequence[NodeSpec]) -> None:
        self._peers = Peers(self._on_answers)
        self._waiting: dict[int, asyncio.Future[ResponseBody | TransportError]] = {}
        self._calls = 0
        for node in nodes:
            self._peers.learn(node.node_id, HOST, node.port)

    async def describe(self, node_id: int) -> DescribeReplicasResponse | None:
        """Returns the replicas of a broker, or None if it does not answer within POLL_TIMEOUT_MS."""
        self._calls += 1
        call = self._calls
        assert call not in self._waiting, call
        future = self._waiting[call] = asyncio.get_running_loop().create_future()
        body = DescribeReplicasRequest()
        self._peers.send(Send(to=node_id, call=call, body=body, timeout_ms=POLL_TIMEOUT_MS))
        answer = await future
        assert call not in self._waiting, call
        return answer if isinstance(answer, DescribeReplicasResponse) else None

    def _on_answers(self, answers: Answers) -> None:
        for call, body in answers:
            future = self._waiting.pop(call)
            if not future.done():
                future.set_result(body)

    async def close(self) -> None:
        await self._peers.close()
