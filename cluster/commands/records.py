"""The commands `replog produce` and `replog consume`; `replog topics` is in `topics.py`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import click

from cluster.commands.consume import Printer
from cluster.commands.lines import file_chunks, lines_of, prompted, stream_chunks
from cluster.commands.options import (
    FAILED,
    HELD,
    OUT_OF_TIME,
    bootstrap_option,
    cancelled_by_sigterm,
    client_config,
    fail,
    pairs,
    require_topics,
    run,
)
from cluster.commands.output import Output
from cluster.commands.produce import ReadLine, Tally, no_such_partition, produce_lines, reader_for
from cluster.commands.record_formats import Columns, Format, kcat_format
from cluster.commands.record_json import json_format, read_json
from cluster.commands.record_properties import line_rules, parse_start, with_properties
from cluster.commands.topics import topics
from cluster.core.client.config import ConsumerConfig, OffsetReset, ProducerConfig
from cluster.core.client.consumer import Start
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import TopicPartition
from cluster.shell.clients import AsyncConsumer, AsyncProducer
from storage.config import LONG_MAX
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
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="Say how a line is read, as kafka-console-producer does: parse.key, key.separator (default: tab),"
    " parse.headers, headers.delimiter (tab), headers.separator (,), headers.key.separator (:), null.marker,"
    " ignore.error. May be repeated.",
)
@click.option("--partition", type=click.IntRange(min=0), help="Send every record to this partition.")
@click.option(
    "--input",
    "shape",
    type=click.Choice(["lines", "json"]),
    default="lines",
    show_default=True,
    help="Read a record from each line, or from each JSON object as `consume --json` prints them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@bootstrap_option
def produce(
    topic: str,
    path: Path | None,
    acks: str,
    producer_property: tuple[str, ...],
    key_separator: str | None,
    properties: tuple[str, ...],
    partition: int | None,
    shape: str,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Send lines to TOPIC, one record per line; on a terminal after a prompt, until Ctrl-D.

    A line that is no record ends the command, once the lines before it are sent.

    With --input json a line is an object with value, and perhaps key, headers ([{"key": "…", "value": …}]), timestamp
    in ms and partition; topic and offset are ignored. Keys and values are text, null (as a value, a tombstone) or, for
    bytes that are not UTF-8, {"base64": "…"}.

    After Ctrl-C or SIGTERM what was read is sent, for 5 seconds at most; a second Ctrl-C ends it at once.

    Exit status: 0 all records were acknowledged, 1 some failed or have no answer and may be in the log, 2 the input was
    unusable, 3 interrupted or out of time.
    """
    given = (("acks", "all" if acks == "-1" else acks), *pairs(producer_property, "--producer-property"))
    read = _reader(shape, key_separator, properties)
    tally = Tally()
    has_begun = False

    async def work() -> None:
        nonlocal has_begun
        # It sends what it has read before it ends, as after Ctrl-C.
        cancelled_by_sigterm()
        check_topic_name(topic)
        config = client_config(ProducerConfig(), given, "--producer-property")
        numbers = await _partitions(bootstrap_server, topic, partition)
        chunks = _chunks(path)
        with _progress(path) as progress:
            async with AsyncProducer(bootstrap_server, config) as producer:
                has_begun = True
                placed = reader_for(read, topic, partition, numbers)
                await produce_lines(producer, topic, lines_of(chunks), tally, read=placed, progress=progress)

    try:
        run(work())
    except (SystemExit, OSError):
        if has_begun:
            _tell(tally, as_json)
        raise
    _tell(tally, as_json)
    if tally.failed or tally.unanswered:
        counts = ", ".join(f"{count} x {code.name}" for code, count in tally.errors.items())
        fail(f"{counts}: {tally.first_message}", FAILED)


def _reader(shape: str, key_separator: str | None, properties: tuple[str, ...]) -> ReadLine:
    if shape == "lines":
        return line_rules(key_separator, properties).read
    if key_separator is not None or properties:
        raise click.UsageError("--key-separator and --property are for lines, and the input is JSON")
    return read_json


def _chunks(path: Path | None) -> AsyncIterator[bytes]:
    if path is not None:
        return file_chunks(path)
    chunks = stream_chunks(sys.stdin.buffer)
    # The prompt is on standard error, so that standard output has the result alone.
    return prompted(chunks, _show) if _has_typist() and sys.stderr.isatty() else chunks


def _show(text: str) -> None:
    click.echo(text, err=True, nl=False)


def _has_typist() -> bool:
    return sys.stdin.isatty()


def _tell(tally: Tally, as_json: bool) -> None:
    """Prints the counts on standard output, or on standard error where that fails. Raises OSError for a full disk."""
    text = json.dumps(tally.to_json()) if as_json else str(tally)
    output = Output(sys.stdout.buffer)
    try:
        asyncio.run(output.write([f"{text}\n".encode()]))
    finally:
        if output.count == 0:
            click.echo(text, err=True)


