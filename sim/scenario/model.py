"""The model of a scenario file: a cluster, its load, and its faults."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictInt

from sim.scenario.base import Strict
from sim.scenario.steps import (
    BROKER_JOBS,
    AnyStep,
)
from sim.scenario.values import (
    Duration,
    Percent,
    Rate,
    Size,
    no_truth,
    parse_duration,
    parse_rate,
    parse_size,
)


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
    drift: StrictInt = Field(
        default=0, ge=0, le=100_000, description="How many microseconds a clock gains or loses each second."
    )


class ClusterModel(Strict):
    """The brokers of a scenario and their settings."""

    brokers: StrictInt = Field(default=3, ge=1, le=9, description="The number of brokers, numbered from 1.")
    directories: StrictInt = Field(
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

    exists: StrictBool = Field(
        default=True, description="Whether it is created at the start; if not, a step creates it."
    )
    partitions: StrictInt = Field(
        default=1, ge=1, le=50, description="The number of partitions, numbered from 0."
    )
    replicas: StrictInt = Field(
        default=3, ge=1, le=9, description="The number of replicas of each partition, at most one per broker."
    )
    config: dict[str, int | float | str | bool] = Field(
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
    clients: StrictInt = Field(default=1, ge=1, le=20, description="The number of equal producers.")
    rate: Rate = Field(
        default=parse_rate("50/s"), description="The records that each of them sends per second."
    )
    acks: Annotated[Literal["all", 1, 0], BeforeValidator(no_truth)] = Field(
        default="all", description="Kafka's acks: who must have a record."
    )
    idempotent: StrictBool = Field(
        default=True,
        description="Whether brokers recognise a record that is sent again; with `acks: all` only.",
    )
    in_flight: StrictInt = Field(
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
    delivery_timeout: Duration = Field(
        default=parse_duration("8s"), description="After how long each of them gives a record up."
    )
    records: StrictInt | None = Field(
        default=None,
        ge=1,
        description="How many records each of them sends; without it, as many as the rate allows until steps end.",
    )
    keys: StrictInt = Field(
        default=0,
        ge=0,
        description="The number of keys, which are used in turn; with 0, records have no key.",
    )
    tombstones: Percent = Field(
        default=0, description="Which share of the records are tombstones: they have a key and no value."
    )
    unanswered: StrictInt | None = Field(
        default=None,
        ge=1,
        description="The records without an outcome at which each of them sends no new ones; without it, none.",
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
    clients: StrictInt = Field(default=1, ge=1, le=20, description="The number of equal consumers.")
    max_wait: Duration = Field(
        default=parse_duration("200ms"), description="Kafka's fetch.max.wait.ms, in whole milliseconds."
    )
    min_bytes: Size = Field(default=1, description="Kafka's fetch.min.bytes.")


class SeekerModel(Strict):
    """A number of equal clients that look up places in a topic's logs: their ends, and where a time begins."""

    topic: str = Field(description="The topic whose partitions they ask about in turn: a key of `topics`.")
    clients: StrictInt = Field(default=1, ge=1, le=20, description="The number of equal clients.")
    every: Duration = Field(
        default=parse_duration("300ms"), description="How often each of them looks up a place."
    )
    out_of_range: Literal["earliest", "latest", "none"] | None = Field(
        default=None,
        description="Where they go on from an offset that the log does not have; with `none` they do not. With it they "
        "seek such offsets too.",
    )


class AdminModel(Strict):
    """A number of equal admin clients, each of which creates, alters and deletes a topic of its own."""

    clients: StrictInt = Field(default=1, ge=1, le=5, description="The number of equal clients.")
    every: Duration = Field(
        default=parse_duration("500ms"), description="How often each of them begins a call."
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
    strict: StrictBool = Field(
        default=True,
        description="Whether the run proves nothing if a step never comes to strike; with `false` it is enough that "
        "one has struck.",
    )
    excuses: StrictBool = Field(
        default=True,
        description="Whether acknowledged records may be lost where Kafka does not promise to keep them; with `false` "
        "a loss is a violation that takes a fault of a disk, a power loss or an unclean election. What the leader "
        "alone has acknowledged (`acks: 1`) and what retention deletes is lost without one, and stays excused.",
    )
    canaries: StrictBool = Field(
        default=False,
        description="Whether each producer must get a record into every partition of the healed cluster, and each "
        "consumer read it.",
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
    admins: list[AdminModel] = Field(
        default_factory=list,
        description="Who creates, alters, grows, describes and deletes topics of their own, `of-admin-1` and so on. No "
        "step aims at them; real processes have none.",
    )
    steps: list[AnyStep] = Field(default_factory=list, description="What happens to them, in order.")
