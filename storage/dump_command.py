"""`replog dump`: kafka-dump-log's options, on files of a log directory."""

from __future__ import annotations

import os
import sys

import click

from storage.dump import DEFAULT_MAX_MESSAGE_SIZE, MAX_BYTES, DumpOptions, dump_files
from storage.os_filesystem import OsFileSystem

STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"
_STRING_DECODERS = (STRING_DECODER, "kafka.serializer.StringDecoder")  # the second before Kafka 4
_LINES_A_WRITE = 512


@click.command("dump", short_help="What a log, index or snapshot file holds, in kafka-dump-log's lines.")
@click.option("--files", help="Comma-separated files to dump, in order.  [required]")
@click.option("--print-data-log", is_flag=True, help="Print keys and values; implies --deep-iteration.")
@click.option("--deep-iteration", is_flag=True, help="A line for each record.")
@click.option(
    "--skip-record-metadata", is_flag=True, help="Leave offset, timestamp, sizes, … of records out."
)
@click.option("--verify-index-only", is_flag=True, help="Compare indexes with their log, print no entries.")
@click.option("--index-sanity-check", is_flag=True, help="Only what a broker checks when it opens an index.")
@click.option(
    "--max-message-size",
    type=click.IntRange(1, MAX_BYTES),
    default=DEFAULT_MAX_MESSAGE_SIZE,
    show_default=True,
    help="The largest batch, in bytes, that an index entry may point to.",
)
@click.option(
    "--max-bytes", type=click.IntRange(0, MAX_BYTES), default=MAX_BYTES, help="Read so much of each log."
)
@click.option("--key-decoder-class", is_flag=False, flag_value=STRING_DECODER, help="Only the StringDecoder.")
@click.option(
    "--value-decoder-class", is_flag=False, flag_value=STRING_DECODER, help="Only the StringDecoder."
)
@click.option("--offsets-decoder", is_flag=True, help="Not supported.")
@click.option("--transaction-log-decoder", is_flag=True, help="Not supported.")
@click.option("--cluster-metadata-decoder", is_flag=True, help="Not supported.")
@click.option("--remote-log-metadata-decoder", is_flag=True, help="Not supported.")
@click.option("--share-group-state-decoder", is_flag=True, help="Not supported.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def dump(
    context: click.Context,
    /,
    files: str | None,
    print_data_log: bool,
    deep_iteration: bool,
    skip_record_metadata: bool,
    verify_index_only: bool,
    index_sanity_check: bool,
    max_message_size: int,
    max_bytes: int,
    key_decoder_class: str | None,
    value_decoder_class: str | None,
    as_json: bool,
    **decoders: bool,
) -> None:
    """What a log, index or snapshot file holds, in kafka-dump-log's lines.

    Reads only. Exit status: 0 all is sound, 1 a file is damaged (the first damage is told on standard error),
    2 a file or an option cannot be used.
    """
    if files is None:
        raise click.UsageError('Missing required argument "[files]"')
    paths = files.split(",")
    if not all(paths):
        raise click.UsageError(f"--files {files!r} has an empty name")
    for name, is_asked in decoders.items():
        if is_asked:
            raise click.UsageError(f"--{name.replace('_', '-')} is not supported yet")
    decoder_classes = [name for name in (key_decoder_class, value_decoder_class) if name is not None]
    for name in decoder_classes:
        if name not in _STRING_DECODERS:
            raise click.UsageError(f"the decoder class {name} is not supported, only {STRING_DECODER}")
    options = DumpOptions(
        print_data_log=print_data_log or bool(decoder_classes),
        deep_iteration=deep_iteration,
        skip_record_metadata=skip_record_metadata,
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
        max_message_size=max_message_size,
        max_bytes=max_bytes,
        json=as_json,
    )
    context.exit(_run(paths, options))


def _run(paths: list[str], options: DumpOptions) -> int:
    output = _Output()
    try:
        return dump_files(
            OsFileSystem(),
            paths,
            options,
            write=output.write,
            report=output.report,
            absolute=lambda path: os.path.join(os.getcwd(), path),
        )
    finally:
        output.flush()


class _Output:
    """UTF-8 whatever the locale says, many lines a write; an error comes after the lines before it."""

    def __init__(self) -> None:
        self._standard_output = sys.stdout.buffer
        self._lines: list[str] = []

    def write(self, line: str) -> None:
        self._lines.append(line)
        if len(self._lines) >= _LINES_A_WRITE:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            self._lines.append("")
            self._standard_output.write("\n".join(self._lines).encode("utf-8", "surrogateescape"))
            self._lines.clear()
        self._standard_output.flush()

    def report(self, line: str) -> None:
        self.flush()
        click.echo(line, err=True)