@contextlib.contextmanager
def _progress(path: Path | None) -> Iterator[Callable[[Tally], None] | None]:
    """Shows the progress during the block on a terminal, but not to a typist, who sees the prompt; else yields None."""
    if not sys.stderr.isatty() or (path is None and _has_typist()):
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
        yield lambda tally: bar.update(task, completed=tally.ended)


@click.command()
@click.argument("topic")
@click.option(
    "--from-beginning", is_flag=True, help="Start at the log start. By default only new records are read."
)
@click.option(
    "--from",
    "start",
    metavar="START",
    callback=parse_start,
    help="Start at earliest, at latest, at the first record of a time (2026-01-31T10:00:00Z, or milliseconds since"
    " 1970), or -N: at the last N offsets of each partition.",
)
@click.option("--partition", type=int, help="Read this partition only, not all.")
@click.option("--offset", type=int, help="Start at this offset; needs --partition.")
@click.option("--max-messages", type=click.IntRange(min=0, max=LONG_MAX), help="End after this many records.")
@click.option(
    "--timeout-ms",
    type=click.IntRange(min=1, max=LONG_MAX),
    help="End when no record arrives for this many milliseconds.",
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
    "--property",
    "columns",
    multiple=True,
    metavar="NAME=VALUE",
    help="Say what is printed, as kafka-console-consumer does: print.timestamp, print.partition, print.offset,"
    " print.epoch, print.headers, print.key, print.value, key.separator (default: tab), line.separator,"
    " headers.separator (,), null.literal. May be repeated.",
)
@click.option(
    "-f",
    "--format",
    "layout",
    metavar="FORMAT",
    help="Print each record as kcat does: %s value, %S its size (-1: null), %k key, %K its size, %t topic,"
    " %p partition, %o offset, %T timestamp in ms, %h headers, %R the size as four bytes, %%, \\n, \\t, \\r, \\0,"
    " \\xNN.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object per record: topic, partition, offset, timestamp, key, value, headers. Bytes that are"
    ' not UTF-8 become {"base64": "…"}. `produce --input json` reads it.',
)
@bootstrap_option
def consume(
    topic: str,
    from_beginning: bool,
    start: Start | None,
    partition: int | None,
    offset: int | None,
    max_messages: int | None,
    timeout_ms: int | None,
    until_end: bool,
    consumer_property: tuple[str, ...],
    columns: tuple[str, ...],
    layout: str | None,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Print the values of TOPIC's records, one per line, up to the high watermark, and continue as it advances.

    Exit status: 0 done, 1 failed, 2 the input was unusable, 3 interrupted, or --max-messages did not come in time.
    """
    if offset is not None and partition is None:
        raise click.UsageError("--offset needs --partition")
    if sum((from_beginning, start is not None, offset is not None)) > 1:
        raise click.UsageError("--from-beginning, --from and --offset each name a start: give one of them")
    if start is None:
        start = OffsetReset.EARLIEST if from_beginning else OffsetReset.LATEST
    start = start if offset is None else offset
    properties = pairs(consumer_property, "--consumer-property")
    format_record = _format(columns, layout, as_json)
    output = Output(sys.stdout.buffer)
    has_begun = False

    async def work() -> None:
        nonlocal has_begun
        check_topic_name(topic)
        # An offset out of range is an error, unless the user chose a reset policy.
        preset = ConsumerConfig(auto_offset_reset=OffsetReset.NONE)
        config = client_config(preset, properties, "--consumer-property")
        numbers = await _partitions(bootstrap_server, topic, partition)
        async with AsyncConsumer(bootstrap_server, config) as consumer:
            has_begun = True
            places = [(TopicPartition(topic, number), start) for number in numbers]
            consumer.assign(places, new_partitions=partition is None)
            printer = Printer(
                output,
                max_messages,
                timeout_ms,
                format_record,
                require_topic=lambda: require_topics(bootstrap_server, (topic,)),
            )
            await printer.run(consumer, ends=set(numbers) if until_end else None)

    try:
        run(work())
    finally:
        if has_begun:
            click.echo(f"Processed a total of {output.count} messages", err=True)
    is_short = max_messages is not None and output.count < max_messages
    if is_short and not until_end and not output.is_closed:
        fail(f"--max-messages {max_messages}: no record came for {timeout_ms} ms", OUT_OF_TIME)
    sys.exit(HELD)


def _format(columns: tuple[str, ...], layout: str | None, as_json: bool) -> Format:
    """Returns the function that prints a record. Raises click.UsageError."""
    if sum((bool(columns), layout is not None, as_json)) > 1:
        raise click.UsageError("--property, -f and --json each say how a record is printed: give one of them")
    if as_json:
        return json_format
    if layout is None:
        return with_properties(Columns(), columns).format()
    try:
        return kcat_format(layout)
    except ValueError as error:
        raise click.UsageError(f"-f: {error}") from error


async def _partitions(bootstrap: str, topic: str, partition: int | None) -> list[int]:
    metadata = await require_topics(bootstrap, (topic,))
    numbers = [known.partition for known in metadata.topics[0].partitions]
    if partition is None:
        return numbers
    if partition not in numbers:
        raise ClusterError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, no_such_partition(topic, partition, numbers))
    return [partition]
