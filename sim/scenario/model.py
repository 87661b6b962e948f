"""The model of a scenario file: a cluster, its load, and its faults. A bad file is refused with `FILE:LINE: what`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from cluster.core.config import BrokerConfig
from cluster.core.controller.config import ControllerConfig
from cluster.rpc.methods import UNARY_BY_REQUEST
from cluster.shell.streams import STREAMS
from sim.buggify.points import POINTS
from sim.scenario.base import Named, Step, Strict
from sim.scenario.disk_steps import DiskStep, FailDisk, FailSync, HangDisk, Rot
from sim.scenario.link_steps import (
    Clog,
    FlipBits,
    FreezeClock,
    HangUp,
    KillStart,
    Narrow,
    RollingRestart,
    SlowCpu,
)
from sim.scenario.source import Location, Source, parse_yaml
from sim.scenario.steps import (
    BROKER_JOBS,
    OF_METHODS,
    VERB_NAMES,
    AlterTopic,
    AnyStep,
    BreakDisk,
    CreateTopic,
    Cut,
    DeleteTopic,
    Heal,
    Isolate,
    Kill,
    LagMetadata,
    Lose,
    PartialWrite,
    Pause,
    Pick,
    Power,
    Restart,
    Slow,
    SlowDisk,
    StepClock,
    Stop,
)
from sim.scenario.values import (
    Duration,
    LinkPair,
    Percent,
    Rate,
    Size,
    Target,
    parse_duration,
    parse_rate,
    parse_size,
)
from storage.config import LogConfig
from storage.errors import ConfigError, StorageError
from storage.topics import check_topic_name

# Times that are about a fifth of Kafka's defaults, so that a fail-over takes seconds of a short run.
SETTINGS: Mapping[str, int] = {
    "broker.session.timeout.ms": 1_800,
    "broker.heartbeat.interval.ms": 400,
    "replica.lag.time.max.ms": 4_000,
    "replica.fetch.wait.max.ms": 100,
    "replica.fetch.backoff.ms": 200,
    "replica.socket.timeout.ms": 1_500,
    "replica.high.watermark.checkpoint.interval.ms": 1_000,
    "log.flush.offset.checkpoint.interval.ms": 12_000,
    "log.flush.start.offset.checkpoint.interval.ms": 12_000,
    "controller.socket.timeout.ms": 1_500,
    "controlled.shutdown.timeout.ms": 2_000,
    "retry.backoff.max.ms": 400,
}

# The simulator itself decides these.
_NOT_SETTINGS = {"node_id", "host", "port", "controller_id", "log", "cluster_id"}


# After so long, consumers and seekers take a request for lost.
_READER_TIMEOUT_US = 1_500_000


class ScenarioError(StorageError):
    """A scenario that cannot be run: the message is `FILE:LINE: what`."""


class DiskModel(Strict):
    """What calls on a node's disk take; a step that makes them ends later, and so do the answers to it."""

    call: Duration = Field(
        default=parse_duration("2us"), description="Each read, write and change of a name."
    )
    mebibyte: Duration = Field(
        default=parse_duration("200us"), description="Each MiB that is read or written, beside that."
    )
    sync: Duration = Field(
        default=parse_duration("100us"), description="Each sync of a file or of a directory."
    )


class ClockModel(Strict):
    """How far the clocks of nodes and clients are from the truth. Each is drawn, between minus this and this."""

    offset: Duration = Field(default=0, description="How far a clock is ahead or behind when the run begins.")
    drift: int = Field(
        default=0, ge=0, le=100_000, description="How many microseconds a clock gains or loses each second."
    )


