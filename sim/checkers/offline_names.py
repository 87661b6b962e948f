"""The partitions that a broker cannot read, as its heartbeats name them to the controller (KIP-858)."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.core.messages import BrokerHeartbeatRequest, TopicPartition
from cluster.core.metadata.image import MetadataImage

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


def _is_placed(topic_partition: TopicPartition, topic_id: str, broker_id: int, image: MetadataImage) -> bool:
    topic, registration = image.topics.get(topic_partition.topic), image.partition(topic_partition)
    if topic is None or registration is None:
        return False
    return topic.topic_id == topic_id and broker_id in registration.replicas
