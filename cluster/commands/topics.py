"""The commands of `replog topics`: create, list, describe, alter, delete."""

from __future__ import annotations

import json
from collections.abc import Iterable

import click

from cluster.commands.options import admin_config, bootstrap_option, pairs, require_topics, run
from cluster.commands.partition_filters import PartitionFilter, filter_options
from cluster.core.client.descriptions import Replicas, replicas_of
from cluster.core.client.effects import Described
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import (
    DEFAULT_COUNT,
    NO_LEADER,
    CreateTopicRequest,
    MetadataResponse,
    PartitionMetadata,
    ReplicaDescription,
    TopicMetadata,
    TopicPartition,
)
from cluster.shell.clients import AsyncAdmin
from storage.topics import check_topic_name


@click.group()
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command()
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(min=0),
    help="Number of partitions.  [default: num.partitions of the cluster, 1]",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=0),
    help="Number of replicas of each partition.  [default: default.replication.factor of the cluster, 1]",
)
@click.option(
    "--config",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a topic property by its Kafka name. May be repeated.",
)
@click.option(
    "--replica-assignment",
    metavar="1:2:3,…",
    help="Brokers of the replicas, one list per partition; the first broker is the preferred leader. It decides "
    "the number of partitions and of replicas.",
)
@click.option("--if-not-exists", is_flag=True, help="Succeed without a change if the topic exists.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@bootstrap_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    config: tuple[str, ...],
    replica_assignment: str | None,
    if_not_exists: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Create topic NAME and wait until every partition has a leader.

    A topic that exists is an error, unless --if-not-exists is given.
    """
    if replica_assignment is not None and not (partitions is None and replication_factor is None):
        counted = "--replication-factor" if partitions is None else "--partitions"
        raise click.UsageError(
            f"--replica-assignment decides the number of partitions and of replicas: leave out {counted}"
        )
    request = CreateTopicRequest(
        name=name,
        partitions=DEFAULT_COUNT if partitions is None else partitions,
        replication_factor=DEFAULT_COUNT if replication_factor is None else replication_factor,
        configs=pairs(config, "--config"),
        assignment=_assignment(replica_assignment),
    )

    async def work() -> tuple[str, bool]:
        check_topic_name(name)
        is_new = True
        async with AsyncAdmin(bootstrap_server, admin_config()) as admin:
            # The controller would create it, too, but only brokers can be asked for its leaders.
            await admin.metadata(())
            try:
                topic_id = await admin.create(request)
            except ClusterError as error:
                if not (if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
                    raise
                topic_id, is_new = "", False
            await admin.until_led(name)
            return topic_id, is_new

    topic_id, is_new = run(work())
    if as_json:
        click.echo(json.dumps({"name": name, "topic_id": topic_id, "created": is_new}))
    else:
        click.echo(f"Created topic {name}." if is_new else f"Topic {name} already exists.")


def _assignment(text: str | None) -> tuple[tuple[int, ...], ...]:
    if text is None:
        return ()
    try:
        return tuple(tuple(int(broker) for broker in part.split(":")) for part in text.split(","))
    except ValueError as error:
        raise click.UsageError(
            f"--replica-assignment: expected broker ids like 1:2:3,2:3:1, got {text!r}"
        ) from error


@topics.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@bootstrap_option
def list_topics(as_json: bool, bootstrap_server: str) -> None:
    """Print the names of all topics, one per line."""

    async def work() -> MetadataResponse:
        async with AsyncAdmin(bootstrap_server, admin_config()) as admin:
            return await admin.metadata()

    found = sorted(run(work()).topics, key=lambda topic: topic.name)
    if as_json:
        click.echo(json.dumps({"topics": [_summary(topic) for topic in found]}))
        return
    for topic in found:
        click.echo(topic.name)


def _summary(topic: TopicMetadata) -> dict[str, object]:
    factor = max((len(partition.replicas) for partition in topic.partitions), default=0)
    return {"name": topic.name, "partitions": len(topic.partitions), "replication_factor": factor}


@topics.command()
@click.argument("name", required=False)
@filter_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@bootstrap_option
def describe(name: str | None, as_json: bool, bootstrap_server: str, **conditions: bool) -> None:
    """Show the partitions of topic NAME, or of every topic.

    A line has the leader, its epoch, the replicas, the in-sync replicas (ISR), the high watermark and the log end.
    The options that choose partitions leave out all others, and the lines of topics.
    """
    chosen_partitions = PartitionFilter(**conditions)

    async def work() -> Described:
        chosen = None if name is None else (name,)
        if chosen is not None:
            check_topic_name(chosen[0])
            await require_topics(bootstrap_server, chosen)
        async with AsyncAdmin(bootstrap_server, admin_config()) as admin:
            return await admin.describe(chosen)

    described = run(work())
    metadata = described.metadata
    assert metadata is not None
    replicas = replicas_of(described)
    shown = [
        _describe(topic, replicas, chosen_partitions.chosen(topic, metadata, replicas))
        for topic in metadata.topics
    ]
    if chosen_partitions.is_set and name is None:
        shown = [topic for topic in shown if topic["partitions"]]
    if as_json:
        click.echo(json.dumps(shown[0] if name is not None else {"topics": shown}))
        return
    for topic in shown:
        if not chosen_partitions.is_set:
            _print_heading(topic)
        _print_partitions(topic)


def _describe(topic: TopicMetadata, replicas: Replicas, chosen: set[int]) -> dict[str, object]:
    return {
        "name": topic.name,
        "configs": dict(topic.configs),
        "partitions": [
            _describe_partition(topic.name, partition, replicas)
            for partition in topic.partitions
            if partition.partition in chosen
        ],
    }


def _describe_partition(name: str, partition: PartitionMetadata, replicas: Replicas) -> dict[str, object]:
    """Returns a partition as `--json` prints it: the leader's offsets, or -1 where there is no leader that answers."""
    place = TopicPartition(name, partition.partition)
    leader = replicas.get((place, partition.leader))
    held = ((broker, replicas.get((place, broker))) for broker in partition.replicas)
    return {
        "partition": partition.partition,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "high_watermark": -1 if leader is None else leader.high_watermark,
        "log_end_offset": -1 if leader is None else leader.log_end_offset,
        "log_start_offset": -1 if leader is None else leader.log_start_offset,
        "replica_states": [_state(broker, replica) for broker, replica in held if replica is not None],
    }


def _state(broker: int, replica: ReplicaDescription) -> dict[str, object]:
    return {
        "broker": broker,
        "role": replica.role,
        "leader_epoch": replica.leader_epoch,
        "high_watermark": replica.high_watermark,
        "log_end_offset": replica.log_end_offset,
    }


def _print_heading(topic: dict[str, object]) -> None:
    """Prints the first line that kafka-topics.sh has for a topic."""
    partitions, configs = topic["partitions"], topic["configs"]
    assert isinstance(partitions, list) and isinstance(configs, dict)
    properties = ",".join(f"{key}={value}" for key, value in sorted(configs.items()))
    factor = max((len(partition["replicas"]) for partition in partitions), default=0)
    heading = [
        f"Topic: {topic['name']}",
        f"PartitionCount: {len(partitions)}",
        f"ReplicationFactor: {factor}",
    ]
    click.echo("\t".join([*heading, f"Configs: {properties}"]))


def _print_partitions(topic: dict[str, object]) -> None:
    """Prints the lines that kafka-topics.sh has for partitions, followed by the offsets."""
    partitions = topic["partitions"]
    assert isinstance(partitions, list), topic
    for partition in partitions:
        leader = "none" if partition["leader"] == NO_LEADER else partition["leader"]
        fields = [
            f"Topic: {topic['name']}",
            f"Partition: {partition['partition']}",
            f"Leader: {leader}",
            f"LeaderEpoch: {partition['leader_epoch']}",
            f"Replicas: {_joined(partition['replicas'])}",
            f"Isr: {_joined(partition['isr'])}",
            f"HighWatermark: {partition['high_watermark']}",
            f"LogEndOffset: {partition['log_end_offset']}",
        ]
        click.echo("\t" + "\t".join(fields))


def _joined(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


@topics.command()
@click.argument("name")
@click.option(
    "--config",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a property by its Kafka name; an empty value restores the default. May be repeated.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=0),
    help="Add partitions until there are this many. They cannot be taken away again.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@bootstrap_option
def alter(
    name: str, config: tuple[str, ...], partitions: int | None, as_json: bool, bootstrap_server: str
) -> None:
    """Set properties of topic NAME, or add partitions and wait until they have leaders.

    With more partitions, new records of a key may go to another partition than its old ones.
    """
    if not config and partitions is None:
        raise click.UsageError("nothing to alter: expected --partitions or --config")
    chosen = pairs(config, "--config")

    async def work() -> None:
        check_topic_name(name)
        async with AsyncAdmin(bootstrap_server, admin_config()) as admin:
            # First what can be taken back: a property that is refused then leaves all as it was.
            if chosen:
                await admin.alter_topic_configs(name, dict(chosen))
            if partitions is not None:
                await _add_partitions(admin, name, partitions, has_altered=bool(chosen))
            if partitions is not None and not await admin.until_led(name, partitions=partitions):
                click.echo(f"warning: not every partition of {name} has a leader yet", err=True)

    run(work())
    if as_json:
        told = {"name": name, "altered": True, "configs": dict(chosen)}
        click.echo(json.dumps(told if partitions is None else {**told, "partitions": partitions}))
    else:
        click.echo(f"Altered topic {name}.")


async def _add_partitions(admin: AsyncAdmin, name: str, partitions: int, *, has_altered: bool) -> None:
    try:
        await admin.create_partitions(name, partitions)
    except ClusterError:
        if has_altered:
            click.echo(f"the properties of {name} are set, no partition was added", err=True)
        raise


@topics.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@bootstrap_option
def delete(name: str, as_json: bool, bootstrap_server: str) -> None:
    """Delete topic NAME with all its records."""

    async def work() -> None:
        check_topic_name(name)
        async with AsyncAdmin(bootstrap_server, admin_config()) as admin:
            await admin.delete_topic(name)

    run(work())
    click.echo(json.dumps({"name": name, "deleted": True}) if as_json else f"Deleted topic {name}.")