class ClusterModel(Strict):
    """The brokers of a scenario and their settings."""

    brokers: int = Field(default=3, ge=1, le=9, description="The number of brokers, numbered from 1.")
    directories: int = Field(
        default=1, ge=1, le=9, description="The number of log directories of each broker."
    )
    disk: DiskModel = Field(default=DiskModel(), description="The disks.")
    clocks: ClockModel = Field(default=ClockModel(), description="The clocks.")
    jobs: dict[str, Duration] = Field(
        default_factory=dict,
        description="How long jobs of a kind take on average, beside their disk; 2 ms each where it is not given. "
        f"Kinds: {', '.join(f'`{kind}`' for kind in BROKER_JOBS)}.",
    )
    settings: dict[str, int] = Field(
        default_factory=dict, description="Properties of brokers and controller, under Kafka's names."
    )


class TopicModel(Strict):
    """A topic of a scenario."""

    exists: bool = Field(
        default=True, description="Whether it is created at the start; if not, a step creates it."
    )
    partitions: int = Field(default=1, ge=1, le=50, description="The number of partitions, numbered from 0.")
    replicas: int = Field(
        default=3, ge=1, le=9, description="The number of replicas of each partition, at most one per broker."
    )
    config: dict[str, int | str | bool] = Field(
        default_factory=dict, description="Properties of the topic, under Kafka's names."
    )


class NetworkModel(Strict):
    """The network of a scenario, when no fault strikes."""

    transport: Literal["stream", "datagram"] = Field(
        default="stream",
        description="`stream` keeps the order of a stream, as TCP does; with `datagram` any frame may be lost or late.",
    )
    latency: Duration = Field(
        default=parse_duration("200us"), description="The least time that a message takes over a link."
    )
    spread: Duration = Field(
        default=parse_duration("800us"), description="The mean of the drawn delay that is added to `latency`."
    )
    loss: Percent = Field(
        default=0, description="The share of messages that are lost; a stream sends them again, later."
    )
    duplicates: Percent = Field(
        default=0, description="The share of messages delivered twice; with `datagram` only."
    )


class ProducerModel(Strict):
    """A number of equal producers of a scenario."""

    topic: str = Field(description="The topic that they write to: a key of `topics`.")
    clients: int = Field(default=1, ge=1, le=20, description="The number of equal producers.")
    rate: Rate = Field(
        default=parse_rate("50/s"), description="The records that each of them sends per second."
    )
    acks: Literal["all", 1, 0] = Field(default="all", description="Kafka's acks: who must have a record.")
    idempotent: bool = Field(
        default=True,
        description="Whether brokers recognise a record that is sent again; with `acks: all` only.",
    )
    in_flight: int = Field(
        default=5,
        ge=1,
        le=5,
        description="Kafka's max.in.flight.requests.per.connection; with 1, acknowledged records keep their order.",
    )
    size: Size = Field(default=parse_size("100 B"), description="The size of each record's value.")
    linger: Duration = Field(
        default=parse_duration("2ms"), description="How long a record waits for others of its batch."
    )
    batch: Size = Field(default=parse_size("16KiB"), description="The size of a batch that waits no longer.")
    records: int | None = Field(
        default=None,
        ge=1,
        description="How many records each of them sends; without it, as many as the rate allows until steps end.",
    )
    keys: int = Field(
        default=0,
        ge=0,
        description="The number of keys, which are used in turn; with 0, records have no key.",
    )


class BuggifyModel(Strict):
    """The buggify points that are on: small perturbations that every correct cluster survives, until `duration`."""

    points: list[str] = Field(
        default_factory=list, description="The names of the points, in any order; by default none is on."
    )
    chance: Percent | None = Field(
        default=None,
        description="The share of its moments in which each point fires; without it, that of the catalogue.",
    )


class ConsumerModel(Strict):
    """A number of equal consumers of a scenario."""

    topic: str = Field(description="The topic that they read from its start: a key of `topics`.")
    clients: int = Field(default=1, ge=1, le=20, description="The number of equal consumers.")
    max_wait: Duration = Field(
        default=parse_duration("200ms"), description="Kafka's fetch.max.wait.ms, in whole milliseconds."
    )
    min_bytes: Size = Field(default=1, description="Kafka's fetch.min.bytes.")


