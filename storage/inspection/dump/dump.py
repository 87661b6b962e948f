"""Dumps the files of a log directory, in the lines of kafka-dump-log or as JSON; reads only.

On damage Kafka's tool ends with a stack trace; this one reports where the damage is, counts what follows it, and
continues with the next file. Kafka: DumpLogSegments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import final

from storage.disk.checkpoints import META_PROPERTIES_FILE, PARTITION_METADATA_FILE
from storage.disk.filesystem import FileSystem, basename
from storage.errors import CorruptIndex, CorruptSnapshot, StorageError
from storage.inspection.dump.decoders import ClassDecoder, RecordDecoder
from storage.inspection.dump.indexes import (
    IndexFindings,
    IndexScope,
    SegmentPaths,
    dump_offset_index,
    dump_producer_snapshot,
    dump_time_index,
    dump_transaction_index,
)
from storage.inspection.dump.log import LogScope, dump_log
from storage.inspection.dump.output import OutputFailed, pieces_told_apart, told_apart
from storage.inspection.dump.writers import DumpWriter, JsonWriter, TextWriter, Write, WritePieces
from storage.segment.file_records import FileRecords

DEFAULT_MAX_MESSAGE_SIZE = 5 * 1024 * 1024
MAX_BYTES = 2**31 - 1
BOOTSTRAP_NAME = "bootstrap.checkpoint"
_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
_TEXT_FILES = (PARTITION_METADATA_FILE, META_PROPERTIES_FILE)
_TEXT_SUFFIX = "-checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """The options of kafka-dump-log, under its own names."""

    print_data_log: bool = False
    deep_iteration: bool = False
    skip_record_metadata: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
    # The number of bytes to read of each log; the default means all.
    max_bytes: int = MAX_BYTES
    # None shows keys and values as text.
    decoder: RecordDecoder | None = None
    json: bool = False


class DumpStatus(IntEnum):
    """The exit status of a dump: the greatest of all its files."""

    SOUND = 0
    DAMAGED = 1
    UNUSABLE = 2


class _BadName(StorageError):
    pass


def dump_files(
    file_system: FileSystem,
    paths: Sequence[str],
    options: DumpOptions,
    *,
    write: Write,
    report: Write,
    write_pieces: WritePieces | None = None,
    absolute: Callable[[str], str] = str,
    is_written: Callable[[str], bool] | None = None,
) -> DumpStatus:
    """Dump every file in order. `write` takes the lines of the dump, `report` errors and the closing comparison, each
    one line a call; `write_pieces` takes the lines of large records, whole without it. Returns the exit status. No
    error of a file is raised; an OSError that one of these three raises is, and ends the dump. `is_written` returns
    whether a node is writing the log of that path; it is asked where a log ends with zeros, which are no damage then.
    """

    def write_joined(pieces: Iterator[str]) -> None:
        write("".join(pieces))

    writer = _writer(options, told_apart(write), pieces_told_apart(write_pieces or write_joined))
    try:
        return _Dump(file_system, options, writer, told_apart(report), absolute, is_written).run(paths)
    except OutputFailed as failed:
        raise failed.reason from None


@final
class _Dump:
    def __init__(
        self,
        file_system: FileSystem,
        options: DumpOptions,
        writer: DumpWriter,
        report: Write,
        absolute: Callable[[str], str],
        is_written: Callable[[str], bool] | None,
    ) -> None:
        self._file_system = file_system
        self._report = report
        self._absolute = absolute
        self._is_written = is_written
        self._writer = writer
        self._log_scope = LogScope(
            deep=options.print_data_log or options.deep_iteration,
            is_written=lambda: False,
            decoder=(options.decoder or ClassDecoder()) if options.print_data_log else None,
            shows_control=not options.skip_record_metadata,
            max_bytes=None if options.max_bytes == MAX_BYTES else options.max_bytes,
        )
        self._index_scope = IndexScope(
            sanity_only=options.index_sanity_check,
            verify_only=options.verify_index_only,
            max_message_size=options.max_message_size,
        )
        self._status = DumpStatus.SOUND
        self._index_findings: list[tuple[str, IndexFindings]] = []
        self._non_consecutive: list[tuple[str, list[tuple[int, int]]]] = []

    def run(self, paths: Sequence[str]) -> DumpStatus:
        """Dump the files in order, then report the closing comparison; returns the exit status."""
        for path in paths:
            try:
                self._file(path)
            except (CorruptIndex, CorruptSnapshot) as error:
                self._found(DumpStatus.DAMAGED, f"error: {error}")
            except (StorageError, OSError) as error:
                self._found(DumpStatus.UNUSABLE, f"error: {_one_line(path, error)}")
        for line in self._closing_lines():
            self._report(line)
        return self._status

    def _found(self, status: DumpStatus, line: str) -> None:
        self._status = max(self._status, status)
        self._report(line)

    def _file(self, path: str) -> None:
        if not basename(path):
            raise _BadName(f"{path!r} is not the name of a file")
        self._writer.file(path)
        match _suffix(path):
            case ".log" | ".checkpoint":
                self._log(path)
            case ".index":
                segment = _segment(path)
                self._index(path, dump_offset_index(*self._index_arguments(path, segment)))
            case ".timeindex":
                segment = _segment(path)
                self._index(path, dump_time_index(*self._index_arguments(path, segment)))
            case ".txnindex":
                dump_transaction_index(self._file_system, path, self._writer)
            case ".snapshot":
                dump_producer_snapshot(self._file_system, path, self._writer)
            case _:
                self._found(DumpStatus.UNUSABLE, f"error: {path}: {self._unknown(path)}")

    def _unknown(self, path: str) -> str:
        """Returns what `path` is, whose suffix is none that a dump knows. Raises OSError if there is no such file."""
        if self._file_system.stat(path).is_directory:
            return f"a directory, not a file: name the files in it, for example {path}/{0:020d}.log"
        if basename(path) in _TEXT_FILES or path.endswith(_TEXT_SUFFIX):
            return "a text file, which can be read as it is"
        return f"not a type of file that dump knows: {', '.join(_SUFFIXES)}"

    def _index_arguments(
        self, path: str, segment: SegmentPaths
    ) -> tuple[FileSystem, str, SegmentPaths, IndexScope, DumpWriter]:
        return self._file_system, path, segment, self._index_scope, self._writer

    def _log(self, path: str) -> None:
        log = FileRecords(self._file_system, path, read_only=True)
        try:
            if _suffix(path) == ".log":
                self._writer.log_start(_offset_in_name(path))
            elif basename(path) == BOOTSTRAP_NAME:
                self._writer.bootstrap_start()
            else:
                self._writer.snapshot_start(*_snapshot_id(path))
            findings = dump_log(log, self._scope_of(path), self._writer)
        finally:
            log.close()
        if findings.damage is not None:
            status = DumpStatus.UNUSABLE if findings.is_unsupported else DumpStatus.DAMAGED
            self._found(status, f"error: {findings.damage}")
        if findings.non_consecutive:
            self._non_consecutive.append((path, findings.non_consecutive))

    def _scope_of(self, path: str) -> LogScope:
        if self._is_written is None:
            return self._log_scope
        return replace(self._log_scope, is_written=partial(self._is_written, path))

    def _index(self, path: str, findings: IndexFindings) -> None:
        if findings.damage is not None:
            self._found(DumpStatus.DAMAGED, f"error: {findings.damage}")
        self._index_findings.append((path, findings))

    def _closing_lines(self) -> list[str]:
        """Returns Kafka's closing summary: offsets newest first, timestamps in the order in which they were found."""
        lines: list[str] = []
        for path, findings in self._index_findings:
            if findings.mismatches:
                lines.append(f"Mismatches in :{self._absolute(path)}")
                lines += (f"  Index offset: {a}, log offset: {b}" for a, b in reversed(findings.mismatches))
        for path, findings in self._index_findings:
            lines += self._timestamp_lines(path, findings)
        for path, pairs in self._non_consecutive:
            lines.append(f"Non-consecutive offsets in {self._absolute(path)}")
            lines += (f"  {a} is followed by {b}" for a, b in reversed(pairs))
        return lines

    def _timestamp_lines(self, path: str, findings: IndexFindings) -> list[str]:
        lines: list[str] = []
        if findings.timestamp_mismatches:
            lines.append(f"Found timestamp mismatch in :{self._absolute(path)}")
            lines += (f"  Index timestamp: {a}, log timestamp: {b}" for a, b in findings.timestamp_mismatches)
        if findings.out_of_order:
            lines.append(f"Found out of order timestamp in :{self._absolute(path)}")
            lines += (
                f"  Index timestamp: {a}, Previously indexed timestamp: {b}" for a, b in findings.out_of_order
            )
        if findings.offsets_not_found:
            lines.append("The following indexed offsets are not found in the log.")
            lines += (f"Indexed offset: {a}, found log offset: {b}" for a, b in findings.offsets_not_found)
        return lines


