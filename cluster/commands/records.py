"""The commands `replog produce` and `replog consume`; `replog topics` is in `topics.py`."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from cluster.commands.consume import Printer
from cluster.commands.lines import file_chunks, lines_of, stream_chunks
from cluster.commands.options import (
    FAILED,
    HELD,
    OUT_OF_TIME,
    bootstrap_option,
    client_config,
    fail,
    pairs,
    require_topics,
    run,
)
from cluster.commands.produce import Tally, produce_lines
from cluster.commands.topics import topics
from cluster.core.client.config import ConsumerConfig, OffsetReset, ProducerConfig
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import TopicPartition
from cluster.shell.clients import AsyncConsumer, AsyncProducer
from storage.topics import check_topic_name

__all__ = ["consume", "produce", "topics"]


@click.command()
@click.argument("topic")
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read lines from this file instead of standard input.",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "-1", "1", "0"]),
    default="all",
    show_default=True,
    help="Replicas whose acknowledgement to wait for: all in-sync ones (all or -1), the leader (1), none (0).",
)
@click.option(
    "--producer-property",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a property by its Kafka name, such as batch.size=65536. May be repeated.",
)
@click.option(
    "--key-separator",
    help="Split each line at the first separator into key and value. By default records have no key.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@bootstrap_option
def produce(
    topic: str,
    path: Path | None,
    acks: str,
    producer_property: tuple[str, ...],
    key_separator: str | None,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Send lines to TOPIC, one record per line.

    Exit status: 0 all records were acknowledged, 1 some failed, 2 the input was unusable, 3 interrupted or out of time.
    """
    properties = pairs(producer_property, "--producer-property")
    given = (("acks", "all" if acks == "-1" else acks), *properties)
    separator = None if key_separator is None else key_separator.encode()
    tally = Tally()

    def show_result() -> None:
        click.echo(json.dumps(tally.to_json()) if as_json else str(tally))

    async def work() -> None:
        check_topic_name(topic)
        config = client_config(ProducerConfig(), given, "--producer-property")
        await require_topics(bootstrap_server, (topic,))
        chunks = stream_chunks(sys.stdin.buffer) if path is None else file_chunks(path)
        with _progress(path) as progress:
            async with AsyncProducer(bootstrap_server, config) as producer:
                lines = lines_of(chunks)
                await produce_lines(producer, topic, lines, tally, key_separator=separator, progress=progress)

    try:
        run(work())
    except SystemExit:
        if tally.sent:
            show_result()
        raise
    show_result()
    if tally.failed:
        counts = ", ".join(f"{count} x {code.name}" for code, count in tally.errors.items())
        fail(f"{counts}: {tally.first_message}", FAILED)


@contextlib.contextmanager
def _progress(path: Path | None) -> Iterator[Callable[[Tally], None] | None]:
    """Shows the progress during the block on a terminal; yields None in a pipe, which gets the result alone."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    name = "standard input" if path is None else path.name
    columns = (
        TextColumn("{task.description}"),
        TextColumn("{task.completed:,.0f} records"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"producing {name}", total=None)
        yield lambda tally: bar.update(task, completed=tally.acknowledged + tally.failed)


@click.command()
@click.argument("topic")
@click.option(
    "--from-beginning", is_flag=True, help="Start at the log start. By default only new records are read."
)
@click.option("--partition", type=int, help="Read this partition only, not all.")
@click.option("--offset", type=int, help="Start at this offset; needs --partition.")
@click.option("--max-messages", type=click.IntRange(min=0), help="End after this many records.")
@click.option(
    "--timeout-ms", type=click.IntRange(min=1), help="End when no record arrives for this many milliseconds."
)
@click.option(
    "--until-end", is_flag=True, help="End at the high watermark instead of waiting for more records."
)
@click.option(
    "--consumer-property",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a property by its Kafka name, such as fetch.min.bytes=1. May be repeated.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object per record: partition, offset, timestamp, key, value.",
)
@bootstrap_option
def consume(
    topic: str,
    from_beginning: bool,
    partition: int | None,
    offset: int | None,
    max_messages: int | None,
    timeout_ms: int | None,
    until_end: bool,
    consumer_property: tuple[str, ...],
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Print the values of TOPIC's records, one per line, up to the high watermark, and continue as it advances.

    Exit status: 0 done, 1 failed, 2 the input was unusable, 3 interrupted, or --max-messages did not come in time.
    """
    if offset is not None and partition is None:
        raise click.UsageError("--offset needs --partition")
    properties = pairs(consumer_property, "--consumer-property")

    async def work() -> int:
        check_topic_name(topic)
        # An offset out of range is an error, unless the user chose a reset policy.
        preset = ConsumerConfig(auto_offset_reset=OffsetReset.NONE)
        config = client_config(preset, properties, "--consumer-property")
        numbers = await _partitions(bootstrap_server, topic, partition)
        start = (
            offset if offset is not None else OffsetReset.EARLIEST if from_beginning else OffsetReset.LATEST
        )
        async with AsyncConsumer(bootstrap_server, config) as consumer:
            consumer.assign([(TopicPartition(topic, number), start) for number in numbers])
            printer = Printer(sys.stdout.buffer, max_messages, timeout_ms, as_json)
            return await printer.run(consumer, ends=set(numbers) if until_end else None)

    count = run(work())
    sys.stdout.flush()
    click.echo(f"Processed a total of {count} messages", err=True)
    sys.exit(OUT_OF_TIME if max_messages is not None and count < max_messages and not until_end else HELD)


async def _partitions(bootstrap: str, topic: str, partition: int | None) -> list[int]:
    metadata = await require_topics(bootstrap, (topic,))
    numbers = [known.partition for known in metadata.topics[0].partitions]
    if partition is None:
        return numbers
    if partition not in numbers:
        raise ClusterError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {partition}")
    return [partition]
