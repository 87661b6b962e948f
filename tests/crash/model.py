"""What a partition may hold after a crash: the batches it held, those it was about to hold, and what was promised.

`Log` is what a partition is at one moment. A crash inside an operation may leave what was there before it or what was
to be there after it, each shortened at the end by what no sync had promised; nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from storage.batch import iterate_batches
from storage.disk.filesystem import FileSystem, join, read_file


@dataclass(frozen=True, slots=True)
class Batch:
    base_offset: int
    next_offset: int
    epoch: int
    producer_id: int
    last_sequence: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """`synced_to`: all below it is promised to outlive a power loss. `start_to`: no start may stand above it."""

    batches: tuple[Batch, ...] = ()
    synced_to: int = 0
    start_from: int = 0  # a log start that a checkpoint has made durable
    start_to: int = 0
    topic_id: str | None = None
    keeps_some: bool = False  # being compacted, segment by segment: a mixture of before and after

    def shortened(self, offset: int) -> Log:
        """Without the batch that holds `offset` and all behind it."""
        kept = tuple(each for each in self.batches if each.next_offset <= offset)
        return replace(self, batches=kept, synced_to=min(self.synced_to, offset))


# By directory name; a partition that does not exist has no entry.
Logs = dict[str, Log]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """Of a crash inside one operation; `before` and `after` are equal between operations."""

    operation: str
    before: Logs
    after: Logs


@dataclass(frozen=True, slots=True)
class Found:
    """A partition as a start finds it: whole batches from the log start on."""

    log_start_offset: int
    log_end_offset: int
    topic_id: str | None
    epochs: tuple[tuple[int, int], ...]  # epoch, start offset
    batches: tuple[Batch, ...]


def batches_of(data: bytes) -> tuple[Batch, ...]:
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
    """Every batch in the files, also what lies below the log start."""
    found: list[Batch] = []
    for name in file_system.list(directory):
        if name.endswith(".log"):
            found += batches_of(read_file(file_system, join(directory, name)))
    return tuple(found)


def judge(expected: Expectation, found: dict[str, Found]) -> list[str]:
    """What is wrong with the partitions as a start found them; nothing when all is as it may be."""
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
    """Why `found` is not `log` shortened at its ends, keeping all that was promised; empty when it is."""
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
    """The epochs below a log start may go before the start itself is durable."""
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
    """What both the log before and the one after hold must be there, as far as the first had it synced."""
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