def _writer(options: DumpOptions, write: Write, write_pieces: WritePieces) -> DumpWriter:
    if not options.json:
        return TextWriter(write, write_pieces, skip_record_metadata=options.skip_record_metadata)
    return JsonWriter(
        write,
        write_pieces,
        print_data=options.print_data_log,
        is_decoded=options.decoder is not None,
        skip_record_metadata=options.skip_record_metadata,
    )


def _suffix(path: str) -> str:
    name = basename(path)
    return name[name.rfind(".") :] if "." in name else ""


def _offset_in_name(path: str) -> int:
    """Returns the number before the first dot of the name (Kafka: LogFileUtils.offsetFromFileName)."""
    number = basename(path).split(".", 1)[0]
    if not (number.isascii() and number.isdigit() and int(number) < 2**63):
        raise _BadName(f"{path}: the name has no base offset")
    return int(number)


def _snapshot_id(path: str) -> tuple[int, int]:
    parts = basename(path).split(".", 1)[0].split("-")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise _BadName(f"{path}: the name has no end offset and epoch")
    return int(parts[0]), int(parts[1])


def _segment(path: str) -> SegmentPaths:
    base_offset = _offset_in_name(path)
    name = basename(path)
    stem = path[: len(path) - len(name)] + name[: name.rfind(".")]
    return SegmentPaths(log=f"{stem}.log", offset_index=f"{stem}.index", base_offset=base_offset)


def _one_line(path: str, error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or path}: {error.strerror}"
    return " ".join(str(error).split())
