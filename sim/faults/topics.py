"""What scenarios do to topics and to the metadata of brokers."""

from __future__ import annotations

from typing import final

from cluster.core.messages import AlterTopicConfigsRequest, CreateTopicRequest, DeleteTopicRequest
from sim.faults.targets import Site, Targets
from sim.hosts.node import Node
from sim.scenario.model import TopicModel, property_text
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
    """Creates, deletes and alters topics, one request after the other, and lets metadata of a broker wait."""

    def __init__(self, site: Site, targets: Targets) -> None:
        self._site, self._targets = site, targets

    def create(self, step: CreateTopic) -> bool:
        """Ask for the topic as the scenario describes it. Returns False while the wanted leader is no node."""
        leader: int | None = None
        if step.leader is not None:
            nodes = self._targets.nodes(step.leader, step)
            if not nodes:
                return False
            leader = nodes[0].node_id
        name = step.create_topic
        self._site.tell(f"create topic {name}" + ("" if leader is None else f", led by broker {leader}"))
        self._site.admin.ask(create_request(name, self._site.topics[name], leader))
        return True

    def delete(self, step: DeleteTopic) -> bool:
        self._site.tell(f"delete topic {step.delete_topic}")
        self._site.admin.ask(DeleteTopicRequest(name=step.delete_topic))
        return True

    def alter(self, step: AlterTopic) -> bool:
        configs = tuple(sorted((key, property_text(value)) for key, value in step.config.items()))
        self._site.tell(f"alter topic {step.alter_topic}: {', '.join(map('='.join, configs))}")
        self._site.admin.ask(AlterTopicConfigsRequest(name=step.alter_topic, configs=configs))
        return True

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
