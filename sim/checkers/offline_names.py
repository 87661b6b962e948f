"""The partitions that a broker cannot read, as its heartbeats name them to the controller (KIP-858)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import final

from cluster.core.messages import BrokerHeartbeatRequest, TopicPartition
from cluster.core.metadata.image import MetadataImage
from sim.checkers.base import Jury

NAME = "offline-names"


def offline_findings(
    request: BrokerHeartbeatRequest, image: MetadataImage, applied_offset: int
) -> Iterator[str]:
    """Yields the partitions that a heartbeat names as offline although the metadata does not place them there.

    A topic that was deleted has left nothing in an offline directory that counts: the next one of its name would never
    be made there. `image` is the metadata of the broker, `applied_offset` that on which its roles rest. It is judged
    where the heartbeat is of that very offset: later metadata may have come within the step.
    """
    if not applied_offset == image.next_offset == request.metadata_offset:
        return
    for named in request.offline_partitions:
        if not _is_placed(named.topic_partition, named.topic_id, request.broker_id, image):
            what = (
                f"broker {request.broker_id} calls {named.topic_partition} of topic {named.topic_id} offline"
            )
            yield f"{what}; its metadata of offset {image.next_offset} places no such partition there"


def missing_findings(
    request: BrokerHeartbeatRequest,
    image: MetadataImage,
    applied_offset: int,
    lost: Mapping[TopicPartition, str],
) -> Iterator[str]:
    """Yields the partitions that a heartbeat does not name although their broker has lost them before.

    `lost` has the topic ids of those of which the broker has said so, and that it has not opened since. The controller
    forgets what a heartbeat does not name, and may elect the broker again.
    """
    if not applied_offset == image.next_offset == request.metadata_offset:
        return
    named = {(each.topic_partition, each.topic_id) for each in request.offline_partitions}
    for topic_partition, topic_id in lost.items():
        is_placed = _is_placed(topic_partition, topic_id, request.broker_id, image)
        if is_placed and (topic_partition, topic_id) not in named:
            yield f"broker {request.broker_id} does not name {topic_partition}, which it cannot read"


@final
class OfflineNames:
    """Judges the heartbeats of brokers that have lost log directories."""

    name = NAME

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # By life of a broker and partition: the topic's id, and when the broker said that it cannot read it.
        self._lost: dict[tuple[int, int], dict[TopicPartition, tuple[str, int]]] = {}

    def on_offline(
        self, life: tuple[int, int], topic_partition: TopicPartition, image: MetadataImage
    ) -> None:
        """Receives that a broker says so of a partition of the topic that has the name in its `image`."""
        topic = image.topics.get(topic_partition.topic)
        if topic is not None:
            self._lost.setdefault(life, {})[topic_partition] = topic.topic_id, self._jury.now_us()

    def on_end(self, broker: int) -> None:
        """Forget the lives of the broker that have ended."""
        self._lost = {life: lost for life, lost in self._lost.items() if life[0] != broker}

    def on_sent(
        self, life: tuple[int, int], request: BrokerHeartbeatRequest, image: MetadataImage, applied_offset: int,
        opened: Container[TopicPartition],
    ) -> None:  # fmt: skip
        """Receives a heartbeat as it leaves; `opened` are the partitions that the broker has by now."""
        now_us = self._jury.now_us()
        lost = {
            topic_partition: topic_id
            for topic_partition, (topic_id, since_us) in self._lost.get(life, {}).items()
            # The heartbeat may be older than what came later in the same step.
            if since_us < now_us and topic_partition not in opened
        }
        for what in offline_findings(request, image, applied_offset):
            self._jury.report(self.name, what)
        for what in missing_findings(request, image, applied_offset, lost):
            self._jury.report(self.name, what)


def _is_placed(topic_partition: TopicPartition, topic_id: str, broker_id: int, image: MetadataImage) -> bool:
    topic, registration = image.topics.get(topic_partition.topic), image.partition(topic_partition)
    if topic is None or registration is None:
        return False
    return topic.topic_id == topic_id and broker_id in registration.replicas
