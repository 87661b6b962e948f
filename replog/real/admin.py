"""What a run asks of its cluster by the admin client: topics, and how far each replica has come."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, final

from cluster.core.client.config import AdminConfig
from cluster.core.client.descriptions import Replicas, replicas_of
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import CreateTopicRequest, DeleteTopicRequest, TopicPartition
from cluster.local.layout import HOST
from cluster.shell.clients import AsyncAdmin
from sim.hosts.clients import ASKED, TopicRequest

RETRY_S = 0.2
CONFIG = AdminConfig(request_timeout_ms=2_000, default_api_timeout_ms=4_000)
# The answers after which a request is not repeated: an earlier try has done it.
_DONE = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
# The refusals that a broker which is back takes away.
_PASSING = (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.UNKNOWN_SERVER_ERROR)


class Place(NamedTuple):
    """How far a replica has come, as its broker says."""

    log_end_offset: int
    high_watermark: int


@final
class RunAdmin:
    """An admin client beside the proxies, which no fault of a link strikes."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._admin = AsyncAdmin(",".join(f"{HOST}:{port}" for port in ports), CONFIG)
        self._requests: asyncio.Queue[TopicRequest] = asyncio.Queue()
        self._working: asyncio.Task[None] | None = None
        # The requests that are not carried out yet, and the last refusal of the first of them.
        self._open: deque[TopicRequest] = deque()
        self._refused_with = ""
        # What the controller has refused for good, in words.
        self.refusals: list[str] = []

    async def __aenter__(self) -> RunAdmin:
        await self._admin.start()
        self._working = asyncio.get_running_loop().create_task(self._work())
        return self

    async def __aexit__(self, *raised: object) -> None:
        assert self._working is not None
        self._working.cancel()
        await asyncio.gather(self._working, return_exceptions=True)
        await self._admin.abort()

    def ask(self, request: TopicRequest) -> None:
        """Carry out a request after those before it. It is repeated until the controller has answered it."""
        self._open.append(request)
        self._requests.put_nowait(request)

    @property
    def open_request(self) -> str:
        """What the first request asks for that is not done yet, in words, and how it was refused; empty without one."""
        if not self._open:
            return ""
        request = self._open[0]
        refused = f", refused with {self._refused_with}" if self._refused_with else ""
        return f"topic {request.name} is still to be {ASKED[type(request)]}{refused}"

    async def until_done(self) -> None:
        """Wait until every request so far is carried out."""
        await self._requests.join()

    async def _work(self) -> None:
        while True:
            request = await self._requests.get()
            assert request is self._open[0], (request, len(self._open))
            await self._carry_out(request)
            self._open.popleft()
            self._refused_with = ""
            self._requests.task_done()

    async def _carry_out(self, request: TopicRequest) -> None:
        while True:
            if await self._is_done(request):
                return
            await asyncio.sleep(RETRY_S)

    async def _is_done(self, request: TopicRequest) -> bool:
        try:
            if isinstance(request, CreateTopicRequest):
                await self._admin.create(request)
            elif isinstance(request, DeleteTopicRequest):
                await self._admin.delete_topic(request.name)
            else:
                await self._admin.alter_topic_configs(request.name, dict(request.configs))
        except ClusterError as error:
            if error.code in _DONE:
                return True
            if error.code.is_retriable or error.code in _PASSING:
                self._refused_with = error.code.name
                return False
            self.refusals.append(f"topic {request.name}: {error}")
        return True

    async def until_led(self, topic: str, partitions: int) -> None:
        """Wait until every partition has a leader that has taken over."""
        while True:
            with contextlib.suppress(ClusterError):
                if await self._admin.until_led(topic, partitions=partitions):
                    return

    async def places(self) -> dict[tuple[TopicPartition, int], Place]:
        """Returns how far each replica has come, by partition and broker; nothing while no broker answers."""
        try:
            found: Replicas = replicas_of(await self._admin.describe())
        except ClusterError:
            return {}
        return {key: Place(each.log_end_offset, each.high_watermark) for key, each in found.items()}
