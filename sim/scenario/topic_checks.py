"""What is wrong with the topics of a scenario, and with what steps change of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sim.scenario.base import Step
from sim.scenario.model import Scenario, TopicModel
from sim.scenario.settings import controller_config, property_text
from sim.scenario.source import Location
from sim.scenario.steps import AlterTopic, CreateTopic, DeleteTopic, LagMetadata
from storage.config import LogConfig
from storage.errors import ConfigError, StorageError
from storage.topics import METADATA_TOPIC, check_topic_name

Finding = tuple[Location, str]
# What the checkers of a run believe about a topic from its start to its end.
LASTING_PROPERTIES = frozenset({"cleanup.policy"})
# And this, where the topic begins with a flush of each record.
_FLUSHES = "flush.messages"


def check_topics(scenario: Scenario) -> Iterator[Finding]:
    """Yield what the controller would refuse of the topics: the run would wait for them in vain."""
    try:
        limits = controller_config(scenario)
    except ConfigError:
        # The settings are told elsewhere.
        return
    folded: dict[str, str] = {}
    # Those that a step creates may come when others are deleted.
    first = [name for name, topic in scenario.topics.items() if topic.exists]
    if len(first) > limits.max_topics:
        yield ("topics", first[limits.max_topics]), f"max.topics allows {limits.max_topics}"
    for name, topic in scenario.topics.items():
        yield from _check_name(name, folded if topic.exists else {})
        if topic.partitions > limits.max_partitions_per_topic:
            most = limits.max_partitions_per_topic
            yield ("topics", name, "partitions"), f"max.partitions.per.topic allows {most}"
        if topic.replicas > scenario.cluster.brokers:
            yield ("topics", name, "replicas"), f"{topic.replicas} replicas need as many brokers"
        yield from _check_properties(("topics", name, "config"), topic.config, {}, is_change=False)


def _check_name(name: str, folded: dict[str, str]) -> Iterator[Finding]:
    """Yield what is wrong with a name; `folded` has the earlier ones as metrics would have them."""
    try:
        check_topic_name(name)
    except StorageError as error:
        yield ("topics", name), str(error)
    if name == METADATA_TOPIC:
        yield ("topics", name), f"{name!r} is the controller's own log"
    other = folded.setdefault(name.replace(".", "_"), name)
    if other != name:
        yield ("topics", name), f"{name!r} collides with {other!r}: they differ in `.` and `_` only"


def _check_properties(
    location: Location,
    config: Mapping[str, int | float | str | bool],
    before: Mapping[str, str],
    *,
    is_change: bool,
) -> Iterator[Finding]:
    """Yield what is wrong with properties that come to those of `before`."""
    texts: dict[str, str] = {}
    for key, value in config.items():
        texts[key] = property_text(value)
        if value == "" and is_change:
            # The default again.
            continue
        try:
            LogConfig.from_properties({key: texts[key]})
        except ConfigError as error:
            yield (*location, key), str(error)
            return
    if (what := contradiction(before, texts)) is not None:
        yield location, what


def contradiction(before: Mapping[str, str], change: Mapping[str, str]) -> str | None:
    """Returns which properties of a topic contradict each other after a change of some; None if none do.

    An empty text in `change` means the default again. Raises ConfigError for a property that no topic may have.
    """
    after = {key: text for key, text in {**before, **change}.items() if text != ""}
    try:
        LogConfig().overridden_by(after).check_pairs()
    except ConfigError as error:
        LogConfig().overridden_by(after)
        return str(error)
    return None


def check_topic_step(scenario: Scenario, index: int, step: Step) -> Iterator[Finding]:
    """Yield what is wrong with a step that strikes a topic, or what nodes know of it."""
    match step:
        case CreateTopic(create_topic=name) | DeleteTopic(delete_topic=name) | AlterTopic(alter_topic=name):
            if name not in scenario.topics:
                yield ("steps", index, step.verb), f"unknown topic {name!r}"
        case LagMetadata() if step.lag_metadata.kind == "controller":
            yield ("steps", index, step.verb), "the controller replays no metadata"
        case _:
            pass
    if isinstance(step, AlterTopic):
        yield from _check_change(scenario, index, step)


def _check_change(scenario: Scenario, index: int, step: AlterTopic) -> Iterator[Finding]:
    topic = scenario.topics.get(step.alter_topic)
    for key in step.config:
        if key in lasting_properties(topic):
            yield ("steps", index, "config", key), f"{key} cannot change in a run: checkers rely on it"
            return
    first = {} if topic is None else {key: property_text(value) for key, value in topic.config.items()}
    before = dict(first)
    for earlier in scenario.steps[:index]:
        match earlier:
            case AlterTopic(alter_topic=name) if name == step.alter_topic:
                before |= {key: property_text(value) for key, value in earlier.config.items()}
            case CreateTopic(create_topic=name) if name == step.alter_topic:
                before = dict(first)
            case _:
                pass
    yield from _check_properties(("steps", index, "config"), step.config, _known(before), is_change=True)


def _known(texts: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties that a topic may have: what is wrong with the others is told where they stand."""
    known = {}
    for key, text in texts.items():
        try:
            LogConfig.from_properties({key: text} if text else {})
        except ConfigError:
            continue
        known[key] = text
    return known


def lasting_properties(topic: TopicModel | None) -> Iterator[str]:
    """Yields the properties of a topic that may not change in a run, because checkers rely on them."""
    yield from sorted(LASTING_PROPERTIES)
    if topic is not None and _FLUSHES in topic.config:
        text = property_text(topic.config[_FLUSHES])
        if text and LogConfig.from_properties({_FLUSHES: text}).flush_messages == 1:
            yield _FLUSHES
