"""Verifies one partition: names every inconsistency, reads only and changes nothing.

It may run beside a live node: then it judges the active segment's end and its preallocated indexes as they are at that
moment. Every problem names its rule (docs/rules.md): FR frames, LS segments, IX indexes, EP epochs, PS producers,
AP appends, RO rolls, LL start-up, CL compaction, FL flushing; a number with a dot names the format that a file
breaks: 1.1 the name of a `.log`, or one that leads to nothing, 1.2 meta.properties, 1.3 an offset checkpoint, 1.4
partition.metadata, 1.5 a record batch, 1.9 a transaction index, 1.10 a producer snapshot.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, zip_longest
from operator import itemgetter
from typing import Final, final

from storage.batch import CURRENT_MAGIC, RecordBatch
from storage.batch.control_records import read_control_record
from storage.batch.pieces import HEADS_HELD
from storage.disk.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA_FILE,
    LeaderEpochCheckpoint,
    OffsetCheckpoint,
    PartitionMetadataFile,
)
from storage.disk.filesystem import FileSystem, basename, dirname, found_at, join
from storage.errors import CorruptBatch, CorruptCheckpoint, StorageError
from storage.index.memory_mapped import MAX_RELATIVE_OFFSET
from storage.inspection.verify.indexes import BatchPlace, SegmentFacts, check_indexes
from storage.inspection.verify.producers import ProducerWatch
from storage.inspection.verify.sliced import MOST_FINDINGS, Finding
from storage.producers.prepared_snapshot import UNFINISHED_SUFFIX
from storage.segment import LOG_SUFFIX, log_path
from storage.segment.file_records import FileRecords
from storage.segment.live_files import list_live_files, offset_of_name
from storage.segment.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from storage.topics import FUTURE_SUFFIX, BadDirectoryName, parse_directory_name

_LEFTOVER_SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
_KEPT_SUFFIX = ".checkpoint" + DELETED_SUFFIX
_LOG_NAME = re.compile(r"[0-9]{20}\.log", re.ASCII)
# The rule of files that an ended process has left over, which do no harm.
LEFT_OVER: Final = "LL6"
LEADS_TO_NOTHING: Final = "a link that leads to nothing"
# Five attempts are enough: retention deletes rarely, and several segments at once.
_LOOKS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One inconsistency. `position` is a byte of the file; None if the problem concerns the whole file."""

    path: str
    position: int | None
    rule: str
    message: str


@dataclass(slots=True, kw_only=True)
class PartitionReport:
    """The counts and findings of one partition's verification."""

    directory: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    # The base offset of the first segment.
    first_offset: int = 0
    log_end_offset: int = 0
    # The number of offsets missing between batches: compaction removed them, or a cut within a batch.
    missing_offsets: int = 0
    # The reason why the partition could not be read to its end; None if it could.
    error: str | None = None
    problems: list[Problem] = field(default_factory=list)

    def add(self, path: str, position: int | None, rule: str, message: str) -> None:
        self.problems.append(Problem(path=path, position=position, rule=rule, message=message))


def verify_partition(
    file_system: FileSystem,
    directory: str,
    *,
    deep: bool = False,
    in_use: bool = False,
    log_start: Callable[[], int] | None = None,
) -> PartitionReport:
    """Verify one partition; `deep` also decodes every record. Raises OSError if the directory or a file is unreadable.

    If a node deletes a file meanwhile, the verification starts again. While a node uses the directory (`in_use`), files
    of unfinished operations are not reported: a compaction writes `.cleaned` files, retention keeps `.deleted` ones for
    file.delete.delay.ms. A directory that the node deletes meanwhile has an empty report. `log_start`
    returns the log start offset, and is called where it decides; without it the checkpoint in the log directory counts.
    """
    if log_start is None:
        log_start = partial(LogStarts(file_system, dirname(directory)).of, basename(directory))
    looks = 0
    while True:
        looks += 1
        try:
            return _Verification(file_system, directory, deep, in_use, log_start).run()
        except FileNotFoundError:
            # A broken link is no deleted directory.
            is_deleted = basename(directory) not in file_system.list(dirname(directory))
            if is_deleted and in_use:
                return PartitionReport(directory=directory)
            if is_deleted or looks == _LOOKS:
                raise