class SeekerModel(Strict):
    """A number of equal clients that look up places in a topic's logs: their ends, and where a time begins."""

    topic: str = Field(description="The topic whose partitions they ask about in turn: a key of `topics`.")
    clients: int = Field(default=1, ge=1, le=20, description="The number of equal clients.")
    every: Duration = Field(
        default=parse_duration("300ms"), description="How often each of them looks up a place."
    )
    out_of_range: Literal["earliest", "latest"] | None = Field(
        default=None,
        description="Where they go on from an offset that the log does not have; with it they seek such offsets too.",
    )


class Scenario(Strict):
    """A whole scenario file. Times count from the start of the run.

    No step strikes before `warm_up`, steps strike until `duration`, then everything is healed and the cluster has to
    agree: it may go without progress for `converge`.
    """

    scenario: str = Field(
        pattern=r"^[a-z0-9][a-z0-9-]*$", description="The name: small letters, digits and hyphens."
    )
    warm_up: Duration = Field(
        default=parse_duration("2s"), description="The time before which no step strikes."
    )
    duration: Duration = Field(
        default=parse_duration("20s"), description="The time at which steps end and everything is healed."
    )
    converge: Duration = Field(
        default=parse_duration("30s"),
        description="How long the healed cluster may go without progress until it agrees.",
    )
    strict: bool = Field(
        default=True,
        description="Whether the run proves nothing if a step never comes to strike; with `false` it is enough that "
        "one has struck.",
    )
    excuses: bool = Field(
        default=True,
        description="Whether acknowledged records may be lost where Kafka does not promise to keep them; with `false` "
        "such a loss is a violation.",
    )
    cluster: ClusterModel = Field(default=ClusterModel(), description="The brokers.")
    network: NetworkModel = Field(
        default=NetworkModel(), description="The network between all nodes and clients."
    )
    buggify: BuggifyModel = Field(
        default=BuggifyModel(), description="Perturbations of effects and settings."
    )
    topics: dict[str, TopicModel] = Field(min_length=1, description="The topics by name, at least one.")
    producers: list[ProducerModel] = Field(default_factory=list, description="Who writes.")
    consumers: list[ConsumerModel] = Field(default_factory=list, description="Who reads.")
    seekers: list[SeekerModel] = Field(
        default_factory=list,
        description="Who looks up offsets. No step aims at them; real processes have none.",
    )
    steps: list[AnyStep] = Field(default_factory=list, description="What happens to them, in order.")


def scenario_of(values: Mapping[str, object]) -> Scenario:
    """Returns the scenario that a file with these keys would hold. Raises ScenarioError for the first mistake."""
    try:
        scenario = Scenario.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise ScenarioError(f"{where}: {str(problem['msg']).removeprefix('Value error, ')}") from None
    for location, what in check_scenario(scenario):
        raise ScenarioError(f"{'.'.join(map(str, location))}: {what}")
    return scenario


