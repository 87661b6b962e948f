"""The model of what a partition may hold after a crash: old batches, new batches, and what was promised.

`Log` is a partition at one moment. A crash inside an operation may leave the log from before it or the log that was to
follow, each without some of the batches at its end that no sync had promised. It may leave nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from storage.batch import iterate_batches
from storage.disk.filesystem import FileSystem, join, read_file


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch by its offsets, epoch and producer, with its bytes. `next_offset` is exclusive."""

    base_offset: int
    next_offset: int
    epoch: int
    producer_id: int
    last_sequence: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A partition at one moment.

    All below `synced_to` is promised to outlive a power loss. No start may find a log start above `start_to`.
    """

    batches: tuple[Batch, ...] = ()
    synced_to: int = 0
    # A log start that a checkpoint has made durable.
    start_from: int = 0
    start_to: int = 0
    topic_id: str | None = None
    # A compaction, segment by segment, is under way: a mixture of before and after is allowed.
    keeps_some: bool = False

    def shortened(self, offset: int) -> Log:
        """Return the log without the batch that holds `offset` and without all after it."""
        kept = tuple(each for each in self.batches if each.next_offset <= offset)
        return replace(self, batches=kept, synced_to=min(self.synced_to, offset))


# Logs by directory name. A partition that does not exist has no entry.
Logs = dict[str, Log]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a crash inside one operation may leave. Between operations `before` and `after` are equal."""

    operation: str
    before: Logs
    after: Logs


@dataclass(frozen=True, slots=True)
class Found:
    """A partition as a start finds it: whole batches from the log start on."""

    log_start_offset: int
    log_end_offset: int
    topic_id: str | None
    # Pairs of epoch and start offset.
    epochs: tuple[tuple[int, int], ...]
    batches: tuple[Batch, ...]


def batches_of(data: bytes) -> tuple[Batch, ...]:
    """Return the batches in `data`, which must be whole."""
    return tuple(
        Batch(
            each.base_offset,
            each.next_offset,
            each.partition_leader_epoch,
            each.producer_id,
            each.last_sequence,
            each.tobytes(),
        )
        for each in iterate_batches(data)
    )


def stored(file_system: FileSystem, directory: str) -> tuple[Batch, ...]:
    """Return every batch in the files, including those below the log start."""
    found: list[Batch] = []
    for name in file_system.list(directory):
        if name.endswith(".log"):
            found += batches_of(read_file(file_system, join(directory, name)))
    return tuple(found)


def judge(expected: Expectation, found: dict[str, Found]) -> list[str]:
    """Return one line for each partition that is not as it may be after the crash."""
    problems = []
    for name in sorted(expected.before.keys() | expected.after.keys() | found.keys()):
        problem = _judge_one(expected.before.get(name), expected.after.get(name), found.get(name))
        if problem:
            problems.append(f"{name}: {problem}")
    return problems


def _judge_one(before: Log | None, after: Log | None, found: Found | None) -> str:
    if before is None and after is None:
        return "a partition that nobody made"
    if found is None:
        return "gone" if before is not None and after is not None else ""
    logs = [log for log in (before, after) if log is not None]
    reasons = [_why_not(log, logs, found) for log in logs]
    return "" if "" in reasons else reasons[-1]


def _why_not(log: Log, logs: list[Log], found: Found) -> str:
    """Say why `found` is not `log` shortened at its ends, with all that was promised; empty when it is."""
    start_to = max(each.start_to for each in logs)
    if found.log_start_offset > start_to:
        return f"starts at {found.log_start_offset}, above {start_to}"
    if found.log_start_offset < min(each.start_from for each in logs):
        return f"starts at {found.log_start_offset}, below a start that was made durable"
    if found.topic_id not in [each.topic_id for each in logs] and (found.topic_id or len(logs) == 2):
        return f"topic id {found.topic_id}"
    whole = [each for each in log.batches if each.next_offset > found.log_start_offset]
    if log.keeps_some:
        reason = _not_among(found.batches, [batch for each in logs for batch in each.batches])
    else:
        is_prefix = list(found.batches) == whole[: len(found.batches)]
        reason = "" if is_prefix else f"holds {_shown(found.batches)}, not a beginning of {_shown(whole)}"
    return reason or _promise_broken(logs, found) or _wrong_epoch(start_to, found)


def _wrong_epoch(start_to: int, found: Found) -> str:
    """Say which batch has the wrong epoch; empty when none has.

    Epochs below a log start may be deleted before the start itself is durable.
    """
    for each in found.batches:
        offset = max(each.base_offset, start_to)
        known = [epoch for epoch, start_offset in found.epochs if start_offset <= offset]
        if offset < each.next_offset and (not known or known[-1] != each.epoch):
            return f"offset {offset} of epoch {each.epoch}: the checkpoint says {found.epochs}"
    return ""


def _not_among(found: Iterable[Batch], whole: list[Batch]) -> str:
    known = set(whole)
    alien = [each for each in found if each not in known]
    return f"holds {_shown(alien)}, which were never written so" if alien else ""


def _promise_broken(logs: list[Log], found: Found) -> str:
    """Say which promised batch is missing; empty when none is.

    A batch is promised if the logs before and after both hold it, and the one before had it synced.
    """
    synced_to = logs[0].synced_to
    promised = [each for each in logs[0].batches if each.next_offset <= synced_to]
    for other in logs[1:]:
        known = set(other.batches)
        promised = [each for each in promised if each in known]
    present = set(found.batches)
    lost = [each for each in promised if each not in present and each.next_offset > found.log_start_offset]
    return f"lost {_shown(lost)}, synced up to {synced_to}" if lost else ""


def _shown(batches: Iterable[Batch]) -> str:
    return "[" + " ".join(f"{each.base_offset}-{each.next_offset - 1}@{each.epoch}" for each in batches) + "]"