@final
class LogStarts:
    """The log start offsets in the checkpoint of one log directory, read once, when the first is asked for."""

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system, self._path = file_system, join(directory, LOG_START_OFFSET_CHECKPOINT)
        self._offsets: Mapping[tuple[str, int], int] | None = None

    def of(self, name: str) -> int:
        """Returns the offset of the partition whose directory has that name; 0 if none can be read, and for a directory
        that is set aside, or that is moved in where the live one is still: the checkpoint is about that.
        """
        if self._offsets is None:
            self._offsets = self._read()
        try:
            parsed = parse_directory_name(name)
        except BadDirectoryName:
            return 0
        live = join(dirname(self._path), f"{parsed.topic}-{parsed.partition}")
        is_alone = parsed.suffix == FUTURE_SUFFIX and not self._file_system.exists(live)
        return self._offsets.get((parsed.topic, parsed.partition), 0) if is_alone or not parsed.suffix else 0

    def _read(self) -> Mapping[tuple[str, int], int]:
        """Returns what can be read; what is wrong with the file is said by who verifies the whole log directory."""
        try:
            if self._file_system.exists(self._path):
                return OffsetCheckpoint(self._file_system, self._path).read()
        except (CorruptCheckpoint, OSError):
            pass
        return {}


def left_over(name: str, replaced_files: Container[str]) -> str:
    """Returns what is to be said of the temporary file `name`, whose rename a crash or a full disk has prevented.

    `replaced_files` are those that are written again in the same way.
    """
    replaced = name.removesuffix(".tmp").removesuffix(".job")
    if name.endswith(UNFINISHED_SUFFIX):
        return "left over: the next start deletes it"
    if replaced in replaced_files:
        return f"left over from replacing a file: the next that replaces {replaced} takes it away"
    return "left over from replacing a file: nothing deletes it"


