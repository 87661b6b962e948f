"""What scenarios do to topics and to the metadata of brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

from cluster.core.messages import AlterTopicConfigsRequest, CreateTopicRequest, DeleteTopicRequest
from sim.faults.targets import Site, Targets
from sim.hosts.clients import TopicRequest
from sim.hosts.node import Node
from sim.scenario.model import TopicModel
from sim.scenario.settings import property_text
from sim.scenario.steps import AlterTopic, CreateTopic, DeleteTopic, LagMetadata


def create_request(name: str, topic: TopicModel, leader: int | None = None) -> CreateTopicRequest:
    """Returns the request that creates the topic, led by the broker `leader` if it is given."""
    assignment: tuple[tuple[int, ...], ...] = ()
    if leader is not None:
        others = [broker for broker in range(1, 10) if broker != leader]
        assignment = ((leader, *others[: topic.replicas - 1]),) * topic.partitions
    return CreateTopicRequest(
        name=name, partitions=topic.partitions, replication_factor=topic.replicas,
        configs=tuple(sorted((key, property_text(value)) for key, value in topic.config.items())),
        assignment=assignment,
    )  # fmt: skip


@final
class TopicFaults:
    """Creates, deletes and alters topics by `ask`, one request after the other; `leader_of` looks a wanted leader up.

    `topics` has them as the scenario describes them, `tell` adds a line to the story.
    """

    def __init__(
        self,
        topics: Mapping[str, TopicModel],
        tell: Callable[[str], None],
        ask: Callable[[TopicRequest], None],
        leader_of: Callable[[CreateTopic], int | None],
    ) -> None:
        self._topics, self._tell, self._ask, self._leader_of = topics, tell, ask, leader_of

    def create(self, step: CreateTopic) -> bool:
        """Ask for the topic as the scenario describes it. Returns False while the wanted leader is no node."""
        leader = None if step.leader is None else self._leader_of(step)
        if step.leader is not None and leader is None:
            return False
        name = step.create_topic
        self._tell(f"create topic {name}" + ("" if leader is None else f", led by broker {leader}"))
        self._ask(create_request(name, self._topics[name], leader))
        return True

    def delete(self, step: DeleteTopic) -> bool:
        self._tell(f"delete topic {step.delete_topic}")
        self._ask(DeleteTopicRequest(name=step.delete_topic))
        return True

    def alter(self, step: AlterTopic) -> bool:
        configs = tuple(sorted((key, property_text(value)) for key, value in step.config.items()))
        self._tell(f"alter topic {step.alter_topic}: {', '.join(map('='.join, configs))}")
        self._ask(AlterTopicConfigsRequest(name=step.alter_topic, configs=configs))
        return True


@final
class MetadataFaults:
    """Lets the metadata of a broker wait."""

    def __init__(self, site: Site, targets: Targets) -> None:
        self._site, self._targets = site, targets

    def lag_metadata(self, step: LagMetadata) -> bool:
        """Let the target's nodes replay no metadata for a while. Returns False while it means no node."""
        nodes = self._targets.nodes(step.lag_metadata, step)
        self._targets.bind(step, nodes)
        for node in nodes:
            self._site.tell(f"{node.name} replays no metadata")
            node.hold_metadata()
            self._site.world.after(node.actor, step.lasting, self._release, node)
        return bool(nodes)

    def _release(self, node: Node) -> None:
        if node.holds_metadata:
            self._site.tell(f"{node.name} replays metadata again")
            node.release_metadata()

    def heal_all(self) -> None:
        for node in self._site.brokers.values():
            self._release(node)