def load_scenario(path: Path | str) -> Scenario:
    """Load a scenario from its file. Raises ScenarioError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return parse_scenario(text, str(path))


def parse_scenario(text: str, name: str = "scenario.yaml") -> Scenario:
    """Load a scenario from its text; errors name the file `name`. Raises ScenarioError for the first mistake."""
    try:
        source = parse_yaml(text)
    except ValueError as error:
        raise ScenarioError(f"{name}:{error}") from error
    try:
        scenario = Scenario.model_validate(source.data)
    except ValidationError as error:
        line, what = min(
            (_explain(dict(problem), source) for problem in error.errors()), key=lambda found: found[0]
        )
        raise ScenarioError(f"{name}:{line}: {what}") from None
    for location, what in check_scenario(scenario):
        raise ScenarioError(f"{name}:{source.line(location)}: {what}")
    return scenario


def _explain(problem: Mapping[str, object], source: Source) -> tuple[int, str]:
    """Returns the line of one finding of pydantic, and the finding in words."""
    location = problem["loc"]
    assert isinstance(location, tuple)
    # The third part is the step's verb, by which pydantic selects the member of the union.
    if len(location) > 2 and location[0] == "steps":
        location = (*location[:2], *location[3:])
    kind, message = problem["type"], str(problem["msg"])
    where = ".".join(str(part) for part in location)
    line = source.line(location)
    if kind == "extra_forbidden":
        return line, f"unknown key {location[-1]!r}"
    if kind == "missing":
        return line, f"{where}: missing"
    if kind == "verb":
        given = problem["input"]
        keys = ", ".join(map(str, given)) if isinstance(given, dict) else repr(given)
        return line, f"{where}: a step has one of {', '.join(VERB_NAMES)}; this one has {keys}"
    return line, f"{where or 'scenario'}: {message.removeprefix('Value error, ')}"


Finding = tuple[Location, str]


def check_scenario(scenario: Scenario) -> Iterator[Finding]:
    """Yield the mistakes that no field shows alone, such as unknown topics, brokers and settings."""
    yield from _check_settings(scenario)
    yield from _check_points(scenario)
    for name, topic in scenario.topics.items():
        yield from _check_topic(scenario, name, topic)
    asked = [(("producers", index, "topic"), client.topic) for index, client in enumerate(scenario.producers)]
    asked += [
        (("consumers", index, "topic"), client.topic) for index, client in enumerate(scenario.consumers)
    ]
    asked += [(("seekers", index, "topic"), client.topic) for index, client in enumerate(scenario.seekers)]
    for location, name in asked:
        if name not in scenario.topics:
            yield location, f"unknown topic {name!r}"
    yield from _check_readers(scenario)
    # The names that steps have given so far, and whether each means a client.
    names: dict[str, bool] = {}
    for index, step in enumerate(scenario.steps):
        yield from _check_step(scenario, index, step, names)
        if isinstance(step, Named) and step.name is not None:
            names[step.name] = any(_is_client(target, names) for target in _targets(step)[:1])


def _check_readers(scenario: Scenario) -> Iterator[Finding]:
    for index, consumer in enumerate(scenario.consumers):
        if consumer.max_wait >= _READER_TIMEOUT_US:
            yield ("consumers", index, "max_wait"), "a consumer gives a request up after 1.5s: write less"
    for index, seeker in enumerate(scenario.seekers):
        if seeker.every < 1_000:
            yield ("seekers", index, "every"), "write at least 1ms"


def _check_points(scenario: Scenario) -> Iterator[Finding]:
    for index, name in enumerate(scenario.buggify.points):
        if name not in POINTS:
            yield ("buggify", "points", index), f"unknown buggify point {name!r}: write {', '.join(POINTS)}"


def setting_names() -> list[str]:
    """Returns the settings that a scenario may have, under Kafka's names, in order of name."""
    known = {field.name for kind in (BrokerConfig, ControllerConfig) for field in fields(kind)}
    return sorted(name.replace("_", ".") for name in known - _NOT_SETTINGS)


def _check_settings(scenario: Scenario) -> Iterator[Finding]:
    known = setting_names()
    for name in scenario.cluster.settings:
        if name not in known:
            yield ("cluster", "settings", name), f"unknown setting {name!r}"
    for kind in scenario.cluster.jobs:
        if kind not in BROKER_JOBS:
            yield ("cluster", "jobs", kind), f"no job {kind!r}: write one of {', '.join(BROKER_JOBS)}"
    try:
        broker_config(scenario, 1)
        controller_config(scenario)
    except ConfigError as error:
        yield ("cluster", "settings"), str(error)


def broker_config(scenario: Scenario, node_id: int) -> BrokerConfig:
    """Returns the broker's settings. Raises ConfigError."""
    settings = _settings_of(BrokerConfig, scenario)
    # Settings name fields that are ints, which mypy does not know.
    return replace(BrokerConfig(node_id=node_id), **settings)  # type: ignore[arg-type]


def controller_config(scenario: Scenario) -> ControllerConfig:
    """Returns the controller's settings. Raises ConfigError."""
    settings = _settings_of(ControllerConfig, scenario)
    # Settings name fields that are ints, which mypy does not know.
    return replace(ControllerConfig(), **settings)  # type: ignore[arg-type]


