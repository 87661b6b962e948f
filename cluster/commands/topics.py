"""The commands of `replog topics`: create, list, describe, alter, delete."""

from __future__ import annotations

import json
from collections.abc import Iterable

import click

from cluster.commands.options import admin_config, bootstrap_option, pairs, require_topics, run
from cluster.core.client.descriptions import Replicas, replicas_of
from cluster.core.client.effects import Described
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import (
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
@click.option("--partitions", type=int, default=1, show_default=True, help="Number of partitions.")
@click.option(
    "--replication-factor",
    type=int,
    default=1,
    show_default=True,
    help="Number of replicas of each partition.",
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
    help="Brokers of the replicas, one list per partition; the first broker is the preferred leader.",
)
@click.option("--if-not-exists", is_flag=True, help="Succeed without a change if the topic exists.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@bootstrap_option
def create(
    name: str,
    partitions: int,
    replication_factor: int,
    config: tuple[str, ...],
    replica_assignment: str | None,
    if_not_exists: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Create topic NAME and wait until every partition has a leader.

    A topic that exists is an error, unless --if-not-exists is given.
    """
    request = CreateTopicRequest(
        name=name,
        partitions=partitions,
        replication_factor=replication_factor,
        configs=pairs(config, "--config"),
        assignment=_assignment(replica_assignment),
    )

    async def work() -> tuple[str, bool]:
        check_topic_name(name)
        is_new = True
        async with AsyncAdmin(bootstrap_server, admin_config()) as admin:
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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@bootstrap_option
def describe(name: str | None, as_json: bool, bootstrap_server: str) -> None:
    """Show the partitions of topic NAME, or of every topic.

    A line has the leader, its epoch, the replicas, the in-sync replicas (ISR), the high watermark and the log end.
    """

    async def work() -> Described:
        chosen = None if name is None else (name,)
        if chosen is not None:
            check_topic_name(chosen[0])
            await require_topics(bootstrap_server, chosen)
        async with AsyncAdmin(bootstrap_server, admin_config()) as admin:
            return await admin.describe(chosen)

    described = run(work())
    assert described.metadata is not None
    replicas = replicas_of(described)
    shown = [_describe(topic, replicas) for topic in described.metadata.topics]
    if as_json:
        click.echo(json.dumps(shown[0] if name is not None else {"topics": shown}))
        return
    for topic in shown:
        _print_topic(topic)


def _describe(topic: TopicMetadata, replicas: Replicas) -> dict[str, object]:
    return {
        "name": topic.name,
        "configs": dict(topic.configs),
        "partitions": [
            _describe_partition(topic.name, partition, replicas) for partition in topic.partitions
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


def _print_topic(topic: dict[str, object]) -> None:
    """Prints the lines of kafka-topics.sh, followed by the offsets."""
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
    required=True,
    metavar="NAME=VALUE",
    help="Set a property by its Kafka name; an empty value restores the default. May be repeated.",
)
@bootstrap_option
def alter(name: str, config: tuple[str, ...], bootstrap_server: str) -> None:
    """Set properties of topic NAME."""
    chosen = pairs(config, "--config")

    async def work() -> None:
        check_topic_name(name)
        async with AsyncAdmin(bootstrap_server, admin_config()) as admin:
            await admin.alter_topic_configs(name, dict(chosen))

    run(work())
    click.echo(f"Altered topic {name}.")


@topics.command()
@click.argument("name")
@bootstrap_option
def delete(name: str, bootstrap_server: str) -> None:
    """Delete topic NAME with all its records."""

    async def work() -> None:
        check_topic_name(name)
        async with AsyncAdmin(bootstrap_server, admin_config()) as admin:
            await admin.delete_topic(name)

    run(work())
    click.echo(f"Deleted topic {name}.")
