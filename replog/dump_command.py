"""`replog dump`: kafka-dump-log's options, on files of a log directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import click

from storage.disk.filesystem import basename, join
from storage.disk.os_filesystem import OsFileSystem
from storage.inspection.dump.decoders import (
    DECODER_CLASSES,
    STRING_DECODER,
    ClassDecoder,
    ClusterMetadataDecoder,
    RecordDecoder,
    offsets_decoder,
    share_group_state_decoder,
    transaction_log_decoder,
)
from storage.inspection.dump.dump import DEFAULT_MAX_MESSAGE_SIZE, MAX_BYTES, DumpOptions, dump_files

_LINES_A_WRITE = 512
_LONGEST_LINE_KEPT = 1 << 20
_CLASS_HELP = (
    "One of Kafka's org.apache.kafka.tools.api.{String,Integer,Long,Default}Decoder (bytes, shown in hex)."
)
# In Kafka's order of precedence: the first one asked for is used.
_TOPIC_DECODERS: Mapping[str, Callable[[], RecordDecoder]] = {
    "offsets_decoder": offsets_decoder,
    "transaction_log_decoder": transaction_log_decoder,
    "cluster_metadata_decoder": ClusterMetadataDecoder,
    "share_group_state_decoder": share_group_state_decoder,
}


@click.command("dump", short_help="Print a log, index or snapshot file in kafka-dump-log's lines.")
@click.option("--files", help="Comma-separated files to dump, in order.  [required]")
@click.option("--print-data-log", is_flag=True, help="Print keys and values; implies --deep-iteration.")
@click.option("--deep-iteration", is_flag=True, help="Print a line for each record.")
@click.option(
    "--skip-record-metadata",
    is_flag=True,
    help="Do not print offset, timestamp, sizes and other metadata of records.",
)
@click.option(
    "--verify-index-only", is_flag=True, help="Only compare indexes with their log; print no entries."
)
@click.option(
    "--index-sanity-check", is_flag=True, help="Check indexes only as a broker does when it opens them."
)
@click.option(
    "--max-message-size",
    type=click.IntRange(1, MAX_BYTES),
    default=DEFAULT_MAX_MESSAGE_SIZE,
    show_default=True,
    help="The largest batch, in bytes, that an index entry may point to.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(0, MAX_BYTES),
    default=MAX_BYTES,
    help="Read at most this much of each log.",
)
@click.option("--key-decoder-class", is_flag=False, flag_value=STRING_DECODER, help=_CLASS_HELP)
@click.option("--value-decoder-class", is_flag=False, flag_value=STRING_DECODER, help=_CLASS_HELP)
@click.option("--offsets-decoder", is_flag=True, help="Decode records of __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="Decode records of __transaction_state.")
@click.option("--cluster-metadata-decoder", is_flag=True, help="Decode records of __cluster_metadata.")
@click.option("--remote-log-metadata-decoder", is_flag=True, help="Refused: there is no tiered storage here.")
@click.option("--share-group-state-decoder", is_flag=True, help="Decode records of __share_group_state.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
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
    """Print a log, index or snapshot file in kafka-dump-log's lines.

    Reads only. Exit status: 0 all is sound, 1 a file is damaged (its first damage is reported on standard error),
    2 a file or an option cannot be used.
    """
    if files is None:
        raise click.UsageError('Missing required argument "[files]"')
    paths = files.rstrip(",").split(",")
    if not all(paths):
        raise click.UsageError(f"--files {files!r} has an empty name")
    if decoders["remote_log_metadata_decoder"]:
        raise click.UsageError("--remote-log-metadata-decoder is refused: there is no tiered storage here")
    decoder = next((make() for name, make in _TOPIC_DECODERS.items() if decoders[name]), None)
    classes = _class_decoder(key_decoder_class, value_decoder_class)
    options = DumpOptions(
        print_data_log=print_data_log or decoder is not None or classes is not None,
        deep_iteration=deep_iteration,
        skip_record_metadata=skip_record_metadata,
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
        max_message_size=max_message_size,
        max_bytes=max_bytes,
        decoder=decoder or classes,
        json=as_json,
    )
    context.exit(_run(paths, options))


def _class_decoder(key_class: str | None, value_class: str | None) -> RecordDecoder | None:
    """Returns the decoder of these two classes; None if neither option is given. Other Java classes cannot be loaded
    here: they raise a usage error.
    """
    if key_class is None and value_class is None:
        return None
    found = []
    for name in (key_class or STRING_DECODER, value_class or STRING_DECODER):
        if name not in DECODER_CLASSES:
            known = ", ".join(DECODER_CLASSES)
            raise click.UsageError(f"the decoder class {name} is not one of {known}")
        found.append(DECODER_CLASSES[name])
    return ClassDecoder(key=found[0], value=found[1])


def _run(paths: list[str], options: DumpOptions) -> int:
    output, file_system = _Output(), OsFileSystem(keeps_access_times=True)
    try:
        return dump_files(
            file_system,
            paths,
            options,
            write=output.write,
            report=output.report,
            write_pieces=output.write_pieces,
            absolute=lambda path: os.path.join(os.getcwd(), path),
            is_written=partial(_is_written, file_system),
        )
    finally:
        output.flush()


def _is_written(file_system: OsFileSystem, path: str) -> bool:
    """Whether `path` is the last segment of a log that a node uses."""
    # Most dumps ask for none of this, and would start later.
    from replog.log_places import log_directory_of, path_of
    from storage.directory.manager import LOCK_FILE
    from storage.segment.live_files import list_live_files
    from storage.segment.names import log_path

    directory = path_of(file_system, os.path.dirname(path) or ".")
    bases = list_live_files(file_system, directory).base_offsets
    if not bases or basename(log_path(directory, bases[-1])) != basename(path):
        return False
    return file_system.is_locked(join(log_directory_of(file_system, directory), LOCK_FILE))


class _Output:
    """Writes UTF-8 in any locale, many lines at once; before an error it writes all earlier lines."""

    def __init__(self) -> None:
        self._standard_output = sys.stdout.buffer
        self._lines: list[str] = []

    def write(self, line: str) -> None:
        if len(line) > _LONGEST_LINE_KEPT:
            self._write_long(line)
            return
        self._lines.append(line)
        if len(self._lines) >= _LINES_A_WRITE:
            self.flush()

    def _write_long(self, line: str) -> None:
        """Write a line piece by piece: its bytes are not held besides."""
        self.write_pieces(
            line[start : start + _LONGEST_LINE_KEPT] for start in range(0, len(line), _LONGEST_LINE_KEPT)
        )

    def write_pieces(self, pieces: Iterable[str]) -> None:
        """Write the line of a large record, of which one piece is held."""
        self.flush()
        try:
            for piece in pieces:
                self._standard_output.write(piece.encode("utf-8", "surrogateescape"))
        finally:
            self._standard_output.write(b"\n")

    def flush(self) -> None:
        if self._lines:
            self._lines.append("")
            self._standard_output.write("\n".join(self._lines).encode("utf-8", "surrogateescape"))
            self._lines.clear()
        self._standard_output.flush()

    def report(self, line: str) -> None:
        self.flush()
        click.echo(line, err=True)
