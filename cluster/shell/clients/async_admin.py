"""The admin client for asyncio programs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import cast, final

from cluster.core.client.admin import AdminCore, AdminRequest
from cluster.core.client.config import AdminConfig
from cluster.core.client.descriptions import is_led
from cluster.core.client.effects import Answered, Described
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import (
    AlterTopicConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    MetadataRequest,
    MetadataResponse,
    ResponseBody,
)
from cluster.shell.clients.arguments import (
    assignment as checked_assignment,
)
from cluster.shell.clients.arguments import (
    config_of,
    count,
    integer,
    one_shape,
    properties,
    seconds,
    topic_name,
    topic_names,
    topic_request,
)
from cluster.shell.clients.base import DEFAULT_BOOTSTRAP, AsyncClient, fail

_SETTLE_S = 0.02


@final
class AsyncAdmin(AsyncClient):
    """Creates, changes, deletes and describes topics. A refusal is raised as ClusterError with Kafka's code."""

    def __init__(self, bootstrap_servers: str = DEFAULT_BOOTSTRAP, config: AdminConfig | None = None) -> None:
        self.core = AdminCore(config_of(config, AdminConfig))
        super().__init__(self.core, bootstrap_servers)
        self._tickets = 0
        self._asked: dict[int, asyncio.Future[Answered | Described]] = {}

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        assignment: Sequence[Sequence[int]] = (),
    ) -> str:
        """Creates a topic and returns its id; `configs` has its properties under Kafka's names.

        A count that is None is the cluster's default (num.partitions, default.replication.factor). Instead of the
        counts, `assignment` lists the brokers of each partition's replicas, the preferred leader first. Raises
        TypeError or ValueError for a wrong argument.
        """
        request = CreateTopicRequest(
            name=topic_name(name),
            partitions=count("partitions", partitions),
            replication_factor=count("replication_factor", replication_factor),
            configs=properties(configs),
            assignment=checked_assignment(assignment),
        )
        one_shape(partitions, replication_factor, request.assignment)
        return await self.create(request)

    async def create(self, request: CreateTopicRequest) -> str:
        """Creates the topic of a request as it is, which the controller checks; returns the topic's id.

        Raises ValueError for what no request can hold.
        """
        body = await self._ask(topic_request(request), request.name)
        assert isinstance(body, CreateTopicResponse)
        return body.topic_id

    async def create_partitions(self, name: str, total: int) -> None:
        """Adds partitions to a topic until it has `total`; it can only grow."""
        number = integer("total", total, at_least=1)
        await self._ask(CreatePartitionsRequest(name=topic_name(name), count=number), name)

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic with all its records."""
        await self._ask(DeleteTopicRequest(name=topic_name(name)), name)

    async def alter_topic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Sets properties of a topic under Kafka's names; an empty value restores the default."""
        request = AlterTopicConfigsRequest(name=topic_name(name), configs=properties(configs))
        await self._ask(request, name)

    async def list_topics(self) -> list[str]:
        """Returns the names of all topics in alphabetical order."""
        return sorted(topic.name for topic in (await self.metadata()).topics)

    async def metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """Returns brokers and topics (None: all); errors of single topics are in the result, not raised."""
        chosen = None if topics is None else topic_names(topics)
        body = await self._ask(MetadataRequest(topics=chosen), "metadata")
        assert isinstance(body, MetadataResponse)
        return body

    async def describe(self, topics: Iterable[str] | None = None) -> Described:
        """Returns the metadata of the topics (None: all) and the replicas of each broker that answers."""
        chosen = None if topics is None else topic_names(topics)
        ticket, future = self._ticket()
        self._run(lambda now_ms: self.core.describe(now_ms, chosen, ticket=ticket))
        described = await future
        assert isinstance(described, Described)
        if described.error is not ErrorCode.NONE:
            raise ClusterError(described.error, described.message)
        return described

    async def until_led(self, topic: str, *, partitions: int = 1, timeout_s: float = 10.0) -> bool:
        """Waits until every partition has a leader and every replica's broker has it; returns False when time is up.

        A broker that knows fewer than `partitions` of them is behind, and is asked again. Raises ClusterError for what
        no wait mends.
        """
        least = integer("partitions", partitions, at_least=1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds("timeout_s", timeout_s)):
                await self._wait_until_led(topic, least)
                return True
        return False

    async def _wait_until_led(self, topic: str, partitions: int) -> None:
        while True:
            try:
                if is_led(await self.describe((topic,)), topic, partitions=partitions):
                    return
            except ClusterError as error:
                if not error.code.is_retriable:
                    raise
            await asyncio.sleep(_SETTLE_S)

    async def _ask(self, body: AdminRequest, subject: str) -> ResponseBody:
        ticket, future = self._ticket()
        self._run(lambda now_ms: self.core.ask(now_ms, body, ticket=ticket))
        answered = await future
        assert isinstance(answered, Answered)
        if answered.error is not ErrorCode.NONE or answered.body is None:
            raise ClusterError(answered.error, answered.message or subject)
        return answered.body

    def _ticket(self) -> tuple[int, asyncio.Future[Answered | Described]]:
        self._tickets += 1
        future = self._asked[self._tickets] = asyncio.get_running_loop().create_future()
        return self._tickets, future

    def _on_notice(self, effect: object) -> None:
        if not isinstance(effect, Answered | Described):
            raise TypeError(f"no shell carries out {effect!r}")
        future = self._asked.pop(effect.ticket)
        if not future.done():
            future.set_result(effect)

    def _fail_open(self, error: ClusterError) -> None:
        asked, self._asked = self._asked, {}
        for future in asked.values():
            fail(cast("asyncio.Future[object]", future), error)
        assert not self._asked, len(self._asked)
