"""The admin client for programs without asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, final

from cluster.core.client.config import AdminConfig
from cluster.core.client.effects import Described
from cluster.core.messages import MetadataResponse
from cluster.shell.clients.async_admin import AsyncAdmin
from cluster.shell.clients.base import DEFAULT_BOOTSTRAP
from cluster.shell.clients.loop_thread import LoopThread


@final
class Admin:
    """Creates, changes, deletes and describes topics. A refusal is raised as ClusterError with Kafka's code."""

    def __init__(self, bootstrap_servers: str = DEFAULT_BOOTSTRAP, config: AdminConfig | None = None) -> None:
        self._admin = AsyncAdmin(bootstrap_servers, config)
        self._loop = LoopThread("Admin")
        self._loop.call(self._admin.start())

    def create_topic(
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
        return self._loop.call(
            self._admin.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
                assignment=assignment,
            )
        )

    def create_partitions(self, name: str, total: int) -> None:
        """Adds partitions to a topic until it has `total`; it can only grow."""
        self._loop.call(self._admin.create_partitions(name, total))

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with all its records."""
        self._loop.call(self._admin.delete_topic(name))

    def alter_topic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Sets properties of a topic under Kafka's names; an empty value restores the default."""
        self._loop.call(self._admin.alter_topic_configs(name, configs))

    def list_topics(self) -> list[str]:
        """Returns the names of all topics in alphabetical order."""
        return self._loop.call(self._admin.list_topics())

    def metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """Returns brokers and topics (None: all); errors of single topics are in the result, not raised."""
        return self._loop.call(self._admin.metadata(topics))

    def describe(self, topics: Iterable[str] | None = None) -> Described:
        """Returns the metadata of the topics (None: all) and the replicas of each broker that answers."""
        return self._loop.call(self._admin.describe(topics))

    def until_led(self, topic: str, *, partitions: int = 1, timeout_s: float = 10.0) -> bool:
        """Waits until every partition has a leader and every replica's broker has it; returns False when time is up.

        A broker that knows fewer than `partitions` of them is behind, and is asked again.
        """
        return self._loop.call(self._admin.until_led(topic, partitions=partitions, timeout_s=timeout_s))

    def close(self) -> None:
        """Ends the client. Does nothing at the second call."""
        self._loop.end(self._admin.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