class _Verification:
    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        deep: bool,
        in_use: bool,
        log_start: Callable[[], int],
    ) -> None:
        self._file_system, self._directory, self._deep = file_system, directory, deep
        self._in_use = in_use
        self._report = PartitionReport(directory=directory)
        # How many problems of each file were found.
        self._found: dict[str, int] = {}
        self._log_start = log_start
        self._producers = ProducerWatch(file_system, directory, log_start)
        # The paths that lead to nothing.
        self._broken: set[str] = set()
        # Whether the segment that is read may have a tail of zeros: the last one of a log that a node writes.
        self._may_be_preallocated = False
        # Of the batch before, and of all batches before, whose offsets fit their segments.
        self._last_offset = -1
        self._greatest_offset = -1
        self._last_epoch = -1
        # The epoch, base offset, path and position of each batch that starts an epoch.
        self._epoch_starts: list[tuple[int, int, str, int]] = []

    def run(self) -> PartitionReport:
        """Verify the whole partition; to be called once."""
        files = list_live_files(self._file_system, self._directory)
        report = self._report
        assert report.segments == 0, (self._directory, report.segments)
        self._check_links(files.names)
        self._check_names(files.names)
        for path in files.orphan_indexes:
            self._add(path, None, "LL10", "an index without its .log")
        self._add_all(self._producers.read_snapshots())
        bases = files.base_offsets
        if bases:
            report.first_offset = bases[0]
            report.log_end_offset = bases[-1]
        for base_offset, next_base in zip_longest(bases, bases[1:]):
            self._check_segment(base_offset, next_base)
        assert report.segments <= len(bases), (self._directory, report.segments, len(bases))
        if self._greatest_offset >= 0:
            report.log_end_offset = max(report.log_end_offset, self._greatest_offset + 1)
        self._check_epochs()
        self._add_all(self._producers.check_end(report.log_end_offset))
        self._check_metadata()
        return report

    def _check_metadata(self) -> None:
        if join(self._directory, PARTITION_METADATA_FILE) in self._broken:
            return
        try:
            PartitionMetadataFile(self._file_system, self._directory).read()
        except CorruptCheckpoint as error:
            self._add(error.path, None, "1.4", error.reason)

    def _add(self, path: str, position: int | None, rule: str, message: str) -> None:
        """Add a problem: the first of each file, and after the last of these that there are more."""
        count = self._found[path] = self._found.get(path, 0) + 1
        # An index has a line of its own after its first findings.
        if count > MOST_FINDINGS + 2:
            return
        if count == MOST_FINDINGS + 2:
            position, message = None, f"no more contradictions are listed after {MOST_FINDINGS + 1}"
        self._report.add(path, position, rule, message)

    def _add_all(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self._add(*finding)

    def _check_links(self, names: Iterable[str]) -> None:
        """Report the names that lead to nothing. A name that a node has deleted since is none any more."""
        missing = [name for name in names if not self._file_system.exists(join(self._directory, name))]
        for name in sorted(
            {*missing}.intersection(self._file_system.list(self._directory)) if missing else ()
        ):
            path = join(self._directory, name)
            if not self._file_system.exists(path):
                self._broken.add(path)
                self._add(path, None, "1.1", LEADS_TO_NOTHING)

    def _check_names(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            path = join(self._directory, name)
            if self._in_use and name.endswith((*_LEFTOVER_SUFFIXES, ".tmp")):
                continue
            if name.endswith(_LEFTOVER_SUFFIXES) and not name.endswith(_KEPT_SUFFIX):
                self._add(path, None, LEFT_OVER, "left over: the next start deletes or finishes it")
            elif name.endswith(".tmp"):
                self._add(path, None, LEFT_OVER, left_over(name, (LEADER_EPOCH_CHECKPOINT,)))
            elif name.endswith(LOG_SUFFIX) and not (
                _LOG_NAME.fullmatch(name) and offset_of_name(name) is not None
            ):
                message = "the name of a .log is its base offset in 20 digits, up to 2^63-1"
                self._add(path, None, "1.1", message)

    def _check_segment(self, base_offset: int, next_base: int | None) -> None:
        assert next_base is None or base_offset < next_base, (self._directory, base_offset, next_base)
        report, path = self._report, log_path(self._directory, base_offset)
        if path in self._broken:
            return
        try:
            records = FileRecords(self._file_system, path, read_only=True)
        except StorageError as error:
            self._add(path, None, "FR1", str(error))
            return
        facts = SegmentFacts(base_offset=base_offset, is_last=next_base is None, in_use=self._in_use)
        try:
            facts.size_bytes = records.size_bytes
            report.segments += 1
            report.size_bytes += records.size_bytes
            end = 0
            self._may_be_preallocated = self._in_use and next_base is None
            for batch in self._sound_frames(records):
                self._check_batch(batch, path, base_offset, next_base)
                facts.add(
                    BatchPlace(batch.position, batch.base_offset, batch.last_offset, batch.max_timestamp)
                )
                end = batch.position + batch.size_bytes
            assert end <= records.size_bytes, (path, end, records.size_bytes)
            is_whole = end == records.size_bytes or self._is_reported(path, end)
            if not is_whole and not (self._may_be_preallocated and records.has_only_zeros_from(end)):
                left = records.size_bytes - end
                self._add(path, end, "FR8", f"the last {left} bytes are no whole batch")
        finally:
            records.close_handlers()
        self._add_all(check_indexes(self._file_system, self._directory, facts))
        self._add_all(self._producers.end_segment(base_offset))

    def _is_reported(self, path: str, position: int) -> bool:
        return any(problem.path == path and problem.position == position for problem in self._report.problems)

    def _sound_frames(self, records: FileRecords) -> Iterator[RecordBatch]:
        """Yield the batches before the first unsound frame: the next frame cannot be found without its size."""
        try:
            yield from records.batches()
        except CorruptBatch as error:
            if not (self._may_be_preallocated and records.has_only_zeros_from(error.position)):
                self._add(error.path, error.position, "FR8", error.reason)

    def _check_batch(self, batch: RecordBatch, path: str, base_offset: int, next_base: int | None) -> None:
        report, position = self._report, batch.position
        assert report.segments > 0, (path, position)
        report.batches += 1
        if not 0 <= batch.magic <= CURRENT_MAGIC:
            self._add(path, position, "FR10", f"magic {batch.magic} is unknown")
        if not batch.is_valid():
            self._add(
                path, position, "FR11", f"the checksum of the batch at offset {batch.base_offset} is wrong"
            )
            return
        fits = base_offset <= batch.last_offset <= base_offset + MAX_RELATIVE_OFFSET
        if not fits:
            self._add(
                path, position, "LS1", f"offset {batch.last_offset} does not fit the base {base_offset}"
            )
        if batch.last_offset <= self._last_offset or (
            batch.magic == CURRENT_MAGIC and batch.base_offset <= self._last_offset
        ):
            message = f"offsets go back: {batch.base_offset} to {batch.last_offset} after {self._last_offset}"
            self._add(path, position, "AP4", message)
        if next_base is not None and batch.last_offset >= next_base:
            self._add(path, position, "RO2", f"offset {batch.last_offset} belongs to the segment {next_base}")
            fits = False
        self._add_all(self._producers.batch(batch, path, self._greatest_offset))
        # Of an impossible offset each later batch would be said to be before it, and all between to be missing.
        if fits:
            self._note_offsets(batch)
        self._check_epoch_of(batch, path)
        self._check_records(batch, path)

    def _note_offsets(self, batch: RecordBatch) -> None:
        """Note the offsets of a batch that fits its segment. After a step back they are compared with those of the
        batch that was reported, which may be the one that is right.
        """
        report, greatest = self._report, self._greatest_offset
        if batch.magic == CURRENT_MAGIC and 0 <= greatest < batch.base_offset:
            report.missing_offsets += batch.base_offset - greatest - 1
        assert report.missing_offsets >= 0, (batch.position, report.missing_offsets)
        self._last_offset = batch.last_offset
        self._greatest_offset = max(greatest, batch.last_offset)

    def _check_epoch_of(self, batch: RecordBatch, path: str) -> None:
        epoch = batch.partition_leader_epoch
        if batch.magic < CURRENT_MAGIC or epoch == self._last_epoch:
            return
        assert self._epoch_starts or self._last_epoch == -1, (path, batch.position, self._last_epoch)
        if epoch < self._last_epoch:
            message = f"leader epoch {epoch} after {self._last_epoch}"
            self._add(path, batch.position, "EP3", message)
        self._last_epoch = epoch
        self._epoch_starts.append((epoch, batch.base_offset, path, batch.position))
        assert len(self._epoch_starts) <= self._report.batches, (path, batch.position, self._report.batches)

    def _check_records(self, batch: RecordBatch, path: str) -> None:
        assert self._report.batches > 0, (path, batch.position)
        if not self._deep:
            self._report.records += max(batch.record_count, 0)
            return
        before, largest_timestamp = batch.base_offset - 1, -1
        if batch.magic < CURRENT_MAGIC:
            # The first offset of a wrapper is known only from its content.
            before = -1
        try:
            for record in batch.records(held=HEADS_HELD):
                if not before < record.offset <= batch.last_offset:
                    message = (
                        f"record offset {record.offset} after {before} in a batch up to {batch.last_offset}"
                    )
                    self._add(path, batch.position, "1.5", message)
                before, largest_timestamp = record.offset, max(largest_timestamp, record.timestamp)
                self._report.records += 1
                if batch.is_control:
                    read_control_record(record)
        except StorageError as error:
            reason = error.reason if isinstance(error, CorruptBatch) else str(error)
            self._add(path, batch.position, "1.5", f"records: {reason}")
            return
        if largest_timestamp > batch.max_timestamp:
            message = f"a record of timestamp {largest_timestamp} in a batch up to {batch.max_timestamp}"
            self._add(path, batch.position, "1.5", message)

    def _check_epochs(self) -> None:
        """Compare the leader epochs with the checkpoint: a crash may leave too many entries in it, but never too few
        (EP12).
        """
        path = join(self._directory, LEADER_EPOCH_CHECKPOINT)
        if not self._file_system.exists(path):
            if self._epoch_starts:
                self._add(path, None, "EP12", "missing, though batches carry leader epochs")
            return
        try:
            entries = LeaderEpochCheckpoint(self._file_system, path).read()
        except CorruptCheckpoint as error:
            place = "" if error.line is None else f"line {error.line}: "
            self._add(path, None, "EP1", f"{place}{error.reason}")
            return
        for (epoch, start), (next_epoch, next_start) in pairwise(entries):
            if next_epoch <= epoch or next_start <= start:
                message = f"{next_epoch} from {next_start} after {epoch} from {start}"
                self._add(path, None, "EP1", message)
        by_start = sorted(entries, key=itemgetter(1))
        starts = [start for _, start in by_start]
        for epoch, base_offset, log, position in self._epoch_starts:
            index = bisect_right(starts, base_offset) - 1
            if index >= 0 and by_start[index][0] != epoch:
                message = f"offset {base_offset} has epoch {epoch}, the checkpoint says {by_start[index][0]}"
                self._add(log, position, "EP9", message)
        # Where a log was cut down to its start, no epoch is left; the batches below the start are of no account.
        if not entries and self._epoch_starts and self._report.log_end_offset > self._log_start():
            self._add(path, None, "EP12", "empty, though batches carry leader epochs")


def partition_directories(file_system: FileSystem, directory: str) -> list[str]:
    """Returns the names of the live partitions in `directory`, including the metadata log, without folders that have
    none of our files.

    A folder or link that has the name of a partition but cannot be listed is included: reading it then raises the
    error.
    """
    names = []
    for name in file_system.list(directory):
        try:
            is_live = not parse_directory_name(name).suffix
        except BadDirectoryName:
            continue
        path = join(directory, name)
        found = found_at(file_system, path) if is_live else None
        if is_live and (found is None or (found.is_directory and _may_be_ours(file_system, path))):
            names.append(name)
    return names


def _may_be_ours(file_system: FileSystem, directory: str) -> bool:
    try:
        return is_partition_directory(file_system, directory)
    except PermissionError:
        return True


_PARTITION_FILE = re.compile(
    rf"[0-9]{{20,}}\.(log|index|timeindex|txnindex|snapshot)(\.|$)|{LEADER_EPOCH_CHECKPOINT}$|{PARTITION_METADATA_FILE}$"
)


def is_partition_directory(file_system: FileSystem, directory: str) -> bool:
    """Whether `directory` has the name of a partition and a file of ours: `/etc/dbus-1` has only such a name."""
    try:
        parse_directory_name(basename(directory))
    except BadDirectoryName:
        return False
    return any(_PARTITION_FILE.match(name) for name in file_system.list(directory))
