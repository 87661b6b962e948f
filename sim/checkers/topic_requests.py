"""An account of requests about topics by itself: what speaks against each, and what the topic is once it is granted."""

from __future__ import annotations

from cluster.core.controller.config import ControllerConfig
from cluster.core.messages import (
    DEFAULT_COUNT,
    AlterTopicConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
)
from cluster.core.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from storage.errors import ConfigError, InvalidTopic
from storage.topics import METADATA_TOPIC, check_topic_name

TopicRequest = CreateTopicRequest | DeleteTopicRequest | AlterTopicConfigsRequest | CreatePartitionsRequest
Configs = tuple[tuple[str, str], ...]
Assignment = tuple[tuple[int, ...], ...]


def reason_against(body: TopicRequest, image: MetadataImage, config: ControllerConfig) -> str:
    """Returns what speaks against the request by the metadata before it; empty if nothing does."""
    if isinstance(body, CreateTopicRequest):
        return _against_new(body, image, config)
    topic = image.topics.get(body.name)
    if topic is None:
        return "there is no such topic"
    if isinstance(body, AlterTopicConfigsRequest):
        return _against_configs(altered(topic.configs, body.configs), config)
    if isinstance(body, CreatePartitionsRequest):
        count = len(topic.partitions.twin())
        if body.count <= count:
            return f"it has {count} partitions"
        return _against_size(body.count, len(topic.partitions[0].replicas), image, config)
    return ""


def _against_new(body: CreateTopicRequest, image: MetadataImage, config: ControllerConfig) -> str:
    try:
        check_topic_name(body.name)
    except InvalidTopic as error:
        return str(error)
    topics = image.topics.twin()
    folded = [each.replace(".", "_") for each in topics]
    if body.name == METADATA_TOPIC or body.name.replace(".", "_") in folded:
        return "the name is taken"
    if len(topics) >= config.max_topics:
        return "there are too many topics"
    if against := _against_configs(body.configs, config):
        return against
    if body.assignment:
        return _against_assignment(body.assignment, image, config)
    return _against_size(*_wanted_size(body, config), image, config)


def _against_assignment(assignment: Assignment, image: MetadataImage, config: ControllerConfig) -> str:
    if len(assignment) > config.max_partitions_per_topic:
        return "there are too many partitions"
    for replicas in assignment:
        is_odd = not replicas or len(replicas) != len(assignment[0])
        if is_odd or len(set(replicas)) != len(replicas):
            return f"the replicas are {replicas}"
        if not all(each in image.brokers for each in replicas) or not active_of(replicas, image):
            return f"not all of {replicas} are brokers, or none of them is active"
    return ""


def _against_size(count: int, factor: int, image: MetadataImage, config: ControllerConfig) -> str:
    if not 1 <= count <= config.max_partitions_per_topic:
        return f"{count} partitions are too few or too many"
    active = active_of(tuple(image.brokers), image)
    return "" if 1 <= factor <= len(active) else f"{factor} replicas cannot be on {active}"


def _against_configs(configs: Configs, config: ControllerConfig) -> str:
    try:
        config.log.overridden_by(dict(configs)).check_pairs()
    except ConfigError as error:
        return str(error)
    return ""


def _wanted_size(body: CreateTopicRequest, config: ControllerConfig) -> tuple[int, int]:
    """Returns how many partitions and replicas the request means."""
    count = config.num_partitions if body.partitions == DEFAULT_COUNT else body.partitions
    is_default = body.replication_factor == DEFAULT_COUNT
    return count, config.default_replication_factor if is_default else body.replication_factor


def is_done(
    body: TopicRequest,
    was: TopicImage | None,
    now: TopicImage | None,
    before: MetadataImage,
    config: ControllerConfig,
) -> bool:
    """Returns whether the topic, `was` before the request, is `now` as it was asked for."""
    if now is None:
        return isinstance(body, DeleteTopicRequest)
    match body:
        case CreateTopicRequest():
            return was is None and _is_created(body, now, before, config)
        case AlterTopicConfigsRequest():
            return was is not None and _is_altered(body, was, now)
        case CreatePartitionsRequest():
            return was is not None and _is_grown(body, was, now, before)
        case DeleteTopicRequest():
            return False


def _is_created(
    body: CreateTopicRequest, now: TopicImage, before: MetadataImage, config: ControllerConfig
) -> bool:
    made = [now.partitions[number] for number in sorted(now.partitions)]
    if body.assignment:
        is_as_asked = tuple([each.replicas for each in made]) == body.assignment
    else:
        count, factor = _wanted_size(body, config)
        is_as_asked = len(made) == count and all(len(each.replicas) == factor for each in made)
    is_placed = all(_is_placed(each, before, is_chosen=not body.assignment) for each in made)
    return is_as_asked and is_placed and now.configs == tuple(sorted(dict(body.configs).items()))


def _is_altered(body: AlterTopicConfigsRequest, was: TopicImage, now: TopicImage) -> bool:
    """Whether the properties are as asked; who leads may change with them, the replicas may not."""
    return now.configs == altered(was.configs, body.configs) and outline(now)[::2] == outline(was)[::2]


def _is_grown(body: CreatePartitionsRequest, was: TopicImage, now: TopicImage, before: MetadataImage) -> bool:
    made = [now.partitions[number] for number in sorted(now.partitions)]
    old, new = made[: len(was.partitions)], made[len(was.partitions) :]
    factor = len(was.partitions[0].replicas)
    is_sound = all(len(each.replicas) == factor and _is_placed(each, before, is_chosen=True) for each in new)
    is_kept = old == [was.partitions[number] for number in sorted(was.partitions)]
    is_same = (now.topic_id, now.configs) == (was.topic_id, was.configs)
    return is_sound and is_kept and is_same and len(made) == body.count


def _is_placed(partition: PartitionRegistration, image: MetadataImage, *, is_chosen: bool) -> bool:
    """Whether a new partition is led by its first active replica, and all active ones are in sync.

    Where the controller has chosen the replicas, all are active, and each is named once.
    """
    active = active_of(partition.replicas, image)
    is_sound = not is_chosen or (active == partition.replicas and len(set(active)) == len(active))
    return is_sound and partition.isr == active and partition.leader == active[0]


def altered(known: Configs, asked: Configs) -> Configs:
    """Returns the properties of a topic after a change: an empty value restores a default."""
    removed = [name for name, value in asked if not value]
    merged = dict(known) | dict(asked)
    return tuple(sorted((name, value) for name, value in merged.items() if name not in removed))


def active_of(brokers: tuple[int, ...], image: MetadataImage) -> tuple[int, ...]:
    """Returns those of the brokers that are registered, unfenced and not shutting down, in order."""
    registered = [image.brokers[each] for each in brokers if each in image.brokers]
    active = [each for each in registered if not each.fenced and not each.in_controlled_shutdown]
    return tuple([each.broker_id for each in active])


def outline(topic: TopicImage) -> tuple[str, Configs, Assignment]:
    """Returns what only requests about topics change: the id, the properties, and the replicas of each partition."""
    numbers = sorted(topic.partitions)
    return topic.topic_id, topic.configs, tuple([topic.partitions[number].replicas for number in numbers])
