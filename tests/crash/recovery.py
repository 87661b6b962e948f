"""A start on what a crash left, and everything that must hold of the logs it opens."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.batch import iterate_batches
from storage.config import LogConfig
from storage.directory.manager import LogManager
from storage.errors import StorageError
from storage.inspection.verify.partition import verify_partition
from storage.log import PartitionLog
from storage.segment import LogSegment
from tests.crash.model import Batch, Found, batches_of, stored
from tests.crash.stage import NOW_MS, ROOT, start_manager

START_MS = NOW_MS + 1000


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The partitions that a start found, by directory name, and what was wrong with them."""

    findings: dict[str, Found] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def start_and_check(disk: SimDisk, config: LogConfig) -> tuple[LogManager | None, Outcome]:
    """Start on the file system and check the logs. The manager stays open; it is None when the start failed."""
    outcome = Outcome()
    try:
        manager = start_manager(disk.file_system(Life()), config, START_MS)
    except (StorageError, OSError, ValueError, AssertionError) as error:
        outcome.problems.append(f"no start: {type(error).__name__}: {error}")
        return None, outcome
    for name, log in manager.logs.items():
        try:
            found = stored(disk.file_system(Life()), log.directory)
            outcome.problems += [f"{name}: {problem}" for problem in problems_of(log, found)]
        except (StorageError, OSError, ValueError, AssertionError) as error:
            outcome.problems.append(f"{name}: {type(error).__name__}: {error}")
            continue
        readable = tuple(each for each in found if each.next_offset > log.log_start_offset)
        outcome.findings[name] = Found(
            log.log_start_offset,
            log.log_end_offset,
            manager.topic_ids.get(name),
            tuple(log.epochs.entries),
            readable,
        )
    outcome.problems += _verified(disk, manager)
    return manager, outcome


def _verified(disk: SimDisk, manager: LogManager) -> list[str]:
    """Read the files once more with replog's own verify, while the logs are open. A `.tmp` file is no problem.

    Epochs are left to `judge`, which knows how far the log start has been: those below it may be deleted early.
    """
    file_system, problems = disk.file_system(Life()), []
    for name in manager.logs:
        report = verify_partition(file_system, f"{ROOT}/{name}", deep=True)
        told = [
            each
            for each in report.problems
            if not each.path.endswith(".tmp") and not each.rule.startswith("EP")
        ]
        problems += [f"verify {each.path} {each.position}: {each.message}" for each in told]
    return problems


def problems_of(log: PartitionLog, found: tuple[Batch, ...]) -> list[str]:
    """Return what is wrong with an opened log; `found` are the batches in its files."""
    problems = _problems_of_batches(log, found)
    for segment in log.local.segments:
        problems += _problems_of_indexes(segment)
    problems += _problems_of_reads(log, found)
    problems += _problems_of_producers(log, found)
    return problems


def _problems_of_batches(log: PartitionLog, found: tuple[Batch, ...]) -> list[str]:
    problems, end = [], log.local.segments.base_offsets[0]
    for each in found:
        if not next(iter(iterate_batches(each.data))).is_valid():
            problems.append(f"corrupt batch at {each.base_offset} is served")
        if each.base_offset < end:
            problems.append(f"offsets go back from {end} to {each.base_offset}")
        end = each.next_offset
    if end > log.log_end_offset:
        problems.append(f"log end offset {log.log_end_offset} below {end}")
    if not log.log_start_offset <= log.high_watermark <= log.log_end_offset:
        problems.append(f"high watermark {log.high_watermark}")
    if log.local.recovery_point > log.log_end_offset:
        problems.append(f"recovery point {log.local.recovery_point} above the end")
    return problems


def _problems_of_indexes(segment: LogSegment) -> list[str]:
    """Check each index entry: it leads to the batch it names, where an append began, and its time is not too low."""
    places: dict[int, Batch] = {}
    position = 0
    data = segment.records.read_slice(0, segment.size_bytes)
    for each in batches_of(data):
        places[position] = each
        position += len(each.data)
    starts, problems, before = sorted(places), [], segment.base_offset - 1
    for slot in range(segment.offset_index.entries):
        entry = segment.offset_index.entry(slot)
        if entry.offset <= before:
            problems.append(f"{segment.path}: index entry {slot} goes back to {entry.offset}")
        before = entry.offset
        if entry.position not in places:
            problems.append(f"{segment.path}: no batch at {entry.position} for {entry.offset}")
            continue
        earlier = starts[: bisect_left(starts, entry.position)]
        if places[entry.position].base_offset > entry.offset or (
            earlier and places[earlier[-1]].next_offset > entry.offset
        ):
            problems.append(f"{segment.path}: entry {entry} does not lead to its offset")
    return problems + _problems_of_time_index(segment, data)


def _problems_of_time_index(segment: LogSegment, data: bytes) -> list[str]:
    batches, problems, before = list(iterate_batches(data)), [], -1
    for slot in range(segment.time_index.entries):
        entry = segment.time_index.entry(slot)
        if entry.timestamp <= before:
            problems.append(f"{segment.path}: time entry {slot} goes back to {entry.timestamp}")
        before = entry.timestamp
        if not batches or entry.offset > batches[-1].last_offset:
            problems.append(f"{segment.path}: time entry {entry} beyond the log")
        if any(each.max_timestamp > entry.timestamp for each in batches if each.last_offset <= entry.offset):
            problems.append(f"{segment.path}: time entry {entry} hides a later timestamp")
    return problems


def _problems_of_reads(log: PartitionLog, found: tuple[Batch, ...]) -> list[str]:
    """Check that reading by offset, by time and in a row returns the same batches."""
    problems, offset = [], log.log_start_offset
    readable = [each for each in found if each.next_offset > offset]
    for each in readable:
        for wanted in (max(each.base_offset, log.log_start_offset), each.next_offset - 1):
            if log.read(wanted, max_size=1).records != each.data:
                problems.append(f"a read from {wanted} gives something else")
    records = [record for each in readable for record in next(iter(iterate_batches(each.data))).records()]
    # A full segment may have no time entries: its file was lost with a rename, or compaction left nothing in
    # it.
    # Then it answers by the age of its file, as in Kafka, and nothing can be asked by time.
    full = [segment for segment in log.local.segments if segment is not log.local.segments.active]
    for record in records if all(segment.time_index.entries for segment in full) else []:
        if record.offset < log.log_start_offset:
            continue
        answer = log.reads.offset_for_timestamp(record.timestamp)
        first = next(
            each
            for each in records
            if each.timestamp >= record.timestamp and each.offset >= log.log_start_offset
        )
        if answer is None or answer.offset != first.offset:
            problems.append(f"the time {record.timestamp} leads to {answer}, not to {first.offset}")
    return problems


def _problems_of_producers(log: PartitionLog, found: tuple[Batch, ...]) -> list[str]:
    """Compare each producer's last sequence with the batches. One whose batches are deleted may still be known."""
    expected: dict[int, Batch] = {}
    for each in found:
        if each.producer_id >= 0 and each.next_offset > log.log_start_offset:
            expected[each.producer_id] = each
    problems, known = [], log.producers.producers
    for producer_id, last in expected.items():
        entry = known.get(producer_id)
        if entry is None or (entry.last_sequence, entry.last_offset) != (
            last.last_sequence,
            last.next_offset - 1,
        ):
            problems.append(f"producer {producer_id} should be at {last.last_sequence}, is {entry}")
    for producer_id, entry in known.items():
        if producer_id not in expected and entry.last_offset >= log.log_start_offset:
            problems.append(f"producer {producer_id} is remembered, its batches are not there")
    return problems
