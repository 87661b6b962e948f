"""An error at any call within a change leaves a log that knows what it holds, or a log that is offline.

Each operation is run again and again on the same log: the first time its first call of a function of storage raises,
the second time its second, and so on, until it passes. Afterwards a log that is still online must equal a load of its
files, and must be able to do the operation; one that is offline refuses everything, and its files load.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.errors import StorageError
from storage.log import PartitionLog
from storage.segment.replace import create_cleaned_segment
from tests.storage.log.failing_calls import FailingCalls, Struck, StruckInStorage
from tests.storage.logs import (
    NOW_MS,
    SMALL,
    all_bytes,
    batch,
    durable_file_system,
    epochs,
    marker,
    new_disk,
    open_log,
    produced,
)

# The close of a generator that nobody asks further counts as a call, and no error can come out of it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

Run = Callable[[], object]
Operation = Callable[[PartitionLog], Run]
# Small enough for a full index, large enough for a few segments.
CONFIG = replace(SMALL, segment_index_bytes=240)


def filled_disk() -> SimDisk:
    """A log of four segments, three epochs, producers and an aborted transaction, some of it not synced."""
    disk = new_disk()
    log = open_log(durable_file_system(disk), CONFIG)
    for number in range(40):
        epoch, sequence = number // 15, number // 2
        data = produced(producer_id=number % 2, producer_epoch=0, sequence=sequence, value_bytes=40)
        log.append_as_leader(data, leader_epoch=epoch, now_ms=NOW_MS + number)
    transact(log, 9, is_commit=False)
    log.flushes.flush(50)
    log.append_as_leader(produced(3), leader_epoch=2, now_ms=NOW_MS)
    log.close_handles()
    return disk


def opened(disk: SimDisk) -> PartitionLog:
    log = open_log(disk.file_system(Life()), CONFIG, recovery_point=50)
    log.marks.update_high_watermark(45)
    return log


def transact(log: PartitionLog, producer_id: int, *, is_commit: bool, sequence: int = 0) -> None:
    follow(log, [transactional(log.log_end_offset, producer_id, sequence)])
    end = marker(producer_id, is_commit=is_commit, offset=log.log_end_offset, epoch=2)
    follow(log, [end])


def transactional(offset: int, producer_id: int, sequence: int) -> bytes:
    return batch(
        offset,
        10,
        epoch=2,
        producer_id=producer_id,
        producer_epoch=0,
        sequence=sequence,
        is_transactional=True,
    )


def follow(log: PartitionLog, batches: list[bytes], epoch: int = 2) -> None:
    log.append_as_follower(b"".join(batches), leader_epoch=epoch, now_ms=NOW_MS)


def leading(value_bytes: int = 10, *, epoch: int = 2, **fields: int) -> Operation:
    def prepare(log: PartitionLog) -> Run:
        data = produced(value_bytes=value_bytes, **fields)
        return lambda: log.append_as_leader(data, leader_epoch=epoch, now_ms=NOW_MS)

    return prepare


def following(count: int) -> Operation:
    """Follow with batches of two epochs."""

    def prepare(log: PartitionLog) -> Run:
        start = log.log_end_offset
        data = b"".join(batch(start + number, epoch=2 + number // 3) for number in range(count))
        return lambda: log.append_as_follower(data, leader_epoch=9, now_ms=NOW_MS)

    return prepare


def fill_an_index(log: PartitionLog) -> Run:
    log.update_config(replace(CONFIG, index_interval_bytes=0, segment_bytes=1 << 20))
    log.flushes.roll(now_ms=NOW_MS)
    start = log.log_end_offset
    data = b"".join(batch(start + number, epoch=2, timestamp=NOW_MS + number) for number in range(32))
    return lambda: log.append_as_follower(data, leader_epoch=2, now_ms=NOW_MS)


def abort(log: PartitionLog) -> Run:
    follow(log, [transactional(log.log_end_offset, 8, 0)])
    data = marker(8, is_commit=False, offset=log.log_end_offset, epoch=2)
    return lambda: log.append_as_follower(data, leader_epoch=2, now_ms=NOW_MS)


def swap(log: PartitionLog) -> Run:
    """Replace the first two segments by one that has all their batches."""
    # After a swap that was done before the error only one of them is left.
    old = [segment for segment in log.local.segments if segment.base_offset < 26]
    new = create_cleaned_segment(log.local.file_system, log.directory, 0, log.config, NOW_MS)
    for data in (data for segment in old for data in segment.records.batches()):
        new.append(data.last_offset, data.tobytes())
    new.on_become_inactive()
    new.flush()
    return lambda: log.compactions.swap_in(new, old)


def retain(log: PartitionLog) -> Run:
    log.update_config(replace(CONFIG, retention_bytes=1500))
    return lambda: log.retention.delete_old(NOW_MS)


def plain(run: Callable[[PartitionLog], object]) -> Operation:
    return lambda log: lambda: run(log)


# Each prepares what no error strikes, and returns what is struck.
OPERATIONS: dict[str, Operation] = {
    "lead": leading(),
    "lead in a new epoch": leading(epoch=3),
    "lead a producer": leading(producer_id=0, producer_epoch=0, sequence=20),
    "lead and roll": leading(1900),
    "follow": following(6),
    "follow and fill an index": fill_an_index,
    "abort": abort,
    "roll": plain(lambda log: log.flushes.roll(now_ms=NOW_MS)),
    "flush": plain(lambda log: log.flushes.flush()),
    # The log ends between two batches: a load cannot know of an end inside one.
    "truncate inside a segment": plain(lambda log: log.truncate_to(51, now_ms=NOW_MS)),
    "truncate segments": plain(lambda log: log.truncate_to(12, now_ms=NOW_MS)),
    "truncate fully": plain(lambda log: log.truncation.truncate_fully_and_start_at(70, now_ms=NOW_MS)),
    "swap": swap,
    "retain": retain,
    "raise the log start": plain(lambda log: log.marks.maybe_increment_log_start_offset(30)),
}


@dataclass(frozen=True, slots=True)
class State:
    """What a log knows of itself, as far as its files can tell it."""

    segments: tuple[int, ...]
    log_end_offset: int
    content: bytes
    epochs: tuple[tuple[int, int], ...]
    producers: tuple[object, ...]
    aborted: tuple[object, ...]


def state_of(log: PartitionLog) -> State:
    known = sorted(log.producers.producers.items())
    first = log.local.segments.first
    assert first is not None
    return State(
        tuple(log.local.segments.base_offsets),
        log.log_end_offset,
        all_bytes(log),
        # A load forgets the epochs that have no record yet, and those below the log start.
        tuple(each for each in epochs(log) if each[1] < log.log_end_offset),
        tuple(
            (key, each.producer_epoch, each.last_sequence, each.last_offset, each.transaction_first_offset)
            for key, each in known
        ),
        log.local.collect_aborted(0, log.log_end_offset, first),
    )


def loaded(disk: SimDisk, log: PartitionLog | None = None) -> PartitionLog:
    """A log opened from the files as they are, by the marks that a checkpoint would have of `log`."""
    marks = (0, 0) if log is None else (log.local.recovery_point, log.log_start_offset)
    file_system = disk.snapshot().file_system(Life())
    recovery_point, log_start_offset = marks
    return open_log(file_system, CONFIG, recovery_point=recovery_point, log_start_offset=log_start_offset)


def is_between(found: State, before: State, after: State) -> bool:
    """Whether the content is that of one of the two states, or of one on the way from the longer to the shorter."""
    contents = (before.content, after.content)
    longer, shorter = max(contents, key=len), min(contents, key=len)
    return found.content in contents or (
        (longer.startswith(found.content) and found.content.startswith(shorter))
        or (longer.endswith(found.content) and found.content.endswith(shorter))
    )


def failures(name: str, error: type[Exception], stride: int) -> list[str]:
    """Run the operation with an error at each `stride`-th call. Returns what was wrong, one line a call."""
    operate, start = OPERATIONS[name], filled_disk()
    wrong: list[str] = []
    before, after = state_of(loaded(start)), state_after(start, operate)
    number = 1
    while True:
        disk = start.snapshot()
        log = opened(disk)
        calls, run = FailingCalls(number, error), operate(log)
        with suppress(Struck, StorageError):
            calls.during(run)
        if not calls.place:
            return wrong
        try:
            check(disk, log, operate, before, after)
        except Exception as problem:
            wrong.append(f"{number} {calls.place}: {type(problem).__name__}: {str(problem)[:300]}")
        number += stride


def state_after(start: SimDisk, operate: Operation) -> State:
    log = opened(start.snapshot())
    operate(log)()
    return state_of(log)


def check(disk: SimDisk, log: PartitionLog, operate: Operation, before: State, after: State) -> None:
    if log.online.reason is not None:
        for verb in ("lead", "follow", "truncate inside a segment", "roll", "flush"):
            with pytest.raises(StorageError, match="is offline"):
                OPERATIONS[verb](log)()
        assert is_between(state_of(loaded(disk)), before, after)
    else:
        known = state_of(log)
        found = state_of(loaded(disk, log))
        assert found == known, difference(found, known)
        assert is_between(known, before, after)
        # The log works: what failed can be done, unless it is done already.
        with suppress(StorageError):
            operate(log)()
        assert log.online.reason is None, log.online.reason
        known = state_of(log)
        found = state_of(loaded(disk, log))
        assert found == known, difference(found, known)
    # What the recovery point promises is on the disk.
    if log.online.reason is None:
        disk.lose_power("none")
        recovered = loaded(disk, log)
        assert recovered.log_end_offset >= log.local.recovery_point


def difference(found: State, known: State) -> str:
    names = State.__dataclass_fields__
    return "; ".join(
        f"{name}: files {_shown(getattr(found, name))}, log {_shown(getattr(known, name))}"
        for name in names
        if getattr(found, name) != getattr(known, name)
    )


def _shown(value: Any) -> object:
    return f"{len(value)} bytes" if isinstance(value, bytes) else value


@pytest.fixture(autouse=True)
def quiet() -> Any:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("error", [Struck, StruckInStorage])
@pytest.mark.parametrize("name", OPERATIONS)
def test_ap16_an_error_at_any_call_leaves_a_log_that_knows_what_it_holds(
    name: str, error: type[Exception]
) -> None:
    assert failures(name, error, 1) == []


@pytest.mark.parametrize("error", [Struck, StruckInStorage])
@pytest.mark.parametrize("name", ["lead", "lead a producer", "abort", "roll", "truncate fully", "retain"])
def test_ap16_an_error_at_some_calls_leaves_a_log_that_knows_what_it_holds(
    name: str, error: type[Exception]
) -> None:
    assert failures(name, error, 5) == []
