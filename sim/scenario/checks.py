"""What is wrong in a scenario that no field of the model shows alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from cluster.core.config import BrokerConfig
from cluster.rpc.methods import UNARY_BY_REQUEST
from cluster.shell.streams import STREAMS
from sim.buggify.points import POINTS
from sim.scenario.base import Named, Step
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
from sim.scenario.model import ConsumerModel, ProducerModel, Scenario
from sim.scenario.settings import (
    CLIENT_TIMEOUT_MS,
    broker_config,
    consumer_config,
    controller_config,
    producer_config,
    setting_names,
)
from sim.scenario.source import Location
from sim.scenario.steps import (
    BROKER_JOBS,
    OF_METHODS,
    AlterTopic,
    BreakDisk,
    CreateTopic,
    Cut,
    DeleteTopic,
    Heal,
    Isolate,
    Kill,
    KillInside,
    LackDescriptors,
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
from sim.scenario.topic_checks import Finding, check_topic_step, check_topics
from sim.scenario.values import (
    LinkPair,
    Target,
)
from storage.errors import ConfigError
from storage.topics import METADATA_TOPIC

# The most that the clocks of a run may be off, all steps together. It begins in 2023; no record has a time before 1970.
_MOST_CLOCK_YEARS = 20
_YEAR_US = 365 * 86_400 * 1_000_000


def check_scenario(scenario: Scenario) -> Iterator[Finding]:
    """Yield the mistakes that no field shows alone, such as unknown topics, brokers and settings."""
    yield from _check_settings(scenario)
    yield from _check_points(scenario)
    yield from check_topics(scenario)
    yield from _check_times(scenario)
    asked = [(("producers", index, "topic"), client.topic) for index, client in enumerate(scenario.producers)]
    asked += [
        (("consumers", index, "topic"), client.topic) for index, client in enumerate(scenario.consumers)
    ]
    asked += [(("seekers", index, "topic"), client.topic) for index, client in enumerate(scenario.seekers)]
    for location, name in asked:
        if name not in scenario.topics:
            yield location, f"unknown topic {name!r}"
    yield from _check_clients(scenario)
    yield from _check_clocks(scenario)
    # The names that steps have given so far, and the kind of target that each means.
    names: dict[str, str] = {}
    for index, step in enumerate(scenario.steps):
        yield from _check_step(scenario, index, step, names)
        if isinstance(step, Named) and step.name is not None:
            names[step.name] = _kind(_targets(step)[0], names)


_LEAST_CONVERGE_US = 1_000_000
# With more of its messages lost, nothing that takes several of them comes to its end.
_MOST_LOST_PERCENT = 30
_SESSION = "broker.session.timeout.ms"
# What a broker does one after the other as it makes a log, at least.
_CALLS_OF_A_LOG, _SYNCS_OF_A_LOG = 10, 4
# What a broker that starts again needs beside the end of its session.
_START_MS = 5_000


def _check_times(scenario: Scenario) -> Iterator[Finding]:
    """Yield settings and times under which a sound cluster would not come to rest within its time."""
    network = scenario.network
    if network.loss > _MOST_LOST_PERCENT:
        yield ("network", "loss"), f"of a network that is to work at most {_MOST_LOST_PERCENT}% is lost"
    if 2 * (network.latency + network.spread) >= 1_000 * CLIENT_TIMEOUT_MS:
        yield ("network", "latency"), f"clients give a request up after {CLIENT_TIMEOUT_MS}ms, there and back"
    if scenario.converge < _LEAST_CONVERGE_US:
        yield ("converge",), "write at least 1s: followers join the in-sync set again within that"
    try:
        broker, controller = broker_config(scenario, 1), controller_config(scenario)
    except ConfigError:
        return
    if broker.replica_fetch_wait_max_ms >= broker.replica_socket_timeout_ms:
        least_ms = broker.replica_socket_timeout_ms
        yield (
            ("cluster", "settings", "replica.fetch.wait.max.ms"),
            f"replica.socket.timeout.ms is {least_ms}: idle fetches would never be answered, write less",
        )
    yield from _check_pace(scenario, broker)
    session_ms, converge_ms = controller.broker_session_timeout_ms, scenario.converge // 1_000
    if _SESSION in scenario.cluster.settings and session_ms + _START_MS > converge_ms:
        yield (
            ("cluster", "settings", _SESSION),
            f"a broker that starts again waits for the end of its session: write a `converge` of at least "
            f"{session_ms + _START_MS}ms",
        )


def _check_pace(scenario: Scenario, broker: BrokerConfig) -> Iterator[Finding]:
    """Yield where a network or disks without any fault are too slow for any broker to keep its session."""
    network, disk, session_us = (
        scenario.network,
        scenario.cluster.disk,
        1_000 * broker.broker_session_timeout_ms,
    )
    if 2 * (network.latency + network.spread) >= 1_000 * broker.heartbeat_timeout_ms:
        text = f"heartbeats are given up after {broker.heartbeat_timeout_ms}ms, half of {_SESSION}, there and back"
        yield ("network", "latency"), text
    for name, us, count in (("call", disk.call, _CALLS_OF_A_LOG), ("sync", disk.sync, _SYNCS_OF_A_LOG)):
        if count * us >= session_us:
            yield (
                ("cluster", "disk", name),
                f"a broker that makes a log sends no heartbeat meanwhile: write less than {session_us // count}us, "
                f"or a higher {_SESSION}",
            )


def _check_clients(scenario: Scenario) -> Iterator[Finding]:
    for index, producer in enumerate(scenario.producers):
        yield from _check_producer(("producers", index), producer)
        topic = scenario.topics.get(producer.topic)
        is_compacted = topic is not None and "compact" in str(topic.config.get("cleanup.policy"))
        if scenario.canaries and is_compacted and not producer.keys:
            text = "a compacted topic takes no record without a key, so no canary: write `keys` too"
            yield ("producers", index, "topic"), text
    for index, consumer in enumerate(scenario.consumers):
        yield from _check_consumer(("consumers", index), consumer)
    for index, seeker in enumerate(scenario.seekers):
        if seeker.every < 1_000:
            yield ("seekers", index, "every"), "write at least 1ms"
    for index, admin in enumerate(scenario.admins):
        if admin.every < 1_000:
            yield ("admins", index, "every"), "write at least 1ms"
    if scenario.admins:
        for name in scenario.topics:
            if name.startswith("of-admin-"):
                yield ("topics", name), "admins have the topics of such names"


# All that was sent has its outcome in time when a run ends.
_MOST_LINGER_US = 6_500_000


def _check_producer(location: Location, producer: ProducerModel) -> Iterator[Finding]:
    if producer.tombstones and not producer.keys:
        yield (*location, "tombstones"), "tombstones have keys: write `keys` too"
    most_ms = producer.delivery_timeout // 1_000 - CLIENT_TIMEOUT_MS
    if most_ms < 0:
        yield (*location, "delivery_timeout"), f"a request takes up to {CLIENT_TIMEOUT_MS}ms: write no less"
        return
    if producer.linger // 1_000 > most_ms:
        given_up = f"a producer gives a record up after {producer.delivery_timeout // 1_000}ms"
        yield (*location, "linger"), f"{given_up}: write at most {most_ms}ms"
        return
    if producer.linger > _MOST_LINGER_US:
        yield (
            (*location, "linger"),
            f"write at most {_MOST_LINGER_US // 1_000}ms: the end of a run waits for it",
        )
        return
    try:
        config = producer_config(producer)
    except ConfigError as error:
        yield location, str(error)
        return
    if producer.size > config.max_request_size:
        yield (*location, "size"), f"a request has at most {config.max_request_size} B: write less"


def _check_consumer(location: Location, consumer: ConsumerModel) -> Iterator[Finding]:
    if consumer.max_wait >= 1_000 * CLIENT_TIMEOUT_MS:
        yield (*location, "max_wait"), "a consumer gives a request up after 1.5s: write less"
        return
    try:
        consumer_config(consumer)
    except ConfigError as error:
        yield location, str(error)


def _check_clocks(scenario: Scenario) -> Iterator[Finding]:
    """Yield the first place from which on the clocks may be so far off that times would be out of bounds."""
    shifts: list[tuple[Location, int]] = [(("cluster", "clocks", "offset"), scenario.cluster.clocks.offset)]
    for index, step in enumerate(scenario.steps):
        if isinstance(step, StepClock):
            shifts.append((("steps", index, "by"), abs(step.by)))
    off_us = 0
    for location, by_us in shifts:
        off_us += by_us
        if off_us > _MOST_CLOCK_YEARS * _YEAR_US:
            yield (
                location,
                f"the clocks of a run are off by at most {_MOST_CLOCK_YEARS} years, all steps together",
            )
            return


def _check_points(scenario: Scenario) -> Iterator[Finding]:
    for index, name in enumerate(scenario.buggify.points):
        if name not in POINTS:
            near = get_close_matches(name, POINTS, n=1)
            hint = f"the nearest is {near[0]}" if near else f"known are {', '.join(POINTS)}"
            yield ("buggify", "points", index), f"unknown buggify point {name!r}: {hint}"


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


def _kind(target: Target, names: Mapping[str, str]) -> str:
    """Returns the kind of a target; of a name, the kind of what it was given to."""
    return names.get(target.text, target.kind)


def _is_client(target: Target, names: Mapping[str, str]) -> bool:
    return _kind(target, names) in ("producer", "consumer")


def _check_controller(index: int, step: Step, names: Mapping[str, str]) -> Iterator[Finding]:
    """Yield where a step that needs a broker strikes the controller, by its own word or by a name."""
    kinds = {_kind(target, names) for target in _targets(step)}
    if "controller" not in kinds:
        return
    if isinstance(step, CreateTopic):
        yield ("steps", index, "leader"), "the controller is no broker: it leads no partition"
    elif isinstance(step, _OF_BROKERS) and not _may_be_of_the_controller(step):
        yield ("steps", index, step.verb), f"the controller is no broker: {step.verb} needs one"
    elif isinstance(step, LagMetadata) and step.lag_metadata.kind == "name":
        yield ("steps", index, step.verb), "the controller replays no metadata"


def _check_step(scenario: Scenario, index: int, step: Step, names: Mapping[str, str]) -> Iterator[Finding]:
    for target in _targets(step):
        is_isolated = isinstance(step, Isolate) and target is step.isolate
        if target.kind in ("clients", "others") and (is_isolated or not isinstance(step, _OF_LINKS)):
            yield ("steps", index, step.verb), f"{target.text} is no node"
        if _is_client(target, names) and not isinstance(step, _OF_CLIENTS):
            yield ("steps", index, step.verb), f"{target.text} is a client: {step.verb} needs a node"
        if what := _unknown(scenario, target, names):
            yield ("steps", index, step.verb), what
    for condition in step.when:
        if what := _unknown_partition(scenario, condition.topic, condition.partition):
            yield ("steps", index, "when"), what
    if isinstance(step, BreakDisk | KillInside | PartialWrite | FailSync | Rot) and step.log is not None:
        topic, partition = step.log.rsplit("/", 1)
        is_of_controller = (
            isinstance(step, PartialWrite | KillInside)
            and any(target.kind == "controller" for target in _targets(step))
            and step.log == f"{METADATA_TOPIC}/0"
        )
        # The step compares the text. No topic has a partition of more than nine digits.
        if len(partition) > 9 or (partition.startswith("0") and partition != "0"):
            yield (
                ("steps", index, "log"),
                f"no partition {partition[:12]!r}: write its number without zeros before it",
            )
        elif not is_of_controller and (what := _unknown_partition(scenario, topic, int(partition))):
            yield ("steps", index, "log"), what
    yield from check_topic_step(scenario, index, step)
    if isinstance(step, Kill) and step.point is not None and _is_client(step.kill, names):
        yield ("steps", index, "point"), f"{step.kill.text} is a client: it has no jobs"
    elif isinstance(step, Kill) and step.point is not None and step.point not in step.points:
        points = ", ".join(step.points)
        yield ("steps", index, "point"), f"no point {step.point!r}: write one of {points}"
    if isinstance(step, KillInside) and step.job is not None and step.job not in step.jobs:
        yield ("steps", index, "job"), f"no job {step.job!r}: write one of {', '.join(step.jobs)}"
    if isinstance(step, BreakDisk) and step.job is not None and step.job not in BROKER_JOBS:
        yield ("steps", index, "job"), f"no job {step.job!r}: write one of {', '.join(BROKER_JOBS)}"
    yield from _check_controller(index, step, names)
    kinds = {_kind(target, names) for target in _targets(step)}
    if isinstance(step, FailSync) and step.file == "metadata" and kinds != {"controller"}:
        yield ("steps", index, step.verb), "only the controller writes snapshots of the metadata"
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


def _may_be_of_the_controller(step: Step) -> bool:
    """Whether a step that strikes disks may strike that of the controller, which has no log directories."""
    if isinstance(step, FailDisk):
        return step.directory is None
    return isinstance(step, FailSync) and step.file == "metadata"


# The methods of the wire protocol.
METHODS = tuple(
    sorted({path.rpartition("/")[2] for path in STREAMS} | {each.name for each in UNARY_BY_REQUEST.values()})
)
# The steps that clients may be targets of.
_OF_LINKS = (Cut, Heal, Isolate, Slow, Lose, Clog, Narrow, HangUp, FlipBits)
# The steps whose verb has all that they strike, and that `_targets` need not know one by one.
_OF_ONE_TARGET = (
    LagMetadata, DiskStep, Clog, Narrow, HangUp, SlowCpu, KillInside, KillStart, RollingRestart, FreezeClock,
    HangDisk, FlipBits, LackDescriptors,
)  # fmt: skip
# The steps that only brokers may be targets of.
_OF_BROKERS = (DiskStep, BreakDisk, RollingRestart, LackDescriptors)
_OF_CLIENTS = (*_OF_LINKS, Kill, Stop, Pause, Pick, Restart, StepClock, SlowCpu, FreezeClock)


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


def _unknown(scenario: Scenario, target: Target, names: Mapping[str, str]) -> str | None:
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