def _settings_of(kind: type[BrokerConfig] | type[ControllerConfig], scenario: Scenario) -> dict[str, int]:
    given = dict(SETTINGS) | scenario.cluster.settings
    names = {field.name for field in fields(kind)} - _NOT_SETTINGS
    return {key: value for name, value in given.items() if (key := name.replace(".", "_")) in names}


def _check_topic(scenario: Scenario, name: str, topic: TopicModel) -> Iterator[Finding]:
    try:
        check_topic_name(name)
    except StorageError as error:
        yield ("topics", name), str(error)
    if topic.replicas > scenario.cluster.brokers:
        yield ("topics", name, "replicas"), f"{topic.replicas} replicas need as many brokers"
    for key, value in topic.config.items():
        yield from _check_property(("topics", name, "config", key), key, value)


def property_text(value: int | str | bool) -> str:
    """Returns the value as a properties file writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_client(target: Target, names: Mapping[str, bool]) -> bool:
    return target.kind in ("producer", "consumer") or names.get(target.text, False)


def _check_step(scenario: Scenario, index: int, step: Step, names: Mapping[str, bool]) -> Iterator[Finding]:
    for target in _targets(step):
        if target.kind in ("clients", "others") and not isinstance(step, _OF_LINKS):
            yield ("steps", index, step.verb), f"{target.text} is no node"
        if _is_client(target, names) and not isinstance(step, _OF_CLIENTS):
            yield ("steps", index, step.verb), f"{target.text} is a client: {step.verb} needs a node"
        if what := _unknown(scenario, target, names):
            yield ("steps", index, step.verb), what
    for condition in step.when:
        if what := _unknown_partition(scenario, condition.topic, condition.partition):
            yield ("steps", index, "when"), what
    if isinstance(step, BreakDisk | PartialWrite | FailSync | Rot) and step.log is not None:
        topic, partition = step.log.rsplit("/", 1)
        if what := _unknown_partition(scenario, topic, int(partition)):
            yield ("steps", index, "log"), what
    yield from _check_topic_step(scenario, index, step)
    if isinstance(step, Kill) and step.point is not None and _is_client(step.kill, names):
        yield ("steps", index, "point"), f"{step.kill.text} is a client: it has no jobs"
    elif isinstance(step, Kill) and step.point is not None and step.point not in step.points:
        points = ", ".join(step.points)
        yield ("steps", index, "point"), f"no point {step.point!r}: write one of {points}"
    if isinstance(step, _OF_BROKERS) and any(target.kind == "controller" for target in _targets(step)):
        yield ("steps", index, step.verb), f"the controller is no broker: {step.verb} needs one"
    directory = step.directory if isinstance(step, BreakDisk | FailDisk) else None
    if directory is not None and directory > scenario.cluster.directories:
        yield ("steps", index, "directory"), f"the brokers have {scenario.cluster.directories}"
    for method in step.only if isinstance(step, OF_METHODS) else ():
        if method not in METHODS:
            yield ("steps", index, "only"), f"no method {method!r}: write one of {', '.join(METHODS)}"
    if isinstance(step, Narrow) and step.to < 1:
        yield ("steps", index, "to"), "a link that carries nothing is cut: write at least 1 B"
    if step.at is not None and not step.at.is_relative and step.at.us >= scenario.duration:
        yield (
            ("steps", index, "at"),
            f"a step at {step.at.us} us is after the end of the steps at {scenario.duration} us",
        )


# The methods of the wire protocol.
METHODS = tuple(
    sorted({path.rpartition("/")[2] for path in STREAMS} | {each.name for each in UNARY_BY_REQUEST.values()})
)
# The steps that clients may be targets of.
_OF_LINKS = (Cut, Heal, Isolate, Slow, Lose, Clog, Narrow, HangUp, FlipBits)
# The steps whose verb has all that they strike, and that `_targets` need not know one by one.
_OF_ONE_TARGET = (
    LagMetadata, DiskStep, Clog, Narrow, HangUp, SlowCpu, KillStart, RollingRestart, FreezeClock,
    HangDisk, FlipBits,
)  # fmt: skip
# The steps that only brokers may be targets of.
_OF_BROKERS = (DiskStep, RollingRestart)
_OF_CLIENTS = (*_OF_LINKS, Kill, Stop, Pause, Pick, Restart, StepClock, SlowCpu, FreezeClock)
# What the checkers of a run believe about a topic from its start to its end.
LASTING_PROPERTIES = frozenset({"min.insync.replicas", "flush.messages", "cleanup.policy"})


def _check_topic_step(scenario: Scenario, index: int, step: Step) -> Iterator[Finding]:
    match step:
        case CreateTopic(create_topic=name) | DeleteTopic(delete_topic=name) | AlterTopic(alter_topic=name):
            if name not in scenario.topics:
                yield ("steps", index, step.verb), f"unknown topic {name!r}"
        case LagMetadata() if step.lag_metadata.kind == "controller":
            yield ("steps", index, step.verb), "the controller replays no metadata"
        case _:
            pass
    if isinstance(step, AlterTopic):
        for key, value in step.config.items():
            if key in LASTING_PROPERTIES:
                yield ("steps", index, "config", key), f"{key} cannot change in a run: checkers rely on it"
            elif value != "":
                yield from _check_property(("steps", index, "config", key), key, value)


def _check_property(location: Location, key: str, value: int | str | bool) -> Iterator[Finding]:
    try:
        LogConfig.from_properties({key: property_text(value)})
    except ConfigError as error:
        yield location, str(error)


def _targets(step: Step) -> list[Target]:
    match step:
        case Kill():
            found: list[Target | LinkPair | None] = [step.kill]
        case Power():
            found = [step.power]
        case Pause():
            found = [step.pause]
        case Stop():
            found = [step.stop]
        case Pick():
            found = [step.pick]
        case Restart():
            found = [step.restart]
        case Cut():
            found = [step.cut]
        case Heal():
            found = [step.heal]
        case Isolate():
            found = [step.isolate, step.sparing]
        case Slow():
            found = [step.slow]
        case Lose():
            found = [step.lose]
        case PartialWrite():
            found = [step.partial_write]
        case BreakDisk():
            found = [step.break_disk]
        case SlowDisk():
            found = [step.slow_disk]
        case StepClock():
            found = [step.step_clock]
        case CreateTopic():
            found = [step.leader]
        case _ if isinstance(step, _OF_ONE_TARGET):
            found = [step.target]
        case DeleteTopic() | AlterTopic():
            found = []
        case _:
            raise AssertionError(f"unknown step {type(step).__name__}: its targets are not listed here")
    sides: list[Target] = []
    for each in found:
        if isinstance(each, LinkPair):
            sides += (each.source, each.target)
        elif each is not None:
            sides.append(each)
    return sides


def _unknown(scenario: Scenario, target: Target, names: Mapping[str, bool]) -> str | None:
    if target.kind in ("producer", "consumer"):
        models = scenario.producers if target.kind == "producer" else scenario.consumers
        count = sum(model.clients for model in models)
        if not 1 <= target.broker <= count:
            return f"unknown client {target.text!r}: the scenario has {count} {target.kind}s"
    if target.kind == "broker" and not 1 <= target.broker <= scenario.cluster.brokers:
        return f"unknown node {target.text!r}: the cluster has brokers 1 to {scenario.cluster.brokers}"
    if target.kind in ("leader", "follower"):
        return _unknown_partition(scenario, target.topic, target.partition)
    if target.kind == "name" and target.text not in names:
        return f"unknown node {target.text!r}: no earlier step has `as: {target.text}`"
    return None


def _unknown_partition(scenario: Scenario, topic: str, partition: int) -> str | None:
    model = scenario.topics.get(topic)
    if model is None:
        return f"unknown topic {topic!r}"
    if partition >= model.partitions:
        return f"unknown partition {topic}/{partition}: the topic has {model.partitions}"
    return None
